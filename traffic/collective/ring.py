"""Ring algorithms (Patarasuk and Yuan 2009): reduce-scatter, all-gather, all-reduce; chains: broadcast, reduce.

A rank hears only from its left neighbour and speaks only to its right one. All-reduce takes exactly 2(N-1) steps, and each
rank sends 2(N-1)/N of its vector. Each chunk has its own place in the staging area (at the chunk's own offset), so that a
fast left neighbour never overwrites a chunk that is still being added.
"""

from __future__ import annotations

from traffic.collective.build import ELEMENT_BYTES, MoveList, chunks, need_positive, need_rank, need_ranks
from traffic.collective.schedule import Schedule

_Held = dict[tuple[int, int], tuple[int, ...]]
"""(rank, chunk) -> the moves that must be delivered before the rank may pass the chunk on."""


def _scatter(moves: MoveList, parts: list[tuple[int, int]], vector_bytes: int) -> _Held:
    """Reduce-scatter: after N-1 steps rank r holds the sum of chunk r."""
    n = len(parts)
    held: _Held = {}
    for step in range(n - 1):
        for rank in range(n):
            chunk = (rank - step - 1) % n
            offset, size = parts[chunk]
            right = (rank + 1) % n
            held[right, chunk] = moves.add(
                rank, right, offset, vector_bytes + offset, size, op="reduce", reduce_offset=offset,
                needs=held.get((rank, chunk), ()), step=step,
            )  # fmt: skip
    return held


def _gather(moves: MoveList, parts: list[tuple[int, int]], held: _Held, first_step: int) -> None:
    """All-gather: rank r passes on chunk r first, then what came from the left."""
    n = len(parts)
    for step in range(n - 1):
        for rank in range(n):
            chunk = (rank - step) % n
            offset, size = parts[chunk]
            right = (rank + 1) % n
            held[right, chunk] = moves.add(
                rank, right, offset, offset, size, needs=held.get((rank, chunk), ()), step=first_step + step
            )


def ring_allreduce(ranks: int, elements: int) -> Schedule:
    """Sum of all ranks' vectors at every rank: N-1 reduce-scatter and N-1 all-gather steps."""
    need_ranks(ranks, 2, "an all-reduce")
    need_positive(elements=elements)
    vector = elements * ELEMENT_BYTES
    parts, moves = chunks(elements, ranks), MoveList()
    _gather(moves, parts, _scatter(moves, parts, vector), ranks - 1)
    return Schedule("allreduce", "ring", ranks, vector, vector, tuple(moves.moves), size_bytes=vector)


def reduce_scatter(ranks: int, elements: int) -> Schedule:
    """Rank r ends with the sum of chunk r; `elements` is the whole vector that each rank brings."""
    need_ranks(ranks, 2, "a reduce-scatter")
    need_positive(elements=elements)
    vector = elements * ELEMENT_BYTES
    parts, moves = chunks(elements, ranks), MoveList()
    _scatter(moves, parts, vector)
    result = tuple((rank, offset, size) for rank, (offset, size) in enumerate(parts) if size)
    return Schedule(
        "reduce_scatter", "ring", ranks, vector, vector, tuple(moves.moves), size_bytes=vector, result=result
    )


def all_gather(ranks: int, elements: int) -> Schedule:
    """Rank r brings chunk r; every rank ends with the whole vector of `elements`."""
    need_ranks(ranks, 2, "an all-gather")
    need_positive(elements=elements)
    vector = elements * ELEMENT_BYTES
    moves = MoveList()
    _gather(moves, chunks(elements, ranks), {}, 0)
    return Schedule("all_gather", "ring", ranks, vector, 0, tuple(moves.moves), size_bytes=vector)


def broadcast(ranks: int, elements: int, root: int = 0, segments: int = 8) -> Schedule:
    """The root's vector at every rank, along a chain in `segments` pieces that follow each other."""
    need_ranks(ranks, 2, "a broadcast")
    need_positive(elements=elements, segments=segments)
    need_rank(root, ranks, "root")
    vector = elements * ELEMENT_BYTES
    moves = MoveList()
    for offset, size in chunks(elements, segments):
        ready: tuple[int, ...] = ()
        for hop in range(ranks - 1):
            src, dst = (root + hop) % ranks, (root + hop + 1) % ranks
            ready = moves.add(src, dst, offset, offset, size, needs=ready, step=hop)
    return Schedule("broadcast", "chain", ranks, vector, 0, tuple(moves.moves), size_bytes=vector)


def reduce(ranks: int, elements: int, root: int = 0, segments: int = 8) -> Schedule:
    """The sum of all vectors at the root, along a chain that ends there, in `segments` pieces."""
    need_ranks(ranks, 2, "a reduce")
    need_positive(elements=elements, segments=segments)
    need_rank(root, ranks, "root")
    vector = elements * ELEMENT_BYTES
    moves = MoveList()
    for offset, size in chunks(elements, segments):
        ready: tuple[int, ...] = ()
        for hop in range(ranks - 1):
            src, dst = (root + 1 + hop) % ranks, (root + 2 + hop) % ranks
            ready = moves.add(
                src, dst, offset, vector + offset, size, op="reduce", reduce_offset=offset, needs=ready, step=hop
            )
    return Schedule(
        "reduce", "chain", ranks, vector, vector, tuple(moves.moves), size_bytes=vector, result=((root, 0, vector),)
    )
