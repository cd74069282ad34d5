"""DCQCN with literal numbers: 40 Gbit/s, g = 1/256, timers of 55 us, F = 5, AI 40 Mbit/s, HAI 200 Mbit/s, B = 10 MB."""

import pytest

from traffic.congestion.base import PathInfo
from traffic.congestion.dcqcn import Dcqcn
from traffic.congestion.registry import create

G = 1e9
MB = 1_000_000


def make(path: PathInfo, preset: str | None = None, **params: object) -> Dcqcn:
    cc = create("dcqcn", path=path, preset=preset, params=params)
    assert isinstance(cc, Dcqcn)
    return cc


def run_timers(cc: Dcqcn, until: int) -> list[int]:
    """Expire what is due by `until`, each at its own time; the times."""
    times = []
    while (due := cc.next_timer()) is not None and due <= until:
        cc.expired(now=due)
        times.append(due)
    return times


def test_starts_at_line_rate_without_a_timer(forty: PathInfo) -> None:
    cc = make(forty)
    assert (cc.rate_bps, cc.next_timer(), cc.trigger) == (40 * G, None, "start")
    cc.sent(now=0, size=100 * MB)
    assert (cc.rate_bps, cc.byte_stage) == (40 * G, 0)


# paper, equation 1: R_T = R_C, R_C = R_C (1 − alpha/2), alpha = (1 − g) alpha + g; ns3-rdma raises alpha before it cuts
@pytest.mark.parametrize(
    ("order", "alpha0", "rate", "alpha"),
    [
        ("cut-alpha", 1.0, 20 * G, 1.0),
        ("cut-alpha", 0.5, 30 * G, 0.501953125),
        ("alpha-cut", 0.5, 29.9609375 * G, 0.501953125),
        ("cut-alpha", 0.0, 40 * G, 0.00390625),
        ("alpha-cut", 0.0, 39.921875 * G, 0.00390625),
    ],
)
def test_cut(forty: PathInfo, order: str, alpha0: float, rate: float, alpha: float) -> None:
    cc = make(forty, order=order, initial_alpha=alpha0)
    cc.marked(now=1_000)
    assert cc.rate_bps == pytest.approx(rate, rel=1e-12)
    assert cc.alpha == pytest.approx(alpha, rel=1e-12)
    assert cc.target_bps == 40 * G
    assert cc.trigger == "cnp"


def test_fast_recovery_halves_the_distance_five_times_at_exact_times(forty: PathInfo) -> None:
    cc = make(forty)
    cc.marked(now=0)
    rates = {}
    for due in (55_000, 110_000, 165_000, 220_000, 275_000):
        assert cc.next_timer() == due
        cc.expired(now=due)
        rates[due] = cc.rate_bps / G
        assert cc.trigger == "fast_recovery"
    assert rates == {55_000: 30, 110_000: 35, 165_000: 37.5, 220_000: 38.75, 275_000: 39.375}


def test_additive_increase_after_five_fast_recoveries(forty: PathInfo) -> None:
    cc = make(forty)
    cc.marked(now=0)
    cc.marked(now=50_000)  # 20 → target 20, rate 10
    assert (cc.rate_bps, cc.target_bps) == (10 * G, 20 * G)
    run_timers(cc, 50_000 + 275_000)
    assert cc.rate_bps == pytest.approx(19.6875 * G)
    cc.expired(now=380_000)
    assert cc.trigger == "additive"
    assert cc.target_bps == pytest.approx(20.04 * G)
    assert cc.rate_bps == pytest.approx(19.86375 * G)
    cc.expired(now=435_000)
    assert cc.target_bps == pytest.approx(20.08 * G)
    assert cc.rate_bps == pytest.approx(19.971875 * G)


def test_hyper_increase_needs_both_stages_above_five(forty: PathInfo) -> None:
    cc = make(forty)
    cc.marked(now=0)
    cc.marked(now=50_000)
    run_timers(cc, 380_000)  # time stage 6, target 20.04
    for stage in range(1, 6):
        cc.sent(now=380_000, size=10 * MB)
        assert (cc.byte_stage, cc.trigger) == (stage, "additive")
    assert cc.target_bps == pytest.approx(20.24 * G)
    cc.sent(now=380_000, size=10 * MB)  # both 6: 1 × HAI
    assert cc.trigger == "hyper"
    assert cc.target_bps == pytest.approx(20.44 * G)
    cc.expired(now=435_000)  # time 7, byte 6: still 1 × HAI
    cc.sent(now=435_000, size=10 * MB)  # both 7: 2 × HAI
    assert cc.target_bps == pytest.approx(21.04 * G)


def test_byte_counter_alone_recovers(forty: PathInfo) -> None:
    cc = make(forty)
    cc.marked(now=0)
    cc.sent(now=10, size=10 * MB - 1)
    assert cc.rate_bps == 20 * G
    cc.sent(now=20, size=1)
    assert (cc.rate_bps, cc.byte_stage, cc.time_stage) == (30 * G, 1, 0)
    cc.sent(now=30, size=20 * MB)
    assert (cc.rate_bps, cc.byte_stage) == (37.5 * G, 3)


def test_alpha_decays_after_55_us_of_silence(forty: PathInfo) -> None:
    cc = make(forty)
    cc.marked(now=7_000)
    assert cc.next_timer() == 62_000
    cc.expired(now=62_000)
    assert cc.alpha == 0.99609375
    cc.expired(now=117_000)
    assert cc.alpha == pytest.approx(0.99609375**2, rel=1e-12)
    cc.marked(now=150_000)  # a CNP starts the silence anew
    assert cc.alpha == pytest.approx(0.99609375**3 + 0.00390625, rel=1e-12)
    assert cc.next_timer() == 205_000


# HPCC issue 52: what if a CNP and the timer meet? Packets are told first; the other order is the caller's mistake, and differs.
def test_cnp_and_timer_at_one_instant(forty: PathInfo) -> None:
    cc = make(forty)
    cc.marked(now=0)
    cc.marked(now=55_000)
    assert (cc.rate_bps, cc.target_bps, cc.alpha, cc.time_stage) == (10 * G, 20 * G, 1.0, 0)
    cc.expired(now=55_000)
    assert (cc.rate_bps, cc.next_timer()) == (10 * G, 110_000)

    late = make(forty)
    late.marked(now=0)
    late.expired(now=55_000)
    late.marked(now=55_000)
    assert late.rate_bps == pytest.approx(15.05859375 * G)  # 30 × (1 − 0.99609375/2)
    assert late.target_bps == 30 * G


def test_overdue_timers_count_before_a_later_cnp(forty: PathInfo) -> None:
    cc = make(forty)
    cc.marked(now=0)
    cc.marked(now=120_000)  # both 55 and 110 us had passed: 20 → 30 → 35, alpha twice down
    assert cc.target_bps == 35 * G
    assert cc.rate_bps == pytest.approx(35 * G * (1 - 0.99609375**2 / 2), rel=1e-12)


def test_floor_and_cap(forty: PathInfo) -> None:
    cc = make(forty, min_rate_bps=1 * G)
    for k in range(20):
        cc.marked(now=k * 50_000)
    assert cc.rate_bps == 1 * G
    run_timers(cc, 3_000_000_000)
    assert cc.rate_bps == 40 * G
    assert cc.target_bps == 40 * G


def test_zhu_preset_makes_four_fast_recoveries_and_halves_in_hyper(forty: PathInfo) -> None:
    cc = make(forty, "zhu", initial_alpha=1.0, byte_counter_bytes=10 * MB)
    cc.marked(now=0)
    cc.marked(now=1_000)
    triggers = []
    for k in range(1, 6):
        cc.expired(now=1_000 + 60_000 * k)
        triggers.append(cc.trigger)
    assert triggers == ["fast_recovery"] * 4 + ["additive"]
    cc.sent(now=301_000, size=50 * MB)
    assert (cc.byte_stage, cc.trigger) == (5, "hyper")
    assert (cc.time_stage, cc.next_timer()) == (5, 331_000)  # alpha: 1 + 6 × 55
    run_timers(cc, 361_000)  # the timer set before hyper increase runs out, then half of 60 us
    assert cc.time_stage == 6
    run_timers(cc, 390_999)
    assert cc.time_stage == 6
    run_timers(cc, 391_000)
    assert cc.time_stage == 7


def test_zhu_shrinks_a_target_above_ten_times_the_rate(forty: PathInfo) -> None:
    for shrink, target in ((True, 40 / 8), (False, 40)):
        cc = make(forty, clamp_target=False, shrink_target=shrink, cut_interval_ns=0)
        for k in range(4):  # 20, 10, 5, 2.5 while the target stays at 40
            cc.marked(now=k)
        assert (cc.rate_bps, cc.target_bps) == (2.5 * G, 40 * G)
        cc.expired(now=55_003)
        assert cc.target_bps == target * G


def test_polled_machine_of_the_hpcc_simulator() -> None:
    path = PathInfo(100_000_000_000, 8_000, 1000, 1000)
    cc = make(path, "hpcc-mellanox")
    assert (cc.params.ai_bps, cc.params.hai_bps) == (20e6, 200e6)  # 5 and 50 Mbit/s × 100/25
    cc.marked(now=0)
    assert (cc.rate_bps, cc.alpha) == (100 * G, 1.0)
    assert cc.next_timer() == 4_000
    cc.expired(now=4_000)  # alpha looked at 1, 2, 3 and 4 us without another CNP, then the cut
    assert cc.alpha == pytest.approx((255 / 256) ** 4, rel=1e-12)
    assert cc.rate_bps == pytest.approx(100 * G * (1 - (255 / 256) ** 4 / 2), rel=1e-12)
    assert cc.target_bps == 100 * G
    low = cc.rate_bps
    stages = []
    for due in (304_000, 604_000, 904_000):
        assert cc.next_timer() == due
        cc.expired(now=due)
        stages.append(cc.trigger)
    assert stages == ["fast_recovery", "additive", "hyper"]
    assert cc.rate_bps == pytest.approx(100 * G - (100 * G - low) / 8)


def test_polled_alpha_rises_at_the_next_look() -> None:
    path = PathInfo(100_000_000_000, 8_000, 1000, 1000)
    cc = make(path, "hpcc-paper", initial_alpha=0.5)
    cc.marked(now=0)
    cc.marked(now=10_000)
    assert cc.next_timer() == 50_000
    cc.expired(now=50_000)
    assert cc.alpha == pytest.approx(0.501953125)
    assert cc.rate_bps == pytest.approx(100 * G * (1 - 0.501953125 / 2))


def test_least_time_between_cuts_of_the_event_machine(forty: PathInfo) -> None:
    cc = make(forty, cut_interval_ns=50_000, initial_alpha=0.5)
    cc.marked(now=0)
    cc.marked(now=49_999)
    assert cc.rate_bps == 30 * G  # the rate stays, alpha rises
    assert cc.alpha == pytest.approx(0.50389862060546875)
    cc.marked(now=50_000)
    assert cc.rate_bps < 30 * G
