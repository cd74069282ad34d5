"""The results page: runs the experiments in docs/results/specs and writes what they measured, table by table.

`scripts/results [LETTER...]` makes it anew. Every number on the page comes from these runs; on the virtual clock one seed gives
one result, so the page is the same wherever it is made (but f, where files and environment of a program take part).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from emulator.errors import FabricError
from emulator.experiment.load import load_experiment
from emulator.experiment.run import run
from emulator.report.api import Run

HOME = Path(__file__).resolve().parents[2] / "docs" / "results"
ALGORITHMS = (
    ("roce", "none"),
    ("roce", "dcqcn"),
    ("roce", "dctcp-window"),
    ("roce", "timely"),
    ("roce", "swift"),
    ("roce", "cts"),
    ("mrc", "nscc"),
    ("mrc", "rccc"),
)
DEGREES = (2, 4, 8, 16, 32)
SEEDS = range(1, 9)


class _Silent:
    def step(self, text: str, done: int, total: int) -> None:
        """Nobody looks."""

    def progress(self, state: Mapping[str, Any]) -> None:
        """Nobody looks."""

    def note(self, text: str) -> None:
        """Nobody looks."""


@dataclass(frozen=True)
class Point:
    """One run of a table: its label, and the settings put over the table's file."""

    label: tuple[str, ...]
    settings: tuple[str, ...]


def measure(spec: str, points: Sequence[Point], folder: Path) -> list[tuple[Point, Run | FabricError]]:
    """Run all points of a table, two at a time (a guest uses one core)."""

    def one(point: Point) -> tuple[Point, Run | FabricError]:
        path = HOME / "specs" / f"{spec}.yaml"
        try:
            finished = run(
                load_experiment(path, point.settings),
                out=folder,
                argv=["scripts/results"],
                watch=_Silent(),
                base=path.parent,
            )
        except FabricError as error:
            print(f"{spec} {' '.join(point.label)}: {error.what}; {error.remedy}", file=sys.stderr, flush=True)
            return point, error
        print(f"{spec} {' '.join(point.label)}: {finished.summary['verdict']['word']}", file=sys.stderr, flush=True)
        return point, Run(finished.run_dir)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, points))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _row(found: Run | FabricError, cells: Callable[[Run], list[str]], width: int) -> list[str]:
    if isinstance(found, FabricError):
        return [f"did not finish: {found.what}", *[""] * (width - 1)]
    return cells(found)


def incast(folder: Path) -> str:
    """Result a."""
    points = [
        Point(
            (f"{kind} {cc}", f"{n}:1"),
            (
                f"transport.kind={kind}",
                f"transport.cc={cc}",
                *(["transport.cc_preset=paper"] if cc == "dcqcn" else []),
                f"workload.params.senders={n}",
            ),
        )
        for kind, cc in ALGORITHMS
        for n in DEGREES
    ]
    head = [
        "transport",
        "degree",
        "time / bound",
        "first / last flow",
        "p99 FCT, us",
        "peak queue, kB",
        "marked",
        "dropped",
        "sent again",
        "verdict",
    ]

    def cells(r: Run) -> list[str]:
        s = r.summary
        queue = max(q["max_bytes"] or 0 for q in s["queues"])
        again = 100 * s["packets"]["retransmitted"] / max(1, s["packets"]["data"])
        return [
            f"{s['theory']['ratio']:.3f}",
            f"{s['flows']['fairness']:.2f}",
            f"{s['flows']['fct_us']['p99']:.0f}",
            f"{queue / 1e3:.0f}",
            f"{s['packets']['marked']}",
            f"{s['packets']['dropped']}",
            f"{again:.1f} %",
            s["verdict"]["word"],
        ]

    rows = [[*p.label, *_row(r, cells, 8)] for p, r in measure("a-incast", points, folder)]
    return table(head, rows)


def loss(folder: Path) -> str:
    """Result b, on short links and on long ones."""
    ways = (
        ("MRC", "transport.kind=mrc"),
        ("RoCE, selective repeat", "transport.kind=roce,transport.cc=none,transport.recovery=selective"),
        ("RoCE, go-back-N", "transport.kind=roce,transport.cc=none,transport.recovery=gbn"),
    )

    def cells(r: Run) -> list[str]:
        s = r.summary
        return [
            f"{s['collective']['busbw_gbps']:.1f}",
            f"{s['theory']['ratio']:.2f}",
            f"{s['packets']['lost']}",
            f"{s['packets']['retransmitted']}",
            f"{s['collective']['wrong']}",
            s["verdict"]["word"],
        ]

    head = [
        "transport",
        "loss of a path",
        "busbw, Gbit/s",
        "time / bound",
        "packets lost",
        "sent again",
        "wrong",
        "verdict",
    ]
    tables = []
    for spec, shares in (("b-loss", (0, 0.1, 1)), ("b-long", (0, 0.1))):
        points = [
            Point((name, f"{share:g} %"), (*settings.split(","), f"host_link.loss={share / 2:g}%"))
            for name, settings in ways
            for share in shares
        ]
        tables.append(table(head, [[*p.label, *_row(r, cells, 6)] for p, r in measure(spec, points, folder)]))
    return "\n\n#### On long links\n\n`docs/results/specs/b-long.yaml`\n\n".join(tables)


def victim(folder: Path) -> str:
    """Result c."""
    ways = (("MRC, NSCC", "mrc", "nscc"), ("RoCE, DCQCN", "roce", "dcqcn"), ("RoCE, none", "roce", "none"))
    points = [Point((name,), (f"transport.kind={kind}", f"transport.cc={cc}")) for name, kind, cc in ways]

    def cells(r: Run) -> list[str]:
        flows = r.flows
        last = flows[flows["flow"] == flows["flow"].max()].iloc[0]
        others = flows[flows["flow"] != flows["flow"].max()]
        return [
            f"{last['slowdown']:.2f}",
            f"{last['bytes'] * 8 / last['fct_ns']:.1f}",
            f"{others['fct_ns'].max() / 1e3:.0f}",
            f"{int(last['ce'])}",
            f"{int(last['retransmitted'])}",
            r.summary["verdict"]["word"],
        ]

    head = [
        "transport",
        "victim's slowdown",
        "victim's goodput, Gbit/s",
        "incast's last flow, us",
        "victim's marked packets",
        "victim's packets sent again",
        "verdict",
    ]
    return table(head, [[*p.label, *_row(r, cells, 6)] for p, r in measure("c-victim", points, folder)])


def permutation(folder: Path) -> str:
    """Result d."""
    ways = (
        ("ECMP (RoCE, one path)", ("transport.kind=roce", "transport.cc=none")),
        ("MRC, oblivious", ("transport.spray=oblivious",)),
        ("MRC, bitmap", ("transport.spray=bitmap",)),
        ("MRC, REPS", ("transport.spray=reps",)),
    )
    slow = ("overrides=[{link: 'leaf0:spine1', rate: 25Gbit}]",)
    fabrics: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("all alike, values even", ()),
        ("all alike, values by lot", ("transport.entropy_set=lot",)),
        ("one uplink at a quarter, values even", slow),
    )
    points = [
        Point((name, fabric, str(k)), (*_spray(settings), *changes, f"seed={k}"))
        for fabric, changes in fabrics
        for name, settings in (ways[1:] if changes else ways)
        for k in (SEEDS[:4] if changes == slow else SEEDS)
    ]
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    failed: dict[tuple[str, str], int] = {}
    for p, r in measure("d-permutation", points, folder):
        key = (p.label[1], p.label[0])
        if isinstance(r, FabricError):
            failed[key] = failed.get(key, 0) + 1
        else:
            packets = r.summary["packets"]
            found = (r.summary["theory"]["ratio"], packets["marked"] / packets["data"])
            groups.setdefault(key, []).append(found)
    rows = []
    for key, pairs in groups.items():
        ratios = [ratio for ratio, _ in pairs]
        rows.append(
            [
                *key,
                f"{median(ratios):.3f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
                f"{100 * median(marked for _, marked in pairs):.2f} %",
                str(len(pairs)),
                str(failed.get(key, 0)),
            ]
        )
    head = [
        "links",
        "load balancing",
        "slowest flow / bound, median",
        "range",
        "marked, median",
        "permutations",
        "not finished",
    ]
    return table(head, rows)


def _spray(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings of a way; RoCE takes no spraying policy, so the file's is taken back."""
    return (*settings, "transport.spray=null") if "transport.kind=roce" in settings else tuple(settings)


def bad_path(folder: Path) -> str:
    """Result e."""
    (_, found), *_ = measure("e-bad-path", [Point(("MRC",), ())], folder)
    if isinstance(found, FabricError):
        return f"did not finish: {found.what}"
    path = found.path / "events.jsonl"
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    states = [e for e in events if e["kind"] == "path"]
    out = [e for e in states if e["state"] == "assumed_bad"]
    back = [e for e in states if e["state"] == "good"]
    s = found.summary
    rows = [
        ["entropy values taken out", str(len(out))],
        ["first taken out after, us", f"{out[0]['time_ns'] / 1e3:.1f}" if out else "never"],
        ["brought back by probes", str(len(back))],
        ["packets lost", str(s["packets"]["lost"])],
        ["packets sent again", str(s["packets"]["retransmitted"])],
        ["goodput, Gbit/s", f"{s['flows']['goodput_gbps']:.1f}"],
        ["verdict", s["verdict"]["word"]],
    ]
    return table(["what", "measured"], rows)


def _training(folder: Path) -> str:
    """Result f."""
    from emulator.bench.training import training  # it uses this module

    return training(folder)


RESULTS: dict[str, tuple[str, str, Callable[[Path], str]]] = {
    "a": ("Incast: who controls it, and at what price", "a-incast", incast),
    "b": ("A ring all-reduce on lossy links", "b-loss", loss),
    "c": ("A victim beside a 7:1 incast", "c-victim", victim),
    "d": ("Permutation of 16 hosts", "d-permutation", permutation),
    "e": ("One path drops a fifth of its packets", "e-bad-path", bad_path),
    "f": ("Real training: step time and idle share", "f-training", _training),
}


def main(letters: Sequence[str]) -> int:
    """Make the tables of the named results (all of them without a name)."""
    for letter in letters or list(RESULTS):
        title, spec, make = RESULTS[letter]
        with tempfile.TemporaryDirectory(prefix="fabriclab-results-", dir="/var/tmp") as folder:
            text = make(Path(folder))
        head = (
            f"<!-- made by scripts/results {letter} -->\n### {letter}. {title}\n\n`docs/results/specs/{spec}.yaml`\n\n"
        )
        (HOME / f"{letter}.md").write_text(head + text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
