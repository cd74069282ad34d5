"""DCTCP and Swift with literal numbers."""

import pytest

from traffic.congestion.base import Loss, PathInfo
from traffic.congestion.dctcp import DctcpWindow
from traffic.congestion.registry import create
from traffic.congestion.swift import Swift


def dctcp(path: PathInfo, **params: object) -> DctcpWindow:
    cc = create("dctcp-window", path=path, params={"initial_window_bytes": 10_000, "max_window_bytes": 1e6, **params})
    assert isinstance(cc, DctcpWindow)
    return cc


def play(cc: DctcpWindow, now: int, marks: str) -> None:
    """Send a window of 1 KB packets, then acknowledge each; `x` in `marks` carries an ECN echo."""
    for _ in marks:
        cc.sent(now=now, size=1000)
    for mark in marks:
        cc.acked(now=now + 10_000, size=1000, rtt_ns=10_000, ce=mark == "x")


# RFC 8257 section 3.3: alpha = (1 − g) alpha + g M, g = 1/16. A round ends with the first packet sent after the last one ended.
def test_dctcp_alpha(forty: PathInfo) -> None:
    cc = dctcp(forty, initial_alpha=0)
    play(cc, 0, "x.........")  # the first round is that one packet: M = 1
    assert cc.alpha == pytest.approx(1 / 16)
    play(cc, 20_000, "..........")  # its first packet ends the next round: 9 + 1 unmarked
    assert cc.alpha == pytest.approx(1 / 16 * 15 / 16)
    play(cc, 40_000, "xxxxx.....")  # 9 unmarked, 1 marked of 10
    assert cc.alpha == pytest.approx((1 / 16 * 15 / 16) * 15 / 16 + 1 / 16 / 10)


def test_dctcp_cuts_by_half_of_alpha_once_a_flight(forty: PathInfo) -> None:
    cc = dctcp(forty, initial_alpha=0.5)
    for _ in range(10):
        cc.sent(now=0, size=1000)
    cc.acked(now=10_000, size=1000, rtt_ns=10_000, ce=True)
    assert cc.window_bytes == 7_500  # 10,000 × (1 − 0.5/2)
    assert cc.trigger == "mark"
    for _ in range(9):  # the rest of that flight neither cuts nor grows
        cc.acked(now=10_000, size=1000, rtt_ns=10_000, ce=True)
    assert cc.window_bytes == 7_500
    cc.sent(now=20_000, size=1000)
    cc.acked(now=30_000, size=1000, rtt_ns=10_000, ce=False)
    assert cc.window_bytes == pytest.approx(7_500 + 1000 * 1000 / 7_500)


def test_dctcp_grows_by_a_packet_a_round_trip(forty: PathInfo) -> None:
    cc = dctcp(forty)
    play(cc, 0, "..........")
    assert cc.window_bytes == pytest.approx(11_000, rel=0.005)


@pytest.mark.parametrize(("kind", "window"), [(Loss.NACK, 5_000), (Loss.TRIM, 5_000), (Loss.TIMEOUT, 2_000)])
def test_dctcp_loss(forty: PathInfo, kind: Loss, window: float) -> None:
    cc = dctcp(forty)
    cc.sent(now=0, size=1000)
    cc.lost(now=10_000, size=1000, kind=kind)
    assert cc.window_bytes == window


@pytest.fixture
def swift() -> Swift:
    cc = create("swift", path=PathInfo(100_000_000_000, 20_000, 1000, 1000, hops=4), preset="htsim")
    assert isinstance(cc, Swift)
    return cc


# htsim: base 20 us, h = base/6.55, fs_range 5 base, fs window 0.1 … 100
@pytest.mark.parametrize(
    ("window", "target"),
    [(12, 20_000 + 4 * 3_053 + 6_161.2), (100, 32_212), (400, 32_212), (0.1, 132_212), (0.01, 132_212)],
)
def test_swift_target(swift: Swift, window: float, target: float) -> None:
    swift.window = window
    assert swift.target_ns() == pytest.approx(target, abs=1)


def test_swift_below_target_gains_ai_packets_a_round_trip(swift: Swift) -> None:
    swift.acked(now=0, size=1000, rtt_ns=20_000, ce=False)
    assert swift.window == pytest.approx(12 + 1 / 12)
    assert swift.window_bytes == pytest.approx(12_083.33, abs=0.01)
    swift.acked(now=0, size=3000, rtt_ns=20_000, ce=False)
    assert swift.window == pytest.approx(12 + 1 / 12 + 3 / (12 + 1 / 12))


def test_swift_cuts_once_a_round_trip(swift: Swift) -> None:
    target = swift.target_ns()
    delay = round(2 * target)
    swift.acked(now=100_000, size=1000, rtt_ns=delay, ce=False)
    assert swift.window == pytest.approx(12 * 0.6, rel=1e-4)  # 1 − 0.8 × 1/2
    swift.acked(now=105_000, size=1000, rtt_ns=delay, ce=False)
    assert swift.window == pytest.approx(12 * 0.6, rel=1e-4)
    swift.acked(now=200_000, size=1000, rtt_ns=10_000_000, ce=False)  # far above: at most max_mdf
    assert swift.window == pytest.approx(12 * 0.6 * 0.5, rel=1e-4)


def test_swift_below_one_packet_is_paced(swift: Swift) -> None:
    swift.window = 0.5
    swift.acked(now=0, size=0, rtt_ns=20_000, ce=False)
    assert swift.window_bytes == 500
    assert swift.rate_bps == pytest.approx(0.5 * 1000 * 8 / 20e-6)  # a packet every two round trips
    assert swift.may_send(in_flight=0, size=1000)
    assert not swift.may_send(in_flight=1000, size=1000)
    swift.acked(now=0, size=1000, rtt_ns=20_000, ce=False)
    assert (swift.window, swift.rate_bps) == (1.5, None)  # below 1 the step is ai × acked


def test_swift_time_outs(swift: Swift) -> None:
    for k in range(1, 5):
        swift.lost(now=k * 1_000_000, size=1000, kind=Loss.TIMEOUT)
    assert swift.window == 12 / 16
    swift.lost(now=5_000_000, size=1000, kind=Loss.TIMEOUT)
    assert swift.window == 0.01
