"""What the ranks start with, and whether they ended right.

Sums: every element is an odd multiple of 1/8 below 128 in size, so a float32 sum of up to 8192 ranks is exact in any order
(fewer than 24 bits are ever needed) and no element is zero: one missing, doubled or misplaced addition shows. Copies: bytes
fixed by the seed, the sending rank and the place, so that a flow's bytes are found nowhere else.

With `values` each rank's whole vector is one number. Such sums are rounded; a result counts as right within N·2^-24·Σ|v|
of the exact sum: the numbers' own rounding to float32 and the N-1 additions in any order, each at most 2^-24 of Σ|v|
(Higham, Accuracy and Stability of Numerical Algorithms, 4.2, to first order).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from traffic.collective.build import ELEMENT_BYTES
from traffic.collective.reduce import Memory, execute_in_memory, new_memory
from traffic.collective.schedule import Schedule
from traffic.errors import TrafficError
from traffic.rng import Rng

_LARGEST = float(np.finfo(np.float32).max)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def _hashes(seed: int, rank: int, first: int, count: int) -> NDArray[np.uint64]:
    """SplitMix64 of the places first … first+count-1 in the stream of a rank."""
    base = np.uint64(Rng(seed, "content", rank).next64())
    out = np.arange(first, first + count, dtype=np.uint64)
    out *= _STEP
    out += base
    for shift, factor in _MIX:
        out ^= out >> shift
        out *= factor
    out ^= out >> np.uint64(31)
    return out


def vector_values(seed: int, rank: int, elements: int) -> NDArray[np.float32]:
    """A rank's float32 vector for an exact sum: odd eighths from -127.875 to 127.875."""
    words = (_hashes(seed, rank, 0, elements) >> np.uint64(54)).astype(np.int32)  # 0 … 1023
    return ((2 * words - 1023) * np.float32(0.125)).astype(np.float32)


def content(seed: int, rank: int, first: int, size: int) -> Memory:
    """The bytes first … first+size-1 of what a rank sends in a copy workload."""
    low, high = first // 8, -(-(first + size) // 8)
    return _hashes(seed, rank, low, high - low).view(np.uint8)[first - 8 * low : first - 8 * low + size]


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping and touching (start, end) ranges joined."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def initial_memory(schedule: Schedule, rank: int, seed: int, values: Sequence[float] | None = None) -> Memory:
    """What `rank` holds before the first move: vector and staging area, as bytes.

    With `values` (one number a rank, sums only) its vector is that number throughout.
    """
    memory = new_memory(schedule)
    if values is not None:
        _check_values(schedule, values)
        memory[: schedule.vector_bytes].view(np.float32)[:] = values[rank]
    elif schedule.check == "sum":
        vector = vector_values(seed, rank, schedule.vector_bytes // ELEMENT_BYTES)
        memory[: schedule.vector_bytes].view(np.float32)[:] = vector
    else:
        for start, end in _merged((m.src_offset, m.src_offset + m.size) for m in schedule.moves if m.src == rank):
            memory[start:end] = content(seed, rank, start, end - start)
    return memory


def initial_vectors(schedule: Schedule, seed: int, values: Sequence[float] | None = None) -> list[Memory]:
    """`initial_memory` of every rank."""
    return [initial_memory(schedule, rank, seed, values) for rank in range(schedule.ranks)]


def _check_values(schedule: Schedule, values: Sequence[float]) -> None:
    if schedule.check != "sum":
        raise TrafficError(
            "only a reduction takes values", where="values", remedy="leave them out, or run an allreduce"
        )
    if len(values) != schedule.ranks:
        raise TrafficError(
            f"{len(values)} values for {schedule.ranks} ranks", where="values", remedy="give each rank one number"
        )
    for value in values:
        if not abs(value) <= _LARGEST:
            raise TrafficError(f"{value} is no finite float32", where="values", remedy="use ordinary numbers")


def tolerance(values: Sequence[float]) -> float:
    """How far a float32 sum of `values` may lie from the exact one (module docstring)."""
    return len(values) * 2.0**-24 * math.fsum(abs(v) for v in values)


def _expected_sum(schedule: Schedule, seed: int) -> NDArray[np.float32]:
    total = np.zeros(schedule.vector_bytes // ELEMENT_BYTES, dtype=np.float32)
    for rank in range(schedule.ranks):
        total += vector_values(seed, rank, len(total))
    return total


def _by_rank(memories: Sequence[Memory] | Mapping[int, Memory]) -> dict[int, Memory]:
    return dict(memories) if isinstance(memories, Mapping) else dict(enumerate(memories))


def result_regions(schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
    """Where the outcome of a reduction lies: (rank, offset, bytes)."""
    return schedule.result or tuple((rank, 0, schedule.vector_bytes) for rank in range(schedule.ranks))


def count_wrong(
    schedule: Schedule,
    memories: Sequence[Memory] | Mapping[int, Memory],
    seed: int,
    values: Sequence[float] | None = None,
) -> tuple[int, int]:
    """(wrong, checked) over the ranks given: float32 elements of a sum, bytes of a copy workload.

    A worker that serves some ranks only passes a mapping from those. A sum is compared with the sum of what all ranks
    started with, whatever algorithm made it; copies with the schedule run in memory.
    """
    ranks = _by_rank(memories)
    wrong = checked = 0
    if schedule.check == "sum":
        if values is not None:
            _check_values(schedule, values)
            exact, slack = math.fsum(values), tolerance(values)
        else:
            want = _expected_sum(schedule, seed)
        for rank, offset, size in result_regions(schedule):
            if rank in ranks:
                got = ranks[rank][offset : offset + size].view(np.float32)
                if values is not None:
                    right = np.abs(got.astype(np.float64) - exact) <= slack
                else:
                    right = got == want[offset // ELEMENT_BYTES : (offset + size) // ELEMENT_BYTES]
                wrong += int(np.count_nonzero(~right))
                checked += len(got)
        return wrong, checked
    reference = initial_vectors(schedule, seed)
    execute_in_memory(schedule, reference)
    for rank, memory in ranks.items():
        for start, end in _merged((m.dst_offset, m.dst_offset + m.size) for m in schedule.moves if m.dst == rank):
            wrong += int(np.count_nonzero(memory[start:end] != reference[rank][start:end]))
            checked += end - start
    return wrong, checked


def averages(schedule: Schedule, memories: Sequence[Memory] | Mapping[int, Memory]) -> dict[int, float]:
    """The average each rank arrived at: the first element of its result over the number of ranks."""
    ranks = _by_rank(memories)
    return {
        rank: float(ranks[rank][offset : offset + ELEMENT_BYTES].view(np.float32)[0]) / schedule.ranks
        for rank, offset, _ in result_regions(schedule)
        if rank in ranks
    }
