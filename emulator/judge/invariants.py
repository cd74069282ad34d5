"""The invariants that are one comparison each: F1, F4, F5, F7, F8, F9, F11, F12, F13, F14, and two of the clock.

F2, F3, F6 and F10 have modules of their own: rate, spacing, conservation, marking. Each states its limit in its answer; a
check without its data answers `not-modelled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.judge.check import FAIL, NOT_MODELLED, PASS, WARN, Check, Status, grade, percent, some, worst
from emulator.judge.statistics import spread

VIRTUAL = "virtual"


def check_plan(differences: Mapping[str, Sequence[str]] | None) -> Check:
    """F1: what the kernel said at the start and at the end of the run is what the plan says."""
    limit = "no difference at start and end"
    missing = [when for when in ("start", "end") if differences is None or when not in differences]
    if differences is None or missing:
        why = f"not read back at the {' and '.join(missing)}"
        return Check("F1", "plan = reality", NOT_MODELLED, None, limit, why)
    found = [f"at the {when}: {text}" for when in ("start", "end") for text in differences[when]]
    if found:
        return Check("F1", "plan = reality", FAIL, float(len(found)), limit, some(found))
    return Check(
        "F1", "plan = reality", PASS, 0.0, limit, "every setting read back as planned, at the start and at the end"
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """One idle probe over one path; fabric ns."""

    path: str
    expected_ns: float
    measured_ns: float


def check_propagation(probes: Sequence[Probe] | None, *, clock: str, tdf: int, unmodelled_ns: int = 0) -> Check:
    """F4: idle probes take what propagation and transmission take; `value` is the worst path's p99 excess, fabric ns.

    Where nobody keeps `unmodelled_ns` of propagation that the file asks for, that is a warning.

    0.2 ms and 1 ms are wall time, for that is what a late wake-up costs; on the virtual clock only the share counts.
    """
    virtual = clock == VIRTUAL
    limit = "p99 excess up to 10 %, 50 % at most" if virtual else "p99 excess up to 10 % or 0.2 ms, 1 ms at most (wall)"
    if unmodelled_ns:
        text = (
            f"propagation is not modelled for kernel TCP on this kernel (no netem): round trips lack up to {2 * unmodelled_ns} ns; "
            "the virtual clock has it"
        )
        return Check("F4", "propagation", WARN, float(-unmodelled_ns), limit, text)
    if not probes:
        return Check("F4", "propagation", NOT_MODELLED, None, limit, "no idle probes were sent")
    by_path: dict[str, list[Probe]] = {}
    for probe in probes:
        by_path.setdefault(probe.path, []).append(probe)
    status: Status = PASS
    excess, where = 0.0, next(iter(by_path))
    for path, ones in by_path.items():
        expected = ones[0].expected_ns
        over = float(np.quantile([p.measured_ns - p.expected_ns for p in ones], 0.99))
        good = 0.1 * expected if virtual else max(0.1 * expected, 2e5 / tdf)
        bearable = 0.5 * expected if virtual else 1e6 / tdf
        status = worst(status, grade(over, good, max(good, bearable)))
        if any(p.measured_ns < 0.9 * p.expected_ns for p in ones):
            status, over = FAIL, min(p.measured_ns - p.expected_ns for p in ones)
        if abs(over) > abs(excess):
            excess, where = over, path
    return Check("F4", "propagation", status, excess, limit, f"{len(by_path)} paths; {where}: {excess:.0f} ns off")


def check_source(
    *, tx_packets: int | None, enobufs: int | None, late_p99_ns: float | None, base_rtt_ns: float | None, clock: str
) -> Check:
    """F5: agents sent when they were due. `value` is the share of packets refused by the host's own queue, or the p99
    lateness of the event loop in round trips of an empty fabric, whichever is nearer to its limit.

    A late sender makes the network look better than it is. Late by a tenth of a round trip is inside what acknowledgements
    vary by; on the virtual clock lateness is the chosen quantum, so a full round trip is allowed and beyond it is a warning.
    """
    limit = "ENOBUFS up to 1 % of packets, 5 % at most; loop p99 lateness up to 0.1 base RTT, 0.5 at most (virtual: 1)"
    if tx_packets is None and late_p99_ns is None:
        return Check("F5", "source kept up", NOT_MODELLED, None, limit, "the senders are not our agents")
    found: list[tuple[Status, float, str]] = []
    if tx_packets is not None and enobufs is not None and tx_packets + enobufs:
        share = enobufs / (tx_packets + enobufs)
        found.append(
            (grade(share, 0.01, 0.05), share, f"{enobufs} packets refused by the hosts' own queues ({percent(share)})")
        )
    if late_p99_ns is not None and base_rtt_ns:
        ratio = late_p99_ns / base_rtt_ns
        status = grade(ratio, 1.0, float("inf")) if clock == VIRTUAL else grade(ratio, 0.1, 0.5)
        found.append((status, ratio, f"event loop p99 {late_p99_ns:.0f} ns late, {ratio:.3g} of the base RTT"))
    if not found:
        why = "the agents sent nothing" if tx_packets == 0 else "the loop's lateness was not recorded"
        return Check("F5", "source kept up", NOT_MODELLED, None, limit, why)
    status = worst(*(f[0] for f in found))
    return Check(
        "F5",
        "source kept up",
        status,
        next(f[1] for f in found if f[0] is status),
        limit,
        "; ".join(f[2] for f in found),
    )


def check_hidden_drops(drops: Mapping[str, int | None]) -> Check:
    """F7: nothing was lost in a place that the fabric does not have; `value` counts packets."""
    limit = "0"
    known = {place: count for place, count in drops.items() if count is not None}
    if not known:
        return Check("F7", "hidden drops", NOT_MODELLED, None, limit, "no counter of the kernel's own drops was kept")
    bad = [f"{count} in {place}" for place, count in known.items() if count]
    total = float(sum(known.values()))
    return Check(
        "F7", "hidden drops", FAIL if bad else PASS, total, limit, some(bad) if bad else f"none in {', '.join(known)}"
    )


@dataclass(frozen=True, slots=True)
class Cpu:
    """Shares of wall time during the run; None is not measured. `pressure` is PSI "some", `waiting` the agents' run queue."""

    busiest_core: float | None
    steal: float | None = None
    pressure: float | None = None
    waiting: float | None = None


CPU_LIMITS: dict[str, tuple[float, float]] = {
    "busiest_core": (0.70, 0.85),
    "steal": (0.01, 0.05),
    "pressure": (0.10, 0.25),
    "waiting": (0.05, 0.20),
}
"""pass, warn; a clock tick of steal or a short wait is no harm by itself, so "0" has a width."""


def check_cpu(cpu: Cpu | None, *, clock: str, measured: bool = False) -> Check:
    """F8: the machine had time for the run; `value` is the busiest core's share (or what broke its limit).

    On the virtual clock only computing that is `measured` takes time, and nobody watches the core that it is measured on.
    """
    limit = "busiest core < 70 %, 85 % at most; steal < 1 % (5), pressure < 10 % (25), run-queue wait < 5 % (20)"
    if clock == VIRTUAL and measured:
        return Check(
            "F8", "CPU", NOT_MODELLED, None, limit, "the program's CPU time counts, and its core is not watched"
        )
    if clock == VIRTUAL:
        return Check("F8", "CPU", PASS, None, limit, "virtual clock: CPU costs no time")
    shares = {} if cpu is None else {name: getattr(cpu, name) for name in CPU_LIMITS}
    known = {name: share for name, share in shares.items() if share is not None}
    if "busiest_core" not in known:
        return Check("F8", "CPU", NOT_MODELLED, None, limit, "the machine's CPU time was not read")
    graded = {name: grade(share, *CPU_LIMITS[name]) for name, share in known.items()}
    status = worst(*graded.values())
    at = next(name for name in graded if graded[name] is status)
    text = ", ".join(f"{name.replace('_', ' ')} {percent(share)}" for name, share in known.items())
    return Check("F8", "CPU", status, known[at], limit, text)


def check_sampler(ticks_ns: NDArray[np.int64] | None, period_ns: int, end_ns: int) -> Check:
    """F9: samples came as often as asked, from start to end. `value` is the p99 interval in periods.

    Time in intervals of more than 3 periods, before the first sample and after the last, is time not seen: 1 % of the run
    (or 3 periods) is fine, a tenth is not.
    """
    limit = "p99 interval up to 1.5 periods, 3 at most; time not seen up to 1 %, 10 % at most"
    if ticks_ns is None or period_ns <= 0:
        return Check("F9", "sampler", NOT_MODELLED, None, limit, "the run was not sampled")
    if len(ticks_ns) < 2:
        short = end_ns <= 3 * period_ns
        why = f"{len(ticks_ns)} samples in {end_ns} ns at a period of {period_ns} ns"
        return Check("F9", "sampler", NOT_MODELLED if short else FAIL, None, limit, why)
    inside = ticks_ns[ticks_ns <= end_ns]
    edges = np.concatenate(([0], inside, [end_ns]))
    gaps = np.diff(edges)
    unseen = float(gaps[gaps > 3 * period_ns].sum())
    share = max(0.0, unseen - 3 * period_ns) / max(1, end_ns)
    p99 = float(np.quantile(np.diff(ticks_ns), 0.99)) / period_ns
    status = worst(grade(p99, 1.5, 3.0), grade(share, 0.01, 0.10))
    text = f"{len(ticks_ns)} samples, p99 interval {p99:.3g} periods, longest {gaps.max() / period_ns:.3g}, {percent(share)} not seen"
    return Check("F9", "sampler", status, p99, limit, text)


def check_order(
    *,
    single_path: bool | None,
    reordered: int,
    retransmitted: int,
    packets: int,
    gaps: int = 0,
    lost: int | None = None,
) -> Check:
    """F11: on one path nothing overtakes; a retransmission comes late by nature. `value` is the reordered share.

    Over many paths any order is right, so there is nothing to check. `gaps` are those that receivers complained of, `lost` the
    packets that anything on the way lost (None: not known): go-back-N sends again what only came late, and then counts it as in
    order, so a gap where nothing was lost tells of it.
    """
    limit = "0 on one path, but retransmissions; no gap where nothing was lost"
    if single_path is None:
        return Check("F11", "order", NOT_MODELLED, None, limit, "the transport does not tell what was reordered")
    share = reordered / max(1, packets)
    if not single_path:
        return Check(
            "F11",
            "order",
            NOT_MODELLED,
            share,
            limit,
            f"many paths, on which any order is right: {reordered} of {packets} packets came late ({percent(share)})",
        )
    if gaps and lost == 0:
        text = f"one path per flow: receivers saw {gaps} gaps, though no packet was lost on the way: packets overtook each other"
        return Check("F11", "order", FAIL, share, limit, text)
    unexplained = max(0, reordered - retransmitted)
    text = f"one path per flow: {reordered} packets came late, {retransmitted} were sent again"
    return Check("F11", "order", FAIL if unexplained else PASS, share, limit, text)


def check_workload(*, wrong: int, checked: int, unfinished: int, transfers: int, problem: str | None) -> Check:
    """F12: every transfer ended and every result is right; `value` counts wrong elements."""
    limit = "0 wrong, all done"
    if problem or unfinished:
        text = "; ".join(
            t
            for t in (f"{unfinished} of {transfers} transfers did not finish" if unfinished else "", problem or "")
            if t
        )
        return Check("F12", "workload", FAIL, float(wrong), limit, text)
    if wrong:
        return Check("F12", "workload", FAIL, float(wrong), limit, f"{wrong} of {checked} results are wrong")
    if not checked:
        return Check("F12", "workload", NOT_MODELLED, None, limit, "no result was checked")
    return Check("F12", "workload", PASS, 0.0, limit, f"{checked} results right, {transfers} transfers done")


def check_repeats(values: Sequence[float]) -> Check:
    """F13: the headline number of repeated runs; `value` is its coefficient of variation."""
    limit = "CV up to 3 %, 10 % at most"
    if len(values) < 2:
        return Check("F13", "repeats", NOT_MODELLED, None, limit, "one run; --repeat N measures the spread")
    s = spread(values)
    cv = s.cv if s.cv is not None else float("inf")
    text = f"{s.n} runs: median {s.median:.6g}, CV {percent(cv)}, mean in {s.low:.6g} … {s.high:.6g} (95 %)"
    return Check("F13", "repeats", grade(cv, 0.03, 0.10), cv, limit, text)


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured time, the theory's bound and what even this emulator's token buckets cannot beat; fabric ns."""

    what: str
    measured_ns: float
    bound_ns: float
    floor_ns: float


def check_theory(whole: Timing | None, transfers: Sequence[Timing] = ()) -> Check:
    """F14: nothing is faster than possible, neither the workload nor any transfer in it. `value` is measured / bound.

    A part per thousand is left for rounding. Between floor and bound lies what an idle token bucket passes at once.
    """
    limit = "measured / bound at least 1"
    if whole is None:
        return Check("F14", "theory", NOT_MODELLED, None, limit, "no bound is known for this workload")
    ratio = whole.measured_ns / whole.bound_ns if whole.bound_ns else float("inf")
    fast = [t for t in (whole, *transfers) if t.measured_ns < 0.999 * t.floor_ns - 1]
    if fast:
        texts = [
            f"{t.what} took {t.measured_ns:.0f} ns, less than the {t.bound_ns:.0f} ns that are possible" for t in fast
        ]
        return Check("F14", "theory", FAIL, ratio, limit, some(texts))
    text = f"{whole.what} took {ratio:.4g} times its bound of {whole.bound_ns / 1000:.6g} us"
    if ratio < 1:
        text += "; an idle port passes its burst at once, which the bound does not count"
    return Check("F14", "theory", PASS, ratio, limit, text)


def check_clock(step_ns: float | None, *, clock: str) -> Check:
    """C1: nobody set the system clock during the run, for arrival times are taken from it; `value` in wall ns."""
    limit = "less than 0.1 ms, 1 ms at most"
    if clock == VIRTUAL:
        return Check("C1", "system clock", PASS, None, limit, "virtual clock: nothing outside can set it")
    if step_ns is None:
        return Check("C1", "system clock", NOT_MODELLED, None, limit, "not watched")
    text = f"the system clock moved by {step_ns / 1e6:.3g} ms against the monotonic one"
    return Check("C1", "system clock", grade(abs(step_ns), 1e5, 1e6), float(step_ns), limit, text)


def check_timers(*, kernel_tcp: bool, clock: str, tdf: int) -> Check:
    """C2: the transport's timers run in fabric time. Kernel TCP's do not when time is dilated; `value` is the TDF."""
    limit = "timers in fabric time"
    if kernel_tcp and clock != VIRTUAL and tdf > 1:
        text = (
            f"kernel TCP keeps its own timers: its 200 ms minimum time-out is {200_000 / tdf:.4g} us of fabric time at TDF {tdf}; "
            "the virtual clock is exact"
        )
        return Check("C2", "transport timers", WARN, float(tdf), limit, text)
    return Check("C2", "transport timers", PASS, float(tdf), limit, "all timers run in fabric time")
