"""F2: a port sends at its rate while it has packets waiting, and never faster.

Both halves are token-bucket tests over every stretch of samples at once. Too fast: in no stretch may the bytes sent exceed
rate·t by more than the burst. Too slow: in no stretch of backlogged samples may they fall short of rate·t by more than a
packet. An interval counts as backlogged when the queue at its start held all that the port could send in it, so that it
cannot have run empty unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.judge.check import FAIL, NOT_MODELLED, PASS, WARN, Check, Status, percent, some, worst

LIMIT = "bytes sent while backlogged within 2 % of rate·t, 5 % at most, never above rate·t + burst"
_GOOD, _BEARABLE = 0.02, 0.05
_LEAST_PACKETS = 20
"""A port must have had this many packets' time of backlog before its rate is judged."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PortSeries:
    """Samples of one port, all classes together: `tx_bytes` (wire bytes sent, cumulative) and `backlog_bytes` at `time_ns`.

    `slack_bytes` is how far the counter may be off: burst, a packet, and what an estimate adds.
    """

    name: str
    rate_bps: int
    packet_bytes: int
    slack_bytes: float
    time_ns: Ints
    backlog_bytes: Ints
    tx_bytes: NDArray[np.float64]


def _largest_run(excess: NDArray[np.float64], allowed: NDArray[np.bool_]) -> tuple[float, int, int]:
    """The contiguous stretch of allowed intervals with the largest sum: (sum, first, behind last) (Kadane's problem)."""
    best, first, last = 0.0, 0, 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], allowed, [False])).astype(np.int8)))
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        sums = np.concatenate(([0.0], np.cumsum(excess[begin:end])))
        lowest = np.minimum.accumulate(sums)
        gain = sums - lowest
        top = int(np.argmax(gain))
        if gain[top] > best:
            best = float(gain[top])
            first = begin + int(np.flatnonzero(sums[: top + 1] == lowest[top])[-1])
            last = begin + top
    return best, first, last


def _judge(series: PortSeries) -> tuple[Status, float | None, str, float]:
    """(status, deviation from the rate as a share, sentence, bytes due while backlogged) of one port."""
    due = np.diff(series.time_ns) * (series.rate_bps / 8e9)
    sent = np.diff(series.tx_bytes)
    anywhere = np.ones(len(due), dtype=np.bool_)
    backlogged = series.backlog_bytes[:-1] >= due
    status: Status = PASS
    text, deviation = "", None
    for share, verdict in ((_GOOD, WARN), (_BEARABLE, FAIL)):
        over, i, j = _largest_run(sent - (1 + share) * due, anywhere)
        if over > series.slack_bytes:
            deviation = float(sent[i:j].sum() / due[i:j].sum() - 1)
            status, text = verdict, f"{series.name} sent {percent(deviation)} more than its rate over {j - i} samples"
        under, i, j = _largest_run((1 - share) * due - sent, backlogged)
        if under > series.slack_bytes:
            deviation = float(sent[i:j].sum() / due[i:j].sum() - 1)
            status = worst(status, verdict)
            text = f"{series.name} sent {percent(-deviation)} less than its rate while backlogged over {j - i} samples"
    total = float(due[backlogged].sum())
    if status is not PASS:
        return status, deviation, text, total
    if total < _LEAST_PACKETS * series.packet_bytes:
        return NOT_MODELLED, None, "", total
    deviation = float(sent[backlogged].sum()) / total - 1
    return PASS, deviation, f"{series.name} sent {percent(1 + deviation)} of its rate while backlogged", total


def check_rate(ports: Sequence[PortSeries]) -> Check:
    """F2 over all ports; `value` is a deviation from the rate as a share: the worst port's that broke a limit, else that of
    the port backlogged longest, where a packet more or less at the ends weighs least."""
    found = [_judge(p) for p in ports if len(p.time_ns) > 1]
    bad = sorted((f for f in found if f[0] in (WARN, FAIL)), key=lambda f: -abs(f[1] or 0.0))
    judged = [f for f in found if f[0] is PASS]
    if bad:
        return Check("F2", "rate", worst(*(f[0] for f in bad)), bad[0][1], LIMIT, some([f[2] for f in bad]))
    if not judged:
        why = "no port stayed backlogged from one sample to the next" if found else "no samples of any port"
        return Check("F2", "rate", NOT_MODELLED, None, LIMIT, why)
    most = max(judged, key=lambda f: f[3])
    return Check("F2", "rate", PASS, most[1], LIMIT, f"{len(judged)} backlogged ports; {most[2]}")
