"""Collectives: the result is the sum in any order of delivery, and the counts are those of the published algorithms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.collective.all_to_all import all_to_all
from traffic.collective.build import chunks
from traffic.collective.check import count_wrong, initial_vectors, vector_values
from traffic.collective.halving_doubling import halving_doubling_allreduce
from traffic.collective.order import hazards
from traffic.collective.reduce import execute_in_memory
from traffic.collective.ring import all_gather, broadcast, reduce, reduce_scatter, ring_allreduce
from traffic.collective.schedule import Schedule
from traffic.collective.tree import parents, second_parents, tree_allreduce
from traffic.errors import TrafficError

RANKS = st.integers(2, 16)
ELEMENTS = st.integers(1, 257)
ALLREDUCE = {"ring": ring_allreduce, "tree": tree_allreduce, "halving_doubling": halving_doubling_allreduce}


def run(schedule: Schedule, seed: int, order: int) -> list[np.ndarray]:
    """Memories after the schedule ran, with moves that may run at once taken in the order that `order` shuffles."""
    memories = initial_vectors(schedule, seed)
    rank_of = np.random.default_rng(order).permutation(len(schedule.moves)).tolist()
    execute_in_memory(schedule, memories, rank_of)
    return memories


def floats(memory: np.ndarray, schedule: Schedule) -> np.ndarray:
    return memory[: schedule.vector_bytes].view(np.float32)


@given(elements=st.integers(0, 5000), parts=st.integers(1, 64))
def test_chunks_cover_the_vector_and_differ_by_one_element(elements: int, parts: int) -> None:
    cut = chunks(elements, parts)
    assert len(cut) == parts and sum(size for _, size in cut) == 4 * elements
    assert all(cut[i][0] + cut[i][1] == cut[i + 1][0] for i in range(parts - 1))
    assert max(s for _, s in cut) - min(s for _, s in cut) <= 4


@pytest.mark.parametrize("name", ALLREDUCE)
@settings(max_examples=40, deadline=None)
@given(ranks=RANKS, elements=ELEMENTS, seed=st.integers(0, 2**32), order=st.integers(0, 2**32))
def test_allreduce_gives_every_rank_the_sum(name: str, ranks: int, elements: int, seed: int, order: int) -> None:
    if name == "halving_doubling":
        ranks = 1 << (ranks.bit_length() - 1)
    schedule = ALLREDUCE[name](ranks, elements)
    memories = run(schedule, seed, order)
    # the oracle: what the ranks started with, added in float64, where these eighths are exact
    want = sum(vector_values(seed, r, elements).astype(np.float64) for r in range(ranks))
    for memory in memories:
        assert np.array_equal(floats(memory, schedule), want)
    assert count_wrong(schedule, memories, seed) == (0, ranks * elements)


@pytest.mark.parametrize("ranks", range(2, 17))
def test_no_move_reads_bytes_that_are_not_final(ranks: int) -> None:
    for elements in (1, ranks - 1, ranks, 3 * ranks + 1):
        made = [ring_allreduce(ranks, elements), reduce_scatter(ranks, elements), all_gather(ranks, elements)]
        made += [broadcast(ranks, elements, ranks - 1, 3), reduce(ranks, elements, ranks // 2, 3)]
        made += [
            all_to_all(ranks, elements),
            all_to_all(ranks, elements, "pairwise"),
            tree_allreduce(ranks, elements, 3),
        ]
        if ranks & (ranks - 1) == 0:
            made.append(halving_doubling_allreduce(ranks, elements))
        for schedule in made:
            assert hazards(schedule) == [], schedule.name


@pytest.mark.parametrize("ranks", range(2, 17))
def test_ring_takes_two_n_minus_one_steps(ranks: int) -> None:
    """2(N-1) steps of N moves, not the 2N-1 that one published generator makes; also where N does not divide the vector."""
    elements = 3 * ranks + 1
    schedule = ring_allreduce(ranks, elements)
    assert schedule.steps == 2 * (ranks - 1)
    assert len(schedule.moves) == 2 * (ranks - 1) * ranks
    assert {m.dst for m in schedule.moves if m.src == 0} == {1 % ranks}
    # every chunk is sent N-1 times by reduce-scatter and N-1 times by all-gather
    assert sum(m.size for m in schedule.moves) == 2 * (ranks - 1) * 4 * elements
    assert max(m.size for m in schedule.moves) - min(m.size for m in schedule.moves) == 4


def test_ring_skips_empty_chunks() -> None:
    """8 ranks, 3 elements: three chunks of one element cross 2*7 links each, the five empty ones none."""
    schedule = ring_allreduce(8, 3)
    assert len(schedule.moves) == 3 * 2 * 7 and all(m.size == 4 for m in schedule.moves)


def test_reduce_scatter_leaves_chunk_r_at_rank_r() -> None:
    schedule = reduce_scatter(4, 10)
    assert schedule.result == ((0, 0, 12), (1, 12, 12), (2, 24, 8), (3, 32, 8))
    assert count_wrong(schedule, run(schedule, 1, 2), 1) == (0, 10)
    assert schedule.steps == 3


def test_all_gather_and_broadcast_copy_every_byte() -> None:
    for schedule, start in ((all_gather(5, 12), None), (broadcast(5, 12, root=3, segments=5), 3)):
        first = initial_vectors(schedule, 9)
        memories = run(schedule, 9, 4)
        want = (
            first[start].copy()
            if start is not None
            else np.concatenate([first[r][o : o + s] for r, (o, s) in enumerate(chunks(12, 5))])
        )
        assert all(np.array_equal(m, want) for m in memories)
        assert count_wrong(schedule, memories, 9)[0] == 0


def test_reduce_gives_the_root_the_sum() -> None:
    schedule = reduce(6, 17, root=4)
    assert count_wrong(schedule, run(schedule, 3, 8), 3) == (0, 17)
    assert schedule.result == ((4, 0, 68),)


@given(ranks=RANKS, elements=ELEMENTS, order=st.integers(0, 1000), algorithm=st.sampled_from(["direct", "pairwise"]))
@settings(max_examples=40, deadline=None)
def test_all_to_all_puts_block_j_of_rank_i_in_place_i_of_rank_j(
    ranks: int, elements: int, order: int, algorithm: str
) -> None:
    schedule = all_to_all(ranks, elements, algorithm)
    first, memories = initial_vectors(schedule, 5), run(schedule, 5, order)
    for j, (offset, size) in enumerate(chunks(elements, ranks)):
        for i in range(ranks):
            if i != j:
                place = 4 * elements + i * size
                assert np.array_equal(memories[j][place : place + size], first[i][offset : offset + size])


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_halving_doubling_takes_two_log_n_steps_and_the_rings_bytes(ranks: int) -> None:
    schedule = halving_doubling_allreduce(ranks, 16 * ranks)
    assert schedule.steps == 2 * int(math.log2(ranks))
    sent = [sum(m.size for m in schedule.moves if m.src == r) for r in range(ranks)]
    assert sent == [2 * (ranks - 1) * 64] * ranks  # 2(N-1)/N of 64N bytes


def test_halving_doubling_refuses_other_numbers() -> None:
    with pytest.raises(TrafficError) as error:
        halving_doubling_allreduce(6, 12)
    assert str(error.value) == (
        "algorithm: halving-doubling needs a power of two, not 6 ranks; "
        "use 4 or 8 ranks, or the algorithm ring or tree, which take any number"
    )


@pytest.mark.parametrize("ranks", range(2, 33))
def test_the_two_trees_reach_all_ranks_and_share_no_inner_rank(ranks: int) -> None:
    inner: list[set[int]] = []
    two: list[set[int]] = []
    for tree in (parents(ranks), second_parents(ranks)):
        assert sum(up is None for up in tree) == 1
        children = [sum(up == r for up in tree) for r in range(ranks)]
        assert max(children) <= 2
        for rank in range(ranks):
            hops, at = 0, rank
            while tree[at] is not None:
                at, hops = tree[at], hops + 1  # type: ignore[assignment]
            assert hops <= math.ceil(math.log2(ranks)) + 1
        inner.append({r for r in range(ranks) if children[r]})
        two.append({r for r in range(ranks) if children[r] == 2})
    assert inner[0] & inner[1] == ({0} if ranks % 2 else set())
    assert not two[0] & inner[1] and not inner[0] & two[1]


def test_first_tree_of_eight_ranks() -> None:
    """By hand: 0 over 4; 4 over 2 and 6; 2 over 1 and 3; 6 over 5 and 7. Odd ranks are leaves."""
    assert parents(8) == [None, 2, 4, 2, 0, 6, 4, 6]


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 13])
def test_no_rank_of_the_tree_sends_more_than_twice_the_vector(ranks: int) -> None:
    schedule = tree_allreduce(ranks, 1600)
    for rank in range(ranks):
        assert sum(m.size for m in schedule.moves if m.src == rank) <= 2 * 6400
        assert sum(m.size for m in schedule.moves if m.dst == rank) <= 2 * 6400


@pytest.mark.parametrize("make", [ring_allreduce, tree_allreduce, halving_doubling_allreduce, all_gather, all_to_all])
def test_one_rank_is_refused(make: object) -> None:
    with pytest.raises(TrafficError, match="at least 2 ranks"):
        make(1, 8)  # type: ignore[operator]
