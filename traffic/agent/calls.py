"""Calls of a program's ranks in execution: collectives and messages that become moves once their ranks have joined.

A move may start when its sender and its receiver have both called, and everything it needs was delivered. A rank's call is
done when all that it gets has arrived and all that it sends was acknowledged. Moves between two ranks of one host are
copies in memory and cross no network. No sockets here: `RankServer` brings the calls and carries the answers away.
"""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traffic.agent.ledger import Connects, Ledger
from traffic.agent.spec import MoveRecord, WorkerSpec
from traffic.collective.calls import Signature, apply, moves_of, schedule_of
from traffic.collective.schedule import Move, Schedule
from traffic.errors import TrafficError
from traffic.transport.base import Delivery, Memory, WorkRequest

Answer = Callable[[int, TrafficError | None], None]
"""Told at a fabric time that a rank's call is done, or why it cannot be."""


@dataclass(slots=True)
class Part:
    """One rank's part of a call: its memory, where that is registered, whom to tell, and what it still waits for."""

    memory: NDArray[np.uint8]
    va: int
    rkey: int
    answer: Answer
    joined_ns: int
    missing: int = 0


@dataclass(slots=True)
class Call:
    """One collective or message. `members` are the program's ranks by their place in it."""

    key: Hashable
    members: Sequence[int]
    signature: Signature
    schedule: Schedule
    first: int
    number: int
    parts: dict[int, Part] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    wakes: dict[int, list[int]] = field(default_factory=dict)
    left: int = 0
    sums: dict[int, int] = field(default_factory=dict)


class Calls(Ledger):
    """Work that arrives while the loop runs. `host_of[rank]` is the host of each rank of the program."""

    def __init__(self, spec: WorkerSpec, memories: list[Memory], host_of: Sequence[int]) -> None:
        super().__init__(spec.transport.mtu)
        self.host_of = host_of
        self.memories = memories
        self.qps = int(spec.transport.options["qps"])
        self.undelivered = 0
        self.closing = False
        """Set when no more calls can come."""
        self.events: list[dict[str, Any]] = []
        self._open: dict[Hashable, Call] = {}
        self._call_of: dict[int, Call] = {}
        self._due: list[tuple[int, int]] = []
        self._next = 0
        self._calls = 0
        self._flows: dict[tuple[int, int], int] = {}
        self._gone: set[int] = set()
        self._acked = self._asked = 0
        self._wrong = self._checked = 0
        self._connector: Connects | None = None

    def connect(self, connector: Connects, qps: int) -> None:
        """Connections are made when the first move needs them."""
        self._connector = connector

    # -- calls -------------------------------------------------------------------------------------------------------

    def join(
        self, key: Hashable, members: Sequence[int], place: int, signature: Signature, part: Part, now: int
    ) -> None:
        """Rank `members[place]` calls. Raises TrafficError where it does not fit what the others called."""
        call = self._open.get(key)
        if call is None:
            call = self._begin(key, members, signature)
        elif call.signature != signature or list(call.members) != list(members):
            other = call.members[next(iter(call.parts))]
            raise TrafficError(
                f"rank {members[place]} calls {signature.text}, rank {other} calls {call.signature.text}",
                where=f"call {call.number}",
                remedy="all ranks of a group must make the same calls in the same order",
            )
        missing = next((r for i, r in enumerate(members) if r in self._gone and i not in call.parts), None)
        if missing is not None:
            self._open.pop(key, None)
            raise TrafficError(
                f"rank {missing} left before it joined this {signature.kind}",
                where=f"call {call.number}",
                remedy=f"see why rank {missing} ended",
            )
        call.parts[place] = part
        mine = moves_of(signature)[place]
        part.missing = len(mine)
        if not mine:
            self._done(call, place, now)
        for move in mine:
            self._less(call, move, now)

    def _begin(self, key: Hashable, members: Sequence[int], signature: Signature) -> Call:
        schedule = schedule_of(signature)
        call = Call(key, members, signature, schedule, self._next, self._calls, left=len(members))
        self._calls += 1
        self._next += len(schedule.moves)
        call.waiting = [len(m.needs) + 2 for m in schedule.moves]
        wakes: dict[int, list[int]] = defaultdict(list)
        for move in schedule.moves:
            self._call_of[call.first + move.id] = call
            for need in move.needs:
                wakes[need].append(move.id)
        call.wakes = wakes
        self._open[key] = call
        self.undelivered += len(schedule.moves)
        self._asked += sum(m.size for m in schedule.moves)
        return call

    def _less(self, call: Call, move: int, now: int) -> None:
        """A move waits for one thing less."""
        call.waiting[move] -= 1
        if not call.waiting[move]:
            heapq.heappush(self._due, (now, call.first + move))

    def _done(self, call: Call, place: int, now: int) -> None:
        """All of a rank's part is done."""
        part = call.parts[place]
        self._compare(call, place, part)
        call.left -= 1
        if not call.left:
            self._open.pop(call.key, None)
        self.events.append(
            {
                "time_ns": part.joined_ns,
                "kind": "call",
                "rank": call.members[place],
                "call": call.number,
                "what": call.signature.text,
                "done_ns": now,
            }
        )
        part.answer(now, None)

    def _compare(self, call: Call, place: int, part: Part) -> None:
        """What every rank must have alike is compared by checksum, for a rank may go on and change it."""
        s = call.signature
        if s.kind in ("allreduce", "broadcast", "all_gather"):
            call.sums[place] = zlib.crc32(part.memory.data[: call.schedule.vector_bytes])
            if len(call.sums) == s.ranks:
                self._checked += s.count * s.ranks
                first = call.sums[0]
                self._wrong += s.count * sum(value != first for value in call.sums.values())

    def leave(self, rank: int, now: int) -> None:
        """A rank is gone: every call that waits for it fails for those that have joined."""
        self._gone.add(rank)
        for key, call in list(self._open.items()):
            place = next((i for i, member in enumerate(call.members) if member == rank), None)
            if place is None or place in call.parts:
                continue
            del self._open[key]
            names = ", ".join(str(call.members[i]) for i in call.parts)
            error = TrafficError(
                f"rank {rank} left while rank {names} waits for it in {call.signature.text}",
                where=f"call {call.number}",
                remedy=f"see why rank {rank} ended",
            )
            for part in call.parts.values():
                part.answer(now, error)

    # -- the loop's side ---------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether no call can come any more and everything that was sent is acknowledged."""
        return self.closing and not self.work

    def next_start(self) -> int | None:
        """When the next move may be posted."""
        return self._due[0][0] if self._due else None

    def post_due(self, now: int) -> set[int]:
        """Post every move whose time has come; the hosts that now have something to send."""
        hosts = set()
        while self._due and self._due[0][0] <= now:
            _, number = heapq.heappop(self._due)
            call = self._call_of[number]
            move = call.schedule.moves[number - call.first]
            a, b = self.host_of[call.members[move.src]], self.host_of[call.members[move.dst]]
            if a == b:
                del self._call_of[number]
                self._copy(call, move, now)
            else:
                self._post(call, move, number, a, b, now)
                hosts.add(a)
        return hosts

    def _copy(self, call: Call, move: Move, now: int) -> None:
        source, target = call.parts[move.src].memory, call.parts[move.dst].memory
        target[move.dst_offset : move.dst_offset + move.size] = source[move.src_offset : move.src_offset + move.size]
        self._acked += move.size
        self._arrived(call, move, now)
        self._sent(call, move, now)

    def _post(self, call: Call, move: Move, number: int, a: int, b: int, now: int) -> None:
        assert self._connector is not None
        flow = self._flows.setdefault((a, b), len(self._flows))
        self.connect_pair(self._connector, a, b, self.qps, flow)
        self.records[number] = MoveRecord(number, flow, call.number, a, b, move.size, start_ns=now)
        source = call.parts[move.src].memory.data[move.src_offset : move.src_offset + move.size]
        target = call.parts[move.dst]
        self.post_move(number, source, target.va + move.dst_offset, target.rkey, now)

    def delivered(self, d: Delivery) -> None:
        """A message is in memory."""
        if self.note_delivery(d):
            call = self._call_of[d.imm]
            self._arrived(call, call.schedule.moves[d.imm - call.first], d.at_ns)

    def _arrived(self, call: Call, move: Move, now: int) -> None:
        apply(move, call.parts[move.dst].memory, call.signature)
        self.undelivered -= 1
        for woken in call.wakes.get(move.id, ()):
            self._less(call, woken, now)
        self._fewer(call, move.dst, now)

    def completed(self, work: WorkRequest, at: int) -> None:
        """The sender knows that a message arrived."""
        if self.note_completion(work, at):
            call = self._call_of.pop(work.id)
            self.count(work.id)
            self._acked += self.records[work.id].size
            del self.work[work.id]
            self._sent(call, call.schedule.moves[work.id - call.first], at)

    def _sent(self, call: Call, move: Move, now: int) -> None:
        self._fewer(call, move.src, now)

    def _fewer(self, call: Call, place: int, now: int) -> None:
        part = call.parts[place]
        part.missing -= 1
        if not part.missing:
            self._done(call, place, now)

    def progress(self) -> tuple[int, int]:
        """Bytes acknowledged, and bytes of all calls so far."""
        return self._acked, self._asked

    def verify(self) -> tuple[int, int]:
        """(wrong, checked) elements of results that all ranks must have alike."""
        return self._wrong, self._checked

    def averages(self) -> list[tuple[int, float]] | None:
        """No values are given to a program."""
        return None

    def final_records(self) -> list[MoveRecord]:
        """All moves that crossed the network, in the order of their numbers."""
        for number in self.work:
            self.count(number)
        return [self.records[number] for number in sorted(self.records)]
