"""Statistics of repeated runs: median, spread, confidence intervals, significance of a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.errors import FabricError


@dataclass(frozen=True, slots=True)
class Spread:
    """n runs of one number. `cv` is the standard deviation over the mean; the 95 % interval is of the mean.

    With one run there is no spread: `sd`, `cv`, `low` and `high` are None.
    """

    n: int
    median: float
    mean: float
    sd: float | None
    cv: float | None
    low: float | None
    high: float | None


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two."""
    if not values:
        raise FabricError("no value to take a median of", where="statistics", remedy="run at least once")
    ordered, half = sorted(values), len(values) // 2
    return float(ordered[half]) if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Sequence[float], level: float = 0.95) -> Spread:
    """Summary of repeated runs; the interval is Student's (mean ± t·s/√n)."""
    n = len(values)
    middle = median(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Spread(n, middle, mean, None, None, None, None)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    cv = 0.0 if sd == 0 else (sd / abs(mean) if mean else math.inf)
    half = t_quantile((1 + level) / 2, n - 1) * sd / math.sqrt(n)
    return Spread(n, middle, mean, sd, cv, mean - half, mean + half)


def quantile_at_least(values: NDArray[np.float64], q: float, level: float = 0.95) -> float:
    """What the `q` quantile of the distribution behind `values` (at least one) is at least, with probability `level`, whatever
    that distribution: the largest order statistic below it that often (David and Nagaraja, Order Statistics, 7.1)."""
    n = len(values)
    above = np.arange(n)
    log_ways = np.concatenate(([0.0], np.cumsum(np.log((n - above[:-1]) / (above[:-1] + 1)))))
    at_most = np.cumsum(np.exp(log_ways + above * math.log1p(-q) + (n - above) * math.log(q)))
    beyond = int(np.searchsorted(at_most, level))
    return float(np.sort(values)[max(0, n - 1 - beyond)])


def significance(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p-value that runs `a` and `b` have the same mean (Welch 1947); None with fewer than two of either.

    Where neither varies at all (the virtual clock with one seed) any difference is certain: 0, and none is 1.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    one, two = spread(a), spread(b)
    va, vb = (one.sd or 0.0) ** 2 / one.n, (two.sd or 0.0) ** 2 / two.n
    if va + vb == 0:
        return 1.0 if one.mean == two.mean else 0.0
    t = (one.mean - two.mean) / math.sqrt(va + vb)
    df = (va + vb) ** 2 / (va**2 / (one.n - 1) + vb**2 / (two.n - 1))
    return 2 * (1 - t_cdf(abs(t), df))


def t_cdf(t: float, df: float) -> float:
    """Student's distribution function, from the regularised incomplete beta function (Abramowitz and Stegun 26.7.1)."""
    tail = _beta(df / 2, 0.5, df / (df + t * t)) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(p: float, df: float) -> float:
    """The t that `t_cdf` maps to `p`, by halving."""
    low, high = -1.0, 1.0
    while t_cdf(high, df) < p:
        high *= 2
    while t_cdf(low, df) > p:
        low *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def _beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    value, c, d = 1.0, 1.0, 0.0
    for i in range(400):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (_away_from_zero(1 + term * d))
        c = _away_from_zero(1 + term / c)
        value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * (value - 1)


def _away_from_zero(x: float) -> float:
    return x if abs(x) > 1e-300 else 1e-300
