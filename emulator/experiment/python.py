"""An experiment from Python: what `emulator.run` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import UsageError
from emulator.experiment.spec import Experiment

if TYPE_CHECKING:
    from emulator.report.api import Run

Spec = str | Path | Mapping[str, Any] | Experiment


def run_spec(spec: Spec, *, out: str | Path, quiet: bool) -> Run:
    """Run an experiment and open what it left. Errors are those of the command line, in three parts."""
    from emulator.experiment.run import run
    from emulator.experiment.watch import LiveWatch, Silent
    from emulator.report.api import Run

    experiment, base = experiment_of(spec)
    if quiet:
        return Run(run(experiment, out=Path(out), argv=["emulator.run"], watch=Silent(), base=base).run_dir)
    watch = LiveWatch(experiment.name or experiment.workload.kind)
    try:
        finished = run(experiment, out=Path(out), argv=["emulator.run"], watch=watch, base=base)
    finally:
        watch.close()
    return Run(finished.run_dir)


def experiment_of(spec: Spec) -> tuple[Experiment, Path | None]:
    """The experiment, and the folder that its topology is relative to (None: the current one). Raises UsageError."""
    if isinstance(spec, Experiment):
        return spec, None
    if isinstance(spec, str | Path):
        from emulator.experiment.load import load_experiment

        return load_experiment(Path(spec)), Path(spec).parent
    from pydantic import ValidationError

    try:
        return Experiment.model_validate(dict(spec)), None
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc'])) or 'spec'}: {e['msg']}" for e in error.errors()]
        raise UsageError(
            "; ".join(wrong),
            where="emulator.run",
            remedy="the keys are those of an experiment file (emulator/experiment/spec.py)",
        ) from error
