"""What a wrong unit probably meant: the explanation and the spelling that cannot be misread.

Each function takes the value as shown to the user, its number and its unknown unit, and returns (what, remedy).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

_UNIT = re.compile(r"([kKmMgGtT]?)(i?)(b|bits?|B|[bB]ytes?)?(ps|/s|/sec)?")
_SAME_DURATION: Final = {
    "µs": "us", "μs": "us", "usec": "us", "msec": "ms", "nsec": "ns", "sec": "s", "secs": "s", "second": "s",
    "seconds": "s", "US": "us", "MS": "ms", "NS": "ns", "S": "s",
}  # fmt: skip


@dataclass(frozen=True)
class _Unit:
    """A unit taken apart: `Kibps` is rank 1, binary, word "b", per second."""

    rank: int
    binary: bool
    word: str
    per_second: bool

    @property
    def bits(self) -> bool:
        return self.word in ("bit", "bits")

    @property
    def bytes(self) -> bool:
        return self.word == "B" or self.word.lower().startswith("byte")

    def scaled(self, number: Decimal) -> Decimal:
        return number * Decimal(1024 if self.binary else 1000) ** self.rank

    def as_rate(self, number: Decimal) -> str:
        return f"{plain(number)}{('', 'k', 'M', 'G', 'T')[self.rank]}bit"

    def as_size(self, number: Decimal, *, binary: bool | None = None) -> str:
        prefix = ("", "K", "M", "G", "T")[self.rank]
        infix = "i" if prefix and (self.binary if binary is None else binary) else ""
        return f"{plain(number)}{prefix}{infix}B"


def plain(number: Decimal) -> str:
    """A decimal without exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def wrong_rate(shown: str, number: Decimal, unit: str) -> tuple[str, str]:
    """Bytes, powers of 1024 and letters that may be either, where bits per second are expected."""
    parts = _take_apart(unit)
    if parts is None:
        return f"{shown} is not a rate: unknown unit {unit}", "use bit, kbit, Mbit, Gbit or Tbit, such as 100Gbit"
    as_bits = parts.as_rate(number)
    bits_of_bytes = f"{plain(parts.scaled(number) * 8)}bit"
    if not parts.binary:
        bits_of_bytes = _Unit(parts.rank, False, "bit", False).as_rate(number * 8)
    if parts.bytes:
        reading = "bytes per second" if parts.per_second else "bytes, a size"
        return (
            f"{shown} is not a rate: {unit} reads as {reading}",
            f"write {as_bits} if bits were meant, {bits_of_bytes} for that many bytes per second",
        )
    if parts.binary:
        exact = f"{plain(parts.scaled(number))}bit"
        return f"{shown} is not a rate: rates count in powers of 1000", f"write {as_bits}, or {exact} for exactly that"
    if parts.bits:
        return f"{shown} is not a rate: {unit} has another spelling here", f"write {as_bits}"
    return (
        f"{shown} is ambiguous: {unit} may mean bits or bytes",
        f"write {as_bits} for bits, {bits_of_bytes} for bytes",
    )


def wrong_size(shown: str, number: Decimal, unit: str) -> tuple[str, str]:
    """Bits, rates and bare prefixes where bytes are expected."""
    parts = _take_apart(unit)
    if parts is None:
        what = f"{shown} is not a size: unknown unit {unit}"
        return what, "use B, KB, MB, GB (powers of 1000) or KiB, MiB, GiB (powers of 1024)"
    as_bytes = parts.as_size(number)
    if parts.per_second:
        return f"{shown} is not a size: {unit} reads as a rate", f"write {as_bytes}"
    if parts.bits or parts.word == "b":
        eighth = parts.scaled(number) / 8
        bits = f", or {plain(eighth)}B if bits were meant" if eighth == eighth.to_integral_value() else ""
        return f"{shown} is not a size: {unit} reads as bits", f"write {as_bytes}{bits}"
    if not parts.word and not parts.binary:
        decimal, binary = parts.as_size(number, binary=False), parts.as_size(number, binary=True)
        return (
            f"{shown} is ambiguous: {unit} may mean a power of 1000 or of 1024",
            f"write {decimal} ({plain(parts.scaled(number))} bytes) or "
            f"{binary} ({plain(number * 1024**parts.rank)} bytes)",
        )
    return f"{shown} is not a size: {unit} has another spelling here", f"write {as_bytes}"


def wrong_duration(shown: str, number: Decimal, unit: str) -> tuple[str, str]:
    """Minutes, long unit names and other time units."""
    if unit in _SAME_DURATION:
        same = _SAME_DURATION[unit]
        return f"{shown} is not a duration: {unit} has another spelling here", f"write {plain(number)}{same}"
    if unit == "m":
        what = f"{shown} is ambiguous: m may mean milliseconds or minutes"
        return what, f"write {plain(number)}ms or {plain(number * 60)}s"
    if unit in ("min", "mins", "minutes"):
        return f"{shown} is not a duration: unknown unit {unit}", f"write {plain(number * 60)}s"
    return f"{shown} is not a duration: unknown unit {unit}", "use ns, us, ms or s, such as 500ns"


def _take_apart(unit: str) -> _Unit | None:
    found = _UNIT.fullmatch(unit)
    if found is None:
        return None
    prefix, binary, word, per_second = found.groups()
    return _Unit(" kmgt".index(prefix.lower()) if prefix else 0, bool(binary), word or "", bool(per_second))
