"""The marking sheet: items with points, each graded from what the student's own runs measured, each loss explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.errors import FabricError
from emulator.lab.answers import Answers, NotAnAnswer
from emulator.lab.runs import NoSuchRun
from traffic.errors import TrafficError

if TYPE_CHECKING:
    from emulator.lab.work import Work

Measured = Callable[[], float]


@dataclass(frozen=True)
class Item:
    """One line of the sheet."""

    key: str
    title: str
    points: float
    of: float
    said: str

    @property
    def full(self) -> bool:
        """Whether nothing was lost."""
        return self.points >= self.of


class Sheet:
    """Collects items. Every method takes the item's key (that of the answer, where it has one), a title and its points."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._answers: Answers = work.answers
        self.items: list[Item] = []
        self.measured: dict[str, float | str] = {}
        """What the runs say for each answer, by key: numbers, or the option that holds."""

    def prediction(
        self, key: str, title: str, measured: Measured, *, low: float, high: float, unit: str = "", points: float = 1
    ) -> None:
        """Points for a guess in a plausible range, right or wrong; the text sets it against the measurement."""

        def grade() -> tuple[bool, str]:
            guess = self._answers.number(key, unit)
            if not low <= guess <= high:
                return False, f"{guess:g}{_of(unit)} is outside anything possible here ({low:g} to {high:g}{_of(unit)})"
            try:
                found = measured()
            except NoSuchRun:
                return True, f"predicted {guess:g}{_of(unit)}; nothing measured yet"
            return True, f"predicted {guess:g}{_of(unit)}, measured {found:.4g}{_of(unit)}{self._source()}"

        self._answered(key, title, points, grade)

    def number(
        self, key: str, title: str, measured: Measured, *, tolerance: float = 0.05, slack: float = 0.0, unit: str = "",
        look: str = "", points: float = 1,
    ) -> None:  # fmt: skip
        """An answer within `tolerance` (a share of the value) or `slack` of what was measured; `look` says where it stands."""

        def grade() -> tuple[bool, str]:
            answer, found = self._answers.number(key, unit), measured()
            self.measured[key] = found
            good = abs(answer - found) <= max(tolerance * abs(found), slack)
            if good:
                return True, f"{answer:g}{_of(unit)}, measured {found:.5g}{_of(unit)}{self._source()}"
            hint = f"; look at {look}" if look else ""
            return False, f"{answer:g}{_of(unit)}, but measured is {found:.4g}{_of(unit)}{self._source()}{hint}"

        self._answered(key, title, points, grade, then=lambda: self._note(key, measured))

    def choice(
        self,
        key: str,
        title: str,
        options: Mapping[str, Callable[[], bool]],
        *,
        because: Callable[[], str],
        points: float = 1,
    ) -> None:
        """One of several words. Each option is a statement about the runs; the right one is the one that holds in them."""

        def right() -> str:
            holding = [word for word, holds in options.items() if holds()]
            if len(holding) != 1:
                raise NoSuchRun(
                    f"these runs do not decide between {', '.join(options)} ({because()}); run the lab's own files again"
                )
            return holding[0]

        def grade() -> tuple[bool, str]:
            word = self._answers.text(key).lower()
            if word not in options:
                return False, f'"{word}" is none of {", ".join(options)}'
            self.measured[key] = right()
            facts = because()
            return word == self.measured[key], f'"{word}": {facts}{self._source()}'

        def note() -> None:
            self.measured[key] = right()

        self._answered(key, title, points, grade, then=note)

    def fact(self, key: str, title: str, grade: Callable[[], tuple[bool, str]], *, points: float = 1) -> None:
        """What the student's runs, files or code must show; no answer is asked for."""
        self._item(key, title, points, grade)

    def _note(self, key: str, measured: Measured) -> None:
        self.measured[key] = measured()

    def _answered(
        self,
        key: str,
        title: str,
        points: float,
        grade: Callable[[], tuple[bool, str]],
        then: Callable[[], None] | None = None,
    ) -> None:
        if self._answers.given(key):
            self._item(key, title, points, grade)
            return
        self._add(key, title, 0, points, f"no answer yet to `{key}` in {self._answers.where(key)}")
        if then is not None:
            try:
                then()
            except (NoSuchRun, FabricError, TrafficError):
                return

    def _item(self, key: str, title: str, points: float, grade: Callable[[], tuple[bool, str]]) -> None:
        self._work.touched.clear()
        try:
            good, said = grade()
        except NotAnAnswer as error:
            good, said = False, f"{self._answers.where(key)}: {error}"
        except NoSuchRun as error:
            good, said = False, str(error)
        except (FabricError, TrafficError) as error:
            good, said = False, str(error)
        self._add(key, title, points if good else 0, points, said)

    def _add(self, key: str, title: str, points: float, of: float, said: str) -> None:
        self.items.append(Item(key, title, points, of, said))

    def _source(self) -> str:
        names = list(dict.fromkeys(run.name for run in self._work.touched))
        return f" in {', '.join(names)}" if names else ""

    def to_tests(self) -> list[dict[str, Any]]:
        """The items as course platforms read them."""
        return [
            {"number": i.key, "name": i.title, "score": i.points, "max_score": i.of, "output": i.said}
            for i in self.items
        ]


def _of(unit: str) -> str:
    return f" {unit}" if unit and unit != "%" else unit
