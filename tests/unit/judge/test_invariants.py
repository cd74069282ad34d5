"""F1, F4, F5, F7, F8, F9, F11, F12, F13, F14, C1, C2: each in each status, limits of fidelity.md 2.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.judge import invariants as i


def test_f1_plan_is_reality() -> None:
    assert i.check_plan({"start": [], "end": []}).status == "pass"
    check = i.check_plan({"start": [], "end": ["leaf0:host0 rate 90 of 100"]})
    assert (check.status, check.value, check.reason) == ("fail", 1, "at the end: leaf0:host0 rate 90 of 100")
    assert i.check_plan({"start": []}).reason == "not read back at the end"
    assert i.check_plan(None).status == "not-modelled"


@pytest.mark.parametrize(
    ("clock", "tdf", "excess", "status"),
    [
        # expected 5,000 ns; at TDF 100 the wall limits 0.2 ms and 1 ms are 2,000 and 10,000 ns
        ("real", 100, 1900, "pass"),
        ("real", 100, 2100, "warn"),
        ("real", 100, 10_100, "fail"),
        ("virtual", 1, 490, "pass"),
        ("virtual", 1, 510, "warn"),
        ("virtual", 1, 2600, "fail"),
        ("virtual", 1, -600, "fail"),  # faster than light
    ],
)
def test_f4_propagation(clock: str, tdf: int, excess: float, status: str) -> None:
    probes = [i.Probe("host0>host7", 5000, 5000 + excess)] * 20
    check = i.check_propagation(probes, clock=clock, tdf=tdf)
    assert check.status == status and check.value == excess


def test_f4_needs_probes() -> None:
    assert i.check_propagation(None, clock="real", tdf=1).status == "not-modelled"


@pytest.mark.parametrize(
    ("enobufs", "late", "clock", "status", "value"),
    [
        (0, 100, "real", "pass", 0),
        (10, 100, "real", "pass", 0.01),
        (30, 100, "real", "warn", 0.03),
        (100, 100, "real", "fail", 0.1),
        (0, 4000, "real", "warn", 0.4),
        (0, 6000, "real", "fail", 0.6),
        (0, 6000, "virtual", "pass", 0),
        (0, 16_000, "virtual", "warn", 1.6),
    ],
)
def test_f5_source_kept_up(enobufs: int, late: float, clock: str, status: str, value: float) -> None:
    check = i.check_source(
        tx_packets=1000 - enobufs, enobufs=enobufs, late_p99_ns=late, base_rtt_ns=10_000, clock=clock
    )
    assert check.status == status and check.value == pytest.approx(value)


def test_f5_without_agents() -> None:
    check = i.check_source(tx_packets=None, enobufs=None, late_p99_ns=None, base_rtt_ns=None, clock="real")
    assert check.status == "not-modelled"
    check = i.check_source(tx_packets=0, enobufs=0, late_p99_ns=None, base_rtt_ns=None, clock="real")
    assert (check.status, check.reason) == ("not-modelled", "the agents sent nothing")


def test_f7_hidden_drops() -> None:
    assert i.check_hidden_drops({"softnet": 0, "captures": None}).status == "pass"
    check = i.check_hidden_drops({"softnet": 3, "packet sockets": 0})
    assert (check.status, check.value, check.reason) == ("fail", 3, "3 in softnet")
    assert i.check_hidden_drops({"softnet": None}).status == "not-modelled"


@pytest.mark.parametrize(
    ("cpu", "status"),
    [
        (i.Cpu(0.6, 0.0, 0.02, 0.01), "pass"),
        (i.Cpu(0.6), "pass"),
        (i.Cpu(0.8), "warn"),
        (i.Cpu(0.95), "fail"),
        (i.Cpu(0.5, steal=0.03), "warn"),
        (i.Cpu(0.5, pressure=0.5), "fail"),
        (i.Cpu(0.5, waiting=0.1), "warn"),
        (i.Cpu(None, steal=0.0), "not-modelled"),
        (None, "not-modelled"),
    ],
)
def test_f8_cpu(cpu: i.Cpu | None, status: str) -> None:
    assert i.check_cpu(cpu, clock="real").status == status


def test_f8_on_the_virtual_clock() -> None:
    check = i.check_cpu(None, clock="virtual")
    assert (check.status, check.reason) == ("pass", "virtual clock: CPU costs no time")
    assert i.check_cpu(None, clock="virtual", measured=True).status == "not-modelled"


def every(period: int, end: int) -> np.ndarray:
    return np.arange(0, end, period, dtype=np.int64)


def test_f9_sampler() -> None:
    regular = every(1000, 1_000_000)
    assert i.check_sampler(regular, 1000, 1_000_000).status == "pass"
    slow = every(2000, 1_000_000)
    assert i.check_sampler(slow, 1000, 1_000_000).status == "warn"
    assert i.check_sampler(every(4000, 1_000_000), 1000, 1_000_000).status == "fail"


def test_f9_a_sampler_that_stops_or_pauses_is_found() -> None:
    """Its intervals are perfect; the time it did not see is not."""
    regular = every(1000, 1_000_000)
    assert i.check_sampler(regular[:500], 1000, 1_000_000).status == "fail"
    assert i.check_sampler(regular[50:], 1000, 1_000_000).status == "warn"
    assert i.check_sampler(np.delete(regular, slice(400, 450)), 1000, 1_000_000).status == "warn"
    assert i.check_sampler(np.delete(regular, slice(400, 600)), 1000, 1_000_000).status == "fail"
    assert i.check_sampler(np.empty(0, dtype=np.int64), 1000, 1_000_000).status == "fail"
    assert i.check_sampler(np.array([0]), 1000, 2_000).status == "not-modelled"
    assert i.check_sampler(None, 0, 1_000_000).status == "not-modelled"


def test_f11_order() -> None:
    one: dict[str, Any] = {"single_path": True, "packets": 1000}
    assert i.check_order(reordered=0, retransmitted=0, **one).status == "pass"
    assert i.check_order(reordered=5, retransmitted=5, **one).status == "pass"
    assert i.check_order(reordered=6, retransmitted=5, **one).status == "fail"
    late: dict[str, Any] = {"reordered": 0, "retransmitted": 15, "gaps": 2, **one}
    assert [i.check_order(lost=lost, **late).status for lost in (0, 1, None)] == ["fail", "pass", "pass"]
    spray = i.check_order(single_path=False, reordered=250, retransmitted=0, packets=1000)
    assert (spray.status, spray.value) == ("not-modelled", 0.25)  # any order is right there
    assert i.check_order(single_path=None, reordered=0, retransmitted=0, packets=0).status == "not-modelled"


def test_f12_workload() -> None:
    good: dict[str, Any] = {"wrong": 0, "checked": 100, "unfinished": 0, "transfers": 7, "problem": None}
    assert i.check_workload(**good).status == "pass"
    assert i.check_workload(**{**good, "wrong": 1}).reason == "1 of 100 results are wrong"
    assert i.check_workload(**{**good, "unfinished": 2}).reason == "2 of 7 transfers did not finish"
    assert i.check_workload(**{**good, "problem": "retries exhausted"}).status == "fail"
    assert i.check_workload(**{**good, "checked": 0}).status == "not-modelled"


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([100, 101, 99], "pass"),
        ([100, 105, 95], "warn"),
        ([100, 150, 60], "fail"),
        ([100], "not-modelled"),
        ([5, 5], "pass"),
    ],
)
def test_f13_repeats(values: list[float], status: str) -> None:
    assert i.check_repeats(values).status == status


def test_f14_theory() -> None:
    whole = i.Timing("the workload", 103.0, 100.0, 95.0)
    check = i.check_theory(whole)
    assert (check.status, check.value) == ("pass", 1.03)
    early = i.check_theory(i.Timing("the workload", 97_000, 100_000, 95_000))
    assert early.status == "pass" and "burst" in early.reason
    assert i.check_theory(i.Timing("the workload", 94_000, 100_000, 95_000)).status == "fail"
    check = i.check_theory(whole, [i.Timing("host0>host1 (transfer 3)", 50_000, 80_000, 79_000)])
    assert check.reason == "host0>host1 (transfer 3) took 50000 ns, less than the 80000 ns that are possible"
    assert check.status == "fail" and i.check_theory(None).status == "not-modelled"


@pytest.mark.parametrize(
    ("step", "clock", "status"),
    [
        (0, "real", "pass"),
        (-5e5, "real", "warn"),
        (2e6, "real", "fail"),
        (None, "real", "not-modelled"),
        (2e6, "virtual", "pass"),
    ],
)
def test_c1_clock_step(step: float | None, clock: str, status: str) -> None:
    assert i.check_clock(step, clock=clock).status == status


def test_f4_propagation_that_nobody_keeps_needs_care() -> None:
    check = i.check_propagation(None, clock="real", tdf=100, unmodelled_ns=2000)
    assert (check.status, check.value) == ("warn", -2000.0) and "round trips lack up to 4000 ns" in check.reason


def test_c2_kernel_tcp_on_a_dilated_clock() -> None:
    check = i.check_timers(kernel_tcp=True, clock="real", tdf=100)
    assert check.status == "warn" and "200 ms minimum time-out is 2000 us of fabric time at TDF 100" in check.reason
    assert i.check_timers(kernel_tcp=True, clock="real", tdf=1).status == "pass"
    assert i.check_timers(kernel_tcp=True, clock="virtual", tdf=1).status == "pass"
    assert i.check_timers(kernel_tcp=False, clock="real", tdf=100).status == "pass"
