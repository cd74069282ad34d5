"""Initial data, the count of wrong elements, bus bandwidth, the registry, unsound schedules."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from traffic.collective.busbw import bandwidth, factor
from traffic.collective.check import averages, content, count_wrong, initial_vectors, tolerance, vector_values
from traffic.collective.order import hazards, topological
from traffic.collective.reduce import execute_in_memory
from traffic.collective.registry import kinds, make_schedule, parameters
from traffic.collective.ring import ring_allreduce
from traffic.collective.schedule import Move, Schedule
from traffic.errors import TrafficError


def test_values_are_odd_eighths_so_that_any_order_of_addition_is_exact() -> None:
    data = vector_values(3, 1, 10_000)
    eighths = data * 8
    assert np.array_equal(eighths, np.rint(eighths)) and np.all(eighths.astype(int) % 2 == 1)
    assert data.min() >= -127.875 and data.max() <= 127.875
    assert not np.array_equal(data, vector_values(3, 2, 10_000)) and not np.array_equal(
        data, vector_values(4, 1, 10_000)
    )


def test_content_of_a_part_is_the_part_of_the_content() -> None:
    whole = content(1, 2, 0, 100)
    assert np.array_equal(content(1, 2, 13, 50), whole[13:63])


@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving_doubling"])
def test_four_ranks_agree_on_three_quarters(algorithm: str) -> None:
    """0.7 + 0.9 + 0.6 + 0.8 = 3, a quarter of it 0.75; as float32 it is rounded, within 4·2^-24·3 = 7.2e-7."""
    values = [0.7, 0.9, 0.6, 0.8]
    schedule = make_schedule("allreduce", ranks=4, size=4000, algorithm=algorithm)
    memories = initial_vectors(schedule, 0, values)
    execute_in_memory(schedule, memories)
    assert count_wrong(schedule, memories, 0, values) == (0, 4000)
    assert tolerance(values) == pytest.approx(7.15e-7, rel=1e-3)
    assert [f"{a:.6g}" for a in averages(schedule, memories).values()] == ["0.75"] * 4
    memories[2][:4000].view(np.float32)[5] += 1e-5
    memories[3][:4000].view(np.float32)[6] = np.nan
    assert count_wrong(schedule, memories, 0, values) == (2, 4000)


def test_a_missed_or_doubled_addition_is_wrong_in_every_element() -> None:
    schedule = ring_allreduce(4, 400)
    memories = initial_vectors(schedule, 5)
    execute_in_memory(schedule, memories)
    memories[1][:1600].view(np.float32)[:] += vector_values(5, 2, 400)
    assert count_wrong(schedule, memories, 5) == (400, 1600)
    assert count_wrong(schedule, {1: memories[1]}, 5) == (400, 400)  # a worker with one rank
    assert count_wrong(schedule, {0: memories[0], 3: memories[3]}, 5) == (0, 800)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], "2 values for 4 ranks"),
        ([1.0, 2.0, float("nan"), 1.0], "no finite float32"),
        ([1e39, 0, 0, 0], "no finite float32"),
    ],
)
def test_wrong_values_are_refused(values: list[float], message: str) -> None:
    with pytest.raises(TrafficError, match=message):
        initial_vectors(ring_allreduce(4, 8), 0, values)


def test_values_need_a_reduction() -> None:
    with pytest.raises(TrafficError, match="only a reduction takes values"):
        initial_vectors(make_schedule("incast", ranks=4, senders=3, size=100), 0, [1, 2, 3, 4])


def test_bus_bandwidth_as_nccl_tests_defines_it() -> None:
    """doc/PERFORMANCE.md of nccl-tests: all-reduce 2(n-1)/n, scatter, gather and all-to-all (n-1)/n, broadcast, reduce 1."""
    assert factor("allreduce", 8) == 1.75 and factor("allreduce", 2) == 1.0
    assert factor("reduce_scatter", 8) == factor("all_gather", 8) == factor("all_to_all", 8) == 0.875
    assert factor("broadcast", 8) == factor("reduce", 8) == factor("pairs", 2) == 1.0
    with pytest.raises(TrafficError, match="'incast' has no bus bandwidth"):
        factor("incast", 8)
    # 4 MB in 320 us over 8 ranks: 100 Gbit/s, times 1.75
    assert bandwidth("allreduce", 8, 4_000_000, 320_000) == (100.0, 1.75, 175.0)


def test_registry_makes_every_workload() -> None:
    given = {
        "ranks": 12, "size": 960, "senders": 5, "gap_ns": 10,
    }  # fmt: skip
    for kind, algorithms in kinds().items():
        for algorithm in algorithms:
            wanted = parameters(kind, algorithm)
            params = {k: v for k, v in given.items() if k in wanted}
            if algorithm == "halving_doubling":
                params["ranks"] = 8
            schedule = make_schedule(kind, algorithm=algorithm, **params)
            assert schedule.name == kind and schedule.size_bytes == 960 and schedule.algorithm == algorithm
            assert hazards(schedule) == []


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("allreduse", {}, "workload: unknown workload 'allreduse'; did you mean 'allreduce'? known: "),
        (
            "allreduce",
            {"algorithm": "rng"},
            "algorithm: unknown algorithm 'rng'; did you mean 'ring'? known: ring, tree",
        ),
        (
            "incast",
            {"sender": 3},
            "parameter of incast: unknown parameter of incast 'sender'; did you mean 'senders'? known: ",
        ),
        ("incast", {"ranks": 8}, "incast: incast needs senders, size; give each a value"),
        (
            "allreduce",
            {"ranks": 4, "size": 4001},
            "size: a vector of 4001 bytes is no whole number of float32; use a multiple of 4, such as 4000",
        ),
    ],
)
def test_registry_refuses_with_the_three_parts(kind: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(TrafficError) as error:
        make_schedule(kind, **params)  # type: ignore[arg-type]
    assert str(error.value).startswith(message)


def test_a_schedule_survives_json() -> None:
    schedule = make_schedule("reduce_scatter", ranks=3, size=40)
    raw = json.loads(json.dumps(asdict(schedule)))
    raw["moves"] = tuple(Move(**{**m, "needs": tuple(m["needs"])}) for m in raw["moves"])
    assert Schedule(**raw) == schedule


def test_unsound_schedules_are_found() -> None:
    ring = ring_allreduce(3, 9)
    loose = replace(ring, moves=tuple(replace(m, needs=()) if m.step == 2 else m for m in ring.moves))
    assert any("reads while" in h or "writes while" in h for h in hazards(loose))
    shared = replace(ring, moves=tuple(replace(m, dst_offset=36) if m.op == "reduce" else m for m in ring.moves))
    assert any("writes while" in h for h in hazards(shared))
    outside = replace(ring, vector_bytes=32)
    assert any("outside" in h for h in hazards(outside))
    first = ring.moves[0]
    with pytest.raises(TrafficError, match="needs move 99, which does not exist"):
        topological(replace(ring, moves=(replace(first, needs=(99,)),)))
    with pytest.raises(TrafficError, match="wait for each other"):
        topological(replace(ring, moves=(replace(first, needs=(1,)), replace(ring.moves[1], needs=(0,)))))
