"""Schedules of calls for any element type: the result of every collective against numpy, for sizes that do not divide."""

from __future__ import annotations

import numpy as np
import pytest

from traffic.collective.calls import DTYPES, OPS, Signature, apply, memory_bytes, moves_of, schedule_of
from traffic.collective.order import topological
from traffic.errors import TrafficError


def run(signature: Signature, vectors: list[np.ndarray]) -> list[np.ndarray]:
    """The call in memory: each rank's vector afterwards."""
    schedule = schedule_of(signature)
    memories = [np.zeros(memory_bytes(signature), np.uint8) for _ in vectors]
    for memory, vector in zip(memories, vectors, strict=True):
        memory[: vector.nbytes] = vector.view(np.uint8)
    for move in topological(schedule):
        source = memories[move.src][move.src_offset : move.src_offset + move.size]
        memories[move.dst][move.dst_offset : move.dst_offset + move.size] = source
        apply(move, memories[move.dst], signature)
    return [memory[: vectors[0].nbytes].view(signature.dtype) for memory in memories]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("algorithm", "ranks"), [("ring", 3), ("tree", 5), ("halving_doubling", 4)])
@pytest.mark.parametrize("count", [1, 7, 64])
def test_allreduce_is_the_sum_at_every_rank(dtype: str, algorithm: str, ranks: int, count: int) -> None:
    vectors = [(np.arange(count) % 5 + rank).astype(dtype) for rank in range(ranks)]
    want = sum(v.astype(np.int64) for v in vectors)
    for got in run(Signature("allreduce", algorithm, ranks, count, dtype), vectors):
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("op", OPS)
def test_each_reduction_is_numpys(op: str) -> None:
    vectors = [np.array([1, 5, 2, 9], np.int32) + rank for rank in range(3)]
    want = OPS[op](OPS[op](vectors[0], vectors[1]), vectors[2])
    for got in run(Signature("allreduce", "ring", 3, 4, "int32", op), vectors):
        assert got.tolist() == want.tolist()


def test_gather_scatter_and_broadcast() -> None:
    own = [np.zeros(6, np.float64) for _ in range(3)]
    for rank, vector in enumerate(own):
        vector[2 * rank : 2 * rank + 2] = rank + 1
    for got in run(Signature("all_gather", "ring", 3, 6, "float64"), own):
        assert got.tolist() == [1, 1, 2, 2, 3, 3]
    scattered = run(Signature("reduce_scatter", "ring", 3, 6, "float64"), [np.arange(6.0) for _ in range(3)])
    assert [scattered[rank][2 * rank : 2 * rank + 2].tolist() for rank in range(3)] == [[0, 3], [6, 9], [12, 15]]
    sent = [np.full(5, rank, np.uint8) for rank in range(4)]
    for got in run(Signature("broadcast", "chain", 4, 5, "uint8", root=2), sent):
        assert got.tolist() == [2] * 5


def test_a_message_goes_from_the_first_to_the_second() -> None:
    _, got = run(Signature("send", "send", 2, 3, "uint8"), [np.array([1, 2, 3], np.uint8), np.zeros(3, np.uint8)])
    assert got.tolist() == [1, 2, 3]


def test_every_move_belongs_to_its_two_ranks() -> None:
    signature = Signature("allreduce", "ring", 4, 8, "float32")
    mine = moves_of(signature)
    assert [len(moves) for moves in mine] == [12] * 4  # 2 (N - 1) sent and as many got
    for move in schedule_of(signature).moves:
        assert [rank for rank in range(4) if move.id in mine[rank]] == sorted((move.src, move.dst))


@pytest.mark.parametrize(
    ("signature", "what"),
    [
        (Signature("allreduce", "ring", 2, 4, "bfloat16"), "no elements of type bfloat16"),
        (Signature("allreduce", "ring", 2, 4, "float32", "xor"), "no reduction xor"),
        (Signature("allreduce", "halving_doubling", 3, 4, "float32"), "halving-doubling needs a power of two"),
    ],
)
def test_what_there_is_not(signature: Signature, what: str) -> None:
    with pytest.raises(TrafficError, match=what):
        schedule_of(signature)
