"""All-reduce over two binary trees (Sanders, Speck, Träff 2009; the shape NCCL uses since 2.4).

Each tree carries half of the vector: sums go up to its root, the result comes down. A rank that has children in one tree is
a leaf of the other (but rank 0 of an odd number, with one child in each), so no rank sends or receives more than twice the
vector: t = ~2 log2(N) latencies + 2S/B. The halves
travel in segments that follow each other through the tree. A parent has one staging place per child.
"""

from __future__ import annotations

from traffic.collective.build import ELEMENT_BYTES, MoveList, chunks, need_positive, need_ranks
from traffic.collective.schedule import Schedule

_MAX_CHILDREN = 2


def parents(ranks: int) -> list[int | None]:
    """Parent of each rank in the first tree: odd ranks are leaves, rank 0 is the root (with one child).

    With the lowest set bit b of r, the parent is r with b cleared and 2b set, or with b cleared only where that is no rank.
    """
    out: list[int | None] = [None]
    for rank in range(1, ranks):
        low = rank & -rank
        up = (rank ^ low) | low << 1
        out.append(up if up < ranks else rank ^ low)
    return out


def second_parents(ranks: int) -> list[int | None]:
    """Parent of each rank in the second tree: the first one mirrored (even N) or shifted by one rank (odd N)."""
    out: list[int | None] = [None] * ranks
    for rank, up in enumerate(parents(ranks)):
        if ranks % 2:
            out[(rank + 1) % ranks] = None if up is None else (up + 1) % ranks
        else:
            out[ranks - 1 - rank] = None if up is None else ranks - 1 - up
    return out


def _depths(tree: list[int | None]) -> list[int]:
    out = []
    for rank in range(len(tree)):
        depth, up = 0, tree[rank]
        while up is not None:
            depth, up = depth + 1, tree[up]
        out.append(depth)
    return out


def _one_tree(moves: MoveList, tree: list[int | None], pieces: list[tuple[int, int]], vector: int) -> None:
    depths = _depths(tree)
    deepest = max(depths)
    by_depth = sorted(range(len(tree)), key=lambda r: (depths[r], r))
    slot: dict[int, int] = {}
    children: dict[int, int] = {}
    for rank in by_depth:
        up = tree[rank]
        if up is not None:
            slot[rank] = children.get(up, 0)
            children[up] = slot[rank] + 1
    for offset, size in pieces:
        summed: dict[int, tuple[int, ...]] = {}
        for rank in reversed(by_depth):
            up = tree[rank]
            if up is not None:
                done = moves.add(
                    rank, up, offset, vector * (1 + slot[rank]) + offset, size, op="reduce", reduce_offset=offset,
                    needs=summed.get(rank, ()), step=deepest - depths[rank],
                )  # fmt: skip
                summed[up] = summed.get(up, ()) + done
        ready: dict[int, tuple[int, ...]] = {}
        for rank in by_depth:
            up = tree[rank]
            if up is None:
                ready[rank] = summed.get(rank, ())
            else:
                step = deepest + depths[rank] - 1
                ready[rank] = moves.add(up, rank, offset, offset, size, needs=ready[up], step=step)


def tree_allreduce(ranks: int, elements: int, segments: int = 8) -> Schedule:
    """Sum of all ranks' vectors at every rank, over two trees, each half in `segments` pieces."""
    need_ranks(ranks, 2, "an all-reduce")
    need_positive(elements=elements, segments=segments)
    vector = elements * ELEMENT_BYTES
    pieces, moves = chunks(elements, 2 * segments), MoveList()
    _one_tree(moves, parents(ranks), pieces[:segments], vector)
    _one_tree(moves, second_parents(ranks), pieces[segments:], vector)
    return Schedule("allreduce", "tree", ranks, vector, _MAX_CHILDREN * vector, tuple(moves.moves), size_bytes=vector)
