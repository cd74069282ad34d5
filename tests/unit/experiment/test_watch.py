"""What a run says of itself, as the live view shows it: rates are differences of bytes, the budget of packets."""

from __future__ import annotations

import io

import pytest

from emulator.experiment import budget
from emulator.experiment.watch import LiveWatch


def lines(*states: dict[str, object], quiet: bool = False) -> list[str]:
    out = io.StringIO()
    watch = LiveWatch("incast", stream=out, quiet=quiet)
    watch.note("the virtual clock was asked for")
    watch.step("12 nodes", 0, 5)
    for state in states:
        watch.progress(state)
    watch.close()
    return out.getvalue().splitlines()


def test_no_terminal_gets_plain_lines_in_order() -> None:
    state = {
        "time_ns": 50_000,
        "queues": {"leaf0:host0": 1_000_000},
        "limits": {"leaf0:host0": 4_000_000},
        "marked": 7,
        "dropped": 0,
    }
    assert lines(state) == [
        "the virtual clock was asked for",
        "12 nodes …",
        "traffic; 50.0 us of fabric time; fullest leaf0:host0 1 MB (25 %); marked 7; dropped 0",
    ]
    assert lines(state, quiet=True) == []


def rates(*states: tuple[int, dict[str, int]]) -> list[dict[str, float]]:
    watch = LiveWatch("x", stream=io.StringIO())
    out = []
    for time_ns, sent in states:
        watch.progress({"time_ns": time_ns, "sent_bytes": sent})
        assert watch._view is not None
        out.append(dict(watch._view.state.get("rates") or {}))
    return out


def test_a_rate_is_bytes_since_the_state_before() -> None:
    # 125,000 bytes in 10 us are 100 Gbit/s; spans under 20 us wait for more
    found = rates(
        (0, {}),
        (10_000, {"host1:leaf0": 125_000}),
        (20_000, {"host1:leaf0": 250_000}),
        (70_000, {"host1:leaf0": 250_000}),
    )
    assert found == [{}, {}, {"host1": 100e9}, {"host1": 0.0}]


def test_the_next_run_starts_its_rates_anew() -> None:
    assert rates((0, {"host1:leaf0": 10}), (90_000, {"host1:leaf0": 90_010}), (1_000, {"host1:leaf0": 5}))[-1] == {
        "host1": 8e9
    }
    watch = LiveWatch("x", stream=io.StringIO())
    watch.progress({"time_ns": 90_000, "sent_bytes": {"host1:leaf0": 90_000}})
    watch.progress({"time_ns": 10, "sent_bytes": {"host1:leaf0": 5}})  # earlier than before: another run
    assert watch._view is not None and "rates" not in watch._view.state


def test_budget_is_packets_over_wall_time_and_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "known_packets_per_second", lambda: 100_000)
    watch = LiveWatch("x", stream=io.StringIO())
    watch.progress({"time_ns": 0, "packets": 0, "wall_ns": 0})
    watch.progress({"time_ns": 1000, "packets": 8_000, "wall_ns": 200_000_000})
    assert watch._view is not None
    # 8,000 data packets in 0.2 s are 40,000/s, with acknowledgements 50,000/s: half of 100,000/s
    assert watch._view.state["budget"] == pytest.approx(0.5)
    virtual = LiveWatch("x", stream=io.StringIO())
    for time_ns in (0, 50_000):
        virtual.progress({"time_ns": time_ns, "packets": time_ns})
    assert virtual._view is not None and "budget" not in virtual._view.state
