"""Statistics against printed tables and textbook examples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emulator.errors import FabricError
from emulator.judge.statistics import (
    median,
    quantile_at_least,
    significance,
    spread,
    t_cdf,
    t_quantile,
)


def test_median_of_odd_even_and_none() -> None:
    assert median([3, 1, 2]) == 2 and median([4, 1, 3, 2]) == 2.5
    with pytest.raises(FabricError):
        median([])


@pytest.mark.parametrize(("df", "t"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_t_quantiles_of_the_printed_table(df: int, t: float) -> None:
    assert t_quantile(0.975, df) == pytest.approx(t, abs=6e-4)
    assert t_cdf(-t, df) == pytest.approx(0.025, abs=1e-4)


def test_spread_of_five_runs() -> None:
    """10, 12, 11, 13, 14: mean 12, s = sqrt(10/4) = 1.5811, CV 13.2 %, half width 2.776 * 1.5811 / sqrt(5) = 1.963."""
    s = spread([10, 12, 11, 13, 14])
    assert (s.n, s.median, s.mean) == (5, 12, 12)
    assert s.sd == pytest.approx(1.58114, abs=1e-5) and s.cv == pytest.approx(0.13176, abs=1e-5)
    assert s.low == pytest.approx(12 - 1.963, abs=1e-3) and s.high == pytest.approx(12 + 1.963, abs=1e-3)


def test_one_run_has_no_spread_and_equal_runs_have_none() -> None:
    assert spread([5.0]).cv is None and spread([5.0]).low is None
    same = spread([5.0, 5.0, 5.0])
    assert same.cv == 0 and same.low == same.high == 5
    assert spread([-1.0, 1.0]).cv == math.inf


def test_significance_of_a_difference() -> None:
    """Welch by hand: means 3 and 4.6, s^2 2.5 and 7.3, t = -1.6/1.4 = -1.1429, df 6.45."""
    assert significance([1, 2, 3, 4, 5], [2, 3, 4, 5, 9]) == pytest.approx(0.2937, abs=1e-4)
    assert significance([1, 1.1, 0.9], [2, 2.1, 1.9]) < 0.001  # type: ignore[operator]
    assert significance([1], [2, 3]) is None
    assert significance([2, 2], [2, 2]) == 1 and significance([2, 2], [3, 3]) == 0


def test_quantile_at_least_is_the_order_statistic_of_the_binomial_table() -> None:
    """Of 1,000 values 15 or fewer lie above the 99 % quantile with 95 % (binomial 1000, 0.01: P(X <= 14) 0.917, 15: 0.952)."""
    assert quantile_at_least(np.arange(1.0, 1001.0), 0.99) == 985.0
    assert quantile_at_least(np.array([3.0]), 0.99) == 3.0
