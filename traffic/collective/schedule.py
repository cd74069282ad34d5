"""What crosses the network in one workload: moves of bytes between ranks, and what each waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Op = Literal["copy", "reduce"]


@dataclass(frozen=True, slots=True)
class Move:
    """`size` bytes from `src`'s memory at `src_offset` to `dst`'s memory at `dst_offset` (bytes).

    All offsets count from the start of a rank's memory: its vector, and the staging area behind it. A `reduce` lands in
    the receiver's staging area at `dst_offset` (at or after `vector_bytes`) and is then added, as float32, to its vector
    at `reduce_offset`; a `copy` lands in place. It may start once every move in `needs` was delivered (and reduced), and
    not before `start_ns` after the common start. `step` numbers the round or the step of a collective, `flow` groups the
    moves that are one flow to the user (all rounds of one sender); both are for reports.

    A delivered move's source may be overwritten while its acknowledgement is still under way. A duplicate of its packets
    may therefore carry other bytes: a receiver never places a packet twice.
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
    """All moves of a workload and the memory each rank needs (bytes: its vector, and a staging area behind it).

    `size_bytes` is the size the user named: the vector of a collective (what algbw divides by the time), the bytes of one
    flow of a pattern. `result` lists the regions (rank, offset, bytes) that hold the outcome of a reduction at the end;
    empty means every rank's whole vector. Ranks that take no part have memory too, which costs nothing while untouched.
    """

    name: str
    algorithm: str
    ranks: int
    vector_bytes: int
    staging_bytes: int
    moves: tuple[Move, ...]
    size_bytes: int = 0
    result: tuple[tuple[int, int, int], ...] = ()

    def __post_init__(self) -> None:
        # JSON knows no tuples: a schedule that crossed as JSON compares equal to the one that was sent
        object.__setattr__(self, "result", tuple((r[0], r[1], r[2]) for r in self.result))

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory of each rank."""
        return self.vector_bytes + self.staging_bytes

    @property
    def steps(self) -> int:
        """How many steps (or rounds) the moves are numbered with."""
        return len({m.step for m in self.moves})

    @property
    def check(self) -> str:
        """How the outcome is verified: `sum` where anything is reduced, else `content`."""
        return "sum" if any(m.op == "reduce" for m in self.moves) else "content"
