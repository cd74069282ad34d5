"""The tree of a port as data and as bytes."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from emulator.port import delay, shaper, tc
from emulator.port.config import bin_bytes, port_config, port_stats, probability
from emulator.port.layout import CONTROL, DATA, FLAG_LAST_HOP, FLAG_MARK, FLAG_TRIM, TRIMMED
from emulator.port.netlink import attr, attrs, nest
from tests.root.port_lab import Port
from traffic.rng import Rng


@pytest.mark.parametrize(
    ("burst", "rate_bps", "ticks"),
    [
        (9000, 100 * 10**9, 12),  # 720 ns / 64
        (8364, 800 * 10**9, 2),  # 83.6 ns
        (2000, 20 * 10**6, 12_500),  # 0.8 ms
        (0, 10**9, 1),  # HTB needs one
    ],
)
def test_burst_in_ticks_of_64_ns_never_none(burst: int, rate_bps: int, ticks: int) -> None:
    assert shaper.burst_ticks(burst, shaper.rate_bytes(rate_bps)) == ticks


@pytest.mark.parametrize("gbit", [1, 10, 25, 40, 100, 200, 400, 800])
@pytest.mark.parametrize("frame", [86, 110, 1112, 4182])
def test_the_kernels_whole_nanoseconds_are_rounded_not_cut(gbit: int, frame: int) -> None:
    """psched_l2t_ns takes len * 1e9 / rate and drops the fraction; the error must stay within half a nanosecond."""
    rate = gbit * 10**9 // 8
    charged = (frame + tc.half_tick_bytes(rate)) * 10**9 // rate
    assert abs(charged - frame * 10**9 / rate) <= 0.5 + 1e9 / rate


@pytest.mark.parametrize("gbit", [1, 10, 100, 400, 800])
@pytest.mark.parametrize("frame", [86, 110, 1112, 4182])
def test_netem_never_takes_longer_than_the_shaper(gbit: int, frame: int) -> None:
    """Else a second queue would grow where nobody looks; the most it may be quicker is one nanosecond."""
    port = Port(rate_bps=gbit * 10**9)
    rate, want = gbit * 10**9 // 8, delay.plan_netem(port)
    shaped = (frame + tc.half_tick_bytes(rate)) * 10**9 // rate
    held = (frame - tc.WIRE_OVERHEAD + want["overhead"]) * 10**9 // want["rate"]
    assert shaped - 1 <= held <= shaped


def test_netem_holds_what_the_line_can() -> None:
    """comcast issue 28: netem's default of 1000 packets made a 200 ms line of 1.1 Gbit/s one of 100 Mbit/s."""
    port = Port(rate_bps=1_100_000_000, delay_ns=200_000_000)
    assert delay.netem_limit(port) * 84 > 1.1e9 / 8 * 0.2


def test_three_classes_below_one_rate_in_strict_priority() -> None:
    objects = shaper.plan_tree(Port(rate_bps=800 * 10**9, limit_bytes=10_000), red=False).objects
    assert objects["class 1:1"]["rate"] == objects["class 1:1"]["ceil"] == 100 * 10**9
    prio = [objects[f"class 1:{minor}"]["prio"] for minor in ("10", "30", "20")]
    assert prio == [0, 1, 2]
    assert all(objects[f"class 1:{minor}"]["ceil"] == 100 * 10**9 for minor in ("10", "20", "30"))
    assert objects["qdisc 20:"]["limit"] == 10_000
    assert objects["qdisc 10:"]["limit"] == objects["qdisc 30:"]["limit"] == 65_536
    assert objects["qdisc 1:"]["default"] == 0x20  # a packet of no class is data, never unshaped


def test_rates_above_32_bits_go_in_an_attribute_of_their_own() -> None:
    (_, _, body, _) = tc.htb_class(
        5, 0x10001, 0x10000, rate=50 * 10**9, ceil=10**9, buffer=2, cbuffer=2, prio=0, quantum=10_000
    )
    options = attrs(attrs(body, tc.MSG.size)[tc.TCA_OPTIONS])
    assert struct.unpack("=Q", options[6])[0] == 50 * 10**9 and 7 not in options
    assert tc.RATE.unpack(tc.HTB_OPT.unpack(options[1])[0])[5] == 0xFFFFFFFF


def test_red_on_the_instantaneous_queue() -> None:
    (_, _, body, _) = tc.red(5, 0x200000, 0x10020, limit=10**6, low=30_000, high=30_001, max_p=0xFFFFFFFF)
    options = attrs(attrs(body, tc.MSG.size)[tc.TCA_OPTIONS])
    assert struct.unpack("=IIIBBBB", options[1]) == (10**6, 30_000, 30_001, 0, 0, 0, 1)
    assert options[2] == b"\x1f" * 256


def test_leaf_handles_lie_in_buckets_of_their_own() -> None:
    """The program finds a queue by hash_32(handle) in 16 buckets; one queue a bucket makes the walk one step."""
    buckets = {(handle * 0x61C88647 & 0xFFFFFFFF) >> 28 for handle in shaper.LEAF_HANDLE.values()}
    assert len(buckets) == 3
    assert set(shaper.LEAF_HANDLE) == {CONTROL, DATA, TRIMMED}


def test_attributes_round_trip_and_pad() -> None:
    data = attr(1, b"abc") + nest(2, attr(3, b"\1\2\3\4"), attr(4, b""))
    assert len(data) % 4 == 0
    assert attrs(data) == {1: b"abc", 2: attr(3, b"\1\2\3\4") + attr(4, b"")}


def test_comparison_names_missing_other_and_foreign() -> None:
    want: dict[str, dict[str, Any]] = {"class 1:1": {"kind": "htb", "rate": 5}, "qdisc 1:": {"kind": "htb"}}
    have: dict[str, dict[str, Any]] = {"class 1:1": {"kind": "htb", "rate": 6}, "qdisc 9:": {"kind": "sfq"}}
    assert shaper.compare("leaf0:spine1", want, have) == [
        "leaf0:spine1: qdisc 1: is missing",
        "leaf0:spine1: qdisc 9: (sfq) is not in the plan",
        "leaf0:spine1: class 1:1 has rate 6, the plan says 5",
    ]


def test_a_ports_settings_for_the_program() -> None:
    port = Port(rate_bps=10**9, loss=0.25, pmax=0.5, trim=True, last_hop=True, limit_bytes=56_000)
    record = port_config(port, 52, {})[0]
    assert record["flags"] == FLAG_MARK | FLAG_TRIM | FLAG_LAST_HOP
    assert record["loss"] == 1 << 30 and record["pmax"] == 1 << 31
    assert record["bin"] == bin_bytes(56_000) == 1000
    assert record["ps_per_byte"] == 8000
    assert port_config(port, 52, {"loss": 1.0, "mark": False})[0]["loss"] == (1 << 32) - 1
    assert probability(1.0) == 1 << 32


def test_generators_come_from_seed_and_port_number_and_zero_is_a_seed() -> None:
    first = {(seed, nr): port_stats(replace(Port(), number=nr), seed)[0] for seed in (0, 1) for nr in (0, 1)}
    states = {int(record[field]) for record in first.values() for field in ("mark_state", "loss_state")}
    assert len(states) == 8
    assert int(first[0, 1]["mark_state"]) == Rng(0, "port", 1, "mark").next64()
