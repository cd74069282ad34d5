"""Bandwidth of a collective as nccl-tests reports it (its doc/PERFORMANCE.md): algbw, factor, busbw.

algbw is the size over the time. busbw = algbw x factor is what each rank's link must have carried at the least, so it
compares with the link's rate whatever the number of ranks. Every algorithm of these schedules works in the hosts, where no
all-reduce can send less than 2(N-1)/N of the vector per rank (Patarasuk and Yuan 2009): the factor is the same for ring,
tree and halving-doubling, and a busbw above the link rate is an error of measurement.
"""

from __future__ import annotations

from traffic.errors import TrafficError


def factor(collective: str, ranks: int) -> float:
    """busbw over algbw of an operation over `ranks` ranks."""
    if ranks < 2:
        raise TrafficError(f"no bus bandwidth of {ranks} rank", where="ranks", remedy="use 2 or more")
    share = (ranks - 1) / ranks
    factors = {
        "allreduce": 2 * share,
        "reduce_scatter": share,
        "all_gather": share,
        "all_to_all": share,
        "broadcast": 1.0,
        "reduce": 1.0,
        "pairs": 1.0,
    }
    if collective not in factors:
        raise TrafficError(
            f"{collective!r} has no bus bandwidth", where="collective", remedy=f"it is defined for {', '.join(factors)}"
        )
    return factors[collective]


def bandwidth(collective: str, ranks: int, size_bytes: int, time_ns: float) -> tuple[float, float, float]:
    """(algbw in Gbit/s, factor, busbw in Gbit/s); `time_ns` from the first start to the last end over all ranks."""
    if time_ns <= 0:
        raise TrafficError(
            f"a collective in {time_ns} ns", where=collective, remedy="measure from first start to last end"
        )
    algbw = size_bytes * 8 / time_ns
    by = factor(collective, ranks)
    return algbw, by, algbw * by
