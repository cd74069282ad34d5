"""Receiver halves with literal times: CNPs, penalty, RCCC's arbiter, clear-to-send."""

import pytest

from traffic.congestion.arbiter import CreditArbiter
from traffic.congestion.base import Loss, PathInfo, ReceiverControl
from traffic.congestion.registry import create, create_receiver

LINE = PathInfo(100_000_000_000, 8_000, 4096, 4096)
PULL = 16_384  # 4 MTU
PULL_NS = 16_384 * 8 / 100 / 0.99  # 1323.96 ns


def arrive(
    r: ReceiverControl, now: int, qp: int, *, ce: bool = False, target: int = 0, trimmed: Loss | None = None
) -> None:
    r.arrived(now=now, qp=qp, size=4096, ce=ce, credit_target=target, trimmed=trimmed)


def timers(r: ReceiverControl, until: int) -> dict[int, list[tuple[int, int]]]:
    """Grants by the time at which each was made."""
    out = {}
    while (due := r.next_timer()) is not None and due <= until:
        r.expired(now=due)
        if grants := r.take_grants():
            out[due] = grants
    return out


# -- CNP ---------------------------------------------------------------------------------------------------------------


def test_one_cnp_an_interval_for_each_queue_pair() -> None:
    r = create_receiver("dcqcn", path=LINE)
    arrive(r, 1_000, 1)
    assert r.take_cnps() == []
    arrive(r, 2_000, 1, ce=True)  # at once
    arrive(r, 2_100, 2, ce=True)  # another queue pair, its own interval
    assert r.take_cnps() == [1, 2]
    arrive(r, 3_000, 1, ce=True)
    arrive(r, 51_999, 1, ce=True)
    assert r.take_cnps() == []
    assert r.next_timer() == 52_000  # the interval's end, for what was marked within it
    r.expired(now=52_000)
    assert r.take_cnps() == [1]
    assert r.next_timer() is None
    arrive(r, 101_999, 1)
    arrive(r, 102_000, 1, ce=True)
    assert r.take_cnps() == [1]


# aliyun/ns-3-alibabacloud issue 12: real NICs take their time
def test_cnp_delay_of_the_nic() -> None:
    r = create_receiver("dcqcn", path=LINE, params={"cnp_delay_ns": 55_000})
    arrive(r, 2_000, 1, ce=True)
    assert r.take_cnps() == []
    assert r.next_timer() == 57_000
    r.expired(now=57_000)
    assert r.take_cnps() == [1]


def test_interval_of_zero_answers_every_mark() -> None:
    r = create_receiver("dcqcn", path=LINE, preset="hpcc-mellanox")
    for now in (1, 2, 3):
        arrive(r, now, 1, ce=True)
    assert r.take_cnps() == [1, 1, 1]


# -- penalty -----------------------------------------------------------------------------------------------------------


def test_penalty_fixed_and_by_last_hop_trims() -> None:
    r = create_receiver("nscc", path=LINE, params={"penalty": 20})
    assert r.penalty(qp=1) == 20
    r = create_receiver("nscc", path=LINE, params={"penalty_for_trims": True})
    for k in range(4):
        arrive(r, 1_000 + k, 1, trimmed=Loss.TRIM_LAST_HOP if k < 2 else Loss.TRIM if k == 2 else None)
    assert (r.penalty(qp=1), r.next_timer()) == (0, 9_000)
    r.expired(now=9_000)
    assert r.penalty(qp=1) == 64  # 127 × 2/4
    r.expired(now=17_000)
    assert (r.penalty(qp=1), r.next_timer()) == (0, None)


# -- RCCC: the arbiter -------------------------------------------------------------------------------------------------


def test_pulls_in_turn_at_about_line_rate() -> None:
    r = create_receiver("rccc", path=LINE, params={"slow_credit": False})
    r.requested(now=1_000, qp=1, credit_target=40_960)
    r.requested(now=1_000, qp=2, credit_target=20_480)
    grants = timers(r, 20_000)
    assert [g for grant in grants.values() for g in grant] == [(1, PULL), (2, PULL), (1, PULL), (2, 4096), (1, 8192)]
    start = 1_000.0
    expected = [start, start + PULL_NS, start + 2 * PULL_NS, start + 3 * PULL_NS, start + 3.25 * PULL_NS]
    assert list(grants) == pytest.approx(expected, abs=1)
    assert r.next_timer() is None


def test_pace_charges_headers() -> None:
    r = create_receiver("rccc", path=PathInfo(100_000_000_000, 8_000, 4096, 8192), params={"slow_credit": False})
    r.requested(now=0, qp=1, credit_target=2 * PULL)
    assert list(timers(r, 20_000)) == pytest.approx([0, 2 * PULL_NS], abs=1)


def test_a_late_request_waits_for_the_pace() -> None:
    r = create_receiver("rccc", path=LINE, params={"slow_credit": False})
    r.requested(now=0, qp=1, credit_target=PULL)
    assert list(timers(r, 100)) == [0]
    r.requested(now=100, qp=2, credit_target=PULL)
    assert r.next_timer() == pytest.approx(PULL_NS, abs=1)


def test_slow_credit_on_trust_up_to_one_window() -> None:
    r = create_receiver("rccc", path=LINE, params={"window_bytes": 50_000})
    r.requested(now=0, qp=1, credit_target=PULL)
    total = sum(size for grants in timers(r, 1_000_000).values() for _, size in grants)
    assert total == PULL + 3 * PULL  # the next would pass 50,000 above the target
    r.requested(now=1_000_000, qp=1, credit_target=PULL + 40_000)  # less than it holds: nothing to do
    assert r.next_timer() is None


def test_waiting_queue_pairs_go_before_slow_credit() -> None:
    r = create_receiver("rccc", path=LINE)
    r.requested(now=0, qp=1, credit_target=PULL)
    timers(r, 0)
    r.requested(now=500, qp=2, credit_target=PULL)
    assert timers(r, 1_400) == {1_324: [(2, PULL)]}
    r.idle(now=1_400, qp=1)
    r.idle(now=1_400, qp=2)
    assert r.next_timer() is None


def over(marks: int, core_trims: int = 0, *, r: CreditArbiter, now: int) -> float:
    """One interval of ten packets; the rate after it."""
    for k in range(10):
        arrive(r, now, 1, ce=k < marks, trimmed=Loss.TRIM if k >= 10 - core_trims else None)
    assert r.next_timer() is not None
    r.expired(now=now + 12_000)
    return r.pull_rate


# uet-htsim oversubscribed_cc.cpp: g = EWMA(1/2); cut 0.5 (g − 0.3); step 0.01, doubling while nothing is marked; floor 0.01
def test_oversubscribed_core_lowers_the_pull_rate() -> None:
    r = create_receiver("rccc", path=LINE, preset="oversubscribed")
    assert isinstance(r, CreditArbiter)
    assert over(10, r=r, now=0) == pytest.approx(1 - 0.5 * (0.5 - 0.3))  # g 0.5
    assert over(10, r=r, now=12_000) == pytest.approx(0.9 * (1 - 0.5 * (0.75 - 0.3)))  # g 0.75
    rate = r.pull_rate
    assert over(0, 2, r=r, now=24_000) == pytest.approx(
        (rate - 0.2) * (1 - 0.5 * (0.375 - 0.3))
    )  # g 0.375, 2 of 10 trimmed
    rate = r.pull_rate
    assert over(0, r=r, now=36_000) == pytest.approx(rate + 0.01)
    assert over(0, r=r, now=48_000) == pytest.approx(rate + 0.03)
    assert over(1, r=r, now=60_000) == pytest.approx(rate + 0.04)
    r.expired(now=1_000_000)
    assert r.pull_rate == 1.0
    r.expired(now=1_100_000)


def test_pulls_slow_down_with_the_rate() -> None:
    r = create_receiver("rccc", path=LINE, params={"oversubscribed": True, "slow_credit": False})
    assert isinstance(r, CreditArbiter)
    over(10, r=r, now=0)  # 0.9
    r.requested(now=20_000, qp=2, credit_target=2 * PULL)
    times = [t for t, grants in timers(r, 23_000).items() if grants]
    assert times == pytest.approx([20_000, 20_000 + PULL_NS / 0.9], abs=1)


# -- RCCC: the sender --------------------------------------------------------------------------------------------------


def test_sender_spends_trust_then_credit() -> None:
    cc = create("rccc", path=LINE)
    assert cc.credit_bytes == 150_000
    for k in range(10):
        assert cc.may_send(in_flight=0, size=4096)
        cc.sent(now=k, size=4096)
    assert cc.credit_target(backlog=1_000_000) == 40_960  # what it spent
    cc.acked(now=8_000, size=4096, rtt_ns=8_000, ce=False)
    assert cc.credit_bytes == 0  # the rest of the trust is gone
    assert not cc.may_send(in_flight=0, size=4096)
    assert cc.credit_target(backlog=1_000_000) == 150_016  # the window, in whole quanta of 256
    cc.credited(now=9_000, size=PULL)
    assert cc.may_send(in_flight=10**9, size=4096)
    assert cc.credit_target(backlog=1_000_000) == PULL + 133_632  # 150,000 − 16,384 = 133,616 → 522 quanta
    assert cc.credit_target(backlog=1_000) == PULL
    cc.credited(now=9_000, size=10**9)
    assert cc.credit_bytes == 150_000  # never more than a window


def test_credit_may_be_overdrawn_by_less_than_a_packet() -> None:
    cc = create("rccc", path=LINE, params={"speculate": False})
    assert not cc.may_send(in_flight=0, size=4096)
    cc.credited(now=0, size=256)
    assert cc.may_send(in_flight=0, size=4096)
    cc.sent(now=0, size=4096)
    assert (cc.credit_bytes, cc.may_send(in_flight=0, size=1)) == (-3_840, False)


# -- clear-to-send -----------------------------------------------------------------------------------------------------


def test_cts_calls_one_sender_after_the_other() -> None:
    r = create_receiver("cts", path=LINE, params={"grant_bytes": 409_600, "ahead_bytes": 102_400})
    for qp in (1, 2, 3):
        r.requested(now=0, qp=qp, credit_target=409_600)
    assert r.take_grants() == [(1, 409_600)]
    for k in range(75):
        arrive(r, k, 1)
        assert (r.take_grants() == [(2, 409_600)]) is (k == 74)  # 100 − 75 packets of 4096 = 102,400 still to come
    for k in range(100):
        arrive(r, 100 + k, 2)
        assert r.take_grants() == ([(3, 409_600)] if k == 99 else [])  # sender 1 still owes 25 packets


def test_cts_senders_above_one() -> None:
    r = create_receiver("cts", path=LINE, params={"senders": 2, "grant_bytes": 400_000, "ahead_bytes": 0})
    for qp in (1, 2, 3):
        r.requested(now=0, qp=qp, credit_target=400_000)
    assert r.take_grants() == [(1, 400_000), (2, 400_000)]


def test_cts_small_requests_share_the_window() -> None:
    r = create_receiver("cts", path=LINE, params={"ahead_bytes": 100_000})
    for qp in range(5):
        r.requested(now=0, qp=qp, credit_target=40_000)
    assert r.take_grants() == [(0, 40_000), (1, 40_000), (2, 40_000)]


def test_cts_does_not_wait_for_the_dead() -> None:
    r = create_receiver("cts", path=LINE, params={"patience_ns": 1_000_000})
    r.requested(now=0, qp=1, credit_target=10**9)
    r.requested(now=5, qp=2, credit_target=300_000)
    assert r.take_grants() == [(1, 524_288)]
    assert r.next_timer() == 1_000_000
    r.expired(now=1_000_000)
    assert r.take_grants() == [(2, 300_000)]
    r.idle(now=1_000_001, qp=2)
    r.idle(now=1_000_001, qp=1)
    assert r.next_timer() is None


def test_cts_sender_waits_to_be_called() -> None:
    cc = create("cts", path=LINE)
    assert not cc.may_send(in_flight=0, size=4096)
    assert cc.credit_target(backlog=1_000_000) == 1_000_000
    cc.credited(now=0, size=524_288)
    cc.sent(now=0, size=4096)
    assert cc.credit_target(backlog=995_904) == 1_000_000
    assert cc.trigger == "clear_to_send"
