"""What every congestion control is: a small state machine told what happened, asked for a rate or a window.

All times are fabric nanoseconds, sizes bytes of payload, rates bits per second of payload plus headers on the wire.
An algorithm owns no clock, no socket and no randomness but what it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar


class Feedback(Enum):
    """What an algorithm needs the receiver to send."""

    NONE = "none"  # nothing beyond reliability
    CNP = "cnp"  # a congestion notification packet, at most one per interval
    ACK = "ack"  # an acknowledgement with an ECN echo for every packet
    CREDIT = "credit"  # receiver credits


class Loss(Enum):
    """How the sender learned that a packet did not arrive whole."""

    NACK = "nack"
    TRIM = "trim"
    TRIM_LAST_HOP = "trim_last_hop"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class PathInfo:
    """What a sender knows of its network: line rate (bit/s), base round trip (ns), payload and wire bytes of a full packet, hops."""

    line_rate_bps: int
    base_rtt_ns: int
    mtu_bytes: int
    wire_mtu_bytes: int
    hops: int = 4

    @property
    def bdp_bytes(self) -> int:
        """Bytes on the wire in one base round trip at line rate."""
        return self.line_rate_bps * self.base_rtt_ns // 8_000_000_000


class CongestionControl:
    """Base of all algorithms; on its own it never limits (`--cc none`)."""

    name: ClassVar[str] = "none"
    feedback: ClassVar[Feedback] = Feedback.NONE
    rate_bps: float | None = None
    """The pace of the flow, or None to send at line rate."""
    window_bytes: float | None = None
    """Payload bytes that may be in flight, or None for no limit; may be below one packet (then paced by `rate_bps`)."""
    trigger: str = "start"
    """Why the state last changed: one word for `rates.parquet`."""

    def __init__(self, *, path: PathInfo, params: Mapping[str, Any]) -> None:
        self.path = path
        self.params = params

    def sent(self, *, now: int, size: int) -> None:
        """A packet with `size` bytes of payload left (also a retransmission)."""

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        """`size` bytes were acknowledged; `rtt_ns` is the packet's own round trip where known; `ce` its ECN echo."""

    def marked(self, *, now: int) -> None:
        """A CNP arrived."""

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        """A packet was found lost or trimmed."""

    def credited(self, *, now: int, size: int) -> None:
        """The receiver granted `size` more bytes (credit schemes)."""

    def penalised(self, *, now: int, penalty: int) -> None:
        """The receiver asks for restraint: 0 none … 127 one packet per round trip (MRC's rcv_cwnd_pen)."""

    def expired(self, *, now: int) -> None:
        """The deadline of `next_timer` has come."""

    def next_timer(self) -> int | None:
        """When `expired` wants to be called, or None."""
        return None

    def state(self) -> dict[str, float]:
        """What to record beside rate and window: alpha, target, stage …"""
        return {}
