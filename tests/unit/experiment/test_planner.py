"""What follows an attempt on the real clock: a second one only where the machine alone spoiled it and the choice was ours."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.experiment.planner import Choice, slower_after
from emulator.experiment.spec import Experiment

CHOICE = Choice("real", 4000, "the real clock was asked for")


def experiment(**more: Any) -> Experiment:
    workload = {"kind": "incast", "bytes": "1MB", "params": {"senders": 7}}
    return Experiment.model_validate({"topology": "t.yaml", "workload": workload, "clock": "real", **more})


def summary(word: str, *bad: str, wall_s: float = 10.0) -> dict[str, Any]:
    checks = [{"id": i, "status": "fail" if i in bad else "pass"} for i in ("F1", "F2", "F3", "F6", "F8", "F9", "C2")]
    reasons = [f"{i} of it: broken" for i in bad]
    return {"verdict": {"word": word, "reasons": reasons, "checks": checks}, "clock": {"wall_s": wall_s}}


@pytest.mark.parametrize("bad", [("F3",), ("F9", "F3"), ("F8",), ("F2", "F8")])
def test_the_machine_alone_is_answered_by_twice_the_factor(bad: tuple[str, ...]) -> None:
    again = slower_after(CHOICE, experiment(), summary("untrusted", *bad))
    assert again is not None and (again.clock, again.tdf) == ("real", 8000)
    assert again.why == (
        f"this machine spoiled the run at 4000× ({'; '.join(f'{i} of it: broken' for i in bad)}): made again, slowed 8000×"
    )


@pytest.mark.parametrize("bad", [("F1",), ("F1", "F2"), ("F6", "F9"), ("C2",), ()])
def test_what_else_is_wrong_is_not_made_again(bad: tuple[str, ...]) -> None:
    assert slower_after(CHOICE, experiment(), summary("untrusted", *bad)) is None


def test_a_trusted_run_a_given_factor_the_virtual_clock_and_the_wall_limit() -> None:
    assert slower_after(CHOICE, experiment(), summary("trusted")) is None
    assert slower_after(CHOICE, experiment(tdf=4000), summary("untrusted", "F3")) is None
    assert slower_after(Choice("virtual", 1, ""), experiment(), summary("untrusted", "F3")) is None
    late = summary("untrusted", "F3", wall_s=10.0)
    assert slower_after(CHOICE, experiment(wall_limit_s=19), late) is None
    assert slower_after(CHOICE, experiment(wall_limit_s=21), late) is not None
