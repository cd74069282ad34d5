"""NSCC with literal numbers: the reference network of uet-htsim, so a = 1, T = 9 us, MSS 4096."""

import pytest

from traffic.congestion.base import Loss, PathInfo
from traffic.congestion.nscc import Nscc
from traffic.congestion.registry import create

MTU = 4096
BASE = 12_000
T = 9_000


@pytest.fixture
def nscc(reference: PathInfo) -> Nscc:
    cc = create("nscc", path=reference)
    assert isinstance(cc, Nscc)
    cc.window_bytes = 100_000.0
    return cc


def ack(cc: Nscc, delay: int, *, now: int = 1_000, ce: bool = False, count: int = 1) -> None:
    for _ in range(count):
        cc.sent(now=now, size=MTU)
        cc.acked(now=now, size=MTU, rtt_ns=BASE + delay, ce=ce)


def fill(cc: Nscc, packets: int = 20) -> None:
    """So many more packets are in flight."""
    for _ in range(packets):
        cc.sent(now=500, size=MTU)


def test_parameters(reference: PathInfo) -> None:
    p = create("nscc", path=reference).params
    assert p.alpha == pytest.approx(4 * 4096 * 0.75 / 9000)
    assert (p.target_ns, p.fi_bytes, p.eta_bytes, p.fi_scale) == (9_000, 20_480, pytest.approx(614.4), 0.25)
    assert (p.adjust_bytes, p.qa_threshold_ns, p.trim_delay_ns) == (32_768, 36_000, 12_000)


def test_without_trimming_the_target_is_the_round_trip() -> None:
    path = PathInfo(400_000_000_000, 6_000, 4096, 4096)
    p = create("nscc", path=path).params
    assert p.target_ns == 6_000
    assert p.fi_scale == 0.5  # a = 400 × 6 / (100 × 12) = 2


def test_starts_at_one_and_a_half_bdp(reference: PathInfo) -> None:
    assert create("nscc", path=reference).window_bytes == 225_000


def test_no_ecn_below_target_proportional(nscc: Nscc) -> None:
    ack(nscc, 3_000, count=8)
    assert nscc.window_bytes == 100_000  # applied only after more than 8 MTU
    ack(nscc, 3_000)
    inc = 9 * MTU * (4 * 4096 * 0.75 / 9000) * (9_000 - 3_000)
    assert nscc.window_bytes == pytest.approx(100_000 + inc / 100_000)
    assert nscc.trigger == "proportional_increase"


def test_no_ecn_above_target_fair(nscc: Nscc) -> None:
    ack(nscc, 10_000, count=9)
    assert nscc.window_bytes == pytest.approx(100_000 + 9 * MTU * 20_480 / 100_000)
    assert nscc.trigger == "fair_increase"


def test_ecn_below_target_leaves_the_window(nscc: Nscc) -> None:
    ack(nscc, 8_000, ce=True, count=9)
    assert nscc.window_bytes == 100_000


def test_ecn_above_target_cuts_once_a_base_round_trip(reference: PathInfo) -> None:
    nscc = create("nscc", path=reference, params={"eta_bytes": 0})
    assert isinstance(nscc, Nscc)
    nscc.window_bytes = 100_000.0
    nscc.avg_delay = 18_000
    ack(nscc, 20_000, ce=True)
    average = 18_000 + 0.0125 * 2_000
    once = 100_000 * (1 - 0.8 * (average - T) / average)
    assert nscc.window_bytes == pytest.approx(once)
    assert nscc.trigger == "decrease"
    ack(nscc, 20_000, ce=True, now=1_000 + BASE)
    assert nscc.window_bytes == pytest.approx(once)
    nscc.avg_delay = 1e9  # 1 − 0.8 would be 0.2: at most half
    window = nscc.window_bytes
    ack(nscc, 20_000, ce=True, now=1_001 + BASE)
    assert nscc.window_bytes == pytest.approx(window / 2)


def test_ecn_above_target_with_a_low_average_does_nothing(nscc: Nscc) -> None:
    ack(nscc, 20_000, ce=True)
    assert nscc.window_bytes == 100_000
    assert nscc.avg_delay == pytest.approx(250)


def test_a_slow_packet_without_a_mark_counts_as_a_quarter_round_trip(nscc: Nscc) -> None:
    ack(nscc, 20_000)
    assert nscc.avg_delay == pytest.approx(0.0125 * BASE / 4)


def test_eta_every_base_round_trip(nscc: Nscc) -> None:
    ack(nscc, 8_999, now=BASE + 1, ce=True)
    assert nscc.window_bytes == pytest.approx(100_614.4)
    ack(nscc, 8_999, now=BASE + 2, ce=True)
    assert nscc.window_bytes == pytest.approx(100_614.4)


def test_fast_increase_after_a_whole_window_without_delay(nscc: Nscc) -> None:
    nscc.window_bytes = 3.0 * MTU
    ack(nscc, 500, count=3)
    assert nscc.window_bytes == 3 * MTU
    ack(nscc, 500)
    assert nscc.window_bytes == 3 * MTU + MTU / 4
    assert nscc.trigger == "fast_increase"
    ack(nscc, 500)
    assert nscc.window_bytes == 3 * MTU + MTU / 2
    ack(nscc, 1_000)  # 1 us ends it
    assert nscc.trigger == "proportional_increase"


@pytest.mark.parametrize(
    ("kind", "ignore", "window"),
    [
        (Loss.TRIM, False, 95_904),
        (Loss.TRIM_LAST_HOP, False, 95_904),
        (Loss.TRIM_LAST_HOP, True, 100_000),
        (Loss.TRIM, True, 95_904),
        (Loss.NACK, False, 95_904),
        (Loss.TIMEOUT, False, 95_904),
    ],
)
def test_a_lost_packet_leaves_the_window(reference: PathInfo, kind: Loss, ignore: bool, window: float) -> None:
    cc = create("nscc", path=reference, params={"ignore_last_hop_trims": ignore})
    cc.window_bytes = 100_000.0
    cc.lost(now=1_000, size=MTU, kind=kind)
    assert cc.window_bytes == window


def test_quick_adapt(nscc: Nscc) -> None:
    """Every 21 us (base + T): armed by a trim, and less than 225,000/8 = 28,125 bytes came through."""
    fill(nscc)
    ack(nscc, 5_000, ce=True, now=1_000)  # starts the first period: until 22,000
    nscc.lost(now=2_000, size=MTU, kind=Loss.TRIM)
    ack(nscc, 5_000, ce=True, now=10_000, count=5)
    assert nscc.window_bytes == 100_000 - MTU
    ack(nscc, 5_000, ce=True, now=22_001)
    assert nscc.trigger == "quick_adapt"
    assert nscc.window_bytes == 6 * MTU
    for _ in range(
        18
    ):  # the flight of before (its last packet counts again) is ignored, as long as it is marked or lost
        nscc.acked(now=22_100, size=MTU, rtt_ns=60_000, ce=True)
    assert nscc.window_bytes == 6 * MTU


def test_quick_adapt_waits_for_its_gate(nscc: Nscc) -> None:
    fill(nscc)
    ack(nscc, 5_000, ce=True, now=1_000)
    nscc.lost(now=2_000, size=MTU, kind=Loss.TRIM)
    ack(nscc, 5_000, ce=True, now=10_000, count=6)
    ack(nscc, 5_000, ce=True, now=22_001)  # 7 × 4096 = 28,672 came through
    assert nscc.trigger != "quick_adapt"


def test_quick_adapt_by_delay_alone_and_switched_off(reference: PathInfo) -> None:
    for on, window in ((True, 2 * MTU), (False, 100_000)):
        cc = create("nscc", path=reference, params={"quick_adapt": on, "eta_bytes": 0, "fi_bytes": 0})
        assert isinstance(cc, Nscc)
        cc.window_bytes = 100_000.0
        fill(cc)
        ack(cc, 5_000, ce=True, now=1_000)
        ack(cc, 0, ce=True, now=2_000)
        ack(cc, 36_001, ce=False, now=22_001)
        assert cc.window_bytes == pytest.approx(window)


def test_quick_adapt_leaves_a_flow_alone_that_had_little_to_send(nscc: Nscc) -> None:
    """The last packet of a message is lost: that nothing else came through for a while is the message's end, not the path."""
    fill(nscc, 12)  # 49,152 bytes: just under half a window
    ack(nscc, 5_000, ce=True, now=1_000)
    ack(nscc, 5_000, ce=True, now=2_000, count=4)
    nscc.lost(now=22_001, size=MTU, kind=Loss.NACK)
    assert nscc.window_bytes == 100_000 - MTU
    fill(nscc, 1)  # 12 again, and now more than half of the window
    ack(nscc, 5_000, ce=True, now=43_002)
    assert nscc.trigger != "quick_adapt"
    nscc.lost(now=64_003, size=MTU, kind=Loss.NACK)
    assert nscc.trigger == "quick_adapt"


def test_quick_adapt_does_not_count_a_pause(nscc: Nscc) -> None:
    """All is acknowledged, then nothing is sent for 100 us: the next period begins with the next answer."""
    fill(nscc)
    ack(nscc, 5_000, ce=True, now=1_000)
    for _ in range(20):
        nscc.acked(now=2_000, size=MTU, rtt_ns=BASE + 5_000, ce=True)
    fill(nscc)
    nscc.lost(now=100_000, size=MTU, kind=Loss.NACK)
    assert nscc.window_bytes == 100_000 - MTU
    nscc.lost(now=121_001, size=MTU, kind=Loss.NACK)
    assert nscc.trigger == "quick_adapt"


def test_penalty_takes_what_was_acknowledged(nscc: Nscc) -> None:
    nscc.penalised(now=0, penalty=127)
    ack(nscc, 8_000, ce=True)
    assert nscc.window_bytes == 100_000 - MTU
    ack(nscc, 8_000, ce=True, count=60)
    assert nscc.window_bytes == MTU  # one packet a round trip
    nscc.penalised(now=0, penalty=0)
    nscc.window_bytes = 100_000.0
    ack(nscc, 8_000, ce=True)
    assert nscc.window_bytes == 100_000


def test_a_shorter_round_trip_becomes_the_base(nscc: Nscc) -> None:
    nscc.sent(now=0, size=MTU)
    nscc.acked(now=0, size=MTU, rtt_ns=6_000, ce=True)
    assert nscc.delay == 0
    nscc.window_bytes = 1e9
    nscc.sent(now=0, size=MTU)
    nscc.acked(now=0, size=MTU, rtt_ns=6_000, ce=True)
    assert nscc.window_bytes == 225_000  # 1.5 × the BDP of the path itself, which is known
