"""What transports share: work requests, packets to send, deliveries, and the verbs of a queue pair.

A queue pair never sees a socket or a clock. The agent calls `receive` for each packet, `ready_at`/`emit` when the line
is free, `expire` when `next_timer` has come, and drains `control` (packets that leave at once). Sequence numbers are
unbounded integers inside and 24-bit PSNs on the wire. All times are fabric nanoseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from builtins import memoryview  # noqa: A004 - mypyc looks for the name of a field in the module
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from traffic.congestion.base import CongestionControl, ReceiverControl
from traffic.errors import TrafficError
from traffic.packet.codec import Packet
from traffic.packet.dscp import CONTROL, DATA, ECT0, tos

TOS_DATA: Final = tos(DATA, ECT0)
TOS_DATA_NO_ECT: Final = tos(DATA, 0)
TOS_CONTROL: Final = tos(CONTROL, 0)
NEVER: Final = 1 << 61
"""A time that does not come."""


class Verb(Enum):
    """What a work request asks for (names of the verbs API)."""

    WRITE = "write"
    WRITE_IMM = "write_imm"
    SEND = "send"
    SEND_IMM = "send_imm"
    SEND_INV = "send_inv"
    READ = "read"
    FETCH_ADD = "fetch_add"
    COMPARE_SWAP = "compare_swap"


@dataclass(slots=True)
class WorkRequest:
    """One message. `local` is read (WRITE, SEND) or filled (READ, atomics); `remote_va`/`rkey` name the far memory.

    `imm` is the immediate data or the R_Key to invalidate; `add` and `compare` serve the atomics (`add` is the swap
    value of COMPARE_SWAP). The rest is filled in by the queue pair.
    """

    id: int
    verb: Verb
    local: memoryview
    remote_va: int = 0
    rkey: int = 0
    imm: int = 0
    add: int = 0
    compare: int = 0
    first: int = 0
    packets: int = 0
    posted_ns: int = 0
    sent: int = 0
    retransmitted: int = 0
    timeouts: int = 0
    bytes_acked: int = 0


class Outgoing:
    """One packet to build: opcode, far queue pair, PSN, extension headers, payload, entropy (UDP source port), bits."""

    __slots__ = ("ack_req", "becn", "dest_qpn", "ext", "flags8", "opcode", "payload", "psn", "sport", "tos")

    def __init__(
        self,
        opcode: int,
        dest_qpn: int,
        psn: int,
        ext: bytes,
        payload: memoryview | bytes,
        sport: int,
        ack_req: bool,
        tos: int,
        becn: bool = False,
        flags8: int = 0,
    ) -> None:
        self.opcode = opcode
        self.dest_qpn = dest_qpn
        self.psn = psn
        self.ext = ext
        self.payload = payload
        self.sport = sport
        self.ack_req = ack_req
        self.tos = tos
        self.becn = becn
        self.flags8 = flags8


class Delivery(NamedTuple):
    """A message whose last byte is in the receiver's memory: immediate data and what its packets met on the way."""

    qpn: int
    verb: Verb
    imm: int
    size: int
    at_ns: int
    ce: int
    reordered: int
    trimmed: int


@dataclass(slots=True)
class Sink:
    """Where queue pairs leave what happened, for the agent to drain."""

    completed: list[tuple[WorkRequest, int]] = field(default_factory=list)
    delivered: list[Delivery] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    failures: list[TrafficError] = field(default_factory=list)
    reorder: dict[int, int] = field(default_factory=dict)
    cnp_sent: int = 0
    naks_sent: int = 0


class EventLog:
    """Leaves the events of one queue pair for events.jsonl."""

    def __init__(self, sink: Sink, qpn: int, label: str, merge_ns: int) -> None:
        self._rows = sink.log
        self._qpn = qpn
        self._label = label
        self._merge_ns = merge_ns
        self._open: dict[tuple[str, str], dict[str, Any]] = {}

    def note(self, now: int, kind: str, **fields: Any) -> dict[str, Any]:
        """One event."""
        event = {"time_ns": now, "kind": kind, "qp": self._qpn, "flow": self._label, **fields}
        self._rows.append(event)
        return event

    def tally(self, now: int, kind: str, why: str, **fields: Any) -> None:
        """One event; what comes again for the same reason within a base round trip adds to the `count` of the first."""
        event = self._open.get((kind, why))
        if event is not None and now - event["time_ns"] <= self._merge_ns:
            event["count"] += 1
        else:
            self._open[kind, why] = self.note(now, kind, why=why, count=1, **fields)


class Memory:
    """Registered memory of one host: R_Key → (virtual address of its first byte, bytes, may be written)."""

    def __init__(self) -> None:
        self._regions: dict[int, tuple[int, memoryview, bool]] = {}

    def register(self, rkey: int, va: int, view: memoryview, *, writable: bool = True) -> None:
        """Make `view` reachable as `va…` under `rkey`."""
        self._regions[rkey] = (va, view, writable)

    def invalidate(self, rkey: int) -> bool:
        """Forget a key; False where there was none."""
        return self._regions.pop(rkey, None) is not None

    def view(self, rkey: int, va: int, size: int, *, write: bool) -> memoryview | None:
        """The bytes at `va`, or None where key, range or right do not allow it (remote access error)."""
        region = self._regions.get(rkey)
        if region is None:
            return None
        base, view, writable = region
        start = va - base
        if start < 0 or start + size > len(view) or (write and not writable):
            return None
        return view[start : start + size]


class QueuePair(ABC):
    """One end of a connection; both ends can ask and answer.

    `receiving` is the receiver's half of congestion control, one for all queue pairs that end at a host; None where the
    algorithm has none.
    """

    def __init__(
        self,
        *,
        qpn: int,
        peer_qpn: int,
        label: str,
        mtu: int,
        cc: CongestionControl,
        memory: Memory,
        sink: Sink,
        first_psn: int,
        receiving: ReceiverControl | None = None,
    ) -> None:
        self.qpn = qpn
        self.peer_qpn = peer_qpn
        self.label = label
        self.mtu = mtu
        self.cc = cc
        self.memory = memory
        self.sink = sink
        self.psn0 = first_psn
        self.receiving = receiving
        self.log = EventLog(sink, qpn, label, cc.path.base_rtt_ns)
        self.control: deque[Outgoing] = deque()
        self.failed: TrafficError | None = None
        self.flow = -1
        """The flow it serves, for reports."""
        self.next_send = 0
        """Earliest time the pacer lets another data packet go."""
        self.last_rtt_ns = -1

    @abstractmethod
    def post(self, work: WorkRequest, now: int) -> None:
        """Queue a message."""

    @abstractmethod
    def ready_at(self, now: int) -> int:
        """When a data packet may leave: `now` or earlier for at once, `NEVER` while window or credit forbid it."""

    @abstractmethod
    def emit(self, now: int) -> Outgoing:
        """The next data packet; only when `ready_at` allowed it."""

    @abstractmethod
    def receive(self, packet: Packet, now: int, at: int) -> None:
        """Take a packet that arrived at `at` (kernel time stamp) and is handled at `now`."""

    @abstractmethod
    def next_timer(self) -> int:
        """When `expire` must be called (`NEVER`: not at all)."""

    @abstractmethod
    def expire(self, now: int) -> None:
        """Run the timers that are due."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether everything posted was acknowledged."""

    def notify(self) -> None:
        """Send the peer a congestion notification packet. Raises TrafficError where the transport has none."""
        raise TrafficError("this transport has no notification packets", where=self.label, remedy="use RC")

    def grant(self, size: int) -> None:
        """Send the peer `size` bytes of credit more. Raises TrafficError where the transport carries none."""
        raise TrafficError("this transport carries no credits", where=self.label, remedy="use RC or MRC")

    def pace(self, now: int, wire_bytes: int) -> None:
        """Charge one packet to the pacer."""
        rate = self.cc.rate_bps
        if rate is not None:
            gap = int(wire_bytes * 8e9 / rate)
            self.next_send = (self.next_send if self.next_send > now - gap else now) + gap

    def fail(self, what: str, remedy: str) -> None:
        """End the connection; the agent ends the run with it."""
        if self.failed is None:
            self.failed = TrafficError(what, where=self.label, remedy=remedy)
            self.sink.failures.append(self.failed)
