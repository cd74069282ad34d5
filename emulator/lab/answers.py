"""A student's answers: `answers.yaml`, one value an item; numbers as the summary prints them, with or without their unit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from emulator.topology.document import read_document
from emulator.topology.problems import FileError, Origin, Problem

_NUMBER = re.compile(r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(.*)", re.DOTALL)
_SCALES: Final[tuple[dict[str, float], ...]] = (
    {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9},
    {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    {"bit/s": 1, "Mbit/s": 1e6, "Gbit/s": 1e9},
    {"%": 1, "percent": 1},
)
"""Units that can stand for each other, by size."""


class NotAnAnswer(Exception):
    """A value that cannot be what was asked for; its text says why."""


@dataclass
class Answers:
    """The values of an answers file and the place of each. An empty value is no answer."""

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Origin] = field(default_factory=dict)

    def given(self, key: str) -> bool:
        """Whether there is an answer at all."""
        return self.values.get(key) not in (None, "")

    def text(self, key: str) -> str:
        """An answer as a word."""
        value = self.values[key]
        if isinstance(value, bool):
            return "yes" if value else "no"
        return str(value).strip()

    def number(self, key: str, unit: str = "") -> float:
        """An answer as a number in `unit`. Raises NotAnAnswer."""
        return parse_number(self.values[key], unit)

    def where(self, key: str) -> str:
        """`answers.yaml:12:9`, or the file where the key is missing."""
        return str(self.places.get(key, self.file))


def parse_number(value: object, unit: str = "") -> float:
    """`1,152.3`, `3.06 MB`, `1.2e3`, 7: a number in `unit`. Raises NotAnAnswer."""
    text = str(value).strip()
    if isinstance(value, bool):
        raise NotAnAnswer(f"{'yes' if value else 'no'} is no number")
    found = _NUMBER.fullmatch(text)
    digits = found[1].replace(",", "") if found else ""
    if not found or not re.search(r"\d", digits):
        raise NotAnAnswer(f'"{text}" is no number')
    number = float(digits)
    if found[2]:
        number *= _scale(found[2].strip(), unit, text)
    if not math.isfinite(number):
        raise NotAnAnswer(f'"{text}" is no finite number')
    return number


def _scale(given: str, unit: str, text: str) -> float:
    if given == unit:
        return 1.0
    for scale in _SCALES:
        if given in scale and unit in scale:
            return scale[given] / scale[unit]
    raise NotAnAnswer(
        f'"{text}" has the unit {given}, asked for is {f"a number in {unit}" if unit else "a plain number"}'
    )


def read_answers(path: Path) -> Answers:
    """The answers of a file. Raises FileError with every problem of it as YAML."""
    document = read_document(path, kind="answers")
    if not document.problems and document.raw is not None and not isinstance(document.raw, dict):
        raise FileError([Problem(str(path), 1, 1, "is no list of `key: answer`", "keep the form of the starter file")])
    if document.problems or document.raw is None:
        raise FileError(document.problems)
    answers = Answers(path.name)
    for key, value in document.raw.items():
        place = document.origin((key,))
        if isinstance(value, dict | list):
            raise FileError(
                [Problem(str(path), place.line, place.column, f"{key} has more than one value", "write one")]
            )
        answers.values[str(key)] = value
        answers.places[str(key)] = Origin(path.name, place.line, place.column)
    return answers
