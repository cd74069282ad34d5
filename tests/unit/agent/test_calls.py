"""Calls that ranks make as they go, over a wire that delivers at once: when they start, when they are done, who is to blame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from traffic.agent.calls import Calls, Part
from traffic.agent.spec import HostSpec, TransportSpec, WorkerSpec
from traffic.collective.calls import Signature, memory_bytes
from traffic.collective.schedule import Schedule
from traffic.errors import TrafficError
from traffic.transport.base import Delivery, Memory, Verb, WorkRequest

SUM = Signature("allreduce", "ring", 2, 6, "float32")
VA = 1 << 20


class Wire:
    """Both ends of every connection; what is posted waits until `carry`."""

    flow = -1

    def __init__(self, memories: list[Memory]) -> None:
        self.memories = memories
        self.posted: list[tuple[int, WorkRequest]] = []
        self.made: list[tuple[int, int]] = []

    def connect(self, src: int, dst: int, index: int) -> Wire:
        self.made.append((src, dst))
        end = Wire(self.memories)
        end.posted, end.target = self.posted, dst
        return end

    target = -1

    @property
    def sender(self) -> Wire:
        return self

    def post(self, work: WorkRequest, now: int) -> None:
        self.posted.append((self.target, work))


class World:
    """Calls on `hosts` hosts, rank r on host_of[r], with the answers each rank got."""

    def __init__(self, host_of: list[int]) -> None:
        count = max(host_of) + 1
        hosts = [HostSpec(f"host{i}", i, "", "", "", "", "", 10**11) for i in range(count)]
        table = [[0] * count for _ in range(count)]
        transport = TransportSpec("roce", 4096, "dcqcn", options={"qps": 1})
        self.memories = [Memory() for _ in range(count)]
        spec = WorkerSpec(
            "t",
            1,
            1,
            "virtual",
            hosts,
            transport,
            Schedule("x", "x", 2, 0, 0, ()),
            table,
            table,
            table,
            limit_fabric_ns=1,
            limit_wall_s=1.0,
            hold_ps_per_byte=table,
        )
        self.calls = Calls(spec, self.memories, host_of)
        self.wire = Wire(self.memories)
        self.calls.connect(self.wire, 1)
        self.answers: dict[int, list[tuple[int, str | None]]] = {}
        self.host_of = host_of
        self.vectors: dict[int, np.ndarray] = {}

    def join(
        self,
        rank: int,
        values: list[float],
        now: int,
        *,
        key: Any = "a",
        members: tuple[int, ...] = (0, 1),
        signature: Signature = SUM,
    ) -> None:
        memory = np.zeros(memory_bytes(signature), np.uint8)
        memory.view(np.float32)[: len(values)] = values
        va, rkey = VA * (rank + 1), 100 + rank
        self.memories[self.host_of[rank]].register(rkey, va, memory.data)
        self.vectors[rank] = memory.view(np.float32)

        def answer(at: int, error: TrafficError | None) -> None:
            self.answers.setdefault(rank, []).append((at, None if error is None else error.what))

        self.calls.join(key, members, members.index(rank), signature, Part(memory, va, rkey, answer, now), now)

    def carry(self, now: int) -> None:
        """Deliver and acknowledge everything until nothing more is posted."""
        while self.calls.post_due(now) or self.wire.posted:
            posted, self.wire.posted[:] = list(self.wire.posted), []
            for host, work in posted:
                target = self.memories[host].view(work.rkey, work.remote_va, work.local.nbytes, write=True)
                assert target is not None
                target[:] = work.local
                self.calls.delivered(Delivery(1, Verb.WRITE_IMM, work.imm, work.local.nbytes, now, 0, 0, 0))
                self.calls.completed(work, now)


def test_nothing_is_sent_before_both_have_called_and_both_get_the_sum() -> None:
    world = World([0, 1])
    world.join(0, [1, 2, 3, 4, 5, 6], 10)
    world.carry(10)
    assert world.wire.made == [] and world.answers == {}
    world.join(1, [10, 20, 30, 40, 50, 60], 25)
    world.carry(30)
    for rank in (0, 1):
        assert world.vectors[rank][:6].tolist() == [11, 22, 33, 44, 55, 66]
        assert world.answers[rank] == [(30, None)]
    assert world.wire.made == [(0, 1), (1, 0)]
    records = world.calls.final_records()
    assert [(r.src, r.dst, r.size, r.start_ns, r.delivered_ns) for r in records][:2] == [
        (0, 1, 12, 30, 30),
        (1, 0, 12, 30, 30),
    ]
    assert world.calls.verify() == (0, 12)
    assert {(e["rank"], e["time_ns"], e["done_ns"]) for e in world.calls.events} == {(0, 10, 30), (1, 25, 30)}


def test_two_ranks_of_one_host_use_no_network() -> None:
    world = World([0, 0])
    world.join(0, [1] * 6, 0)
    world.join(1, [2] * 6, 5)
    world.carry(5)
    assert world.wire.made == [] and world.calls.final_records() == []
    assert world.vectors[0][:6].tolist() == world.vectors[1][:6].tolist() == [3] * 6
    assert world.answers == {0: [(5, None)], 1: [(5, None)]}


def test_ranks_that_call_different_things_are_named() -> None:
    world = World([0, 1])
    world.join(0, [1] * 6, 0)
    other = Signature("allreduce", "ring", 2, 4, "float32")
    with pytest.raises(
        TrafficError, match="rank 1 calls allreduce sum of 4 float32, rank 0 calls allreduce sum of 6 float32"
    ):
        world.join(1, [1] * 4, 0, signature=other)


def test_a_rank_that_leaves_fails_those_that_wait_for_it() -> None:
    world = World([0, 1])
    world.join(0, [1] * 6, 0)
    world.calls.leave(1, 7)
    assert world.answers == {0: [(7, "rank 1 left while rank 0 waits for it in allreduce sum of 6 float32")]}
    with pytest.raises(TrafficError, match="rank 1 left before it joined this allreduce"):
        world.join(0, [1] * 6, 9, key="b")


def test_a_rank_may_leave_once_it_has_joined() -> None:
    world = World([0, 1])
    world.join(0, [1] * 6, 0)
    world.join(1, [2] * 6, 0)
    world.calls.leave(1, 0)
    world.carry(3)
    assert world.answers[0] == [(3, None)]


def test_a_result_that_differs_between_ranks_counts_as_wrong() -> None:
    world = World([0, 1])
    world.join(0, [1] * 6, 0)
    world.join(1, [2] * 6, 0)
    world.calls.post_due(1)
    while world.wire.posted:
        (host, work), *rest = world.wire.posted
        world.wire.posted[:] = rest
        if work.imm != 2:  # the first copy of the all-gather half never reaches memory
            target = world.memories[host].view(work.rkey, work.remote_va, work.local.nbytes, write=True)
            assert target is not None
            target[:] = work.local
        world.calls.delivered(Delivery(1, Verb.WRITE_IMM, work.imm, work.local.nbytes, 1, 0, 0, 0))
        world.calls.completed(work, 1)
        world.calls.post_due(1)
    assert world.calls.verify() == (6, 12)


def test_it_is_finished_when_told_and_nothing_is_under_way() -> None:
    world = World([0, 1])
    world.join(0, [1] * 6, 0)
    world.join(1, [2] * 6, 0)
    world.calls.post_due(0)
    world.calls.closing = True
    assert not world.calls.finished
    world.carry(1)
    assert world.calls.finished
    assert world.calls.progress() == (48, 48)  # two moves of 12 bytes from each rank
