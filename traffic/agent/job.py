"""The workload in execution: memory, moves that wait for others, what was posted and what arrived."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import Protocol

from traffic.agent.spec import MoveRecord, WorkerSpec
from traffic.collective.check import initial_vectors
from traffic.collective.reduce import apply_move
from traffic.collective.schedule import Move
from traffic.rng import Rng
from traffic.transport.base import Delivery, Memory, Verb, WorkRequest

_VA = 0x7F00_0000_0000


class Sender(Protocol):
    """The sending end of a connection: a queue pair, or a socket with messages on it."""

    flow: int

    def post(self, work: WorkRequest, now: int) -> None:
        """Queue a message."""


class Connected(Protocol):
    """A connection, as far as a job knows it."""

    @property
    def sender(self) -> Sender:
        """The end that sends."""


class Connects(Protocol):
    """Who makes connections."""

    def connect(self, src: int, dst: int, index: int) -> Connected:
        """The `index`-th one from `src` to `dst`."""


class Job:
    """Holds every rank's memory (vector, then staging) and decides what may be posted next.

    A move is striped over the connection's queue pairs (`qps`) in equal parts; its immediate data is the move's number, so
    the receiver learns from the wire which move came.
    """

    def __init__(self, spec: WorkerSpec, memories: list[Memory]) -> None:
        self.spec = spec
        self.schedule = spec.schedule
        self.buffers = initial_vectors(spec.schedule, spec.seed, spec.values)
        self.rkeys = [Rng(spec.seed, "rkey", rank).below(1 << 32) for rank in range(len(self.buffers))]
        for memory, rkey, buffer in zip(memories, self.rkeys, self.buffers, strict=True):
            memory.register(rkey, _VA, buffer.data)
        self.views = [b.data for b in self.buffers]
        self.moves: dict[int, Move] = {m.id: m for m in spec.schedule.moves}
        self.records = {m.id: MoveRecord(m.id, m.flow, m.step, m.src, m.dst, m.size) for m in spec.schedule.moves}
        self.waiting = {m.id: len(m.needs) for m in spec.schedule.moves}
        self.dependents: dict[int, list[int]] = defaultdict(list)
        for m in spec.schedule.moves:
            for need in m.needs:
                self.dependents[need].append(m.id)
        self.due = [(m.start_ns, m.id) for m in spec.schedule.moves if not m.needs]
        heapq.heapify(self.due)
        self.parts: dict[int, int] = {}
        self.acks: dict[int, int] = {}
        self.work: dict[int, list[WorkRequest]] = {}
        self.undelivered = len(self.moves)
        self.unacked = len(self.moves)
        self.connections: dict[tuple[int, int], list[Connected]] = {}

    def connect(self, connector: Connects, qps: int) -> None:
        """Make the connections that the moves need, before the start, in the order of first use."""
        for m in self.schedule.moves:
            key = (m.src, m.dst)
            if key not in self.connections:
                self.connections[key] = [connector.connect(m.src, m.dst, i) for i in range(qps)]
                for connection in self.connections[key]:
                    connection.sender.flow = m.flow

    def next_start(self) -> int | None:
        """When the next move may be posted, or None while all others wait for deliveries."""
        return self.due[0][0] if self.due else None

    def post_due(self, now: int) -> set[int]:
        """Post every move whose time has come; the ranks that now have something to send."""
        ranks = set()
        while self.due and self.due[0][0] <= now:
            _, number = heapq.heappop(self.due)
            ranks.add(self._post(self.moves[number], now))
        return ranks

    def _post(self, m: Move, now: int) -> int:
        pairs = self.connections[m.src, m.dst]
        mtu = self.spec.transport.mtu
        packets = max(1, -(-m.size // mtu))
        used = min(len(pairs), packets)
        self.records[m.id].start_ns = max(now, m.start_ns) if m.start_ns else now
        self.parts[m.id] = self.acks[m.id] = used
        self.work[m.id] = []
        source = self.views[m.src]
        for i in range(used):
            low = packets * i // used * mtu
            high = min(m.size, packets * (i + 1) // used * mtu)
            request = WorkRequest(
                id=m.id,
                verb=Verb.WRITE_IMM,
                local=source[m.src_offset + low : m.src_offset + high],
                remote_va=_VA + m.dst_offset + low,
                rkey=self.rkeys[m.dst],
                imm=m.id,
            )
            self.work[m.id].append(request)
            pairs[i].sender.post(request, now)
        return m.src

    def delivered(self, d: Delivery) -> None:
        """A message is in memory; its move is done when all its parts are, and others may start."""
        record = self.records[d.imm]
        record.ce = (record.ce or 0) + d.ce
        record.reordered = (record.reordered or 0) + d.reordered
        record.trimmed = (record.trimmed or 0) + d.trimmed
        record.delivered_ns = max(record.delivered_ns, d.at_ns)
        self.parts[d.imm] -= 1
        if self.parts[d.imm]:
            return
        move = self.moves[d.imm]
        apply_move(move, self.buffers[move.dst])
        self.undelivered -= 1
        for number in self.dependents[d.imm]:
            self.waiting[number] -= 1
            if not self.waiting[number]:
                heapq.heappush(self.due, (max(self.moves[number].start_ns, 0), number))

    def completed(self, work: WorkRequest, at: int) -> None:
        """The sender knows that a part arrived."""
        record = self.records[work.id]
        record.acked_ns = max(record.acked_ns, at)
        self.acks[work.id] -= 1
        self.unacked -= not self.acks[work.id]

    def final_records(self) -> list[MoveRecord]:
        """All records, with the senders' counts filled in."""
        for number, parts in self.work.items():
            record = self.records[number]
            record.sent = sum(w.sent for w in parts)
            record.retransmitted = sum(w.retransmitted for w in parts)
            record.timeouts = sum(w.timeouts for w in parts)
            record.bytes_acked = sum(w.bytes_acked for w in parts)
        return [self.records[m.id] for m in self.schedule.moves]
