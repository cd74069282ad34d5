"""Result f: real training on the fabric. Step times and idle shares of one PyTorch program, its gradients carried three ways."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from math import ceil, log10
from pathlib import Path

from emulator.bench.results import HOME, Point, measure, table
from emulator.errors import FabricError, RunFailed
from emulator.report.api import Run
from emulator.report.compare import compare

HOSTS = ("0", "4", "1", "5", "2", "6", "3", "7")
BACKENDS = ("gloo", "roce", "mrc")
SIZES = (4, 8)
RATES = (10, 100)
_PROGRAM = "examples/ddp.py"
_EQUAL = ("flows.parquet", "queues.parquet", "events.jsonl")


ABOUT = """\
`examples/ddp.py`: 131,841 parameters, ten steps, each 2 ms of computing (`--compute fixed=2ms`) and then an all-reduce of 0.53 MB of
gradients and one of the loss. gloo uses the kernel's TCP (cubic); roce (DCQCN) and mrc (NSCC) carry our backend `fabriclab` with its ring.
Neighbours in the ring are on different leaves. A step lasts from one computation to the next; what of it is not computing is idle.
Two runs in one place are the same to the byte; **no** would mark where they were not. In another place they are not: when a rank gets to
its first step depends on what it looks for and does not find, on the length of its environment and on the versions of what it loads. Flows
then start elsewhere against the kernel's ticks. From place to place step times of gloo have differed by a sixth at 10 Gbit/s and by a
quarter on the lossy fabric below, those of roce at 10 Gbit/s by a twentieth, the others in the third digit."""


def carried_by(backend: str) -> tuple[str, ...]:
    """The settings over a file of result f that give the gradients to gloo, or to our backend with `roce` or `mrc`."""
    name, kind = ("gloo", "tcp") if backend == "gloo" else ("fabriclab", backend)
    return f"transport.kind={kind}", f"workload.params.command=[python, {_PROGRAM}, {name}]"


def losses(text: str) -> list[float]:
    """The losses that the example prints."""
    return [float(value) for value in re.findall(r"step \d+ loss ([0-9.]+)", text)]


def alone() -> list[float]:
    """The losses of the same training in one process, without a network. Raises RunFailed."""
    done = subprocess.run(
        [sys.executable, _PROGRAM, "single"], capture_output=True, text=True, check=False, cwd=HOME.parents[1]
    )
    if done.returncode:
        raise RunFailed(
            f"{_PROGRAM} ended with exit code {done.returncode}",
            where=_PROGRAM,
            remedy=f"PyTorch is needed (fabriclab[torch]): {done.stderr[-300:].strip()}",
        )
    return losses(done.stdout)


def difference(run: Run, wanted: Sequence[float]) -> float:
    """The largest relative difference of the losses of a run from these; infinite where their number differs."""
    found = losses((run.path / "output" / "rank0.txt").read_text(encoding="utf-8"))
    if not wanted or len(found) != len(wanted):
        return float("inf")
    return max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))


def same(first: Run, second: Run) -> bool:
    """Whether two runs have the same flows, queues and steps, to the byte."""
    files = all((first.path / name).read_bytes() == (second.path / name).read_bytes() for name in _EQUAL)
    return files and first.summary["steps"] == second.summary["steps"]


def _bound(value: float) -> str:
    """The next power of ten above a difference."""
    return "the same, 7 decimals" if value == 0 else f"within 1e{ceil(log10(value))}" if value < 1 else "**differ**"


def _cells(first: Run, second: Run | FabricError, wanted: Sequence[float]) -> list[str]:
    s = first.summary
    equal = isinstance(second, Run) and same(first, second)
    return [
        f"{s['steps']['time_us']['mean']:,.1f}",
        f"{s['steps']['time_us']['max']:,.1f}",
        f"{100 * s['steps']['idle_fraction']:.1f} %",
        _bound(difference(first, wanted)),
        "yes" if equal else "**no**",
        s["verdict"]["word"],
    ]


def training(folder: Path) -> str:
    """The table over hosts, rates and backends, each run twice, and the comparison on the slow and lossy fabric."""
    wanted = alone()
    points = [
        Point(
            (str(size), f"{rate}", backend),
            (
                *carried_by(backend),
                f"workload.params.hosts=[{', '.join(HOSTS[:size])}]",
                f"host_link.rate={rate}Gbit",
                f"uplink.rate={rate}Gbit",
            ),
        )
        for size in SIZES
        for rate in RATES
        for backend in BACKENDS
    ]
    runs = measure("f-training", points, folder / "first")
    again = measure("f-training", points, folder / "second")
    rows = []
    for (point, first), (_, second) in zip(runs, again, strict=True):
        cells = (
            _cells(first, second, wanted) if isinstance(first, Run) else [f"did not finish: {first.what}", *[""] * 5]
        )
        rows.append([*point.label, *cells])
    head = [
        "hosts", "links, Gbit/s", "carried by", "step, mean us", "step, longest us", "idle share",
        "losses against one process", "a second run equal to the byte", "verdict",
    ]  # fmt: skip
    return f"{ABOUT}\n\n{table(head, rows)}\n\n{_slow(folder)}"


def _slow(folder: Path) -> str:
    """What `fabriclab compare` prints of the three backends on the slow and lossy fabric."""
    points = [Point((backend,), carried_by(backend)) for backend in BACKENDS]
    found = measure("f-slow-uplink", points, folder / "slow")
    runs = [run for _, run in found if isinstance(run, Run)]
    failed = [f"{point.label[0]} did not finish: {e.what}" for point, e in found if isinstance(e, FabricError)]
    said = compare(runs).text() if len(runs) > 1 else ""
    parts = [
        "#### One uplink at a quarter of its rate, 0.1 % of packets lost",
        "`docs/results/specs/f-slow-uplink.yaml`, four hosts; `fabriclab compare` of the three runs:",
        *failed,
        f"```text\n{said}\n```",
    ]
    return "\n\n".join(parts)
