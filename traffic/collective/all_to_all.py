"""All-to-all: rank i's block j goes to rank j. A rank's memory holds what it sends, then what it receives."""

from __future__ import annotations

from traffic.collective.build import ELEMENT_BYTES, MoveList, chunks, need_positive, need_ranks
from traffic.collective.schedule import Schedule
from traffic.errors import TrafficError

_ALGORITHMS = ("direct", "pairwise")


def all_to_all(ranks: int, elements: int, algorithm: str = "direct") -> Schedule:
    """Each rank's vector of `elements` in N blocks, block j for rank j; a rank's own block does not cross the network.

    `direct` starts all exchanges at once; with `pairwise` a rank starts with the next partner when both its last
    exchange's directions are done. In step s rank i sends to rank i+1+s, so no rank is everyone's first target.
    """
    need_ranks(ranks, 2, "an all-to-all")
    need_positive(elements=elements)
    if algorithm not in _ALGORITHMS:
        remedy = f"use one of {', '.join(_ALGORITHMS)}"
        raise TrafficError(f"unknown all-to-all algorithm {algorithm!r}", where="algorithm", remedy=remedy)
    vector = elements * ELEMENT_BYTES
    parts, moves = chunks(elements, ranks), MoveList()
    before: list[tuple[int, ...]] = [() for _ in range(ranks)]
    for step in range(ranks - 1):
        now: list[tuple[int, ...]] = [() for _ in range(ranks)]
        for rank in range(ranks):
            peer = (rank + 1 + step) % ranks
            offset, size = parts[peer]
            needs = before[rank] if algorithm == "pairwise" else ()
            done = moves.add(rank, peer, offset, vector + rank * size, size, needs=needs, step=step)
            now[rank] += done
            now[peer] += done
        before = now
    received = ranks * parts[0][1]
    return Schedule("all_to_all", algorithm, ranks, vector + received, 0, tuple(moves.moves), size_bytes=vector)
