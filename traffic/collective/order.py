"""Is a schedule sound? Every need exists, nothing waits for itself, and no two unordered moves touch the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from traffic.collective.schedule import Move, Schedule
from traffic.errors import TrafficError


def topological(schedule: Schedule, rank_of: Sequence[int] | None = None) -> list[Move]:
    """The moves in an order in which each comes after all it needs; `rank_of[i]` (default: id) decides among ready ones.

    Raises TrafficError for an unknown need and for moves that wait for each other.
    """
    by_id = {m.id: m for m in schedule.moves}
    waits: dict[int, int] = {}
    wakes: dict[int, list[int]] = {}
    for move in schedule.moves:
        waits[move.id] = len(move.needs)
        for need in move.needs:
            if need not in by_id:
                raise TrafficError(f"move {move.id} needs move {need}, which does not exist", where=schedule.name)
            wakes.setdefault(need, []).append(move.id)

    def key(i: int) -> tuple[int, int]:
        return (i if rank_of is None else rank_of[i], i)

    ready = [key(i) for i, count in waits.items() if not count]
    heapify(ready)
    out = []
    while ready:
        _, number = heappop(ready)
        out.append(by_id[number])
        for woken in wakes.get(number, ()):
            waits[woken] -= 1
            if not waits[woken]:
                heappush(ready, key(woken))
    if len(out) < len(schedule.moves):
        stuck = next(i for i, count in waits.items() if count)
        raise TrafficError(f"move {stuck} and others wait for each other", where=schedule.name)
    return out


def _outside(schedule: Schedule) -> list[str]:
    """Moves that leave their rank's memory or land where their operation must not."""
    out = []
    for m in schedule.moves:
        landing = schedule.memory_bytes if m.op == "reduce" else schedule.vector_bytes
        if not (0 <= m.src < schedule.ranks and 0 <= m.dst < schedule.ranks and m.src != m.dst and m.size > 0):
            out.append(f"move {m.id}: {m.size} bytes from rank {m.src} to rank {m.dst} of {schedule.ranks}")
        elif m.src_offset < 0 or m.src_offset + m.size > schedule.vector_bytes:
            out.append(f"move {m.id} reads outside the vector of rank {m.src}")
        elif m.dst_offset < 0 or m.dst_offset + m.size > landing:
            out.append(f"move {m.id} lands outside the memory of rank {m.dst}")
        elif m.op == "reduce" and (
            m.dst_offset < schedule.vector_bytes
            or m.reduce_offset < 0
            or m.reduce_offset + m.size > schedule.vector_bytes
            or (m.dst_offset | m.reduce_offset | m.size) % 4
        ):
            out.append(f"move {m.id} reduces outside staging and vector, or not in whole float32")
    return out


def hazards(schedule: Schedule) -> list[str]:
    """All pairs of moves that touch the same bytes of a rank in no fixed order, one of them writing; empty is sound.

    Two additions into the same bytes may come in either order, for they commute and one agent makes both. Costs the square
    of the moves per rank: a check for tests, not for runs.
    """
    found = _outside(schedule)
    position = {m.id: i for i, m in enumerate(schedule.moves)}
    before = [0] * len(schedule.moves)  # bit sets of the moves that were certainly delivered before
    for move in topological(schedule):
        mask = 0
        for need in move.needs:
            mask |= before[position[need]] | 1 << position[need]
        before[position[move.id]] = mask
    touched: list[list[tuple[int, int, int, str]]] = [[] for _ in range(schedule.ranks)]
    for i, m in enumerate(schedule.moves):
        touched[m.src].append((i, m.src_offset, m.src_offset + m.size, "reads"))
        touched[m.dst].append((i, m.dst_offset, m.dst_offset + m.size, "writes"))
        if m.op == "reduce":
            touched[m.dst].append((i, m.reduce_offset, m.reduce_offset + m.size, "adds to"))
    for rank, accesses in enumerate(touched):
        accesses.sort(key=lambda a: a[1])
        for k, (i, low, high, how) in enumerate(accesses):
            for j, start, _, other in accesses[k + 1 :]:
                if start >= high:
                    break
                if i == j or how == other != "writes":
                    continue
                if not (before[i] >> j & 1 or before[j] >> i & 1):
                    a, b = schedule.moves[i].id, schedule.moves[j].id
                    found.append(f"rank {rank} bytes {max(low, start)}…: move {a} {how} while move {b} {other} them")
    return found
