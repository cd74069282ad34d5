"""Ports at true link speeds in the guest kernel: the times of the wire, who sees frames when, RED's step, the same twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator.clock.kernel import find_kernel
from emulator.clock.virtual import run_guest
from emulator.port.objects import cache_dir, ensure_object

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.skipif(find_kernel() is None, reason="no guest kernel; `fabriclab kernel build` makes one"),
]

ROOT = Path(__file__).parents[2]
CLOCK_NS = 20
"""What one reading of the guest's clock costs, and so the grain of every time read there."""


def inside(module: list[str], run_dir: Path) -> list[str]:
    """Runs a Python module in the guest; its lines."""
    lines: list[str] = []
    for variant in ("bpf", "virtual-queue"):
        ensure_object(variant)
    code = run_guest(
        [sys.executable, "-m", *module],
        run_dir=run_dir,
        wall_limit_s=150,
        on_line=lines.append,
        env={"PYTHONPATH": str(ROOT), "FABRICLAB_BPF_DIR": str(cache_dir())},
        cwd=ROOT,
    )
    assert code == 0, "\n".join(lines[-40:])
    return lines


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    first, second = (inside(["tests.virtual.port_guest"], tmp_path_factory.mktemp("guest"))[-1] for _ in range(2))
    return first, second


@pytest.fixture
def found(said: tuple[str, str]) -> Any:
    return json.loads(said[0])


def test_the_guest_has_it_all(found: Any) -> None:
    assert (found["marking"], found["delay"]) == ("bpf", "netem")


def test_two_guests_say_the_same_to_the_bit(said: tuple[str, str]) -> None:
    assert said[0] == said[1]


@pytest.mark.parametrize("gbit", [10, 100, 400, 800])
@pytest.mark.parametrize("length", [86, 4158])
def test_a_line_stores_and_forwards(found: Any, gbit: int, length: int) -> None:
    """A frame arrives after its transmission and 500 ns; the next ones follow at line rate, to half a nanosecond a frame."""
    line = found["lines"][f"{gbit}-{length}"]
    transmission = (length + 24) * 8 / gbit
    assert line["in_order"] and line["tx_packets"] == 201
    assert line["first_ns"] == pytest.approx(500 + transmission, abs=2 * CLOCK_NS)
    assert line["span_ns"] / 199 == pytest.approx(transmission, abs=0.5 + CLOCK_NS / 199)


def test_only_sockets_bound_to_ip_see_the_delay(found: Any) -> None:
    assert found["taps"]["early"] == [3, 0] and found["taps"]["late"] == [0, 3]


def test_a_delay_that_others_remove_is_told(found: Any) -> None:
    assert "a:b (arriving): netem is missing" in found["taps"]["said"]
    assert "a:b (arriving): redirect is missing" in found["taps"]["said"]


def test_red_is_a_step_on_the_instantaneous_queue_also_after_idle_times(found: Any) -> None:
    """Frames of 1000 wire bytes back to back, of which one leaves at once: number 21 finds 20,000 = K, number 22 more."""
    assert found["red"]["bursts"] == [list(range(22, 40))] * 5
    assert found["red"]["marked"] == 90 and found["red"]["seen"] is None


def test_all_that_holds_for_ports_on_the_host_holds_in_the_guest(tmp_path: Path) -> None:
    files = [str(Path("tests", "root", name)) for name in ("test_port.py", "test_sampler.py")]
    lines = inside(["pytest", "-q", "-p", "no:cacheprovider", *files], tmp_path)
    assert any("100%" in line for line in lines)
