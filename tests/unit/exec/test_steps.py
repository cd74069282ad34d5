"""Steps from the calls of `emulator.compute`: literal times, literal results."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import emulator
from emulator.exec.steps import Step, events_of, read_calls, steps_of, summarise


def test_a_step_lasts_until_the_slowest_rank_calls_again() -> None:
    calls = {0: [(0, 10), (100, 110), (250, 260)], 1: [(20, 40), (110, 120), (240, 250)]}
    # the last to call: at 20, 110 and 250; computing: (10+20)/2 and (10+10)/2
    assert steps_of(calls) == [Step(0, 20, 90, 15.0), Step(1, 110, 140, 10.0)]


def test_ranks_that_never_call_do_not_count_and_one_call_makes_no_step() -> None:
    assert steps_of({0: [(0, 5), (50, 60)], 1: []}) == [Step(0, 0, 50, 5.0)]
    assert steps_of({0: [(0, 5)]}) == []
    assert summarise([]) is None


def test_the_summary_of_steps() -> None:
    found = summarise([Step(0, 0, 4_000_000, 1_000_000), Step(1, 4_000_000, 6_000_000, 2_000_000)])
    assert found is not None
    assert found["count"] == 2
    assert found["time_us"] == {"min": 4000.0, "mean": 5000.0, "p50": 5000.0, "p99": 5980.0, "max": 6000.0}
    assert (found["compute_us"], found["exposed_us"]) == (1500.0, 3500.0)
    assert found["idle_fraction"] == 0.7  # (3 + 4) of 10 ms
    measured = summarise([Step(0, 0, 4_000_000, 1.0)], measured=True)
    assert measured is not None and measured["idle_fraction"] is measured["compute_us"] is None
    assert events_of([Step(3, 7, 9, 2.0)]) == [{"time_ns": 7, "kind": "step", "step": 3, "step_ns": 9, "compute_ns": 2}]


def test_outside_a_run_computing_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FABRICLAB_COMPUTE", raising=False)
    begin = time.monotonic()
    emulator.compute(5.0)
    assert time.monotonic() - begin < 1.0
    with pytest.raises(ValueError, match="-1"):
        emulator.compute(-1)


@pytest.mark.parametrize(
    ("mode", "tdf", "least_ms", "most_ms"),
    [
        ("free", 1, 0, 10),
        ("fixed", 1, 20, 200),
        ("fixed", 3, 60, 400),
        ("fixed:5000000", 1, 5, 150),
        ("measured", 1, 0, 10),
    ],
)
def test_a_call_takes_what_the_run_says_and_is_noted(
    tmp_path: Path, mode: str, tdf: int, least_ms: int, most_ms: int
) -> None:
    environment = {
        "FABRICLAB_COMPUTE": mode,
        "FABRICLAB_TDF": str(tdf),
        "FABRICLAB_MARKS": str(tmp_path / "marks"),
        "RANK": "2",
    }
    program = "import emulator; emulator.compute(0.02); emulator.compute(0.02)"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, check=True)
    calls = read_calls(tmp_path / "marks", 2, 0, 1)
    assert len(calls) == 2
    for begin, end in calls:
        assert least_ms <= (end - begin) / 1e6 <= most_ms


def test_marks_become_fabric_time(tmp_path: Path) -> None:
    (tmp_path / "marks-1").write_text("1000 1500\n3000 3200\n")
    assert read_calls(tmp_path / "marks", 1, 1000, 10) == [(0, 50), (200, 220)]
    assert read_calls(tmp_path / "marks", 0, 1000, 10) == []
