"""A student's folder as a checker sees it: answers, runs, files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emulator.errors import UsageError
from emulator.lab.answers import read_answers
from emulator.lab.catalogue import Lab
from emulator.lab.runs import LabRun, NoSuchRun, Wanted, find_runs, trusted

ANSWERS = "answers.yaml"


class Work:
    """What was handed in for one lab. `touched` are the runs that an item has looked at, `used` all of them."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(
                "there is no such folder", where=str(folder), remedy=f"start with `fabriclab lab start {lab.number}`"
            )
        self.lab = lab
        self.folder = folder
        self.answers = read_answers(folder / ANSWERS)
        self.runs = find_runs(folder)
        self.touched: list[LabRun] = []
        self.used: dict[str, LabRun] = {}
        self._wanted: dict[tuple[str, ...], Wanted] = {}

    def run(self, spec: str, *settings: str, clock: str | None = None) -> LabRun:
        """The newest trustworthy run of one of the lab's experiment files with settings over it, on any clock unless one is
        named. Raises NoSuchRun."""
        key = (spec, *settings)
        if key not in self._wanted:
            self._wanted[key] = Wanted(self.lab.folder, spec, settings)
        runs = [run for run in self.runs if clock in (None, run.setup["clock"])]
        return self._touch(self._wanted[key].of(runs))

    def pick(self, what: str, how: str, fits: Callable[[LabRun], bool]) -> LabRun:
        """The newest trustworthy run that fits; `what` names it, `how` says how to make one. Raises NoSuchRun."""
        return self.all(what, how, fits)[-1]

    def all(self, what: str, how: str, fits: Callable[[LabRun], bool]) -> list[LabRun]:
        """All trustworthy runs that fit, oldest first; at least one. Raises NoSuchRun."""
        found = [run for run in self.runs if fits(run)]
        if not found:
            raise NoSuchRun(f"there is no run of {what}: {how}")
        trusted(found, what)
        return [self._touch(run) for run in found if run.verdict["word"] != "untrusted"]

    def named(self, name: str) -> LabRun:
        """A run by the name of its folder, whatever its verdict (runs that a lab brings along). Raises NoSuchRun."""
        for run in self.runs:
            if run.name == name:
                return self._touch(run)
        raise NoSuchRun(f"the folder {name} is gone; `fabriclab lab start` copies it")

    def file(self, name: str) -> Path:
        """A file that must be handed in. Raises NoSuchRun."""
        path = self.folder / name
        if not path.is_file():
            raise NoSuchRun(f"there is no file {name} in {self.folder}")
        return path

    def _touch(self, run: LabRun) -> LabRun:
        self.touched.append(run)
        self.used[run.name] = run
        return run
