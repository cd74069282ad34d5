"""Steps of a training program: from the calls of `emulator.compute` to step times, computing, and time not computing.

A step of a rank lasts from one call to its next; so N calls make N - 1 steps. The step of the program ends when its last
rank has ended its own: with ranks that wait for each other these are the times that a user waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

Calls = Sequence[tuple[int, int]]
"""(begin, end) of each call of one rank."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the program, fabric ns: `compute_ns` is the mean over the ranks."""

    number: int
    begin_ns: int
    time_ns: int
    compute_ns: float


def read_calls(marks: Path, rank: int, start_ns: int, tdf: int) -> list[tuple[int, int]]:
    """The calls in a rank's file of marks, as fabric ns after the start; none where there is no file."""
    try:
        lines = marks.with_name(f"{marks.name}-{rank}").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    pairs = (line.split() for line in lines)
    return [((int(a) - start_ns) // tdf, (int(b) - start_ns) // tdf) for a, b in pairs]


def steps_of(calls: Mapping[int, Calls]) -> list[Step]:
    """The steps that every rank which called at all has finished."""
    ranks = [c for c in calls.values() if c]
    if not ranks:
        return []
    begins = [max(c[k][0] for c in ranks) for k in range(min(map(len, ranks)))]
    return [
        Step(k, at, until - at, sum(c[k][1] - c[k][0] for c in ranks) / len(ranks))
        for k, (at, until) in enumerate(pairwise(begins))
    ]


def summarise(steps: Sequence[Step], *, measured: bool = False) -> dict[str, Any] | None:
    """The part `steps` of summary.json, microseconds; None without steps.

    Where computing is `measured` it lies between the calls, mixed with waiting: what of a step was which is not known.
    """
    if not steps:
        return None
    import numpy as np

    times = np.array([s.time_ns for s in steps], dtype=np.float64)
    computing = np.array([s.compute_ns for s in steps], dtype=np.float64)
    exposed = times - computing

    def us(value: float) -> float:
        return round(float(value) / 1000, 3)

    return {
        "count": len(steps),
        "time_us": {
            "min": us(times.min()),
            "mean": us(times.mean()),
            "p50": us(float(np.quantile(times, 0.5))),
            "p99": us(float(np.quantile(times, 0.99))),
            "max": us(times.max()),
        },
        "compute_us": None if measured else us(computing.mean()),
        "exposed_us": None if measured else us(exposed.mean()),
        "idle_fraction": round(float(exposed.sum() / times.sum()), 4) if times.sum() and not measured else None,
    }


def events_of(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps as events."""
    return [
        {
            "time_ns": s.begin_ns,
            "kind": "step",
            "step": s.number,
            "step_ns": s.time_ns,
            "compute_ns": round(s.compute_ns),
        }
        for s in steps
    ]
