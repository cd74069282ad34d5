"""What every congestion control is: a small state machine told what happened, asked for a rate, a window or credit.

All times are fabric nanoseconds, sizes bytes of payload, rates bits per second of payload plus headers on the wire.
An algorithm owns no clock, no socket and no randomness but what it is given. Of things that happen at one instant, packets
are told before timers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from traffic.congestion.params import Params, Preset


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
    """What a sender knows of its network: line rate (bit/s), base round trip (ns), payload and wire bytes of a full packet, hops,
    and whether its switches trim."""

    line_rate_bps: int
    base_rtt_ns: int
    mtu_bytes: int
    wire_mtu_bytes: int
    hops: int = 4
    trimming: bool = False

    @property
    def bdp_bytes(self) -> int:
        """Bytes on the wire in one base round trip at line rate."""
        return self.line_rate_bps * self.base_rtt_ns // 8_000_000_000

    @property
    def bdp_payload_bytes(self) -> int:
        """Payload bytes in one base round trip at line rate: the window that just fills the path."""
        return self.bdp_bytes * self.mtu_bytes // self.wire_mtu_bytes


class ReceiverControl:
    """The receiver's half, one object for a receiving port and all queue pairs that end there; on its own it asks for nothing.

    A queue pair is any hashable integer. Grants are increments; a transport carries them as a running total, so that a lost one
    is made good by the next.
    """

    parameters: ClassVar[type[Params]] = Params

    def __init__(self, *, path: PathInfo, params: Any = None) -> None:
        self.path = path
        self.params = params

    def arrived(
        self, *, now: int, qp: int, size: int, ce: bool, credit_target: int = 0, trimmed: Loss | None = None
    ) -> None:
        """Data arrived: `size` payload bytes (as sent, if it was `trimmed`), its CE mark, and the sender's `credit_target`."""

    def requested(self, *, now: int, qp: int, credit_target: int) -> None:
        """A sender asked without data; `credit_target` is the total credit it wishes to have been given since its start."""

    def idle(self, *, now: int, qp: int) -> None:
        """The queue pair has all its data, or is gone: forget it."""

    def expired(self, *, now: int) -> None:
        """The deadline of `next_timer` has come."""

    def next_timer(self) -> int | None:
        """When `expired` wants to be called, or None."""
        return None

    def take_grants(self) -> list[tuple[int, int]]:
        """(queue pair, payload bytes) to grant now; each is handed out once."""
        return []

    def take_cnps(self) -> list[int]:
        """Queue pairs whose sender must be sent a CNP now; each is handed out once."""
        return []

    def penalty(self, *, qp: int) -> int:
        """What to put in the next acknowledgement: 0 none … 127 one packet per round trip (MRC's rcv_cwnd_pen)."""
        return 0


class CongestionControl:
    """Never limits: every packet leaves at line rate, and nothing is asked of the receiver."""

    name: ClassVar[str] = "none"
    feedback: ClassVar[Feedback] = Feedback.NONE
    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""
    parameters: ClassVar[type[Params]] = Params
    presets: ClassVar[Mapping[str, Preset]] = {}
    receiver: ClassVar[type[ReceiverControl] | None] = None
    may_exceed_line: ClassVar[bool] = False
    """A rate above the line is meant, not a mistake (the checker asks)."""

    rate_bps: float | None = None
    """The pace of the flow, or None to send at line rate."""
    window_bytes: float | None = None
    """Payload bytes that may be in flight, or None for no limit; may be below one packet (then paced by `rate_bps`)."""
    credit_bytes: float | None = None
    """Payload bytes the receiver still allows, or None without credits; a packet may leave while it is above zero."""
    trigger: str = "start"
    """Why the state last changed: one word for `rates.parquet`."""

    def __init__(self, *, path: PathInfo, params: Any = None) -> None:
        self.path = path
        self.params = params

    def may_send(self, *, in_flight: int, size: int) -> bool:
        """Whether a packet of `size` payload bytes may leave when its turn comes, with `in_flight` bytes not yet acknowledged."""
        if self.credit_bytes is not None and self.credit_bytes <= 0:
            return False
        return self.window_bytes is None or in_flight == 0 or in_flight + size <= self.window_bytes

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

    def credit_target(self, *, backlog: int) -> int:
        """Total credit to ask for, with `backlog` bytes still to send (retransmissions too): goes into every data packet."""
        return 0

    def penalised(self, *, now: int, penalty: int) -> None:
        """The receiver asks for restraint: 0 none … 127 one packet per round trip (MRC's rcv_cwnd_pen); holds until changed."""

    def expired(self, *, now: int) -> None:
        """The deadline of `next_timer` has come."""

    def next_timer(self) -> int | None:
        """When `expired` wants to be called, or None."""
        return None

    def state(self) -> dict[str, float]:
        """What to record beside rate and window: alpha, target, stage …"""
        return {}
