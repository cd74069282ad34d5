"""What a receiver does with a move's bytes, and the reference executor that needs no network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from traffic.collective.order import topological
from traffic.collective.schedule import Move, Schedule

Memory = NDArray[np.uint8]


def new_memory(schedule: Schedule) -> Memory:
    """One rank's memory, all zero; pages that no move touches are never made."""
    return np.zeros(schedule.memory_bytes, dtype=np.uint8)


def apply_move(move: Move, memory: Memory) -> None:
    """Finish a move at its receiver once all its bytes lie at `dst_offset`: a `reduce` is added to the vector, as float32."""
    if move.op == "reduce":
        landed = memory[move.dst_offset : move.dst_offset + move.size].view(np.float32)
        vector = memory[move.reduce_offset : move.reduce_offset + move.size].view(np.float32)
        np.add(vector, landed, out=vector)


def execute_in_memory(schedule: Schedule, memories: Sequence[Memory], rank_of: Sequence[int] | None = None) -> None:
    """Run the whole schedule on the ranks' memories, in place; `rank_of` orders the moves that could run at once."""
    for move in topological(schedule, rank_of):
        source, target = memories[move.src], memories[move.dst]
        target[move.dst_offset : move.dst_offset + move.size] = source[move.src_offset : move.src_offset + move.size]
        apply_move(move, target)
