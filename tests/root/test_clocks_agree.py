"""The same experiment on both clocks: the real one slowed, the virtual one exact. A real run that is trusted tells the same story
within 10 %; one that is not trusted on a machine busy with other work is not compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emulator.judge.verdict import blames_machine
from emulator.report.api import Run
from tests.experiments import allreduce, busy_elsewhere, incast, port_of

pytestmark = [pytest.mark.root, pytest.mark.virtual]

TRIES = 2


def _near(a: float, b: float, what: str) -> None:
    assert a == pytest.approx(b, rel=0.10), f"{what}: real {a}, virtual {b}"


def _trusted(make: Callable[..., Run], transport: str) -> Run | None:
    """A run on the real clock that can be compared, made again if the machine alone spoiled it; what else spoils it is a fault.

    None only where other work keeps this machine busy throughout.
    """
    for attempt in range(TRIES):
        real = make("real", transport, wall_limit_s=300.0 + attempt)
        if real.verdict["word"] == "trusted":
            return real
        assert blames_machine(real.verdict), real.verdict["reasons"]
    assert busy_elsewhere(), real.verdict["reasons"]
    return None


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_incast(transport: str) -> None:
    virtual = incast("virtual", transport)
    real = _trusted(incast, transport)
    if real is None:
        return
    _near(real.summary["flows"]["fct_us"]["max"], virtual.summary["flows"]["fct_us"]["max"], "last flow")
    _near(real.summary["flows"]["fct_us"]["mean"], virtual.summary["flows"]["fct_us"]["mean"], "mean FCT")
    _near(port_of(real, "leaf0:host0")["max_bytes"], port_of(virtual, "leaf0:host0")["max_bytes"], "high-water mark")
    shares = [r.summary["packets"]["marked"] / r.summary["packets"]["sent"] for r in (real, virtual)]
    _near(shares[0], shares[1], "share of marked packets")


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_allreduce(transport: str) -> None:
    virtual = allreduce("virtual", transport)
    real = _trusted(allreduce, transport)
    if real is not None:
        _near(real.summary["collective"]["busbw_gbps"], virtual.summary["collective"]["busbw_gbps"], "bus bandwidth")
