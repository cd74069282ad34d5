"""Kernel TCP on the real clock, with what this machine's kernel has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments import ROOT, TOPOLOGIES, allreduce, check_of, made

pytestmark = pytest.mark.root

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def test_cubic_incast_delivers_every_byte_and_every_packet_is_accounted_for() -> None:
    run = made(
        topology="leaf-spine-2x2x4",
        workload={"kind": "incast", "bytes": "200KB", "params": {"senders": 4}},
        transport={"kind": "tcp", "cc": "cubic"},
        clock="real",
        tdf=1000,
    )
    assert run.summary["flows"]["completed"] == 4
    for check in ("F1", "F6", "F12", "F14"):
        assert check_of(run, check)["status"] == "pass", check_of(run, check)
    assert check_of(run, "F10")["status"] == "not-modelled", check_of(run, "F10")  # without ECN nothing can be marked
    assert check_of(run, "C2")["status"] == "warn"
    plan = json.loads((run.path / "raw" / "plan.json").read_text())
    hosts = [n for n in plan["nodes"] if n["kind"] == "host"]
    assert {n["sysctls"]["net.ipv4.tcp_ecn"] for n in hosts} == {"0"}
    if plan["delay_mode"] != "netem":
        assert plan["unmodelled_delay_ns"] == 4 * 500
        assert check_of(run, "F4")["status"] == "warn"
        assert any("propagation: not modelled" in note for note in run.verdict["notes"])
    raw = json.loads((run.path / "raw" / "worker.json").read_text())
    # 200,000 bytes and a header of 20 in segments of 4096; a retransmission would add to both sides
    assert sum(m["sent"] - m["retransmitted"] for m in raw["moves"]) == 4 * 49
    assert {m["reordered"] for m in raw["moves"]} == {None}
    assert all(m["start_ns"] <= m["delivered_ns"] <= m["acked_ns"] for m in raw["moves"])


def test_ring_allreduce_is_right() -> None:
    run = allreduce("real", "tcp", size="1MB", tdf=1000)
    assert run.summary["collective"]["wrong"] == 0
    assert check_of(run, "F6")["status"] == check_of(run, "F12")["status"] == "pass"


@pytest.mark.skipif("dctcp" in AVAILABLE, reason="this kernel has dctcp")
def test_a_control_that_the_kernel_has_not_is_a_missing_capability(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "emulator.cli", "incast", str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"), "--senders", "2",
            "--clock", "real", "--tdf", "500", "--transport", "tcp", "--cc", "dctcp", "--out", str(tmp_path),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert "no congestion control dctcp" in done.stderr and "--clock virtual" in done.stderr
    assert not list(tmp_path.iterdir())
