"""Giving way (sched_yield) lets the clock move: tasks that wait in such loops, as MPI ranks do, keep no timer from firing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.clock.virtual import run_guest
from tests.experiments import ROOT, check_of, made

pytestmark = pytest.mark.virtual

LOOP = """
import json, os, select, time
begin = time.monotonic_ns()
os.sched_yield()
one = time.monotonic_ns() - begin
reading, writing = os.pipe()
if os.fork() == 0:
    time.sleep(0.002)
    os.write(writing, b"x")
    os._exit(0)
poll = select.poll()
poll.register(reading, select.POLLIN)
begin, turns = time.monotonic_ns(), 0
while not poll.poll(0):  # reads no clock, and no call fails: only giving way lets time pass
    os.sched_yield()
    turns += 1
print(json.dumps([one, time.monotonic_ns() - begin, turns]))
"""


def test_a_loop_that_gives_way_waits_a_microsecond_a_turn(tmp_path: Path) -> None:
    lines: list[str] = []
    assert run_guest([sys.executable, "-c", LOOP], run_dir=tmp_path, wall_limit_s=120, on_line=lines.append) == 0
    one, waited, turns = json.loads(lines[-1])
    assert 1_000 <= one <= 1_100
    assert 2_000_000 <= waited <= 2_010_000  # the other task slept for 2 ms
    assert 1_900 <= turns <= 2_000


def test_an_mpi_all_reduce_measures_what_the_fabric_took(tmp_path: Path) -> None:
    binary = tmp_path / "allreduce"
    subprocess.run(["mpicc", "-O2", "-o", binary, ROOT / "examples" / "allreduce_mpi.c"], check=True)
    run = made(
        topology="leaf-spine-2x2x4",
        topology_set=["host_link.rate=10Gbit", "uplink.rate=10Gbit"],
        workload={
            "kind": "exec",
            "bytes": 0,
            "params": {"command": [str(binary)], "cwd": str(ROOT), "hosts": ["0", "1", "4", "5"], "mpi": True},
        },
        transport={"kind": "tcp"},
        clock="virtual",
    )
    assert run.verdict["word"] == "trusted", run.verdict["reasons"]
    first = next(line for line in (run.path / "output" / "rank0.txt").read_text().splitlines() if "busbw" in line)
    busbw = float(first.split("busbw ")[1].split()[0])
    assert 3 <= busbw <= 10  # no more than the line, and TCP starts slowly: 4 MB are 60 round trips' worth
    assert "rank 0: 0 wrong" in (run.path / "output" / "rank0.txt").read_text()
    assert run.summary["bottleneck"]["port"].split(":")[0] in (
        "host0",
        "host1",
        "host4",
        "host5",
        "leaf0",
        "leaf1",
        "spine0",
        "spine1",
    )
    assert check_of(run, "F6")["status"] == "pass", check_of(run, "F6")
