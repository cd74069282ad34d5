"""Experiment files: read with every problem at its line, and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator.errors import UsageError
from emulator.experiment.spec import Experiment
from emulator.topology.load import load_model
from emulator.topology.model import Topology


def load_experiment(path: Path, settings: Sequence[str] = ()) -> Experiment:
    """The experiment of a file. A setting whose first key belongs to the topology, and not to the experiment, goes there.

    Raises FileError with every problem of the file and the settings.
    """
    own = [s for s in settings if not _of_topology(s)]
    experiment = load_model(Experiment, path, own, kind="experiment")
    others = tuple(s for s in settings if _of_topology(s))
    return experiment.model_copy(update={"topology_set": (*experiment.topology_set, *others)}) if others else experiment


def _of_topology(setting: str) -> bool:
    key = setting.partition("=")[0].partition(".")[0].partition("[")[0]
    return key in Topology.model_fields and key not in Experiment.model_fields


def save_experiment(experiment: Experiment, path: Path) -> None:
    """Write an experiment as YAML: what differs from the defaults. Its topology stays a path as it was given.

    Raises UsageError if the file cannot be written.
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    data = experiment.model_dump(mode="json", exclude_defaults=True)
    relative = Path(data["topology"])
    if not relative.is_absolute():
        data["topology"] = str(_from(relative, path.parent))
    try:
        with path.open("w", encoding="utf-8") as file:
            yaml.dump(data, file)
    except OSError as error:
        raise UsageError(
            f"the experiment cannot be written: {error.strerror}", where=str(path), remedy="choose another --save-spec"
        ) from error


def _from(path: Path, folder: Path) -> Path:
    """`path` (relative to the current folder) as seen from `folder`."""
    import os

    return Path(os.path.relpath(path.resolve(), folder.resolve()))
