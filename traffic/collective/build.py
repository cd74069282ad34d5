"""Helpers that every schedule is made with: even chunks, moves with dense numbers, checked arguments."""

from __future__ import annotations

from collections.abc import Sequence

from traffic.collective.schedule import Move, Op
from traffic.errors import TrafficError

ELEMENT_BYTES = 4
"""Vectors are float32."""

_ALIGN = 64


def chunks(elements: int, parts: int) -> list[tuple[int, int]]:
    """`parts` consecutive chunks of a float32 vector as (byte offset, bytes); sizes differ by at most one element."""
    base, longer = divmod(elements, parts)
    out = []
    at = 0
    for i in range(parts):
        count = base + (i < longer)
        out.append((at * ELEMENT_BYTES, count * ELEMENT_BYTES))
        at += count
    return out


def need_ranks(ranks: int, least: int, what: str) -> None:
    """Raise when there are too few ranks for `what`."""
    if ranks < least:
        raise TrafficError(
            f"{what} needs at least {least} ranks, not {ranks}", where="ranks", remedy=f"use {least} or more"
        )


def need_positive(**values: int) -> None:
    """Raise for the first named number that is below 1."""
    for name, value in values.items():
        if value < 1:
            raise TrafficError(f"{name} is {value}; it must be at least 1", where=name, remedy="use a positive number")


def need_rank(rank: int, ranks: int, name: str) -> None:
    """Raise when `rank` is no rank of the workload."""
    if not 0 <= rank < ranks:
        raise TrafficError(f"rank {rank} does not exist", where=name, remedy=f"the ranks are 0 to {ranks - 1}")


class MoveList:
    """Collects moves; numbers them and their flows (one flow per source and destination) in order of appearance."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self._flows: dict[tuple[int, int], int] = {}

    def add(
        self,
        src: int,
        dst: int,
        src_offset: int,
        dst_offset: int,
        size: int,
        *,
        op: Op = "copy",
        reduce_offset: int = 0,
        needs: Sequence[int] = (),
        start_ns: int = 0,
        step: int = 0,
        flow: int | None = None,
    ) -> tuple[int, ...]:
        """Add a move; answer what the next one in the chain must wait for. An empty move is skipped: that is `needs`."""
        if size == 0:
            return tuple(needs)
        if flow is None:
            flow = self._flows.setdefault((src, dst), len(self._flows))
        move = Move(
            id=len(self.moves), src=src, dst=dst, src_offset=src_offset, dst_offset=dst_offset, size=size, op=op,
            reduce_offset=reduce_offset, needs=tuple(dict.fromkeys(needs)), start_ns=start_ns, step=step, flow=flow,
        )  # fmt: skip
        self.moves.append(move)
        return (move.id,)


def align(size: int) -> int:
    """`size` rounded up to a multiple of 64 bytes."""
    return -(-size // _ALIGN) * _ALIGN
