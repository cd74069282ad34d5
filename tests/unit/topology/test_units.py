"""The unit grammar: literal values, refused spellings, and round trips."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.topology.units import (
    UnitError,
    format_duration,
    format_fraction,
    format_rate,
    format_size,
    parse_duration,
    parse_fraction,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "100Gbit", 100_000_000_000),
        (parse_rate, "2.5Gbit", 2_500_000_000),
        (parse_rate, "400Mbit", 400_000_000),
        (parse_rate, "1.6Tbit", 1_600_000_000_000),
        (parse_rate, "64 kbit", 64_000),
        (parse_size, "1MB", 10**6),
        (parse_size, "1MiB", 2**20),
        (parse_size, "64KB", 64_000),
        (parse_size, "4096B", 4096),
        (parse_size, 4096, 4096),
        (parse_size, "4096", 4096),
        (parse_duration, "500ns", 500),
        (parse_duration, "1.5us", 1500),
        (parse_duration, "10ms", 10**7),
        (parse_duration, "2s", 2 * 10**9),
        (parse_duration, 0, 0),
        (parse_fraction, "0.1%", 0.001),
        (parse_fraction, "0.001", 0.001),
        (parse_fraction, "1e-5", 0.00001),
        (parse_fraction, 1, 1.0),
    ],
)
def test_accepted(parse: Callable[[object], float], text: object, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "remedy"),
    [
        # tcconfig issue 149: k, K, bit, byte and 1000 against 1024 mixed up.
        (parse_rate, "100Kbps", "write 100kbit for bits, 800kbit for bytes"),
        (parse_rate, "100Kbit", "write 100kbit"),
        (parse_rate, "100Kibit", "write 100kbit, or 102400bit for exactly that"),
        (parse_rate, "100MBps", "write 100Mbit if bits were meant, 800Mbit for that many bytes per second"),
        (parse_rate, "100MB", "write 100Mbit if bits were meant, 800Mbit for that many bytes per second"),
        (parse_rate, "100Gb", "write 100Gbit for bits, 800Gbit for bytes"),
        (parse_rate, "100Gbit/s", "write 100Gbit"),
        (parse_rate, 100, "write 100Gbit or 100Mbit"),
        (parse_rate, "fast", "write a number and a unit, such as 100Gbit"),
        (parse_rate, "1e9bit", "use bit, kbit, Mbit, Gbit or Tbit, such as 100Gbit"),
        (parse_size, "1Mb", "write 1MB, or 125000B if bits were meant"),
        (parse_size, "1MBps", "write 1MB"),
        (parse_size, "64K", "write 64KB (64000 bytes) or 64KiB (65536 bytes)"),
        (parse_size, "10bytes", "write 10B"),
        (parse_size, "1.5B", "write fewer decimals"),
        (parse_size, float("nan"), "write a number and a unit, such as 1MB"),
        (parse_size, True, "write a number and a unit, such as 1MB"),
        (parse_size, -1, "write a size such as 1MB"),
        (parse_duration, "5", "write 5ns or 5us or 5ms"),
        (parse_duration, "5µs", "write 5us"),
        (parse_duration, "5m", "write 5ms or 300s"),
        (parse_duration, "5min", "write 300s"),
        (parse_duration, "0.5ns", "write fewer decimals"),
        (parse_fraction, "5", "write a number from 0 to 1, or 5% if percent is meant"),
        (parse_fraction, "101%", "write a number from 0 to 1"),
        (parse_fraction, "-1%", "write a number from 0 to 1, or a percentage"),
        (parse_fraction, None, "write a number from 0 to 1 such as 0.001, or a percentage such as 0.1%"),
    ],
)
def test_refused_with_a_suggestion(parse: Callable[[object], float], text: object, remedy: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert caught.value.remedy == remedy
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("spell", "value", "text"),
    [
        (format_rate, 100_000_000_000, "100Gbit"),
        (format_rate, 2_500_000_000, "2.5Gbit"),
        (format_rate, 33_333_333_333, "33333333.333kbit"),
        (format_size, 4_000_000, "4MB"),
        (format_size, 65_536, "64KiB"),
        (format_size, 9038, "9.038KB"),
        (format_size, 0, "0B"),
        (format_duration, 1500, "1.5us"),
        (format_fraction, 0.001, "0.1%"),
    ],
)
def test_spelled(spell: Callable[[float], str], value: float, text: str) -> None:
    assert spell(value) == text


WHOLE = st.integers(min_value=0, max_value=10**15)


@given(WHOLE)
def test_whole_quantities_round_trip(value: int) -> None:
    assert parse_rate(format_rate(value)) == value
    assert parse_size(format_size(value)) == value
    assert parse_duration(format_duration(value)) == value


@given(st.floats(min_value=0, max_value=1))
def test_fractions_round_trip(value: float) -> None:
    text = format_fraction(value)
    if len(text) <= 40:
        assert parse_fraction(text) == value


@given(st.text(max_size=50))
def test_any_text_is_a_quantity_or_refused_with_a_remedy(text: str) -> None:
    for parse in (parse_rate, parse_size, parse_duration, parse_fraction):
        try:
            assert parse(text) >= 0
        except UnitError as error:
            assert error.what and error.remedy


@given(st.integers(1, 999), st.sampled_from(["k", "K", "m", "M", "g", "G"]), st.sampled_from(["b", "B", "bps", "ibit"]))
def test_every_suggested_rate_is_accepted(number: int, prefix: str, word: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_rate(f"{number}{prefix}{word}")
    suggested = [part.strip(",") for part in caught.value.remedy.split() if part[0].isdigit()]
    assert suggested
    for rate in suggested:
        assert parse_rate(rate) > 0
