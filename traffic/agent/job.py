"""The workload in execution: memory, moves that wait for others, what was posted and what arrived."""

from __future__ import annotations

import heapq
from collections import defaultdict

from traffic.agent.ledger import Connects, Ledger
from traffic.agent.pages import populate
from traffic.agent.spec import MoveRecord, WorkerSpec
from traffic.collective.check import averages, count_wrong, initial_vectors
from traffic.collective.reduce import apply_move
from traffic.collective.schedule import Move
from traffic.rng import Rng
from traffic.transport.base import Delivery, Memory, WorkRequest

_VA = 0x7F00_0000_0000


class Job(Ledger):
    """A schedule known from the start. Holds every rank's memory (vector, then staging), decides what may be posted next."""

    def __init__(self, spec: WorkerSpec, memories: list[Memory]) -> None:
        super().__init__(spec.transport.mtu)
        self.spec = spec
        self.schedule = spec.schedule
        self.buffers = initial_vectors(spec.schedule, spec.seed, spec.values)
        self.rkeys = [Rng(spec.seed, "rkey", rank).below(1 << 32) for rank in range(len(self.buffers))]
        for memory, rkey, buffer in zip(memories, self.rkeys, self.buffers, strict=True):
            memory.register(rkey, _VA, buffer.data)
        for rank, buffer in enumerate(self.buffers):
            populate(buffer, ((m.dst_offset, m.dst_offset + m.size) for m in spec.schedule.moves if m.dst == rank))
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
        self.undelivered = len(self.moves)
        self.unacked = len(self.moves)

    def connect(self, connector: Connects, qps: int) -> None:
        """Make the connections that the moves need, before the start, in the order of first use."""
        for m in self.schedule.moves:
            self.connect_pair(connector, m.src, m.dst, qps, m.flow)

    @property
    def finished(self) -> bool:
        """Whether everything was delivered and acknowledged."""
        return not self.undelivered and not self.unacked

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
        self.records[m.id].start_ns = max(now, m.start_ns) if m.start_ns else now
        source = self.views[m.src][m.src_offset : m.src_offset + m.size]
        self.post_move(m.id, source, _VA + m.dst_offset, self.rkeys[m.dst], now)
        return m.src

    def delivered(self, d: Delivery) -> None:
        """A message is in memory; its move is done when all its parts are, and others may start."""
        if not self.note_delivery(d):
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
        self.unacked -= self.note_completion(work, at)

    def progress(self) -> tuple[int, int]:
        """Bytes acknowledged, and bytes in all."""
        return self.bytes_acked(), sum(m.size for m in self.schedule.moves)

    def verify(self) -> tuple[int, int]:
        """(wrong, checked) of what the workload left in memory."""
        return count_wrong(self.schedule, self.buffers, self.spec.seed, self.spec.values)

    def averages(self) -> list[tuple[int, float]] | None:
        """With values: the average each rank arrived at."""
        return sorted(averages(self.schedule, self.buffers).items()) if self.spec.values is not None else None

    def final_records(self) -> list[MoveRecord]:
        """All records, with the senders' counts filled in."""
        for number in self.work:
            self.count(number)
        return [self.records[m.id] for m in self.schedule.moves]
