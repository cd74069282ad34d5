"""Recorded lives of a flow, with literal times: what the checker plays to an algorithm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from traffic.congestion.base import Loss, PathInfo

US = 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """One call of one verb; `phase` names the part of the trace it belongs to."""

    now: int
    verb: str
    args: dict[str, Any]
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A named list of events. Congestion lasts through the phase `congested`, and is over in the phase `quiet`."""

    name: str
    about: str
    events: list[Event] = field(repr=False)
    monotonic: bool = True


def traces(path: PathInfo) -> list[Trace]:
    """The traces for one path; the same path gives the same traces."""
    return [
        Trace("idle", "nothing happens for 10 ms", list(_idle(path))),
        Trace("incast", "0.5 ms alone, 2 ms of marks and growing delay, 20 ms quiet", list(_incast(path))),
        Trace("loss", "one packet in ten lost or trimmed for 1 ms", list(_loss(path))),
        Trace("timeout", "nothing comes back, five time-outs in a row, then it works again", list(_timeout(path))),
        Trace("burst", "64 packets, their acknowledgements and 8 CNPs at single instants", list(_burst(path))),
        Trace("odd", "no round trip known, round trips of 1 ns and 1 s, acknowledgements of nothing", list(_odd(path))),
        Trace("credit", "grants of all sizes", list(_credit(path))),
        Trace("backwards", "times that step back by up to 5 us, as from another core", list(_backwards(path)), False),
    ]


def _sent(now: int, size: int, phase: str = "") -> Event:
    return Event(now, "sent", {"size": size}, phase)


def _acked(now: int, size: int, rtt: int | None, ce: bool = False, phase: str = "") -> Event:
    return Event(now, "acked", {"size": size, "rtt_ns": rtt, "ce": ce}, phase)


def _idle(path: PathInfo) -> Iterable[Event]:
    for step in range(11):
        yield Event(step * 1_000 * US, "look", {})


def _stretch(
    path: PathInfo, start: int, length: int, rtt: int, ce: bool, phase: str, cnp_every: int = 0, step: int = 2 * US
) -> Iterable[Event]:
    """A packet every `step`, each acknowledged one `rtt` later, with CNPs if asked for."""
    size = path.mtu_bytes
    events: list[tuple[int, int, Event]] = []
    for k, now in enumerate(range(start, start + length, step)):
        events.append((now, 2 * k, _sent(now, size, phase)))
        events.append((now + rtt, 2 * k + 1, _acked(now + rtt, size, rtt, ce, phase)))
    if cnp_every:
        for k, now in enumerate(range(start + rtt, start + length, cnp_every)):
            events.append((now, -1 - k, Event(now, "marked", {}, phase)))
    for _, _, event in sorted(events, key=lambda item: item[:2]):
        yield event


def _incast(path: PathInfo) -> Iterable[Event]:
    rtt, at = path.base_rtt_ns, 0
    yield from _stretch(path, at, 500 * US, rtt, False, "alone")
    at += 500 * US + 10 * rtt
    for part in range(1, 11):
        yield from _stretch(path, at, 200 * US, rtt * (1 + part), True, "congested", 50 * US)
        at += 200 * US + rtt * (2 + part)
    yield from _stretch(path, at, 20_000 * US, rtt, False, "quiet", step=20 * US)


def _loss(path: PathInfo) -> Iterable[Event]:
    size, rtt = path.mtu_bytes, path.base_rtt_ns
    kinds = (Loss.NACK, Loss.TRIM, Loss.TRIM_LAST_HOP)
    for k in range(500):
        now = k * 2 * US
        yield _sent(now, size)
        if k % 10 == 9:
            yield Event(now, "lost", {"size": size, "kind": kinds[k // 10 % 3]}, "congested")
        else:
            yield _acked(now, size, rtt + (k % 7) * US)


def _timeout(path: PathInfo) -> Iterable[Event]:
    size = path.mtu_bytes
    for k in range(16):
        yield _sent(k * US, size)
    for k in range(1, 6):
        yield Event(k * 500 * US, "lost", {"size": size, "kind": Loss.TIMEOUT}, "congested")
        yield _sent(k * 500 * US, size)
    yield from _stretch(path, 3_000 * US, 1_000 * US, path.base_rtt_ns, False, "quiet")


def _burst(path: PathInfo) -> Iterable[Event]:
    size, rtt = path.mtu_bytes, path.base_rtt_ns
    for round_ in range(4):
        now = round_ * 10 * rtt
        for _ in range(64):
            yield _sent(now, size)
        for k in range(64):
            yield _acked(now + rtt, size, rtt, k % 2 == 0)
        for _ in range(8):
            yield Event(now + rtt, "marked", {})


def _odd(path: PathInfo) -> Iterable[Event]:
    size, now = path.mtu_bytes, 0
    for rtt in (None, 1, 1_000_000_000, path.base_rtt_ns, None, 2_000_000_000):
        now += 100 * US
        yield _sent(now, size)
        yield _acked(now + US, size, rtt, rtt is None)
        yield _acked(now + US, 0, rtt)
        yield _sent(now + US, 1)
        yield _acked(now + 2 * US, 1, rtt, True)
    for penalty in (0, 64, 127, 0):
        now += 100 * US
        yield Event(now, "penalised", {"penalty": penalty})
        yield _sent(now, size)
        yield _acked(now + path.base_rtt_ns, size, path.base_rtt_ns)


def _credit(path: PathInfo) -> Iterable[Event]:
    for k, size in enumerate((256, path.mtu_bytes, 4 * path.mtu_bytes, 1, 1_000_000)):
        now = k * 50 * US
        yield Event(now, "credited", {"size": size})
        yield _sent(now, path.mtu_bytes)
        yield _acked(now + path.base_rtt_ns, path.mtu_bytes, path.base_rtt_ns)


def _backwards(path: PathInfo) -> Iterable[Event]:
    size, rtt = path.mtu_bytes, path.base_rtt_ns
    for k in range(200):
        now = 100 * US + k * 2 * US - (k % 3) * 5 * US // 2
        yield _sent(now, size)
        yield _acked(now + rtt - (k % 5) * US, size, rtt, k % 4 == 0)
        if k % 10 == 5:
            yield Event(now - 3 * US, "marked", {})
