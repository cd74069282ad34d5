"""Grading one folder: the lab's `check.py` fills the sheet; the result as text and as JSON for a course platform."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.collect.environment import versions
from emulator.errors import RunFailed
from emulator.lab.catalogue import Lab
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work
from emulator.topology.suggest import nearest

SCHEMA = 1
_NOT_GRADED = ("name",)
Checker = Callable[[Work, Sheet], str | None]


@dataclass(frozen=True)
class Graded:
    """A graded folder; `board` is what the lab shows besides (a scoreboard), `measured` what the runs say for each answer."""

    lab: Lab
    sheet: Sheet
    work: Work
    notes: list[str]
    board: str

    @property
    def points(self) -> float:
        return sum(item.points for item in self.sheet.items)

    @property
    def of(self) -> float:
        return sum(item.of for item in self.sheet.items)

    def to_json(self) -> dict[str, Any]:
        """`score`, `max_score` and `tests` are named as course platforms such as Gradescope read them."""
        return {
            "schema": SCHEMA,
            "lab": self.lab.number,
            "title": self.lab.about.title,
            "student": str(self.work.answers.values.get("name") or ""),
            "score": self.points,
            "max_score": self.of,
            "tests": self.sheet.to_tests(),
            "output": self.board,
            "notes": self.notes,
            "runs": [
                {
                    "run_id": r.name,
                    "clock": r.summary["clock"]["mode"],
                    "verdict": r.verdict["word"],
                    "seed": r.summary["seed"],
                }
                for r in self.work.used.values()
            ],
            "fabriclab": versions()["fabriclab"],
        }

    def text(self) -> str:
        """The sheet for a reader: what was lost comes with its reason."""
        lines = [f"Lab {self.lab.number}: {self.lab.about.title}"]
        for item in self.sheet.items:
            mark = "ok  " if item.full else "LOST"
            lines.append(f"  {mark} {item.points:g}/{item.of:g}  {item.title}")
            lines.append(f"             {item.said}")
        lines += [f"  note: {note}" for note in self.notes]
        if self.board:
            lines += ["", self.board]
        lines.append(f"{self.points:g} of {self.of:g} points")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """The result file."""
        path.write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def grade(lab: Lab, folder: Path) -> Graded:
    """Grades a folder. Raises UsageError where there is nothing to grade, FileError for answers that are no YAML."""
    work = Work(lab, folder)
    sheet = Sheet(work)
    board = _checker(lab)(work, sheet) or ""
    return Graded(lab, sheet, work, _notes(work, sheet), board)


def _notes(work: Work, sheet: Sheet) -> list[str]:
    known = [item.key for item in sheet.items]
    return [
        f'{work.answers.where(key)}: there is no item "{key}"; {nearest(key, known)}'
        for key in work.answers.values
        if key not in known and key not in _NOT_GRADED
    ]


def _checker(lab: Lab) -> Checker:
    """The function `check` of the lab's check.py."""
    path = lab.folder / "check.py"
    spec = importlib.util.spec_from_file_location(f"fabriclab_lab_{lab.number}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RunFailed("the lab has no check.py", where=str(lab.folder), remedy="restore the folder from the checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    checker: Checker = module.check
    return checker
