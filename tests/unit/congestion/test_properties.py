"""Whatever happens: rates stay within the line, windows above their floor, timers go forward, nothing is NaN."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.congestion.base import CongestionControl, Loss, PathInfo, ReceiverControl
from traffic.congestion.registry import BUILT_IN, create, create_receiver

PATH = PathInfo(100_000_000_000, 8_000, 4096, 4190, hops=4, trimming=True)
CASES = [
    (cls.name, preset)
    for cls in BUILT_IN
    for preset in ([None] if cls.name != "fixed" else ["bdp"]) + [p for p in cls.presets if p != "bdp"]
]

times = st.integers(0, 300_000)
sizes = st.integers(0, 100_000)
events = st.lists(
    st.one_of(
        st.tuples(times, st.just("sent"), st.fixed_dictionaries({"size": sizes})),
        st.tuples(
            times,
            st.just("acked"),
            st.fixed_dictionaries(
                {"size": sizes, "rtt_ns": st.none() | st.integers(0, 10_000_000), "ce": st.booleans()}
            ),
        ),
        st.tuples(times, st.just("marked"), st.just({})),
        st.tuples(times, st.just("lost"), st.fixed_dictionaries({"size": sizes, "kind": st.sampled_from(Loss)})),
        st.tuples(times, st.just("credited"), st.fixed_dictionaries({"size": sizes})),
        st.tuples(times, st.just("penalised"), st.fixed_dictionaries({"penalty": st.integers(0, 127)})),
    ),
    max_size=60,
)


def sound(cc: CongestionControl) -> None:
    if cc.rate_bps is not None:
        assert 0 < cc.rate_bps <= PATH.line_rate_bps
    if cc.window_bytes is not None:
        floor = 0.01 * PATH.mtu_bytes if cc.name == "swift" else PATH.mtu_bytes
        assert math.isfinite(cc.window_bytes) and cc.window_bytes >= floor * (1 - 1e-9)
    if cc.credit_bytes is not None:
        assert math.isfinite(cc.credit_bytes)
    assert all(math.isfinite(v) for v in cc.state().values())


def run_timers(machine: CongestionControl | ReceiverControl, before: int) -> None:
    """Every deadline before a time, in order; each must lie behind the last."""
    last = -1
    while (due := machine.next_timer()) is not None and due < before:
        assert due > last, "a timer stood still or went back"
        last = due
        machine.expired(now=due)
        after = machine.next_timer()
        assert after is None or after > due
        if isinstance(machine, CongestionControl):
            sound(machine)


@pytest.mark.parametrize(("name", "preset"), CASES)
@settings(max_examples=40, deadline=None)
@given(trace=events)
def test_senders_stay_sound(name: str, preset: str | None, trace: list[tuple[int, str, dict[str, Any]]]) -> None:
    cc, now = create(name, path=PATH, preset=preset), 0
    for step, verb, args in trace:
        now += step
        run_timers(cc, now)
        getattr(cc, verb)(now=now, **args)
        sound(cc)
    run_timers(cc, now + 1_000_000)


arrivals = st.lists(
    st.tuples(
        st.integers(0, 50_000),
        st.integers(1, 4),
        st.booleans(),
        st.integers(0, 500_000),
        st.sampled_from([None, None, Loss.TRIM, Loss.TRIM_LAST_HOP]),
        st.booleans(),
    ),
    max_size=60,
)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("dcqcn", {"cnp_delay_ns": 3_000}),
        ("nscc", {"penalty_for_trims": True}),
        ("rccc", {"oversubscribed": True}),
        ("rccc", {"pull_bytes": 1000, "slow_credit": False}),
        ("cts", {"senders": 2}),
    ],
)
@settings(max_examples=40, deadline=None)
@given(trace=arrivals)
def test_receivers_stay_sound(name: str, params: dict[str, Any], trace: list[Any]) -> None:
    """No more credit than asked for and one window of trust, CNPs at most one an interval, penalties within 7 bits."""
    r, now = create_receiver(name, path=PATH, params=params), 0
    asked: dict[int, int] = {}
    granted: dict[int, int] = {}
    cnps: list[tuple[int, int]] = []
    for step, qp, ce, more, trimmed, gone in trace:
        now += step
        run_timers(r, now)
        if gone:
            r.idle(now=now, qp=qp)
            asked.pop(qp, None)
            granted.pop(qp, None)
            r.take_grants()
        else:
            asked[qp] = asked.get(qp, 0) + more
            r.arrived(now=now, qp=qp, size=4096, ce=ce, credit_target=asked[qp], trimmed=trimmed)
        for who, size in r.take_grants():
            assert size > 0
            granted[who] = granted.get(who, 0) + size
        trust = 1.5 * PATH.bdp_payload_bytes + 4 * 4096 if name == "rccc" and params.get("slow_credit", True) else 0
        for who, size in granted.items():
            assert size <= max(asked.get(who, 0) + trust, size if who not in asked else 0)
        cnps += [(now, who) for who in r.take_cnps()]
        assert 0 <= r.penalty(qp=qp) <= 127
    run_timers(r, now + 10_000_000)
    assert len(cnps) <= len(trace)
