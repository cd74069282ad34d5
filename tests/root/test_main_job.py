"""The main job on the real clock, as its user runs it: real packets through real queues on this machine's kernel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments import ROOT, TOPOLOGIES, allreduce, check_of, incast, port_of

pytestmark = pytest.mark.root


def test_mrc_uses_the_uplinks_evenly_and_every_element_is_right() -> None:
    run = allreduce("real", "mrc")
    assert run.summary["collective"]["wrong"] == 0
    assert 0 < run.summary["collective"]["busbw_gbps"] <= 100
    for leaf in ("leaf0", "leaf1"):
        packets = [port_of(run, f"{leaf}:spine{i}")["tx_packets"] for i in (0, 1)]
        assert max(packets) <= 1.05 * sum(packets) / 2


def test_roce_keeps_each_queue_pair_on_one_path() -> None:
    run = allreduce("real", "roce")
    assert run.summary["collective"]["wrong"] == 0
    assert run.summary["transport"]["paths"] == 1
    assert set(run.flows["paths"]) == {1}


def test_incast_without_control_overflows_and_still_delivers_every_byte() -> None:
    none, dcqcn = incast("real", cc="none"), incast("real", cc="dcqcn")
    a, b = none.summary["packets"], dcqcn.summary["packets"]
    assert a["dropped"] > 0 and a["retransmitted"] > 0
    assert b["dropped"] < a["dropped"]
    assert b["marked"] > 0
    assert port_of(dcqcn, "leaf0:host0")["max_bytes"] < port_of(none, "leaf0:host0")["max_bytes"]
    for run in (none, dcqcn):
        assert run.summary["flows"]["completed"] == 7
        assert check_of(run, "F12")["status"] == "pass"


@pytest.mark.parametrize(("transport", "cc"), [("roce", "none"), ("roce", "dcqcn"), ("mrc", None)])
def test_counters_agree_with_each_other(transport: str, cc: str | None) -> None:
    run = incast("real", transport, cc)
    sent, delivered = run.summary["packets"]["sent"], run.summary["packets"]["delivered"]
    assert check_of(run, "F6")["status"] == "pass", check_of(run, "F6")
    assert check_of(run, "F10")["status"] == "pass", check_of(run, "F10")
    raw = json.loads((run.path / "raw" / "worker.json").read_text())
    ports = json.loads((run.path / "raw" / "ports.json").read_text())
    at_hosts = sum(p["seen_packets"] for name, p in ports.items() if name.startswith("host"))
    assert sum(h["tx_packets"] for h in raw["hosts"]) == at_hosts
    assert sent >= delivered


def test_kill_9_in_the_middle_leaves_nothing_that_clean_does_not_find(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "emulator.cli", "incast", str(TOPOLOGIES / "leaf-spine-2x2x4.yaml")]
    process = subprocess.Popen(
        [*command, "--senders", "7", "--clock", "real", "--tdf", "20000", "--out", str(tmp_path), "-v"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "acknowledged" in line:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run_id = next(tmp_path.iterdir()).name
    left = [n for n in Path("/run/netns").iterdir() if run_id in n.name]
    assert left
    done = subprocess.run(
        [sys.executable, "-m", "emulator.cli", "clean"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not [n for n in Path("/run/netns").iterdir() if run_id in n.name]
    assert not Path("/run/fabriclab", run_id).exists()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _living(run_id):
        time.sleep(0.05)
    assert not _living(run_id)
    again = subprocess.run(
        [*command, "--senders", "2", "--clock", "real", "--out", str(tmp_path), "-q"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert again.returncode in (0, 3), again.stderr


def _living(run_id: str) -> list[int]:
    """Processes that carry the run's mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if f"FABRICLAB_OWNER_RUN={run_id}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_without_root_the_real_clock_says_what_to_do() -> None:
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "emulator.cli",
         "incast", str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"), "--senders", "7", "--clock", "real", "--out", "/var/tmp"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={"HOME": "/nonexistent", "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 4
    assert (
        "error: network namespaces need root\n  where: --clock real\n  to do: run with sudo, or use --clock virtual"
        in done.stderr
    )
