"""Fewer points for a screen, with the extremes kept and gaps left open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def decimate(
    time: NDArray[np.float64], value: NDArray[np.float64], points: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most about `points` of the given ones: the first, least, greatest and last of each bucket, at their own times.

    `value` may hold NaN, which means that nothing was measured: each run of NaN stays as one NaN between its neighbours,
    and no bucket reaches across it. Times must not decrease.
    """
    import numpy as np

    if len(time) <= points:
        return time, value
    missing = np.isnan(value)
    # a bucket ends where the index passes a multiple of its size, and at every edge of a gap
    size = max(1, int(np.ceil(4 * len(time) / max(4, points))))
    edge = np.zeros(len(time), dtype=bool)
    edge[::size] = True
    edge[1:] |= missing[1:] != missing[:-1]
    starts = np.flatnonzero(edge)
    ends = np.append(starts[1:], len(time)) - 1
    chosen = [starts, ends]
    for extreme in (np.minimum, np.maximum):
        best = np.repeat(extreme.reduceat(value, starts), np.diff(np.append(starts, len(time))))
        hits = np.flatnonzero(value == best)
        first = np.searchsorted(hits, starts[~missing[starts]])
        chosen.append(hits[first])
    keep = np.unique(np.concatenate(chosen))
    # of a run of NaN only its first place is kept
    first_missing = np.flatnonzero(missing & np.append(True, ~missing[:-1]))
    index = np.union1d(keep[~missing[keep]], first_missing)
    return time[index], value[index]
