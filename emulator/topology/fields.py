"""Field types of the models: a unit's grammar, its limits and its JSON schema in one annotation each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from typing_extensions import TypeAliasType

from emulator.topology.units import (
    DURATION_PATTERN,
    FRACTION_PATTERN,
    RATE_PATTERN,
    SIZE_PATTERN,
    UnitError,
    format_duration,
    format_fraction,
    format_rate,
    format_size,
    parse_duration,
    parse_fraction,
    parse_rate,
    parse_size,
    shown,
)

MIN_RATE_BPS: Final = 10**6
MAX_RATE_BPS: Final = 10**13
MAX_DELAY_NS: Final = 10**10
MAX_SPAN_NS: Final = 3600 * 10**9
MAX_QUEUE_BYTES: Final = 2**30


class Strict(BaseModel):
    """Base of all models of files: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Within:
    """Parses a quantity and holds it between two bounds, both inclusive; the message names the bound broken."""

    parse: Callable[[object], int]
    spell: Callable[[int], str]
    low: int
    high: int
    too_low: str = ""

    def __call__(self, value: object) -> int:
        if value is None and self.too_low:
            raise UnitError("there is no value", remedy=self.too_low)
        number = self.parse(value)
        if number < self.low:
            remedy = self.too_low or f"write at least {self.spell(self.low)}"
            raise UnitError(f"{shown(value)} is below {self.spell(self.low)}", remedy=remedy)
        if number > self.high:
            raise UnitError(
                f"{shown(value)} is above {self.spell(self.high)}", remedy=f"write at most {self.spell(self.high)}"
            )
        return number


def _schema(unit: str, pattern: str, examples: list[str], *, bare: str = "") -> WithJsonSchema:
    text: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": examples, "x-unit": unit}
    if not bare:
        return WithJsonSchema(text)
    return WithJsonSchema({"anyOf": [text, {"type": bare, "minimum": 0}], "x-unit": unit})


_NO_RATE: Final = (
    f"write a rate of {format_rate(MIN_RATE_BPS)} or more: a link without a rate never queues, so it could neither "
    "drop nor mark ECN; to cut a link, use an override with state: down"
)

Rate = TypeAliasType(
    "Rate",
    Annotated[
        int,
        BeforeValidator(Within(parse_rate, format_rate, MIN_RATE_BPS, MAX_RATE_BPS, _NO_RATE)),
        PlainSerializer(format_rate, return_type=str),
        _schema("bit/s", RATE_PATTERN, ["100Gbit", "2.5Gbit", "400Mbit"]),
    ],
)
Delay = TypeAliasType(
    "Delay",
    Annotated[
        int,
        BeforeValidator(Within(parse_duration, format_duration, 0, MAX_DELAY_NS)),
        PlainSerializer(format_duration, return_type=str),
        _schema("ns", DURATION_PATTERN, ["500ns", "1.5us", "10ms"]),
    ],
)
Span = TypeAliasType(
    "Span",
    Annotated[
        int,
        BeforeValidator(Within(parse_duration, format_duration, 0, MAX_SPAN_NS)),
        PlainSerializer(format_duration, return_type=str),
        _schema("ns", DURATION_PATTERN, ["10ms", "2s", "600s"]),
    ],
)
Size = TypeAliasType(
    "Size",
    Annotated[
        int,
        BeforeValidator(Within(parse_size, format_size, 0, MAX_QUEUE_BYTES)),
        PlainSerializer(format_size, return_type=str),
        _schema("bytes", SIZE_PATTERN, ["4MB", "1MiB", "64KB"], bare="integer"),
    ],
)
Fraction = TypeAliasType(
    "Fraction",
    Annotated[
        float,
        BeforeValidator(parse_fraction),
        PlainSerializer(format_fraction, return_type=str),
        _schema("fraction", FRACTION_PATTERN, ["0.1%", "0.001"], bare="number"),
    ],
)


def count(*, low: int, high: int) -> Any:
    """Bounds of a whole number; pydantic's strict mode keeps `"4"` and `4.0` out."""
    return Field(strict=True, ge=low, le=high)
