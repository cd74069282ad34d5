"""TIMELY with literal round trips: a 0.875, b 0.8, T_low 50 us, T_high 500 us, least RTT 20 us; 10 Gbit/s: AI 10, HAI 50 Mbit/s."""

import pytest

from traffic.congestion.base import PathInfo
from traffic.congestion.registry import create
from traffic.congestion.timely import Timely

M = 1e6


@pytest.fixture
def timely() -> Timely:
    cc = create("timely", path=PathInfo(10_000_000_000, 20_000, 1000, 1000))
    assert isinstance(cc, Timely)
    return cc


def rtt(cc: Timely, *values_us: float) -> None:
    for value in values_us:
        cc.sent(now=0, size=1000)
        cc.acked(now=0, size=1000, rtt_ns=round(value * 1000), ce=False)


# astra-network-ns3 pull 11: without a true start stamp the round trip is wrong and the rate 2.6 times too low
def test_gradient(timely: Timely) -> None:
    rtt(timely, 60)
    assert timely.rate_bps == 10_000 * M  # the first sample only starts the series
    rtt(timely, 62)  # diff 0.875 × 2 = 1.75 us, gradient 0.0875
    assert timely.rate_bps == pytest.approx(10_000 * M * (1 - 0.8 * 0.0875))
    assert timely.state()["gradient"] == pytest.approx(0.0875)
    assert timely.trigger == "gradient_up"
    rtt(timely, 60)  # diff 0.125 × 1.75 − 0.875 × 2 < 0
    assert timely.rate_bps == pytest.approx(9_300 * M + 10 * M)
    assert timely.trigger == "gradient_down"


def test_above_t_high_whatever_the_gradient(timely: Timely) -> None:
    rtt(timely, 2000, 1000)  # falling, but above 500 us: 1 − 0.8 (1 − 500/1000)
    assert timely.rate_bps == pytest.approx(6_000 * M)
    assert timely.trigger == "above_high"


def test_below_t_low_and_hyper_after_five(timely: Timely) -> None:
    rtt(timely, 1000, 1000)
    steps, before = [], timely.rate_bps
    for k in range(7):
        rtt(timely, 40 + k)  # rising, but below 50 us
        steps.append(round((timely.rate_bps - before) / M))
        before = timely.rate_bps
    assert steps == [10, 10, 10, 10, 10, 50, 50]
    rtt(timely, 1000)  # a decrease ends the streak
    before = timely.rate_bps
    rtt(timely, 40)
    assert timely.rate_bps - before == pytest.approx(10 * M)


def test_once_a_round_trip(timely: Timely) -> None:
    rtt(timely, 60)
    for _ in range(10):
        timely.sent(now=0, size=1000)
    timely.acked(now=0, size=1000, rtt_ns=62_000, ce=False)
    rate = timely.rate_bps
    for _ in range(9):
        timely.acked(now=0, size=1000, rtt_ns=70_000, ce=False)
    assert timely.rate_bps == rate


def test_scaled_preset_follows_the_path() -> None:
    cc = create("timely", path=PathInfo(100_000_000_000, 8_000, 1000, 1000), preset="scaled")
    assert (cc.params.t_low_ns, cc.params.t_high_ns, cc.params.min_rtt_ns) == (20_000, 200_000, 8_000)
    assert (cc.params.ai_bps, cc.params.hai_bps) == (100 * M, 500 * M)


def test_floor(timely: Timely) -> None:
    rtt(timely, *[100_000] * 40)
    assert timely.rate_bps == 1_000 * M
