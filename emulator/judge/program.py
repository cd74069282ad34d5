"""What is asked of a run of the user's own program: did it end well, and would it give the same numbers again?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.judge.check import FAIL, NOT_MODELLED, PASS, WARN, Check


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """Exit codes of its processes (None: not known), and whether its computing was measured on this machine."""

    codes: tuple[int | None, ...]
    measured: bool

    @classmethod
    def of(cls, told: Mapping[str, Any], workload: Mapping[str, Any]) -> ProgramEnd:
        """From `program.json` and the resolved workload."""
        codes = tuple(row["exit_code"] for row in told.get("processes", ()))
        return cls(codes, workload.get("compute") == "measured")


def check_program(end: ProgramEnd, *, wrong: int, checked: int, problem: str | None) -> Check:
    """F12 of a program: every process ended with exit code 0; `value` counts elements that differ between ranks.

    What the program computes is its own to check. What our backend left at the ranks of a collective is compared.
    """
    limit = "every exit code 0, every rank with the same result"
    if problem:
        return Check("F12", "workload", FAIL, float(wrong), limit, problem)
    if not end.codes or None in end.codes:
        return Check("F12", "workload", NOT_MODELLED, None, limit, "how the program ended is not known")
    bad = sum(code != 0 for code in end.codes)
    if bad:
        return Check(
            "F12",
            "workload",
            FAIL,
            float(bad),
            limit,
            f"{bad} of {len(end.codes)} processes ended with another exit code",
        )
    if wrong:
        text = f"{wrong} of {checked} elements that collectives left differ between ranks"
        return Check("F12", "workload", FAIL, float(wrong), limit, text)
    text = f"{len(end.codes)} processes ended with exit code 0"
    text += f"; {checked} elements that collectives left are the same at all their ranks" if checked else ""
    return Check("F12", "workload", PASS, 0.0, limit, text + "; what the program computed is its own to check")


def check_repeatable(end: ProgramEnd) -> Check:
    """C3: whether another run gives the same numbers; computing that was measured never does."""
    limit = "computing takes a time that is given"
    if end.measured:
        text = (
            "--compute measured: CPU time of all ranks and of the emulation counts, one after the other on one core; "
            "another run gives other numbers"
        )
        return Check("C3", "repeatable", WARN, None, limit, text)
    return Check("C3", "repeatable", PASS, None, limit, "computing takes no time but what the run gives it")
