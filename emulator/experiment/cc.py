"""The user's side of congestion control parameters: quantities with units, and errors in the product's own form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from emulator.errors import UsageError
from emulator.topology.units import parse_duration, parse_rate, parse_size
from traffic.errors import TrafficError


def convert_quantity(value: object, unit: str) -> int:
    """The number that a spelling such as `55us` (ns), `40Mbit` (bps) or `1MB` (bytes) stands for; UsageError for a wrong one."""
    return {"ns": parse_duration, "bps": parse_rate, "bytes": parse_size}[unit](value)


@contextmanager
def usage() -> Iterator[None]:
    """Turn a TrafficError about names and parameters into a UsageError (exit code 2)."""
    try:
        yield
    except TrafficError as exc:
        raise UsageError(exc.what, where=exc.where, remedy=exc.remedy) from exc
