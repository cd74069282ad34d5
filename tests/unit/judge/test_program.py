"""F12 and C3 of a program: exit codes, what ranks have alike, and computing that was measured."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.judge.facts import awake
from emulator.judge.program import ProgramEnd, check_program, check_repeatable


@pytest.mark.parametrize(
    ("codes", "wrong", "checked", "problem", "status", "text"),
    [
        ((0, 0), 0, 0, None, "pass", "2 processes ended with exit code 0"),
        ((0, 0), 0, 800, None, "pass", "800 elements that collectives left are the same at all their ranks"),
        ((0, 0), 4, 800, None, "fail", "4 of 800 elements that collectives left differ"),
        ((0, 3), 0, 0, None, "fail", "1 of 2 processes"),
        ((0, -11), 0, 0, "rank 1 was ended by SIGSEGV", "fail", "rank 1 was ended by SIGSEGV"),
        ((0, None), 0, 0, None, "not-modelled", "not known"),
        ((), 0, 0, None, "not-modelled", "not known"),
    ],
)
def test_how_a_program_ended(
    codes: tuple[int | None, ...], wrong: int, checked: int, problem: str | None, status: str, text: str
) -> None:
    check = check_program(ProgramEnd(codes, False), wrong=wrong, checked=checked, problem=problem)
    assert (check.id, check.status) == ("F12", status)
    assert text in check.reason


def test_measured_computing_is_not_repeatable() -> None:
    assert check_repeatable(ProgramEnd((0,), True)).status == "warn"
    assert check_repeatable(ProgramEnd((0,), False)).status == "pass"


def test_time_in_which_nothing_moves_is_not_missed() -> None:
    times = np.array([0, 100, 900, 1000, 2500], dtype=np.int64)
    # asleep from 100 to 900 and from 1000 to 2000: 800 and 1000 less
    assert awake(times, [(100, 900), (1000, 2000)]).tolist() == [0, 100, 100, 200, 700]
    assert awake(times, []).tolist() == times.tolist()
