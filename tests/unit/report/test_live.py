"""The live view: bars on a terminal, plain lines elsewhere, nothing shown that was not told."""

from __future__ import annotations

import io

from rich.console import Console

from emulator.report.live import LiveView, bar, panel, plain_line

STATE = {
    "text": "running",
    "time_ns": 123_456,
    "bytes_done": 3_000_000,
    "bytes_total": 7_000_000,
    "moves_left": 5,
    "queues": {"leaf0:spine0": 510_000, "leaf1:host7": 950_000, "leaf0:host1": None},
    "limits": {"leaf1:host7": 1_000_000, "leaf0:spine0": 1_000_000},
    "rates": {"host0": 12e9},
    "marked": 1200,
    "dropped": 0,
    "budget": 0.42,
    "late_p99_ns": 2100,
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_plain_line_says_everything_that_is_known() -> None:
    assert plain_line(STATE) == (
        "running; 123.5 us of fabric time; 43 % of 7 MB; 5 transfers left; fullest leaf1:host7 950 kB (95 %); "
        "marked 1,200; dropped 0; budget 42 %; late p99 2.1 us"
    )


def test_what_was_not_told_is_not_shown() -> None:
    assert plain_line({"time_ns": 1000}) == "1.0 us of fabric time"
    assert plain_line({"queues": {"a:b": 10}}) == "fullest a:b 10 B"  # no limit, no share


def test_no_terminal_gets_lines_at_most_as_often_as_asked_and_the_last_state_once() -> None:
    out = io.StringIO()
    with LiveView("x", stream=out, line_s=60) as view:
        for i in range(100):
            view.update({"time_ns": 1000 * i})
    assert out.getvalue().splitlines() == ["0.0 us of fabric time", "99.0 us of fabric time"]
    quiet = io.StringIO()
    with LiveView("x", stream=quiet, line_s=60) as view:
        view.update({"time_ns": 5000})
    assert quiet.getvalue() == "5.0 us of fabric time\n"


def test_bars_are_exact_to_an_eighth_and_never_overflow() -> None:
    assert bar(0.5, 4) == "██··"
    assert bar(1 / 32, 4) == "▏···"
    assert bar(7, 3) == "███" and bar(-1, 3) == "···"


def test_the_panel_shows_queues_by_fill_and_the_rest() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(panel("7:1 incast", STATE))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.index("leaf1:host7") < text.index("leaf0:spine0")
    for part in ("7:1 incast", "43 %", "5 transfers left", "12.00 Gbit/s", "95 %", "budget 42 %", "late p99 2.1 us"):
        assert part in text
    assert "leaf0:host1" not in text  # no sample is no bar


def test_a_terminal_is_redrawn_in_place_and_given_back(monkeypatch: object) -> None:
    out = Terminal()
    with LiveView("7:1 incast", stream=out, per_second=1000) as view:
        view.update(STATE)
    assert "7:1 incast" in out.getvalue() and "\x1b[?25h" in out.getvalue()  # the cursor is shown again
