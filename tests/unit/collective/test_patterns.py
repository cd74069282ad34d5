"""Patterns: who sends to whom, when, and into whose memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.collective.check import count_wrong, initial_vectors
from traffic.collective.order import hazards
from traffic.collective.patterns import derangement, incast, pairs, permutation, staggered, victim
from traffic.collective.reduce import execute_in_memory
from traffic.errors import TrafficError


def test_incast_seven_to_one_has_a_barrier_between_rounds() -> None:
    schedule = incast(8, 7, 1000, receiver=3, rounds=3)
    assert [m.src for m in schedule.moves[:7]] == [4, 5, 6, 7, 0, 1, 2]
    assert {m.dst for m in schedule.moves} == {3} and len(schedule.moves) == 21
    assert schedule.moves[0].needs == () and schedule.moves[7].needs == tuple(range(7))
    assert [m.step for m in schedule.moves] == [0] * 7 + [1] * 7 + [2] * 7
    assert [m.flow for m in schedule.moves] == [*range(7)] * 3
    assert len({m.dst_offset for m in schedule.moves}) == 7
    assert hazards(schedule) == []


@given(
    senders=st.integers(1, 7),
    size=st.integers(1, 300),
    rounds=st.integers(1, 3),
    receiver=st.integers(0, 7),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_incast_delivers_every_senders_bytes(senders: int, size: int, rounds: int, receiver: int, seed: int) -> None:
    schedule = incast(8, senders, size, receiver, rounds)
    memories = initial_vectors(schedule, seed)
    first = [m.copy() for m in memories]
    assert count_wrong(schedule, first, seed)[0] > 0 or size < 2  # nothing delivered yet
    execute_in_memory(schedule, memories)
    assert count_wrong(schedule, memories, seed) == (0, senders * size)
    for move in schedule.moves[-senders:]:
        got = memories[receiver][move.dst_offset : move.dst_offset + size]
        assert np.array_equal(got, first[move.src][move.src_offset : move.src_offset + size])


def test_a_lost_last_round_is_seen() -> None:
    """The bytes of each round differ, so what round 1 left does not pass for round 2."""
    short, full = incast(4, 3, 1000, rounds=1), incast(4, 3, 1000, rounds=2)
    memories = initial_vectors(full, 7)
    for move in full.moves[:3]:
        memories[0][move.dst_offset : move.dst_offset + 1000] = memories[move.src][
            move.src_offset : move.src_offset + 1000
        ]
    wrong, checked = count_wrong(full, memories, 7)
    assert checked == 3000 and wrong > 2900  # a byte agrees by chance in 1 of 256
    assert len(short.moves) == 3


@pytest.mark.parametrize(("bytes_wrong", "change"), [(1, slice(0, 1)), (64, slice(100, 164))])
def test_damaged_bytes_are_counted(bytes_wrong: int, change: slice) -> None:
    schedule = incast(4, 3, 1000)
    memories = initial_vectors(schedule, 0)
    execute_in_memory(schedule, memories)
    at = schedule.moves[1].dst_offset
    memories[0][at : at + 1000][change] ^= 0xFF
    assert count_wrong(schedule, memories, 0) == (bytes_wrong, 3000)


def test_too_many_senders_are_refused_with_the_way_out() -> None:
    with pytest.raises(TrafficError) as error:
        incast(8, 8, 1000)
    assert str(error.value) == (
        "senders: 8 senders and a receiver do not fit on 8 hosts; use at most 7 senders, or a topology with at least 9 hosts"
    )


@given(ranks=st.integers(2, 64), seed=st.integers(0, 2**63))
def test_permutation_moves_every_rank(ranks: int, seed: int) -> None:
    order = derangement(ranks, seed)
    assert sorted(order) == list(range(ranks)) and all(i != j for i, j in enumerate(order))


def test_permutation_is_fixed_by_its_seed_and_zero_is_a_seed() -> None:
    assert derangement(16, 0) == derangement(16, 0) != derangement(16, 1)
    schedule = permutation(16, 100, seed=4)
    assert [m.dst for m in schedule.moves] == derangement(16, 4) and hazards(schedule) == []


def test_derangements_of_three_are_equally_likely() -> None:
    """There are two, (1,2,0) and (2,0,1); 400 seeds give each about 200 times (6 sigma: 60)."""
    first = sum(derangement(3, seed) == [1, 2, 0] for seed in range(400))
    assert abs(first - 200) < 60


def test_pairs_cross_the_fabric_by_default() -> None:
    assert [(m.src, m.dst) for m in pairs(8, 10).moves] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    both = pairs(8, 10, pairs=[(2, 5)], both_ways=True)
    assert [(m.src, m.dst) for m in both.moves] == [(2, 5), (5, 2)] and hazards(both) == []
    with pytest.raises(TrafficError, match="host 2 would send to itself"):
        pairs(8, 10, pairs=[(2, 2)])


def test_victim_runs_beside_the_incast_to_an_idle_host() -> None:
    """32 hosts, 8 a leaf: senders 0-6 and the victim's source 7 share leaf 0; receiver 31 and the victim's target 30 leaf 3."""
    schedule = victim(32, 1000, senders=7)
    assert [(m.src, m.dst) for m in schedule.moves] == [(i, 31) for i in range(7)] + [(7, 30)]
    assert victim(12, 10, receiver=0, victim_src=5, victim_dst=6).moves[-1].dst == 6
    with pytest.raises(TrafficError, match="needs 10 hosts, not 8"):
        victim(8, 1000, senders=7)


def test_staggered_senders_join_a_gap_apart() -> None:
    schedule = staggered(6, 4, 1000, gap_ns=50_000)
    assert [(m.src, m.start_ns) for m in schedule.moves] == [(1, 0), (2, 50_000), (3, 100_000), (4, 150_000)]
