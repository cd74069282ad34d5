"""The main job on the virtual clock: exact, fast links, close to theory. Bounds: payload at the rate of the busiest link."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.errors import RunFailed
from emulator.topology.load import load_topology
from tests.experiments import ROOT, TOPOLOGIES, allreduce, check_of, incast, made, port_of
from traffic.packet.codec import WIRE_OVERHEAD_BYTES, frame_bytes, wire_bytes
from traffic.packet.opcodes import Opcode

pytestmark = pytest.mark.virtual

HEADERS = 4096 / wire_bytes(Opcode.MRC_WRITE_MIDDLE, 4096)
"""Share of the line that is payload when every packet is full."""


@pytest.mark.parametrize("gbit", [100, 400, 800])
def test_one_mrc_flow_fills_the_line_at_any_speed(gbit: int) -> None:
    run = made(
        topology="leaf-spine-2x2x4",
        topology_set=[f"host_link.rate={gbit}Gbit", f"uplink.rate={gbit}Gbit", "queue.limit=16MB"],
        workload={"kind": "pairs", "bytes": "64MB", "params": {"pairs": [[0, 7]]}},
        transport={"kind": "mrc"},
        clock="virtual",
    )
    assert run.verdict["word"] == "trusted", run.verdict["reasons"]
    assert run.summary["flows"]["goodput_gbps"] >= 0.97 * gbit * HEADERS
    assert run.summary["flows"]["goodput_gbps"] <= gbit * HEADERS


def test_base_round_trip_is_delays_and_transmission_times() -> None:
    run = made(
        topology="leaf-spine-2x2x4",
        workload={"kind": "pairs", "bytes": 4096, "params": {"pairs": [[0, 7]]}},
        transport={"kind": "mrc"},
        clock="virtual",
    )
    import json

    move = json.loads((run.path / "raw" / "worker.json").read_text())["moves"][0]
    network = load_topology(TOPOLOGIES / "leaf-spine-2x2x4.yaml").network()
    data = wire_bytes(Opcode.MRC_WRITE_ONLY_IMM, 4096)
    sack = frame_bytes(Opcode.MRC_SACK, 0) + WIRE_OVERHEAD_BYTES
    expected = network.base_rtt_ns("host0", "host7", data, sack)
    assert move["acked_ns"] - move["start_ns"] == pytest.approx(expected, rel=0.01)


def test_ring_allreduce_is_within_eight_percent_of_theory() -> None:
    run = allreduce("virtual", "mrc", size="16MB", topology="leaf-spine-4x4x8")
    assert run.verdict["word"] == "trusted", run.verdict["reasons"]
    assert run.summary["collective"]["wrong"] == 0
    # 2 (N-1)/N · S/B for N = 8, S = 16 MB, B = 100 Gbit/s, and 14 steps of propagation within a leaf (two links of 500 ns)
    theory_us = 2 * 7 / 8 * 16e6 * 8 / 100e9 * 1e6 + 14 * 1.0
    assert run.summary["collective"]["time_us"] <= 1.08 * theory_us


def test_vectors_of_256_mb_have_room() -> None:
    """They ended in a segmentation fault before a packet was sent; the time limit ends the run once packets flow."""
    with pytest.raises(RunFailed, match=r"not finished within 0\.02 ms of fabric time: sent \d+ packets"):
        allreduce("virtual", "mrc", size="32MB", time_limit="20us")


def test_none_overflows_and_dcqcn_does_not() -> None:
    none, dcqcn = incast("virtual", cc="none"), incast("virtual", cc="dcqcn")
    a, b = none.summary["packets"], dcqcn.summary["packets"]
    assert a["dropped"] > 0 and a["retransmitted"] > 0
    assert b["dropped"] < a["dropped"]
    assert b["marked"] > 0
    assert port_of(dcqcn, "leaf0:host0")["max_bytes"] < port_of(none, "leaf0:host0")["max_bytes"]
    for run in (none, dcqcn):
        assert run.summary["flows"]["completed"] == 7
        assert check_of(run, "F12")["status"] == "pass"
        assert check_of(run, "F6")["status"] == "pass"
        assert check_of(run, "F10")["status"] == "pass"


def test_mrc_incast_is_near_the_bound_and_loses_nothing() -> None:
    run = incast("virtual", "mrc")
    # of four seeds 1.032 to 1.042
    assert run.summary["theory"]["ratio"] <= 1.06
    assert run.summary["packets"]["dropped"] == run.summary["packets"]["retransmitted"] == 0


def test_an_ordinary_user_needs_no_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`nobody` runs the main job; the guest gets no right that its user has not."""
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user: every other test here shows it")
    nobody = pwd.getpwnam("nobody")
    out = Path("/var/tmp") / f"fabriclab-nobody-{os.getpid()}"
    out.mkdir(mode=0o700)
    os.chown(out, nobody.pw_uid, nobody.pw_gid)
    from emulator.clock.kernel import find_kernel

    kernel = find_kernel()
    assert kernel is not None
    try:
        done = subprocess.run(
            [
                "setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups",
                sys.executable, "-m", "emulator.cli", "incast", str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"),
                "--senders", "7", "--clock", "virtual", "--out", str(out), "-q",
            ],
            cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
            env={"HOME": str(out), "PATH": os.environ["PATH"], "FABRICLAB_KERNEL": str(kernel), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "VERDICT: TRUSTED" in done.stdout
    finally:
        subprocess.run(["rm", "-rf", str(out)], check=True)
