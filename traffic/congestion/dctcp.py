"""DCTCP as a window for packets of ours (RFC 8257; Linux net/ipv4/tcp_dctcp.c); `--transport tcp --cc dctcp` is the kernel's.

Each round    F = marked bytes / acknowledged bytes; alpha = (1 − g) alpha + g F
A mark        window = window (1 − alpha/2); then neither cut nor growth until what was in flight is settled
Otherwise     window += MTU × acknowledged / window
Loss          window = window/2 in place of the mark's cut; time-out: window = the least
"""

from __future__ import annotations

from typing import Any

from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo
from traffic.congestion.flight import Flight
from traffic.congestion.params import Formula, Params, param


class DctcpParams(Params):
    """Parameters of `dctcp-window`."""

    g: float = param(
        1 / 16, above=0, high=1, text="weight of the newest fraction in alpha", source="RFC 8257 section 3.3"
    )
    initial_alpha: float = param(1.0, low=0, high=1, text="alpha before the first round", source="RFC 8257 section 3.4")
    initial_window_bytes: float = param(
        Formula("BDP", lambda path, _: path.bdp_payload_bytes), above=0, text="window at the start",
        source="HPCC simulator: flows start at line rate",
    )  # fmt: skip
    min_window_bytes: float = param(
        Formula("2 MTU", lambda path, _: 2 * path.mtu_bytes),
        above=0,
        text="the least window",
        source="Linux tcp_dctcp.c",
    )
    max_window_bytes: float = param(
        Formula("4 BDP", lambda path, _: 4 * path.bdp_payload_bytes + 10 * path.mtu_bytes), above=0,
        text="the greatest window (4 BDP and 10 MTU), where no switch marks", source="own choice",
    )  # fmt: skip

    def problems(self, path: PathInfo) -> list[str]:
        return ["min_window_bytes is above max_window_bytes"] if self.min_window_bytes > self.max_window_bytes else []


class DctcpWindow(CongestionControl):
    """The window that answers to the fraction of marked bytes."""

    name = "dctcp-window"
    feedback = Feedback.ACK
    source = "RFC 8257; Alizadeh et al., SIGCOMM 2010; Linux net/ipv4/tcp_dctcp.c"
    parameters = DctcpParams

    params: DctcpParams
    window_bytes: float

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self.alpha = self.params.initial_alpha
        self._flight = Flight()
        self._acked = self._marked = 0
        self._cut_at: int | None = None  # bytes sent when it was cut; until all of them are settled it stays as it is
        self._set(self.params.initial_window_bytes)

    def sent(self, *, now: int, size: int) -> None:
        self._flight.sent += size

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        self._flight.settled += size
        self._acked += size
        if ce:
            self._marked += size
            self._cut(self.alpha / 2, "mark")
        elif not self._held():
            self._set(self.window_bytes + self.path.mtu_bytes * size / self.window_bytes)
            self.trigger = "increase"
        if self._flight.round_over():
            self._end_round()

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        self._flight.settled += size
        if kind is Loss.TIMEOUT:
            self._set(self.params.min_window_bytes)
            self.trigger = "timeout"
        else:
            self._cut(0.5, "loss")
        if self._flight.round_over():
            self._end_round()

    def state(self) -> dict[str, float]:
        return {"alpha": self.alpha}

    def _cut(self, share: float, why: str) -> None:
        if not self._held():
            self._cut_at = self._flight.sent
            self._set(self.window_bytes * (1 - share))
            self.trigger = why

    def _held(self) -> bool:
        return self._cut_at is not None and self._flight.settled <= self._cut_at

    def _end_round(self) -> None:
        if self._acked:
            g = self.params.g
            self.alpha = (1 - g) * self.alpha + g * self._marked / self._acked
        self._acked = self._marked = 0

    def _set(self, window: float) -> None:
        self.window_bytes = min(self.params.max_window_bytes, max(self.params.min_window_bytes, window))
