"""A congestion control of your own. As it stands it sends at line rate, whatever happens."""

from __future__ import annotations

from typing import Any

from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo


class Mine(CongestionControl):
    """Is told what happened, and keeps `rate_bps` or `window_bytes` up to date. It owns no clock and no randomness."""

    feedback = Feedback.ACK  # an acknowledgement with an ECN echo for every packet

    def __init__(self, *, path: PathInfo, params: Any = None) -> None:
        super().__init__(path=path, params=params)
        # Choose one: a pace in bit/s, or a window in bytes that may be on their way (then self.window_bytes: float = ...).
        # path.bdp_payload_bytes is the window that just fills the empty path.
        self.rate_bps: float = path.line_rate_bps

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        """`size` bytes arrived. `ce`: their packet was marked; `rtt_ns`: its round trip. self.path.base_rtt_ns is one without queues."""
        # Your part. Grow while the path is free, shrink when it is not; never below one packet (self.path.mtu_bytes).

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        """A packet was lost: the queue was full."""
