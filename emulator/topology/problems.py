"""A problem of a file: where, what is wrong, what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.errors import UsageError


@dataclass(frozen=True, order=True)
class Origin:
    """A place in a file, counted from 1; line 0 stands for the file, or the option, as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """One problem; prints as `file:line:column: what is wrong; what would be right`."""

    file: str
    line: int
    column: int
    what: str
    remedy: str

    @property
    def where(self) -> str:
        return str(Origin(self.file, self.line, self.column))

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


class FileError(UsageError):
    """A wrong file, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.what, where=first.where, remedy=first.remedy)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class TopologyError(FileError):
    """A wrong topology file."""
