"""The user's side of congestion control parameters: quantities with units, and errors in the product's own form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from emulator.errors import UsageError
from emulator.topology.units import parse_duration, parse_rate, parse_size
from traffic.errors import TrafficError

if TYPE_CHECKING:
    from traffic.congestion.base import CongestionControl, PathInfo


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


def resolve_cc(
    cls: type[CongestionControl], *, path: PathInfo, params: Mapping[str, Any], preset: str | None = None
) -> dict[str, Any]:
    """Every parameter of a packet transport's algorithm as the manifest keeps it: numbers, worked out for one path.

    `params` as a user writes them (`timer_ns: 55us`) over the preset over the defaults. Raises UsageError that names every
    unknown key and wrong value.
    """
    from traffic.congestion.registry import parameters

    with usage():
        return parameters(cls, path=path, params=params, preset=preset, convert=convert_quantity).values()


def check_fit(
    kind: str, cls: type[CongestionControl], params: Mapping[str, Any] | None = None, given: Iterable[str] = ()
) -> None:
    """That an algorithm, with these parameters (`given`: those the user named), can run on a transport.

    Raises UsageError that lists those that can.
    """
    from traffic.congestion.base import Feedback
    from traffic.congestion.registry import BUILT_IN

    if kind == "mrc" and cls.feedback is Feedback.CNP:
        fit = [c.name for c in BUILT_IN if c.feedback is not Feedback.CNP]
        raise UsageError(
            f"{cls.name} lives by congestion notification packets, and mrc has none",
            where="--cc",
            remedy=f"with mrc use one of {', '.join(fit)}; or --transport roce",
        )
    pressed = [key for key in ("penalty", "penalty_for_trims") if params and params.get(key)]
    pressed += [key for key in given if key == "penalty_interval_ns"]
    if kind == "roce" and pressed:
        raise UsageError(
            f"{' and '.join(pressed)}: an acknowledgement of roce has no field for the receiver's penalty",
            where="--cc-set",
            remedy="leave it at its default, or use --transport mrc",
        )
    if kind == "roce" and params and params.get("ignore_last_hop_trims"):
        raise UsageError(
            "ignore_last_hop_trims: no packet of roce is trimmed",
            where="--cc-set",
            remedy="leave it at its default, or use --transport mrc",
        )
