"""The same experiment on both clocks: the real one slowed, the virtual one exact. They must tell the same story within 10 %."""

from __future__ import annotations

import pytest

from emulator.report.api import Run
from tests.experiments import allreduce, incast, port_of

pytestmark = [pytest.mark.root, pytest.mark.virtual]


def _near(a: float, b: float, what: str) -> None:
    assert a == pytest.approx(b, rel=0.10), f"{what}: real {a}, virtual {b}"


def _incast(real: Run, virtual: Run) -> None:
    _near(real.summary["flows"]["fct_us"]["max"], virtual.summary["flows"]["fct_us"]["max"], "last flow")
    _near(real.summary["flows"]["fct_us"]["mean"], virtual.summary["flows"]["fct_us"]["mean"], "mean FCT")
    _near(port_of(real, "leaf0:host0")["max_bytes"], port_of(virtual, "leaf0:host0")["max_bytes"], "high-water mark")
    shares = [r.summary["packets"]["marked"] / r.summary["packets"]["sent"] for r in (real, virtual)]
    _near(shares[0], shares[1], "share of marked packets")


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_incast(transport: str) -> None:
    _incast(incast("real", transport), incast("virtual", transport))


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_allreduce(transport: str) -> None:
    real, virtual = allreduce("real", transport), allreduce("virtual", transport)
    _near(real.summary["collective"]["busbw_gbps"], virtual.summary["collective"]["busbw_gbps"], "bus bandwidth")
