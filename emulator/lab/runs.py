"""A student's run directories, and which of them is the run that an item asks for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from emulator.errors import FabricError
from emulator.experiment.manifest import SPOILED
from emulator.report.api import Run

_DEPTH: Final = 3
_ABOUT: Final = ("name", "description")


class NoSuchRun(Exception):
    """No run answers the question; its text says what to run, or why a run does not count."""


class LabRun(Run):
    """A run with the numbers that labs ask for at hand; counts are packets, sizes bytes."""

    @cached_property
    def setup(self) -> dict[str, Any]:
        """What was run, without open ends."""
        resolved: dict[str, Any] = self.manifest["resolved"]
        return resolved

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.name

    @property
    def time_us(self) -> float:
        """From the first start to the last byte delivered."""
        return float(self.flows["end_ns"].max() - self.flows["start_ns"].min()) / 1e3

    @property
    def ratio(self) -> float:
        """Completion time over the bound."""
        return float(self.summary["theory"]["ratio"])

    @property
    def fairness(self) -> float:
        """First over last flow completion time."""
        return float(self.summary["flows"]["fairness"])

    def packets(self, kind: str) -> int:
        """A counter of the summary: data, retransmitted, dropped, marked, trimmed, lost, reordered …"""
        return int(self.summary["packets"][kind])

    def port(self, name: str) -> dict[str, Any]:
        """A port's line of the summary, such as `leaf0:host0`."""
        for queue in self.summary["queues"]:
            if queue["port"] == name:
                found: dict[str, Any] = queue
                return found
        raise NoSuchRun(f"{self.name} has no port {name}")

    @property
    def fullest(self) -> dict[str, Any]:
        """The switch port whose queue rose highest."""
        switches = [q for q in self.summary["queues"] if not q["port"].startswith("host")]
        return max(switches, key=lambda q: q["max_bytes"] or 0)


def find_runs(folder: Path) -> list[LabRun]:
    """Finished runs in a folder and below it, oldest first; not those that were made again."""
    found = []
    for depth in range(1, _DEPTH + 1):
        for summary in folder.glob("/".join(["*"] * depth) + "/summary.json"):
            if summary.parent.name == SPOILED:
                continue
            try:
                run = LabRun(summary.parent)
                if run.manifest.get("resolved"):
                    found.append(run)
            except FabricError:
                continue  # a folder that no run finished is none of ours
    return sorted(found, key=lambda run: run.name)


class Wanted:
    """The run that `fabriclab run SPEC --set …` in the lab's folder makes; seed, clock and names are free."""

    def __init__(self, folder: Path, spec: str, settings: Sequence[str] = ()) -> None:
        self.command = shlex.join(["fabriclab", "run", spec, *(w for s in settings for w in ("--set", s))])
        self._resolved = _resolve(folder / spec, settings)

    def of(self, runs: Sequence[LabRun]) -> LabRun:
        """The newest run of it that is not marked *do not trust*. Raises NoSuchRun."""
        same = [run for run in runs if not differences(self._resolved, run.setup)]
        if not same:
            raise NoSuchRun(f"there is no run of `{self.command}`{self._near(runs)}")
        return trusted(same, f"`{self.command}`")

    def _near(self, runs: Sequence[LabRun]) -> str:
        """The run that comes nearest, and what it has instead."""
        rated = [(differences(self._resolved, run.setup), run) for run in reversed(runs)]
        if not rated:
            return ""
        different, run = min(rated, key=lambda pair: len(pair[0]))
        return f" ({run.name} comes nearest: {'; '.join(different[:3])})" if len(different) < 4 else ""


def trusted(runs: Sequence[LabRun], what: str) -> LabRun:
    """The newest of some runs whose verdict lets it count. Raises NoSuchRun with the verdict's reasons."""
    good = [run for run in runs if run.verdict["word"] != "untrusted"]
    if not good:
        reasons = "; ".join(runs[-1].verdict["reasons"])
        raise NoSuchRun(f"{runs[-1].name} is a run of {what}, but its verdict is do not trust: {reasons}")
    return good[-1]


def differences(wanted: Mapping[str, Any], setup: Mapping[str, Any]) -> list[str]:
    """What a run was made with instead, as `transport.cc dcqcn instead of none`; keys that only one has are not compared."""
    out: list[str] = []
    for part in ("topology", "workload", "transport"):
        _compare(part, wanted[part], setup[part], out)
    return out


def _compare(path: str, wanted: Any, got: Any, out: list[str]) -> None:
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        for key in wanted:
            if key in got and not (path == "topology" and key in _ABOUT) and not (path == "workload" and key == "seed"):
                _compare(f"{path}.{key}", wanted[key], got[key], out)
        if path == "topology" and "overrides" in got and "overrides" not in wanted and got["overrides"]:
            out.append("topology.overrides are set")
    elif wanted != got and not (
        isinstance(wanted, list | tuple) and isinstance(got, list | tuple) and [*wanted] == [*got]
    ):
        out.append(f"{path} {got} instead of {wanted}")


def _resolve(spec: Path, settings: Sequence[str]) -> dict[str, Any]:
    from emulator.experiment.load import load_experiment
    from emulator.experiment.resolve import resolve
    from emulator.topology.load import load_topology

    experiment = load_experiment(spec, settings)
    topology = load_topology(spec.parent / experiment.topology, experiment.topology_set)
    return resolve(experiment, topology, clock="virtual", tdf=1).to_dict()
