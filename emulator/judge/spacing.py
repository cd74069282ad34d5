"""F3: the gaps between packets that leave a backlogged port, against the time each takes at the port's rate.

The test of Mininet-HiFi (Handigol et al., CoNEXT 2012; mininet-tests: buffersizing/verify/link_dequeues.py): the error of a
gap is |observed / expected - 1|. The time stamps are the kernel's at the receiving host, behind the last port of the path.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from emulator.judge.check import NOT_MODELLED, Check, grade, percent
from emulator.judge.statistics import quantile_at_least

LIMIT = "p99 of |gap / expected - 1| at backlogged ports, by its lower 95 % limit: up to 10 %, 50 % at most"
_GOOD, _BEARABLE = 0.10, 0.50
LEAST = 100
"""Gaps needed at a port for a 99th percentile."""

Floats = NDArray[np.float64]


def spacing_errors(times_ns: NDArray[np.int64], expected_ns: float, windows: NDArray[np.int64] | None = None) -> Floats:
    """The errors of the gaps between consecutive arrivals; with `windows` (rows of start, end in time order) only of gaps
    that lie wholly inside one of them. A negative time is an arrival whose gap holds something else."""
    order = np.argsort(np.abs(times_ns), kind="stable")
    times, clean = np.abs(times_ns)[order], times_ns[order][1:] >= 0
    gaps = np.diff(times)
    if windows is not None:
        if not len(windows):
            return np.empty(0)
        which = np.searchsorted(windows[:, 0], times[:-1], side="right") - 1
        inside = (which >= 0) & (times[1:] <= windows[np.maximum(which, 0), 1])
        clean = clean & inside
    gaps = gaps[clean]
    return np.asarray(np.abs(gaps / expected_ns - 1), dtype=np.float64)


def backlogged_windows(time_ns: NDArray[np.int64], backlog: NDArray[np.int64], rate_bps: int) -> NDArray[np.int64]:
    """Stretches of samples in which the queue held, at each sample, all that could leave until the next: rows (start, end)."""
    if len(time_ns) < 2:
        return np.empty((0, 2), dtype=np.int64)
    full = backlog[:-1] >= np.diff(time_ns) * (rate_bps / 8e9)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], full, [False])).astype(np.int8)))
    return np.stack([time_ns[edges[::2]], time_ns[edges[1::2]]], axis=1)


def check_spacing(errors: Mapping[str, Floats]) -> Check:
    """F3 over the ports with enough gaps; `value` is what the worst port's 99th percentile is at least, with 95 % confidence:
    of a few hundred gaps, one stall of the machine alone decides the percentile itself."""
    p99 = {name: quantile_at_least(e, 0.99) for name, e in errors.items() if len(e) >= LEAST}
    if not p99:
        why = f"no last port with {LEAST} gaps between full packets while backlogged"
        return Check("F3", "spacing", NOT_MODELLED, None, LIMIT, why)
    name = max(p99, key=p99.__getitem__)
    p50, seen = np.quantile(errors[name], (0.5, 0.99))
    reason = f"{name}: p50 {percent(p50)}, p99 {percent(seen)} over {len(errors[name])} gaps (p99 at least {percent(p99[name])})"
    return Check("F3", "spacing", grade(p99[name], _GOOD, _BEARABLE), p99[name], LIMIT, reason)
