"""F10: marks that ports made are marks that receivers saw, and only queues above the threshold made any.

A packet is marked once on its way (only ECT becomes CE), so CE seen by receivers = marks at ports - marked packets that
were dropped or lost further on. Where the ports count those, the two sides are equal; where they do not, the difference
lies between 0 and the packets dropped.

Where a port keeps a histogram of the backlogs its packets met, the number of its marks must also fit the law
p(q) = pmax·(q - kmin)/(kmax - kmin), 1 above kmax: between the sums over the bins' lower and upper edges, six standard
deviations either way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.judge.check import FAIL, NOT_MODELLED, PASS, Check, some

LIMIT = "CE seen by receivers = marks at ports; marks only above kmin"
_SIGMAS = 6.0


@dataclass(frozen=True, slots=True)
class PortMarks:
    """Marking at one port. None is what this kernel cannot tell. `histogram` counts data packets by the backlog they met, in
    bins of `bin_bytes` (the last one open); `uncertain` of them may be unable to take a mark (not ECN-capable, dropped, marked
    before); `ect` is how many packets were ECN-capable."""

    name: str
    marks: bool
    kmin_bytes: int
    kmax_bytes: int
    pmax: float
    marked: int | None
    max_bytes: int | None
    dropped: int = 0
    ce_dropped: int | None = None
    above_kmin: int | None = None
    histogram: tuple[int, ...] | None = None
    bin_bytes: int = 0
    uncertain: int = 0
    ect: int | None = None


def reached(what: str, modelled: bool, peak: int | None, threshold: int, where: str) -> str:
    """Tells "never reached" from "not modelled", for marking and for pause alike."""
    if not modelled:
        return f"{what}: not modelled"
    if peak is None:
        return f"{what}: peak not known, threshold {threshold} B at {where}"
    if peak <= threshold:
        return f"{what} never reached: peak {peak} B of threshold {threshold} B at {where}"
    return f"{what} reached: peak {peak} B over threshold {threshold} B at {where}"


def probability(q: float, kmin: int, kmax: int, pmax: float) -> float:
    """The marking law (DCQCN, SIGCOMM 2015, section 3.1), as the port's program applies it."""
    if q <= kmin:
        return 0.0
    return 1.0 if q > kmax else pmax * (q - kmin) / max(1, kmax - kmin)


def expected_marks(port: PortMarks) -> tuple[float, float] | None:
    """The fewest and the most marks that the histogram and the law allow; None without a histogram."""
    if port.histogram is None or not port.bin_bytes:
        return None
    low = high = 0.0
    for i, count in enumerate(port.histogram):
        last = i == len(port.histogram) - 1
        low += count * probability(i * port.bin_bytes, port.kmin_bytes, port.kmax_bytes, port.pmax)
        top = math.inf if last else (i + 1) * port.bin_bytes
        high += count * probability(top, port.kmin_bytes, port.kmax_bytes, port.pmax)
    slack = _SIGMAS * math.sqrt(high) + 1
    return max(0.0, low - port.uncertain - slack), high + slack


def _wrong_marks(port: PortMarks) -> str | None:
    """What is wrong with the marks of one port, if anything."""
    if not port.marked:
        fewest = expected_marks(port) if port.marks and port.marked is not None else None
        return f"{port.name}: no mark where {fewest[0]:.0f} or more were due" if fewest and fewest[0] >= 1 else None
    if not port.marks:
        return f"{port.name}: {port.marked} marks, but this port does not mark"
    if port.max_bytes is not None and port.max_bytes <= port.kmin_bytes:
        return f"{port.name}: {port.marked} marks, though its queue never passed kmin ({port.max_bytes} of {port.kmin_bytes} B)"
    if port.above_kmin is not None and port.marked > port.above_kmin:
        return f"{port.name}: {port.marked} marks for {port.above_kmin} packets above kmin"
    fits = expected_marks(port)
    if fits is not None and not fits[0] <= port.marked <= fits[1]:
        return f"{port.name}: {port.marked} marks where its queue allows {fits[0]:.0f} to {fits[1]:.0f}"
    return None


def marking_note(ports: Sequence[PortMarks]) -> str:
    """One sentence on whether marking was modelled and reached, at the port that came nearest."""
    able = [p for p in ports if p.marks]
    if not able:
        return reached("marking", False, None, 0, "")
    near = max(able, key=lambda p: (p.max_bytes or 0) / max(1, p.kmin_bytes))
    return reached("marking", True, near.max_bytes, near.kmin_bytes, near.name)


def check_marking(ports: Sequence[PortMarks], ce_seen: int | None) -> Check:
    """F10; `value` is marks that no receiver saw and no drop explains (negative: seen, but made nowhere)."""
    able = [p for p in ports if p.marks]
    if not able:
        return Check("F10", "ECN", NOT_MODELLED, None, LIMIT, marking_note(ports))
    if any(p.marked is None for p in able):
        return Check("F10", "ECN", NOT_MODELLED, None, LIMIT, "this kernel does not count marks")
    wrong = [w for w in map(_wrong_marks, ports) if w]
    if wrong:
        return Check("F10", "ECN", FAIL, float(len(wrong)), LIMIT, some(wrong))
    if ce_seen is None:
        return Check("F10", "ECN", NOT_MODELLED, None, LIMIT, "no agent counts CE at the receivers")
    made = sum(p.marked or 0 for p in ports)
    if any(p.ce_dropped is None for p in ports):
        low, high, how = 0, sum(p.dropped for p in ports), "may have been dropped"
    else:
        low = high = sum(p.ce_dropped or 0 for p in ports)
        how = "dropped later"
    missing = made - ce_seen
    off = missing - high if missing > high else min(0, missing - low)
    if off:
        return Check(
            "F10", "ECN", FAIL, float(off), LIMIT, f"{made} marks made, {ce_seen} seen by receivers, {high} {how}"
        )
    if made == 0 and not any(p.ect is None or p.ect for p in able):
        return Check("F10", "ECN", NOT_MODELLED, None, LIMIT, "no packet could take a mark: none was ECN-capable")
    if made == 0:
        return Check("F10", "ECN", PASS, 0.0, LIMIT, marking_note(ports))
    return Check(
        "F10", "ECN", PASS, 0.0, LIMIT, f"{made} marks made, {ce_seen} seen by receivers, {missing} dropped later"
    )
