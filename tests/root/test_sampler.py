"""The sampler on real queues whose content is known."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np
import pytest

from emulator.collect.sampler import Sampler
from emulator.port.features import probe
from tests.root.port_lab import WIRE, Node, Plan, Port, frame, lab, ports, sh
from traffic.packet import dscp

pytestmark = pytest.mark.root

SLOW = Port(rate_bps=8000, burst_bytes=1, limit_bytes=20_000, kmin_bytes=5_000, kmax_bytes=5_000)


def test_samples_say_what_is_in_the_queues_and_gaps_stay_gaps() -> None:
    with lab("a", "b") as made_lab:
        made_lab.link("a", "p0", "b", "p1")
        plan = Plan((SLOW, Port("b:a", "b", "a", 1, "p1", "p0")), (Node("a"), Node("b")))
        with ports(made_lab, plan, probe()) as made, made_lab.sender("a", "p0") as sender:
            sampler = Sampler(made, period_ns=1000)
            sampler.sample(0)
            for _ in range(30):
                with contextlib.suppress(OSError):
                    sender.send(frame(976))
            for _ in range(3):
                sender.send(frame(62, dscp.CONTROL))
            sampler.sample(1000)
            sampler.sample(4000)
            out, counted = sampler.finish(), made.counters()["a:b"]
    assert out["tick_ns"].tolist() == [0, 1000, 4000] and int(out["period_ns"]) == 1000
    assert len(out["time_ns"]) == 3 * 2 * 3 and out["port"].dtype == np.int32 and out["cls"].dtype == np.uint8
    assert list(zip(out["time_ns"][:6], out["port"][:6], out["cls"][:6], strict=True)) == [
        (0, p, c) for p in (0, 1) for c in (0, 1, 2)
    ]
    data = (out["port"] == 0) & (out["cls"] == 1)
    # 20,000 bytes of limit hold 20 packets of 1000 on the wire; one more has left at once, the others are dropped
    assert out["backlog_bytes"][data].tolist() == [0, 20_000, 20_000]
    assert out["enqueued"][data].tolist() == [0, 21, 21]
    assert out["dropped"][data].tolist() == [0, 9, 9]
    assert out["tx_bytes"][data].tolist() == [0, 1000, 1000]
    assert out["marked"][data].tolist() == [0, counted.marked, counted.marked] and (counted.marked or 0) > 10
    assert out["trimmed"][data].tolist() == [0, 0, 0]
    control = (out["port"] == 0) & (out["cls"] == 0)
    assert out["backlog_bytes"][control][1] in (2 * (62 + WIRE), 3 * (62 + WIRE))
    assert out["marked"][control].tolist() == [0, 0, 0]
    other = out["port"] == 1
    assert not out["backlog_bytes"][other].any() and not out["enqueued"][other].any()


def test_a_queue_that_vanishes_leaves_a_gap_not_zeros() -> None:
    with lab("a", "b") as made_lab:
        made_lab.link("a", "p0", "b", "p1")
        with ports(made_lab, Plan((SLOW,)), probe()) as made:
            sampler = Sampler(made, period_ns=1000)
            sampler.sample(0)
            sh("tc", "-n", made_lab.names["a"], "qdisc", "del", "dev", "p0", "root")
            sampler.sample(1000)
            out = sampler.finish()
    assert set(out["time_ns"]) == {0} and out["tick_ns"].tolist() == [0, 1000]


def test_each_namespace_has_the_time_of_its_own_dump() -> None:
    with lab("a", "b") as made_lab:
        made_lab.link("a", "p0", "b", "p1")
        plan = Plan((SLOW, Port("b:a", "b", "a", 1, "p1", "p0")))
        with ports(made_lab, plan, probe()) as made:
            sampler = Sampler(made, period_ns=1000, clock=time.monotonic_ns)
            begun = time.monotonic_ns()
            sampler.sample(begun)
            out = sampler.finish()
    assert begun < out["time_ns"][0] < out["time_ns"][-1] <= out["tick_ns"][0] < time.monotonic_ns()


def test_marks_are_unknown_without_the_program() -> None:
    with lab("a", "b") as made_lab:
        made_lab.link("a", "p0", "b", "p1")
        with ports(made_lab, Plan((replace(SLOW, mark=False),)), replace(probe(), marking="none")) as made:
            sampler = Sampler(made, period_ns=1000)
            for nr in range(600):  # more rows than the first allocation
                sampler.sample(nr)
            out = sampler.finish()
    assert set(out["marked"]) == set(out["trimmed"]) == {-1}
    assert out["time_ns"][::3].tolist() == list(range(600))
