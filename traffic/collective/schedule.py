"""What crosses the network in one workload: moves of bytes between ranks, and what each waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Op = Literal["copy", "reduce"]


@dataclass(frozen=True, slots=True)
class Move:
    """`size` bytes from `src`'s memory at `src_offset` to `dst`'s memory at `dst_offset` (bytes).

    A `reduce` lands in the receiver's staging area at `dst_offset` and is then added, as float32, to its vector at
    `reduce_offset`; a `copy` lands in place. It may start once every move in `needs` was delivered (and reduced), and not
    before `start_ns` after the common start. `step` numbers the round or the step of a collective, `flow` groups the moves
    that are one flow to the user (all rounds of one sender); both are for reports.
    """

    id: int
    src: int
    dst: int
    src_offset: int
    dst_offset: int
    size: int
    op: Op = "copy"
    reduce_offset: int = 0
    needs: tuple[int, ...] = ()
    start_ns: int = 0
    step: int = 0
    flow: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """All moves of a workload and the memory each rank needs (bytes: its vector, and a staging area behind it)."""

    name: str
    algorithm: str
    ranks: int
    vector_bytes: int
    staging_bytes: int
    moves: tuple[Move, ...]
