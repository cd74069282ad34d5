"""What every invariant answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["pass", "warn", "fail", "not-modelled"]

PASS: Status = "pass"
WARN: Status = "warn"
FAIL: Status = "fail"
NOT_MODELLED: Status = "not-modelled"

_ORDER: dict[Status, int] = {NOT_MODELLED: 0, PASS: 1, WARN: 2, FAIL: 3}


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant's answer: `value` against `limit`, and in `reason` a sentence that stands by itself.

    `not-modelled` means that the run holds nothing to check with; it is never a pass.
    """

    id: str
    name: str
    status: Status
    value: float | None
    limit: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """As `summary.json` holds it."""
        return asdict(self)


def grade(value: float, good: float, bearable: float) -> Status:
    """pass up to `good`, warn up to `bearable`, else fail; a value that is no number fails."""
    if value <= good:
        return PASS
    return WARN if value <= bearable else FAIL


def worst(*statuses: Status) -> Status:
    """The most serious one."""
    return max(statuses, key=_ORDER.__getitem__)


def percent(share: float) -> str:
    """A share as `12.3 %`."""
    return f"{100 * share:.3g} %"


def some(items: list[str], most: int = 3) -> str:
    """The first few items, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(items[:most]) + more
