"""What was posted, what arrived, what was acknowledged: the books that every kind of work keeps of its moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from traffic.agent.spec import MoveRecord
from traffic.transport.base import Delivery, Verb, WorkRequest


class Sender(Protocol):
    """The sending end of a connection: a queue pair, or a socket with messages on it."""

    flow: int

    def post(self, work: WorkRequest, now: int) -> None:
        """Queue a message."""


class Connected(Protocol):
    """A connection, as far as the books know it."""

    @property
    def sender(self) -> Sender:
        """The end that sends."""


class Connects(Protocol):
    """Who makes connections."""

    def connect(self, src: int, dst: int, index: int) -> Connected:
        """The `index`-th one from `src` to `dst`."""


class Ledger:
    """A move is striped over its connection's queue pairs in equal parts; its immediate data is the move's number, so the
    receiver learns from the wire which move came. It is done at each end when all its parts are.
    """

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        self.records: dict[int, MoveRecord] = {}
        self.connections: dict[tuple[int, int], list[Connected]] = {}
        self.parts: dict[int, int] = {}
        self.acks: dict[int, int] = {}
        self.work: dict[int, list[WorkRequest]] = {}

    def connect_pair(self, connector: Connects, src: int, dst: int, qps: int, flow: int) -> list[Connected]:
        """The connections from `src` to `dst`, made at the first call; `flow` names them in reports."""
        found = self.connections.get((src, dst))
        if found is None:
            found = self.connections[src, dst] = [connector.connect(src, dst, i) for i in range(qps)]
            for connection in found:
                connection.sender.flow = flow
        return found

    def post_move(self, number: int, source: memoryview, remote_va: int, rkey: int, now: int) -> None:
        """Hand a move's bytes to its connections. Its record must be there, and they must be made."""
        record = self.records[number]
        pairs = self.connections[record.src, record.dst]
        packets = max(1, -(-record.size // self.mtu))
        used = min(len(pairs), packets)
        self.parts[number] = self.acks[number] = used
        self.work[number] = []
        for i in range(used):
            low = packets * i // used * self.mtu
            high = min(record.size, packets * (i + 1) // used * self.mtu)
            request = WorkRequest(
                id=number,
                verb=Verb.WRITE_IMM,
                local=source[low:high],
                remote_va=remote_va + low,
                rkey=rkey,
                imm=number,
            )
            self.work[number].append(request)
            pairs[i].sender.post(request, now)

    def note_delivery(self, d: Delivery) -> bool:
        """Book a part that is in memory; whether its move is now whole."""
        record = self.records[d.imm]
        record.ce = (record.ce or 0) + d.ce
        record.reordered = (record.reordered or 0) + d.reordered
        record.trimmed = (record.trimmed or 0) + d.trimmed
        record.delivered_ns = max(record.delivered_ns, d.at_ns)
        self.parts[d.imm] -= 1
        return not self.parts[d.imm]

    def note_completion(self, work: WorkRequest, at: int) -> bool:
        """Book a part that the sender knows to have arrived; whether all of its move has."""
        record = self.records[work.id]
        record.acked_ns = max(record.acked_ns, at)
        self.acks[work.id] -= 1
        return not self.acks[work.id]

    def count(self, number: int) -> None:
        """Fill in what the senders of a move counted."""
        parts: Sequence[WorkRequest] = self.work.get(number, ())
        record = self.records[number]
        record.sent = sum(w.sent for w in parts)
        record.retransmitted = sum(w.retransmitted for w in parts)
        record.timeouts = sum(w.timeouts for w in parts)
        record.bytes_acked = sum(w.bytes_acked for w in parts)

    def state(self) -> dict[str, int]:
        """For somebody who watches: packets retransmitted; of a collective the step that the slowest rank is in, and all steps."""
        out = {"retransmitted": sum(w.retransmitted for parts in self.work.values() for w in parts)}
        steps = 1 + max((r.step for r in self.records.values()), default=0)
        if steps > 1:
            left = min((r.step for r in self.records.values() if r.delivered_ns < 0), default=steps - 1)
            out |= {"step": left + 1, "steps": steps}
        return out

    def bytes_acked(self) -> int:
        """Bytes acknowledged so far of the moves whose requests are kept."""
        return sum(w.bytes_acked for parts in self.work.values() for w in parts)
