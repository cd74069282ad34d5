"""One grammar for rates, sizes, durations and fractions, used by every file and every flag.

Rates are bits per second with decimal prefixes (`100Gbit`), sizes are bytes with decimal (`1MB`) or binary
(`1MiB`) prefixes, durations are whole nanoseconds (`1.5us`), fractions are 0 to 1 (`0.001`, `0.1%`).
A spelling that can be read in two ways is refused with the spelling that cannot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from emulator.errors import UsageError
from emulator.topology.spelling import plain, wrong_duration, wrong_rate, wrong_size

RATE_UNITS: Final[Mapping[str, int]] = {
    "bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12,
}  # fmt: skip
SIZE_UNITS: Final[Mapping[str, int]] = {
    "B": 1, "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
DURATION_UNITS: Final[Mapping[str, int]] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}

_NUMBER: Final = r"[0-9]+(\.[0-9]+)?"
RATE_PATTERN: Final = rf"^{_NUMBER} ?(bit|kbit|Mbit|Gbit|Tbit)$"
SIZE_PATTERN: Final = rf"^([0-9]+|{_NUMBER} ?(B|[kKMGT]B|[KMGT]iB))$"
DURATION_PATTERN: Final = rf"^(0|{_NUMBER} ?(ns|us|ms|s))$"
FRACTION_PATTERN: Final = rf"^({_NUMBER}([eE][-+]?[0-9]+)?|{_NUMBER} ?%)$"

_QUANTITY = re.compile(r"(-?)([0-9]+(?:\.[0-9]+)?) ?([^\s0-9.][^\s]*)?")
_FRACTION = re.compile(r"(-?)([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?) ?(%?)")
_MAX_TEXT: Final = 40


class UnitError(UsageError, ValueError):
    """A quantity that is not one, or that can be read in two ways."""


def parse_rate(value: object) -> int:
    """Bits per second of `100Gbit`, `2.5Gbit`, `400Mbit`; UnitError for anything else, a bare number included."""
    return _parse(value, "rate", "100Gbit", RATE_UNITS, wrong_rate)


def parse_size(value: object) -> int:
    """Bytes of `1MB` (10^6), `1MiB` (2^20), `4096B` or a plain whole number."""
    return _parse(value, "size", "1MB", SIZE_UNITS, wrong_size)


def parse_duration(value: object) -> int:
    """Nanoseconds of `500ns`, `1.5us`, `10ms`, `2s`; a bare 0 is 0."""
    return _parse(value, "duration", "500ns", DURATION_UNITS, wrong_duration)


def parse_fraction(value: object) -> float:
    """A number from 0 to 1, written `0.001` or `0.1%`."""
    text = _text(value)
    match = _FRACTION.fullmatch(text) if text is not None else None
    if match is None:
        remedy = "write a number from 0 to 1 such as 0.001, or a percentage such as 0.1%"
        raise UnitError(f"{shown(value)} is not a fraction", remedy=remedy)
    sign, digits, percent = match.groups()
    number = Decimal(digits).scaleb(-2) if percent else Decimal(digits)
    if sign and number:
        raise UnitError(f"{shown(value)} is below 0", remedy="write a number from 0 to 1, or a percentage")
    if number > 1:
        meant = f", or {digits}% if percent is meant" if not percent and number <= 100 else ""
        raise UnitError(f"{shown(value)} is above 1", remedy=f"write a number from 0 to 1{meant}")
    return float(number)


def format_rate(rate_bps: int) -> str:
    """The shortest exact spelling of a rate: 100000000000 is `100Gbit`."""
    return _format(rate_bps, ("Tbit", "Gbit", "Mbit", "kbit", "bit"), RATE_UNITS)


def format_size(size_bytes: int) -> str:
    """The shortest exact spelling of a size; a whole number of KiB that is no whole number of KB prints as KiB."""
    if size_bytes % 1000:
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            if size_bytes % SIZE_UNITS[unit] == 0:
                return f"{size_bytes // SIZE_UNITS[unit]}{unit}"
    return _format(size_bytes, ("TB", "GB", "MB", "KB", "B"), SIZE_UNITS)


def format_duration(duration_ns: int) -> str:
    """The shortest exact spelling of a duration: 1500 is `1.5us`."""
    return _format(duration_ns, ("s", "ms", "us", "ns"), DURATION_UNITS)


def format_fraction(fraction: float) -> str:
    """A fraction as an exact percentage: 0.001 is `0.1%`."""
    return f"{plain(Decimal(repr(float(fraction))).scaleb(2))}%"


def shown(value: object) -> str:
    """A value as messages quote it."""
    if isinstance(value, str):
        return f'"{value[:_MAX_TEXT]}..."' if len(value) > _MAX_TEXT else f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    words = {"NoneType": "nothing", "dict": "a mapping", "list": "a list"}
    return words.get(type(value).__name__, str(value)[:_MAX_TEXT])


def _parse(
    value: object,
    kind: str,
    example: str,
    units: Mapping[str, int],
    explain: Callable[[str, Decimal, str], tuple[str, str]],
) -> int:
    text = _text(value)
    match = _QUANTITY.fullmatch(text) if text is not None else None
    if match is None:
        raise UnitError(f"{shown(value)} is not a {kind}", remedy=f"write a number and a unit, such as {example}")
    sign, digits, unit = match.groups()
    number = Decimal(digits)
    if sign and number:
        raise UnitError(f"{shown(value)} is negative", remedy=f"write a {kind} such as {example}")
    if not unit:
        unit = _implied_unit(value, number, kind)
    if unit not in units:
        what, remedy = explain(shown(value), number, unit)
        raise UnitError(what, remedy=remedy)
    scaled = number * units[unit]
    if scaled != scaled.to_integral_value():
        smallest = next(iter(units))
        raise UnitError(f"{shown(value)} is not a whole number of {smallest}", remedy="write fewer decimals")
    return int(scaled)


def _implied_unit(value: object, number: Decimal, kind: str) -> str:
    """The unit of a bare number: bytes for a size, any for a duration of 0; a rate always names its own."""
    if kind == "size":
        return "B"
    if kind == "duration" and not number:
        return "ns"
    candidates = ("Gbit", "Mbit") if kind == "rate" else ("ns", "us", "ms")
    remedy = "write " + " or ".join(f"{plain(number)}{unit}" for unit in candidates)
    raise UnitError(f"{shown(value)} is not a {kind}: it has no unit", remedy=remedy)


def _format(number: int, units: tuple[str, ...], table: Mapping[str, int]) -> str:
    for unit in units:
        # At most three decimals: number * 1000 / unit is whole.
        if number >= table[unit] and number * 1000 % table[unit] == 0:
            return f"{plain(Decimal(number * 1000 // table[unit]).scaleb(-3))}{unit}"
    return f"{number}{units[-1]}"


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value.strip() if len(value) <= _MAX_TEXT else None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**30:
        return plain(Decimal(repr(value)))
    return None
