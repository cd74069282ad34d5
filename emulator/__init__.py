"""The network: what is built, observed and judged.

From Python: `emulator.run(spec)` runs an experiment, `emulator.load(run_dir)` opens an earlier run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from emulator.experiment.spec import Experiment
    from emulator.report.api import Run


def run(spec: str | Path | Mapping[str, Any] | Experiment, *, out: str | Path = "runs", quiet: bool = False) -> Run:
    """Run an experiment (a file of it, its keys as a dict, or an `Experiment`), in a new run directory in `out`.

    The run, with tables as pandas frames and figures, also where its verdict is bad: look at `run.verdict`. A topology's
    path in a dict is relative to the current folder. `quiet` shows no progress.
    Raises UsageError, MissingCapability, RunFailed.
    """
    from emulator.experiment.python import run_spec

    return run_spec(spec, out=out, quiet=quiet)


def load(run_dir: str | Path) -> Run:
    """An earlier run. Raises UsageError where there is none."""
    from emulator.report.api import Run

    return Run(run_dir)


def compute(seconds: float = 0.0) -> None:
    """Say that the program computes for `seconds`; see `emulator.exec.compute`. A no-op outside `fabriclab exec`."""
    from emulator.exec.compute import compute as tell

    tell(seconds)
