"""Fewer points keep the extremes, and gaps stay gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emulator.report.decimate import decimate


def test_one_high_sample_among_a_million_is_kept() -> None:
    time, value = np.arange(1_000_000.0), np.full(1_000_000, 5.0)
    value[123_457], value[800_001] = 99.0, 1.0
    t, v = decimate(time, value, 1000)
    assert len(t) < 1100
    assert (123_457.0, 99.0) in set(zip(t.tolist(), v.tolist(), strict=True))
    assert (800_001.0, 1.0) in set(zip(t.tolist(), v.tolist(), strict=True))


def test_short_series_are_left_alone() -> None:
    t, v = decimate(np.arange(10.0), np.arange(10.0), 10)
    assert t.tolist() == v.tolist() == list(range(10))


def test_a_gap_stays_one_gap_between_its_neighbours() -> None:
    time, value = np.arange(100_000.0), np.ones(100_000)
    value[40_000:40_003] = np.nan
    t, v = decimate(time, value, 100)
    at = np.flatnonzero(np.isnan(v))
    assert len(at) == 1
    assert (t[at[0] - 1], t[at[0]], t[at[0] + 1]) == (39_999.0, 40_000.0, 40_003.0)


@given(st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=1, max_size=400), st.integers(4, 60))
def test_extremes_ends_and_gaps_survive_whatever_comes(values: list[int | None], points: int) -> None:
    value = np.array([np.nan if v is None else float(v) for v in values])
    time = np.arange(float(len(value)))
    t, v = decimate(time, value, points)
    known = value[~np.isnan(value)]
    assert np.all(np.diff(t) > 0)
    assert all(np.array_equal(value[int(a)], b, equal_nan=True) for a, b in zip(t, v, strict=True))
    runs = int(np.isnan(value[0])) + int((np.isnan(value[1:]) & ~np.isnan(value[:-1])).sum())
    assert runs <= np.isnan(v).sum() <= np.isnan(value).sum()
    if len(known):
        assert np.nanmax(v) == known.max() and np.nanmin(v) == known.min()
