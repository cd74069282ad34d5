"""Harm done to a run while it runs: the verdict must turn, for the right reason; and clean runs must stay trusted.

Each case starts a slowed incast on the real clock, does one thing to it once traffic flows, and looks at the verdict.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import emulator.experiment.beside as beside
from emulator.errors import FabricError, RunFailed
from emulator.experiment.manifest import SPOILED
from emulator.experiment.run import Finished, run
from emulator.experiment.spec import Experiment
from emulator.fabric.fabric import Fabric
from emulator.judge.verdict import blames_machine
from emulator.port.netlink import inside
from tests.experiments import TOPOLOGIES, Silent, busy_elsewhere
from traffic.agent.job import Job
from traffic.transport.base import Delivery

pytestmark = pytest.mark.root

Harm = Callable[[Fabric], None]


class Harmful(Silent):
    """Does harm once, when the first share of the traffic is through."""

    def __init__(self, harm: Harm, fabrics: list[Fabric], share: float = 0.1) -> None:
        self.harm: Harm | None = harm
        self.fabrics = fabrics
        self.share = share

    def progress(self, state: Mapping[str, Any]) -> None:
        if self.harm is not None and state["bytes_done"] > self.share * state["bytes_total"]:
            harm, self.harm = self.harm, None
            harm(self.fabrics[-1])


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """Runs an incast with a harm; the fabric is handed to the harm."""
    fabrics: list[Fabric] = []
    real_enter = Fabric.__enter__

    def enter(self: Fabric) -> Fabric:
        fabrics.append(self)
        return real_enter(self)

    monkeypatch.setattr(Fabric, "__enter__", enter)

    def make(
        harm: Harm, *, tdf: int | str = 8_000, size: str = "1MB", senders: int = 4, share: float = 0.1
    ) -> Finished:
        spec = Experiment.model_validate(
            {
                "topology": str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"),
                "workload": {"kind": "incast", "bytes": size, "params": {"senders": senders}},
                "transport": {"kind": "mrc"},
                "clock": "real",
                "tdf": tdf,
            }
        )
        return run(spec, out=tmp_path, argv=["tests"], watch=Harmful(harm, fabrics, share))

    return make


def reasons(finished: Finished) -> str:
    return " | ".join(finished.summary["verdict"]["reasons"])


def word(finished: Finished) -> str:
    return str(finished.summary["verdict"]["word"])


def tc(fabric: Fabric, node: str, *args: str) -> None:
    with inside(fabric.netns(node)):
        subprocess.run(["tc", *args], check=True, capture_output=True)


def port(fabric: Fabric, name: str) -> str:
    return str(fabric.plan.port(name).ifname)


def test_a_cpu_hog(attack: Callable[..., Finished]) -> None:
    hogs: list[subprocess.Popen[bytes]] = []

    def harm(fabric: Fabric) -> None:
        for _ in range(4 * (os.cpu_count() or 1)):
            hogs.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))

    try:
        finished = attack(harm, tdf=4_000)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert word(finished) in ("untrusted", "care")
    assert "F8 CPU" in reasons(finished)


def test_a_run_that_the_machine_spoiled_is_made_again_more_slowly(attack: Callable[..., Finished]) -> None:
    """Where `--tdf auto` chose: the spoiled attempt is kept inside the run that was made instead."""

    def harm(fabric: Fabric) -> None:
        hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * (os.cpu_count() or 1))]
        time.sleep(1.5)
        for hog in hogs:
            hog.kill()
            hog.wait()

    finished = attack(harm, tdf="auto")
    first = json.loads((finished.run_dir / SPOILED / "summary.json").read_text(encoding="utf-8"))
    assert first["verdict"]["word"] != "trusted" and blames_machine(first["verdict"])
    assert finished.summary["clock"]["tdf"] == 2 * first["clock"]["tdf"]
    assert finished.summary["verdict"]["word"] == "trusted" or blames_machine(finished.summary["verdict"])
    assert (
        "this machine spoiled the run" in json.loads((finished.run_dir / "manifest.json").read_text())["clock"]["why"]
    )


def test_a_tc_rule_changed(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        with _class_rate(fabric, "leaf1:spine0", 2):
            pass

    finished = attack(harm)
    assert word(finished) == "untrusted"
    assert "F1 plan = reality" in reasons(finished) and "leaf1:spine0" in reasons(finished)


def test_a_queue_taken_away_ends_the_run_and_says_which(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        tc(fabric, "leaf1", "qdisc", "del", "dev", port(fabric, "leaf1:spine0"), "root")

    with pytest.raises(FabricError, match="leaf1:spine0: the control queue is gone; something removed it"):
        attack(harm)


def test_an_offload_switched_on(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        with inside(fabric.netns("leaf0")):
            subprocess.run(["ethtool", "-K", port(fabric, "leaf0:host0"), "gro", "on"], check=True, capture_output=True)

    finished = attack(harm)
    assert word(finished) == "untrusted"
    assert "F1 plan = reality" in reasons(finished)


@contextlib.contextmanager
def _class_rate(fabric: Fabric, name: str, divide: int) -> Iterator[None]:
    """The root class of a port at a fraction of its rate."""
    planned = fabric.plan.port(name)
    change = ["class", "change", "dev", planned.ifname, "parent", "1:", "classid", "1:1", "htb"]
    tc(
        fabric,
        planned.node,
        *change,
        "rate",
        f"{planned.rate_bps // divide}bit",
        "ceil",
        f"{planned.rate_bps // divide}bit",
    )
    yield


def test_a_port_slower_than_told(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        with _class_rate(fabric, "leaf0:host0", 3):
            pass

    finished = attack(harm)
    assert word(finished) == "untrusted"
    assert "F2 rate" in reasons(finished) and "F1 plan = reality" in reasons(finished)


def test_a_queue_limit_cut_and_restored(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        planned = fabric.plan.port("leaf0:host0")
        change = ["qdisc", "change", "dev", planned.ifname, "parent", "1:20", "bfifo", "limit"]
        tc(fabric, "leaf0", *change, "30000")
        time.sleep(0.4)
        tc(fabric, "leaf0", *change, str(planned.limit_bytes))

    finished = attack(harm)
    assert word(finished) == "untrusted"
    assert "F6 conservation" in reasons(finished) and "would have fitted its limit" in reasons(finished)


def test_packets_dropped_by_a_hidden_filter(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        device = port(fabric, "leaf0:host1")
        with inside(fabric.netns("leaf0")):
            subprocess.run(["nft", "add", "table", "netdev", "hidden"], check=True, capture_output=True)
            chain = f"{{ type filter hook ingress device {device} priority 0; }}"
            subprocess.run(["nft", "add", "chain", "netdev", "hidden", "c", chain], check=True, capture_output=True)
            subprocess.run(
                ["nft", "add", "rule", "netdev", "hidden", "c", "numgen", "inc", "mod", "10", "==", "0", "drop"],
                check=True,
                capture_output=True,
            )

    finished = attack(harm)
    assert word(finished) == "untrusted"
    assert "F6 conservation" in reasons(finished)


def test_a_sampler_stopped(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        time.sleep(1.2)  # this is the sampler's own thread

    finished = attack(harm)
    assert word(finished) in ("untrusted", "care")
    assert "F9 sampler" in reasons(finished)


def test_a_clock_step(attack: Callable[..., Finished]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    class Timespec(ctypes.Structure):
        _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))

    def step(by_ns: int) -> None:
        now = time.clock_gettime_ns(time.CLOCK_REALTIME) + by_ns
        if libc.clock_settime(time.CLOCK_REALTIME, ctypes.byref(Timespec(now // 10**9, now % 10**9))) != 0:
            raise PermissionError(os.strerror(ctypes.get_errno()))

    stepped = []

    def harm(fabric: Fabric) -> None:
        step(20_000_000)
        stepped.append(True)

    try:
        finished = attack(harm)
    finally:
        if stepped:
            step(-20_000_000)
    assert word(finished) == "untrusted"
    assert "C1 system clock" in reasons(finished)


def test_a_sender_that_cannot_keep_up(attack: Callable[..., Finished]) -> None:
    """A fabric far faster than this machine carries: nobody harms it but its own speed."""
    finished = attack(lambda fabric: None, tdf=20, senders=7)
    assert word(finished) == "untrusted"
    assert "F5 source kept up" in reasons(finished)


def test_a_result_vector_corrupted(attack: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of the receiver's memory changes after it arrived; the worker runs in this process so that we reach it."""
    from emulator.experiment import inside as same_process

    monkeypatch.setattr(beside, "run_worker", same_process.run_worker)
    real = Job.delivered

    def delivered(self: Job, d: Delivery) -> None:
        real(self, d)
        move = self.moves[d.imm]
        self.buffers[move.dst][move.dst_offset] ^= 1

    monkeypatch.setattr(Job, "delivered", delivered)
    finished = attack(lambda fabric: None)
    assert word(finished) == "untrusted"
    assert "F12 workload" in reasons(finished)


def test_a_worker_that_dies_is_named_and_leaves_nothing(attack: Callable[..., Finished]) -> None:
    def harm(fabric: Fabric) -> None:
        me = os.getpid()
        children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
        worker = [int(c) for c in children if b"traffic.agent" in Path(f"/proc/{c}/cmdline").read_bytes()]
        os.kill(worker[0], signal.SIGKILL)

    with pytest.raises(RunFailed, match=r"the worker was ended from outside \(SIGKILL\)"):
        attack(harm)


CLEAN = 20


def test_clean_runs_are_trusted(tmp_path: Path) -> None:
    """Twenty runs that nobody harms, of both transports, planned by `--tdf auto`, are trusted; how many at once is printed.

    A machine has a life of its own: `run` itself makes a run again that the machine alone spoiled. Only where other work keeps
    this machine busy throughout may a run stay short of trusted, and then for no reason but the machine.
    """
    short: list[list[str]] = []
    at_once = 0
    for k in range(CLEAN):
        spec = Experiment.model_validate(
            {
                "topology": str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"),
                "workload": {"kind": "incast", "bytes": "500KB", "params": {"senders": 3 + k % 5}},
                "transport": {"kind": "mrc" if k % 2 else "roce"},
                "clock": "real",
                "seed": k,
            }
        )
        finished = run(spec, out=tmp_path, argv=["tests"], watch=Silent())
        verdict = finished.summary["verdict"]
        at_once += not (finished.run_dir / SPOILED).exists()
        if verdict["word"] != "trusted":
            assert blames_machine(verdict), verdict["reasons"]
            short.append(verdict["reasons"])
    print(f"clean runs trusted: {at_once} of {CLEAN} at once, {CLEAN - len(short)} in all")
    assert not short or busy_elsewhere(), short
