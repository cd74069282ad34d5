"""All-reduce by recursive halving and doubling (Thakur, Rabenseifner, Gropp 2005): 2 log2(N) steps, the ring's bytes.

At each halving step a rank gives one half of what it still answers for to the partner at distance N/2, N/4, … 1, and adds
what the partner gives of the other half; doubling runs the same exchanges backwards with finished sums. Each step has its
own staging place, for a partner may be a step ahead of the one before.
"""

from __future__ import annotations

from traffic.collective.build import ELEMENT_BYTES, MoveList, chunks, need_positive, need_ranks
from traffic.collective.schedule import Schedule
from traffic.errors import TrafficError


def halving_doubling_allreduce(ranks: int, elements: int) -> Schedule:
    """Sum of all ranks' vectors at every rank; `ranks` is a power of two."""
    need_ranks(ranks, 2, "an all-reduce")
    need_positive(elements=elements)
    if ranks & (ranks - 1):
        low = 1 << (ranks.bit_length() - 1)
        raise TrafficError(
            f"halving-doubling needs a power of two, not {ranks} ranks",
            where="algorithm",
            remedy=f"use {low} or {2 * low} ranks, or the algorithm ring or tree, which take any number",
        )
    vector = elements * ELEMENT_BYTES
    parts, moves = chunks(elements, ranks), MoveList()

    def span(first: int, count: int) -> tuple[int, int]:
        return parts[first][0], sum(size for _, size in parts[first : first + count])

    first = [0] * ranks  # the chunks [first, first + width) that a rank still answers for
    got: list[tuple[int, ...]] = [() for _ in range(ranks)]
    staging, step, width = vector, 0, ranks
    while width > 1:
        half = width // 2
        arrived: list[tuple[int, ...]] = [() for _ in range(ranks)]
        largest = 0
        for rank in range(ranks):
            partner = rank ^ half
            offset, size = span(first[rank] + (0 if rank & half else half), half)
            largest = max(largest, size)
            arrived[partner] = moves.add(
                rank, partner, offset, staging, size, op="reduce", reduce_offset=offset, needs=got[rank], step=step
            )
        for rank in range(ranks):
            first[rank] += half if rank & half else 0
            got[rank] += arrived[rank]
        staging += largest
        width, step = half, step + 1
    while width < ranks:
        arrived = [() for _ in range(ranks)]
        for rank in range(ranks):
            offset, size = span(first[rank], width)
            arrived[rank ^ width] = moves.add(rank, rank ^ width, offset, offset, size, needs=got[rank], step=step)
        for rank in range(ranks):
            first[rank] &= ~width
            got[rank] += arrived[rank]
        width, step = 2 * width, step + 1
    return Schedule(
        "allreduce", "halving_doubling", ranks, vector, staging - vector, tuple(moves.moves), size_bytes=vector
    )
