"""Collectives that programs call as they go: a schedule for any element type, and what a reduction does with what landed.

Schedules count in float32 elements; their offsets and sizes scale with the size of the element in question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traffic.collective.build import ELEMENT_BYTES
from traffic.collective.registry import make_schedule
from traffic.collective.schedule import Move, Schedule
from traffic.errors import TrafficError

DTYPES: Final = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8")
OPS: Final = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
REDUCING: Final = ("allreduce", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Signature:
    """What all ranks of a collective must agree on. `count` elements of the whole vector; `root` where there is one.

    `algorithm` is the run's choice. A point-to-point message is a `send` of `count` elements from rank 0 to rank 1.
    """

    kind: str
    algorithm: str
    ranks: int
    count: int
    dtype: str
    op: str = "sum"
    root: int = 0

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return int(np.dtype(self.dtype).itemsize)

    @property
    def text(self) -> str:
        """As an error says it."""
        of = f" {self.op}" if self.kind in REDUCING else ""
        return f"{self.kind}{of} of {self.count} {self.dtype}"


@lru_cache(maxsize=256)
def schedule_of(signature: Signature) -> Schedule:
    """The moves of a call, numbered from 0, in bytes of its element type. Raises TrafficError."""
    s = signature
    if s.dtype not in DTYPES:
        raise TrafficError(f"no elements of type {s.dtype}", where=s.kind, remedy=f"use one of {', '.join(DTYPES)}")
    if s.kind in REDUCING and s.op not in OPS:
        raise TrafficError(f"no reduction {s.op}", where=s.kind, remedy=f"use one of {', '.join(OPS)}")
    size = s.count * s.item_bytes
    if s.kind == "send":
        return Schedule("send", "send", 2, size, 0, (Move(0, 0, 1, 0, 0, size),), size_bytes=size)
    params: dict[str, Any] = {"root": s.root} if s.kind == "broadcast" else {}
    made = make_schedule(s.kind, algorithm=s.algorithm, ranks=s.ranks, size=ELEMENT_BYTES * s.count, **params)

    def scaled(value: int) -> int:
        return value // ELEMENT_BYTES * s.item_bytes

    return replace(
        made,
        vector_bytes=scaled(made.vector_bytes),
        staging_bytes=scaled(made.staging_bytes),
        size_bytes=size,
        moves=tuple(
            replace(
                m,
                src_offset=scaled(m.src_offset),
                dst_offset=scaled(m.dst_offset),
                size=scaled(m.size),
                reduce_offset=scaled(m.reduce_offset),
            )
            for m in made.moves
        ),
        result=tuple((rank, scaled(offset), scaled(length)) for rank, offset, length in made.result),
    )


@lru_cache(maxsize=256)
def moves_of(signature: Signature) -> tuple[tuple[int, ...], ...]:
    """By rank: the numbers of the moves that it sends or gets."""
    found: list[list[int]] = [[] for _ in range(max(2, signature.ranks))]
    for move in schedule_of(signature).moves:
        found[move.src].append(move.id)
        found[move.dst].append(move.id)
    return tuple(map(tuple, found))


def memory_bytes(signature: Signature) -> int:
    """Bytes each rank brings: the vector, and staging behind it; at least one."""
    return max(1, schedule_of(signature).memory_bytes)


def apply(move: Move, memory: NDArray[np.uint8], signature: Signature) -> None:
    """Finish a move at its receiver once its bytes have landed: a `reduce` is worked into the vector."""
    if move.op == "reduce":
        landed = memory[move.dst_offset : move.dst_offset + move.size].view(signature.dtype)
        vector = memory[move.reduce_offset : move.reduce_offset + move.size].view(signature.dtype)
        OPS[signature.op](vector, landed, out=vector)
