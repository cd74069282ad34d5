"""F2 and F3 on made samples: a port of 100 Gbit/s, sampled every 10 us (125,000 bytes), and the Mininet-HiFi figures."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.judge.rate import PortSeries, check_rate
from emulator.judge.series import last_port_gaps
from emulator.judge.spacing import backlogged_windows, check_spacing, spacing_errors

PERIOD = 10_000
DUE = 125_000


def port(sent: list[float], backlog: list[int] | int = 400_000, slack: float = 16_000) -> PortSeries:
    """A port that sent these shares of what its rate allows, sample by sample."""
    tx = np.concatenate(([0.0], np.cumsum(np.array(sent) * DUE)))
    waiting = np.full(len(tx), backlog) if isinstance(backlog, int) else np.array(backlog)
    return PortSeries("leaf1:host4", 100_000_000_000, 4194, slack, np.arange(len(tx)) * PERIOD, waiting, tx)


def test_a_port_at_its_rate_passes() -> None:
    check = check_rate([port([1.0] * 50), port([0.3] * 50, backlog=0)])
    assert check.status == "pass" and check.value == pytest.approx(0)
    assert check.reason == "1 backlogged ports; leaf1:host4 sent 100 % of its rate while backlogged"


@pytest.mark.parametrize(
    ("share", "status"),
    [(1.0, "pass"), (0.985, "pass"), (0.96, "warn"), (0.9, "fail"), (1.015, "pass"), (1.04, "warn"), (1.1, "fail")],
)
def test_limits_are_two_and_five_percent(share: float, status: str) -> None:
    check = check_rate([port([share] * 200)])
    assert check.status == status and check.value == pytest.approx(share - 1, abs=1e-9)


def test_a_burst_is_no_excess_but_a_second_one_at_once_is() -> None:
    assert (
        check_rate([port([0.2] * 20 + [1.12] + [0.2] * 20, backlog=0)]).status == "not-modelled"
    )  # 15,000 of 16,000 B
    check = check_rate([port([0.2] * 20 + [1.3] + [0.2] * 20, backlog=0)])
    assert check.status == "fail" and "30 % more than its rate over 1 samples" in check.reason


def test_too_fast_without_any_backlog_is_found() -> None:
    """A shaper that is missing never lets a queue build."""
    assert check_rate([port([1.5] * 10, backlog=0)]).status == "fail"


def test_an_idle_moment_is_not_a_slow_port() -> None:
    """50,000 waiting bytes are gone before the next sample: less than the rate is no fault then."""
    assert check_rate([port([1.0] * 50 + [0.5] * 50, [400_000] * 50 + [50_000] * 51)]).status == "pass"


def test_half_rate_for_a_short_while_is_found() -> None:
    assert check_rate([port([1.0] * 100 + [0.5] * 5 + [1.0] * 100)]).status == "fail"


def test_every_stretch_of_backlog_is_looked_at() -> None:
    sent = [1.0] * 30 + [0.0] * 5 + [1.0] * 30 + [0.0] * 5 + [1.0] * 10 + [0.5] * 10
    backlog = ([400_000] * 30 + [0] * 5) * 2 + [400_000] * 21
    check = check_rate([port(sent, backlog)])
    assert check.status == "fail" and "50 % less than its rate while backlogged over 10 samples" in check.reason


def test_no_backlog_and_no_samples_are_not_modelled() -> None:
    assert check_rate([port([0.3] * 50, backlog=0)]).reason == "no port stayed backlogged from one sample to the next"
    assert check_rate([]).status == "not-modelled"


HIFI = {
    # mininet-tests dctcp/verify as quoted in fidelity.md 2.1: median gap, then p50, p90, p99 of the error
    "100 Mbit/s": (121_000.0, (0.008, 0.033, 0.058), "pass"),
    "1 Gbit/s": (12_000.0, (0.083, 1.17, 115.5), "fail"),
}


@pytest.mark.parametrize("link", HIFI)
def test_published_dequeue_errors_of_mininet_hifi(link: str) -> None:
    expected, (p50, p90, p99), status = HIFI[link]
    quantiles = np.interp(np.linspace(0, 1, 10_001), [0, 0.5, 0.9, 0.99, 1], [0, p50, p90, p99, 1.2 * p99])
    gaps = expected * (1 + np.random.default_rng(1).permutation(quantiles))
    errors = spacing_errors(np.cumsum(gaps).astype(np.int64), expected)
    check = check_spacing({"s1:h1": errors})
    assert check.status == status and check.value == pytest.approx(p99, rel=0.02)


@pytest.mark.parametrize(("late", "status"), [(0.05, "pass"), (0.3, "warn"), (0.6, "fail")])
def test_spacing_limits(late: float, status: str) -> None:
    gaps = np.where(np.arange(1000) % 20 == 0, 10_000 * (1 + late), 10_000)
    assert check_spacing({"p": spacing_errors(np.cumsum(gaps).astype(np.int64), 10_000)}).status == status


def test_gaps_outside_the_backlog_do_not_count() -> None:
    times = np.array([0, 100, 200, 5000, 5100, 5200])
    windows = np.array([[0, 250], [4990, 5150]])
    assert np.array_equal(spacing_errors(times, 100, windows), [0, 0, 0])
    assert len(spacing_errors(times, 100, np.empty((0, 2), dtype=np.int64))) == 0


def test_windows_hold_what_can_leave_until_the_next_sample() -> None:
    time = np.arange(6) * PERIOD
    backlog = np.array([0, 200_000, 130_000, 124_000, 125_000, 0])
    assert backlogged_windows(time, backlog, 100_000_000_000).tolist() == [[10_000, 30_000], [40_000, 50_000]]


@pytest.mark.parametrize(("delay_mode", "arrivals"), [("agent", [100, 428]), ("netem", [600, 10_300])])
def test_where_netem_delays_arrivals_come_later_than_packets_left(delay_mode: str, arrivals: list[int]) -> None:
    """A queue from 0 to 10,000 ns behind a wire of 500 ns: the gap would lie outside in the other mode."""
    plan = {"delay_mode": delay_mode, "ports": [{"name": "leaf1:host4", "peer": "host4", "fabric_delay_ns": 500}]}
    series = port([1.0, 1.0], [400_000, 0, 0])
    (errors,) = last_port_gaps({"0": arrivals}, [series], plan, ["host4"], 4096).values()
    assert len(errors) == 1


def test_few_gaps_are_not_modelled() -> None:
    assert check_spacing({"p": np.zeros(99)}).status == "not-modelled"
    assert check_spacing({"p": np.zeros(100)}).status == "pass"


def test_a_gap_in_which_a_trimmed_packet_came_says_nothing() -> None:
    """Four arrivals 100 ns apart but for the third, before which a header was sent; its time is negative."""
    errors = spacing_errors(np.array([100, 200, -350, 450]), 100.0)
    assert errors.tolist() == [0.0, 0.0]
    inside = spacing_errors(np.array([100, 200, -350, 450]), 100.0, np.array([[150, 500]]))
    assert inside.tolist() == [0.0]
