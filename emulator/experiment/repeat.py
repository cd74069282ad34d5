"""Several runs of one experiment and what they have in common: median, spread, confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulator.experiment.manifest import new_run_dir, write_json
from emulator.experiment.run import Finished, Watcher, run
from emulator.experiment.spec import Experiment
from emulator.judge.statistics import Spread, spread

NUMBERS = {
    "completion time, us": ("theory", "time_us"),
    "time over bound": ("theory", "ratio"),
    "p99 FCT, us": ("flows", "fct_us", "p99"),
    "goodput, Gbit/s": ("flows", "goodput_gbps"),
    "marked packets": ("packets", "marked"),
    "dropped packets": ("packets", "dropped"),
    "retransmitted packets": ("packets", "retransmitted"),
}
"""What is told of repeats, and where it stands in the summary."""


@dataclass(frozen=True)
class Repeats:
    """The folder that holds all runs, the runs, and the spread of each number."""

    folder: Path
    runs: list[Finished]
    spreads: dict[str, Spread]
    exit_code: int

    def to_json(self) -> dict[str, Any]:
        """What `repeats.json` holds."""
        return {
            "runs": [r.run_dir.name for r in self.runs],
            "verdicts": [r.summary["verdict"]["word"] for r in self.runs],
            "numbers": {name: asdict(s) for name, s in self.spreads.items()},
        }

    def text(self) -> str:
        """One line a number."""
        words = [r.summary["verdict"]["word"] for r in self.runs]
        lines = [
            f"{len(self.runs)} runs in {self.folder}: verdicts "
            + ", ".join(f"{words.count(w)} {w}" for w in dict.fromkeys(words))
        ]
        for name, s in self.spreads.items():
            interval = (
                "" if s.low is None or s.high is None else f", 95 % interval of the mean {s.low:,.4g} to {s.high:,.4g}"
            )
            cv = "" if s.cv is None else f", spread (CV) {100 * s.cv:.2f} %"
            lines.append(f"  {name:<24} median {s.median:,.4g}{cv}{interval}")
        return "\n".join(lines)


def run_repeats(
    experiment: Experiment, times: int, *, out: Path, argv: Sequence[str], watch: Watcher, base: Path | None = None
) -> Repeats:
    """Run `times` times, each in its own run directory inside one folder.

    On the real clock all runs have the experiment's seed, so that their spread is the machine's (check F13). On the virtual clock
    one seed gives one result, so run k has the seed plus k: the spread is that of the experiment itself.
    """
    folder = new_run_dir(out, f"{experiment.name or experiment.workload.kind}-x{times}")
    runs: list[Finished] = []
    for k in range(times):
        virtual = bool(runs) and runs[0].summary["clock"]["mode"] == "virtual"
        one = experiment.model_copy(update={"seed": experiment.seed + (k if virtual else 0)})
        watch.note(f"run {k + 1} of {times}, seed {one.seed}")
        runs.append(run(one, out=folder, argv=argv, watch=watch, base=base, earlier=[] if virtual else _times(runs)))
    spreads = {}
    for name, path in NUMBERS.items():
        values = [v for v in (_at(r.summary, path) for r in runs) if v is not None]
        if values:
            spreads[name] = spread(values)
    repeats = Repeats(folder, runs, spreads, max(r.exit_code for r in runs))
    write_json(folder / "repeats.json", repeats.to_json())
    (folder / "repeats.txt").write_text(repeats.text() + "\n", encoding="utf-8")
    return repeats


def _times(runs: Sequence[Finished]) -> list[float]:
    return [t for t in (_at(r.summary, ("theory", "time_us")) for r in runs) if t is not None]


def _at(summary: Any, path: tuple[str, ...]) -> float | None:
    for key in path:
        summary = summary.get(key) if isinstance(summary, dict) else None
    return None if summary is None else float(summary)
