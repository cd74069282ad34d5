"""The same experiment on both clocks: the real one slowed, the virtual one exact. A real run that is trusted tells the same story
within 10 %; where the machine was too busy, the verdict must say so instead."""

from __future__ import annotations

import pytest

from emulator.report.api import Run
from tests.experiments import MACHINE, allreduce, incast, port_of

pytestmark = [pytest.mark.root, pytest.mark.virtual]

TRIES = 3


def _near(a: float, b: float, what: str) -> None:
    assert a == pytest.approx(b, rel=0.10), f"{what}: real {a}, virtual {b}"


def _says_why(run: Run) -> bool:
    """Whether the verdict blames the machine."""
    return any(reason.startswith(MACHINE) for reason in run.verdict["reasons"])


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_incast(transport: str) -> None:
    virtual = incast("virtual", transport)
    for attempt in range(TRIES):
        real = incast("real", transport, wall_limit_s=300.0 + attempt)
        if real.verdict["word"] == "trusted":
            break
        assert _says_why(real), real.verdict["reasons"]
    else:
        return
    _near(real.summary["flows"]["fct_us"]["max"], virtual.summary["flows"]["fct_us"]["max"], "last flow")
    _near(real.summary["flows"]["fct_us"]["mean"], virtual.summary["flows"]["fct_us"]["mean"], "mean FCT")
    _near(port_of(real, "leaf0:host0")["max_bytes"], port_of(virtual, "leaf0:host0")["max_bytes"], "high-water mark")
    shares = [r.summary["packets"]["marked"] / r.summary["packets"]["sent"] for r in (real, virtual)]
    _near(shares[0], shares[1], "share of marked packets")


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_allreduce(transport: str) -> None:
    virtual = allreduce("virtual", transport)
    for attempt in range(TRIES):
        real = allreduce("real", transport, wall_limit_s=300.0 + attempt)
        if real.verdict["word"] == "trusted":
            _near(
                real.summary["collective"]["busbw_gbps"], virtual.summary["collective"]["busbw_gbps"], "bus bandwidth"
            )
            return
        assert _says_why(real), real.verdict["reasons"]
