"""A window with a delay to aim at: grow by a packet a round trip below it, shrink in proportion above it."""

from __future__ import annotations

from typing import Any

from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo


class Mine(CongestionControl):
    """Aims at a round trip of twice the empty one, once a round trip at most downwards."""

    feedback = Feedback.ACK

    def __init__(self, *, path: PathInfo, params: Any = None) -> None:
        super().__init__(path=path, params=params)
        self.window_bytes: float = path.bdp_payload_bytes + 2 * path.mtu_bytes
        self.target_ns = 2 * path.base_rtt_ns
        self.next_cut = 0

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        if rtt_ns is None:
            return
        if rtt_ns <= self.target_ns:
            self.window_bytes += self.path.mtu_bytes * size / self.window_bytes
            self.trigger = "grow"
        elif now >= self.next_cut:
            self.window_bytes *= max(0.5, self.target_ns / rtt_ns)
            self.next_cut = now + rtt_ns
            self.trigger = "delay"
        self._bound()

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        if now >= self.next_cut:
            self.window_bytes /= 2
            self.next_cut = now + self.path.base_rtt_ns
            self.trigger = "loss"
        self._bound()

    def _bound(self) -> None:
        least, most = self.path.mtu_bytes, 2 * self.path.bdp_payload_bytes + 2 * self.path.mtu_bytes
        self.window_bytes = min(max(self.window_bytes, least), most)
