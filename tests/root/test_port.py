"""Ports in real network namespaces. Each expected value is computed here from the law it comes from."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from emulator.errors import MissingCapability
from emulator.port import tc
from emulator.port.config import port_stats, probability
from emulator.port.features import Features, probe
from emulator.port.netlink import Netlink
from emulator.port.portset import PortSet
from tests.root.port_lab import (
    ETH_P_ALL,
    ETH_P_IP,
    WIRE,
    Lab,
    Node,
    Plan,
    Port,
    checksum,
    drain,
    dscp_of,
    ecn_of,
    frame,
    frame6,
    lab,
    ports,
    sh,
)  # fmt: skip
from traffic.packet import dscp
from traffic.rng import Rng

pytestmark = pytest.mark.root

SMALL = frame(62)


@pytest.fixture(scope="module")
def features() -> Features:
    return probe()


@pytest.fixture
def pair() -> Iterator[Lab]:
    with lab("a", "b") as made:
        made.link("a", "p0", "b", "p1")
        yield made


def empty(made: PortSet, name: str = "a:b") -> None:
    """Waits until nothing is queued at the port."""
    limit = time.monotonic() + 5
    while any(counted.backlog_bytes for counted in made.counters()[name].classes.values()):
        assert time.monotonic() < limit, "the queue does not drain"
        time.sleep(0.005)


@contextlib.contextmanager
def held(pair: Lab, features: Features, port: Port) -> Iterator[Callable[..., float]]:
    """Gives `share(depth, packets, frame)`: the marked share of packets that all find `depth` bytes (to one packet).

    The FIFO itself is made as small as the depth and full, so it holds whatever this machine's scheduler does: the program
    judges each packet by the port's real limit, then the FIFO drops it.
    """
    with ports(pair, Plan((port,)), features) as made, pair.sender("a", "p0") as sender:

        def send(data: bytes, count: int) -> None:
            for _ in range(count):
                with contextlib.suppress(OSError):
                    sender.send(data)

        def share(depth: int, packets: int, data: bytes = SMALL) -> float:
            limit = str(depth + len(SMALL) + WIRE)
            sh("tc", "-n", pair.names["a"], *f"qdisc change dev p0 parent 1:20 handle 20: bfifo limit {limit}".split())
            while made.counters()[port.name].classes["data"].backlog_bytes < depth:
                send(SMALL, 1)
            before = made.counters()[port.name]
            send(data, packets)
            after = made.counters()[port.name]
            assert before.seen_packets is not None and after.seen_packets == before.seen_packets + packets
            waiting = after.classes["data"].backlog_bytes
            assert depth <= waiting <= depth + len(SMALL) + WIRE
            return ((after.marked or 0) - (before.marked or 0)) / packets

        yield share


def test_marking_follows_the_queue_over_100_000_packets_at_held_depths(pair: Lab, features: Features) -> None:
    """p = (q - kmin) / (kmax - kmin) * pmax: the SONiC ECN test plan's law and count."""
    port = Port(rate_bps=8000, kmin_bytes=20_000, kmax_bytes=120_000, pmax=1.0)
    marked = expected = 0.0
    with held(pair, features, port) as share:
        for part in (0.1, 0.3, 0.5, 0.7, 0.9):
            depth = port.kmin_bytes + part * (port.kmax_bytes - port.kmin_bytes)
            got = share(int(depth), 21_000)
            assert got == pytest.approx(part, rel=0.05)
            marked, expected = marked + got, expected + part
    assert marked == pytest.approx(expected, rel=0.05)


def test_low_pmax_and_the_ends_of_the_ramp(pair: Lab, features: Features) -> None:
    """pmax 0.2 at half the ramp marks a tenth; below kmin nothing, above kmax everything, not-ECT and CE never."""
    port = Port(rate_bps=8000, kmin_bytes=20_000, kmax_bytes=80_000, pmax=0.2)
    with held(pair, features, port) as share:
        assert share(19_000, 3000) == 0
        assert share(50_000, 30_000) == pytest.approx(0.1, rel=0.05)
        assert share(81_000, 3000) == 1
        assert share(81_000, 300, frame(62, ecn=0)) == 0
        assert share(81_000, 300, frame(62, ecn=dscp.CE)) == 0


def test_ce_that_arrives_is_what_the_port_counted(pair: Lab, features: Features) -> None:
    port = Port(rate_bps=100_000_000, kmin_bytes=5_000, kmax_bytes=60_000, pmax=0.5)
    with ports(pair, Plan((port,)), features) as made, pair.sender("a", "p0") as sender, pair.tap("b", "p1") as tap:
        got = []
        for length in (62, 500, 4158) * 5:
            for nr in range(60):
                sender.send(frame(length, mark=nr))
            empty(made)
            got += drain(tap)
        counted = made.counters()[port.name]
    assert len(got) == counted.seen_packets == counted.classes["data"].tx_packets == 900
    assert counted.seen_bytes == sum(map(len, got)) and counted.ect_packets == 900
    assert sum(ecn_of(data) == dscp.CE for data in got) == counted.marked
    assert counted.marked is not None and counted.marked > 50 and counted.unmarked == 0
    assert all(checksum(data[14:34]) == 0 for data in got)


def test_a_step_marks_above_k_only(pair: Lab, features: Features) -> None:
    """kmin = kmax = K: DCTCP's threshold; in one burst packet i finds i lengths less what the burst let through."""
    port = Port(rate_bps=1_000_000, kmin_bytes=30_000, kmax_bytes=30_000, pmax=0.1, burst_bytes=1500)
    with ports(pair, Plan((port,)), features) as made, pair.sender("a", "p0") as sender, pair.tap("b", "p1") as tap:
        for nr in range(60):
            sender.send(frame(976, mark=nr))
        counted = made.counters()[port.name]
        assert counted.histogram is not None and counted.above_kmin is not None and counted.marked is not None
        got = drain(tap, 60)
        marked = [struct.unpack("!I", data[42:46])[0] for data in got if ecn_of(data) == dscp.CE]
        # 60 packets of 1000 wire bytes, at most 3 leave at once: the ones that found more than 30 waiting
        assert marked == list(range(60 - len(marked), 60))
        assert 60 - 34 - 2 <= len(marked) <= 60 - 31
        assert counted.marked == len(marked)


def test_the_generator_is_the_ports_own_and_seeded(pair: Lab, features: Features) -> None:
    """Random loss is predicted packet by packet from (seed, port number), and the sender is told of no error."""
    port = Port(rate_bps=1_000_000_000, loss=0.1, number=0, limit_bytes=4_000_000)
    with (
        ports(pair, Plan((port,), seed=0), features) as made,
        pair.sender("a", "p0") as sender,
        pair.tap("b", "p1") as tap,
    ):
        for nr in range(20_000):
            sender.send(frame(62, mark=nr))
        empty(made)
        counted = made.counters()[port.name]
        got = [struct.unpack("!I", data[42:46])[0] for data in drain(tap)]
    state = int(port_stats(port, 0)["loss_state"][0])
    stream = Rng(0)
    stream._state = state
    lost = [nr for nr in range(20_000) if stream.next64() >> 32 < probability(0.1)]
    assert counted.lost == len(lost) == pytest.approx(2000, rel=0.05)
    assert got == sorted(set(range(20_000)) - set(lost))
    assert counted.seen_packets == 20_000 and counted.classes["data"].tx_packets == 20_000 - len(lost)


def test_overflow_is_counted_once_and_never_marked(pair: Lab, features: Features) -> None:
    """sent = left + dropped; the program foresees each drop; a packet that will be dropped takes no mark with it."""
    port = Port(rate_bps=10_000_000, limit_bytes=50_000, kmin_bytes=0, kmax_bytes=0)
    with ports(pair, Plan((port,)), features) as made, pair.sender("a", "p0") as sender, pair.tap("b", "p1") as tap:
        refused = 0
        for _ in range(200):
            try:
                sender.send(frame(1000))
            except OSError:
                refused += 1
        empty(made)
        counted, got = made.counters()[port.name], drain(tap)
        data = counted.classes["data"]
        shown = json.loads(sh("tc", "-n", pair.names["a"], "-s", "-j", "qdisc", "show", "dev", "p0"))
    assert counted.seen_packets == 200 == data.tx_packets + data.dropped
    assert data.dropped == counted.overflow == refused > 100
    assert sum(q.get("drops", 0) for q in shown) == 2 * refused  # tc shows each at the leaf and at the root
    assert len(got) == data.tx_packets
    assert sum(ecn_of(g) == dscp.CE for g in got) == counted.marked
    assert counted.max_bytes is not None and 50_000 - 1024 < counted.max_bytes <= 50_000
    assert data.tx_bytes == data.tx_packets * (1000 + WIRE)


def test_counts_are_exact_with_two_senders_at_once(pair: Lab, features: Features) -> None:
    """Two threads, on two processors where there are two: the map's lock loses no count (`send` lets go of the interpreter)."""
    port = Port(rate_bps=10**9, limit_bytes=50_000_000, loss=0.3)
    with ports(pair, Plan((port,)), features) as made, pair.sender("a", "p0") as one, pair.sender("a", "p0") as two:

        def send(sender: socket.socket) -> None:
            for _ in range(20_000):
                sender.send(SMALL)

        threads = [threading.Thread(target=send, args=(sender,)) for sender in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        empty(made)
        counted = made.counters()[port.name]
    assert counted.seen_packets == counted.ect_packets == 40_000 and counted.histogram is not None
    assert sum(counted.histogram["data"]) == 40_000
    assert counted.classes["data"].tx_packets == 40_000 - (counted.lost or 0)


def test_control_overtakes_and_has_its_own_queue(pair: Lab, features: Features) -> None:
    """Strict priority: control, then trimmed, though sent behind 40 queued data packets."""
    port = Port(rate_bps=1_000_000, mark=False, burst_bytes=1)
    with ports(pair, Plan((port,)), features) as made, pair.sender("a", "p0") as sender, pair.tap("b", "p1") as tap:
        # the first packet of a class goes out on the class's own token (one a minute, shaper.OWN_RATE): spend it
        for code in (dscp.CONTROL, dscp.TRIMMED, dscp.DATA):
            sender.send(frame(62, code))
        assert len(drain(tap, 3)) == 3
        for nr in range(40):
            sender.send(frame(1000, mark=nr))
        for nr in range(5):
            sender.send(frame(62, dscp.TRIMMED, mark=1000 + nr))
        for nr in range(5):
            sender.send(frame(62, dscp.CONTROL, ecn=0, mark=2000 + nr))
        order = [struct.unpack("!I", data[42:46])[0] for data in drain(tap, 50)]
        counted = made.counters()[port.name]
    # a packet takes 8 ms; one may leave while the others are still being sent
    control, trimmed = ([order.index(first + nr) for nr in range(5)] for first in (2000, 1000))
    assert control == list(range(control[0], control[0] + 5)) and control[0] <= 3
    assert trimmed[1:] == list(range(control[-1] + 1 + (trimmed[0] > control[-1]), trimmed[-1] + 1))
    assert {name: c.tx_packets for name, c in counted.classes.items()} == {"control": 6, "trimmed": 6, "data": 41}
    assert counted.seen is not None and counted.seen["control"]["packets"] == 6
    assert counted.seen["control"]["max_bytes"] < 5 * 86  # it saw its own queue, not the 40 kB of data


@pytest.mark.parametrize(("build", "last_hop"), [(frame, False), (frame6, True)])
def test_trimming_cuts_to_the_headers(pair: Lab, features: Features, build: object, last_hop: bool) -> None:
    """What does not fit goes on as headers: no packet is lost, lengths, checksum and code point are right."""
    assert callable(build)
    keep = 28
    port = Port(rate_bps=10_000_000, limit_bytes=30_000, mark=False, trim=True, last_hop=last_hop)
    plan = Plan((port,))
    with (
        ports(pair, plan, features, trim_keep_bytes=keep) as made,
        pair.sender("a", "p0") as sender,
        pair.tap("b", "p1") as tap,
    ):
        for _ in range(40):
            sender.send(build(4158))
        for _ in range(10):
            sender.send(build(62 if build is frame else 82, dscp.CONTROL, 0))
        empty(made)
        counted, got = made.counters()[port.name], drain(tap)
    code = dscp.TRIMMED_LAST_HOP if last_hop else dscp.TRIMMED
    l3 = 20 if build is frame else 40
    class_of = dscp_of if build is frame else lambda data: ((data[14] & 15) << 4 | data[15] >> 4) >> 2
    cut = [data for data in got if class_of(data) == code]
    whole = [data for data in got if class_of(data) == dscp.DATA]
    assert len(cut) + len(whole) == 40 and len(got) == 50
    assert counted.trimmed == len(cut) == counted.classes["trimmed"].tx_packets and len(cut) > 25
    assert counted.overflow == 0 and all(c.dropped == 0 for c in counted.classes.values())
    assert counted.max_bytes is not None and counted.max_bytes <= 30_000
    for data in cut:
        assert len(data) == 14 + l3 + 8 + keep
        udp_length, udp_sum = struct.unpack_from("!HH", data, 14 + l3 + 4)
        assert (udp_length, udp_sum) == (8 + keep, 0)
        if build is frame:
            assert checksum(data[14:34]) == 0 and struct.unpack_from("!H", data, 16)[0] == 20 + 8 + keep
            assert ecn_of(data) == dscp.ECT0
        else:
            assert struct.unpack_from("!H", data, 18)[0] == 8 + keep and data[14:18] == bytes.fromhex("6bea bcde")
    # charged at the new length: 24 bytes of wire on top of the cut frame
    assert counted.classes["trimmed"].tx_bytes == len(cut) * (14 + l3 + 8 + keep + WIRE)


def test_ports_do_not_mix_though_their_interfaces_have_one_index(features: Features) -> None:
    """Interface indices repeat from namespace to namespace; the filter's class id tells the port."""
    with lab("a", "b", "c", "d") as made_lab:
        made_lab.link("a", "p0", "b", "p1", index=11)
        made_lab.link("c", "q0", "d", "q1", index=11)
        one = Port(number=0, kmin_bytes=0, kmax_bytes=0, rate_bps=5_000_000)
        two = Port("c:d", "c", "d", 1, "q0", "q1", rate_bps=5_000_000, mark=False)
        plan = Plan((one, two), tuple(Node(n) for n in "abcd"))
        with ports(made_lab, plan, features) as made, made_lab.sender("a", "p0") as a, made_lab.sender("c", "q0") as c:
            assert made.index[0] == made.index[1] == 11
            for _ in range(30):
                a.send(frame(500))
            for _ in range(70):
                c.send(frame(300))
            counted = made.counters()
            assert (counted["a:b"].seen_packets, counted["a:b"].seen_bytes) == (30, 15_000)
            assert (counted["c:d"].seen_packets, counted["c:d"].seen_bytes) == (70, 21_000)
            assert (counted["a:b"].marked or 0) > 20 and counted["c:d"].marked == 0


@pytest.mark.parametrize("mbit", [50, 200, 1000])
def test_rate_is_within_two_per_cent(pair: Lab, features: Features, mbit: int) -> None:
    """Wire bytes that left in a time in which the queue was never empty. A busy machine can spoil a try, never raise the rate."""
    port = Port(rate_bps=mbit * 10**6, mark=False, burst_bytes=20_000, limit_bytes=mbit * 12_500)  # 0.1 s
    data, tries = frame(4158), []
    with ports(pair, Plan((port,)), features) as made, pair.sender("a", "p0") as sender:
        for _ in range(12):
            tries.append(_measured_rate(made, port, sender, data) / port.rate_bps)
            assert tries[-1] < 1.02
            if tries[-1] > 0.98:
                return
    pytest.fail(f"achieved/asked: {tries}")


def _measured_rate(made: PortSet, port: Port, sender: socket.socket, data: bytes) -> float:
    """Bits per second over a quarter of a second; 0 if the sender did not keep the queue filled."""

    def fill() -> None:
        with contextlib.suppress(OSError):
            for _ in range(4000):
                sender.send(data)

    def left() -> tuple[int, int]:
        counted = made.counters()[port.name].classes["data"]
        return counted.tx_bytes, counted.backlog_bytes

    fill()
    # the clock is read outside of the two counts, so that a pause of this process cannot raise the rate
    begin = now = time.perf_counter()
    first, lowest = left()
    last = first
    while now < begin + 0.25:
        time.sleep(0.005)  # the guest's clock does not move while a program computes
        last, waiting = left()
        now = time.perf_counter()
        lowest = min(lowest, waiting)
        fill()
    return (last - first) * 8 / (now - begin) if lowest else 0.0


def test_bursts_survive_at_high_rates(pair: Lab, features: Features) -> None:
    """9000 bytes at 100 Gbit/s are 720 ns: 12 ticks of 64 ns here, 0 by tc, whose unit is the microsecond. 800 Gbit/s needs 64 bits."""
    for gbit, ticks in ((10, 113), (100, 12), (400, 3), (800, 2)):
        port = Port(rate_bps=gbit * 10**9, burst_bytes=9000)
        with ports(pair, Plan((port,)), features) as made:
            found = made.readback()[port.name]["egress"]["class 1:1"]
            assert found["buffer_ticks"] == found["cbuffer_ticks"] == ticks
            assert found["rate"] == found["ceil"] == gbit * 10**9 // 8
            made.detach()
    name = pair.names["a"]
    sh("tc", "-n", name, "qdisc", "add", "dev", "p0", "root", "handle", "1:", "htb")
    sh(
        "tc",
        "-n",
        name,
        "class",
        "add",
        "dev",
        "p0",
        "parent",
        "1:",
        "classid",
        "1:1",
        "htb",
        "rate",
        "100gbit",
        "burst",
        "9000",
    )
    with Netlink(pair.netns("a")) as netlink:
        index = tc.links(netlink.dump(tc.RTM_GETLINK, tc.IFINFO.pack(0, 0, 0, 0, 0)))["p0"][0]
        (answer,) = netlink.dump(tc.RTM_GETTCLASS, tc.message(index))
    from emulator.port.shaper import describe_class

    assert describe_class(tc.parse(answer))["buffer_ticks"] == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("filter del dev p0 egress", "a:b: filter egress 1 is missing"),
        (
            "class change dev p0 parent 1: classid 1:1 htb rate 1mbit ceil 20mbit",
            "a:b: class 1:1 has rate 125000, the plan says 2500000",
        ),
        (
            "qdisc change dev p0 parent 1:20 handle 20: bfifo limit 1000",
            "a:b: qdisc 20: has limit 1000, the plan says 300000",
        ),
        ("qdisc del dev p0 root", "a:b: class 1:1 is missing"),
        ("qdisc add dev p0 parent 1:40 handle 40: pfifo", None),
    ],
)
def test_what_others_change_is_told(pair: Lab, features: Features, command: str, said: str | None) -> None:
    with ports(pair, Plan((Port(),)), features) as made:
        if said is None:
            sh(
                "tc",
                "-n",
                pair.names["a"],
                "class",
                "add",
                "dev",
                "p0",
                "parent",
                "1:1",
                "classid",
                "1:40",
                "htb",
                "rate",
                "1mbit",
            )
            said = "a:b: class 1:40 (htb) is not in the plan"
        sh("tc", "-n", pair.names["a"], *command.split())
        assert said in made.differences(made.readback())


def test_live_change_keeps_counters_and_is_the_new_plan(pair: Lab, features: Features) -> None:
    with ports(pair, Plan((Port(mark=False),)), features) as made, pair.sender("a", "p0") as sender:
        for loss, lost in ((0.0, 0), (1.0, 50)):
            made.change("a:b", loss=loss)
            for _ in range(50):
                sender.send(frame(100))
            assert made.counters()["a:b"].lost == lost
        assert made.counters()["a:b"].seen_packets == 100
        assert made.differences(made.readback()) == []


def test_a_hosts_kernel_sees_no_roce_but_its_packet_socket_does(features: Features) -> None:
    """Without netem the tap (ETH_P_ALL) comes before the ingress program; the UDP code must stay quiet."""
    with lab("a", "b") as made_lab:
        made_lab.link("a", "p0", "b", "p1")
        sh("ip", "-n", made_lab.names["b"], "addr", "add", "10.0.0.2/24", "dev", "p1")
        there, back = Port(), Port("b:a", "b", "a", 1, "p1", "p0")
        plan = Plan((there, back), (Node("a", "leaf"), Node("b", "host")))
        to_us = bytes.fromhex(
            sh("ip", "-n", made_lab.names["b"], "-j", "link", "show", "p1")
            .split('"address":"')[1][:17]
            .replace(":", "")
        )
        with (
            ports(made_lab, plan, features),
            made_lab.sender("a", "p0") as sender,
            made_lab.tap("b", "p1", ETH_P_ALL) as all_,
            made_lab.tap("b", "p1", ETH_P_IP) as ip,
        ):
            for _ in range(10):
                sender.send(to_us + frame(200)[6:])
            sender.send(to_us + frame(200)[6:36] + struct.pack("!H", 9) + frame(200)[38:])
            assert len(drain(all_, 11)) == 11
            assert len(drain(ip, 1)) == 1
            counted = sh("ip", "netns", "exec", made_lab.names["b"], "cat", "/proc/net/snmp").splitlines()
        udp = dict(zip(*(line.split() for line in counted if line.startswith("Udp:")), strict=True))
        assert udp["NoPorts"] == "1"


def test_frames_that_an_ifb_hands_back_pass_taps_on_ip_only_and_later(pair: Lab, features: Features) -> None:
    """ETH_P_ALL sees a frame before the delay and once; ETH_P_IP after it (net/core/dev.c, skip_classify)."""
    with Netlink(pair.netns("b")) as netlink, Netlink(pair.netns("a")) as _:
        netlink.request(*tc.new_link("ifb0", "ifb", mtu=9000))
        links = {n: i for n, (i, _) in tc.links(netlink.dump(tc.RTM_GETLINK, tc.IFINFO.pack(0, 0, 0, 0, 0))).items()}
        root = tc.htb_root(links["ifb0"], 0x10000, 1)
        slow = tc.htb_class(
            links["ifb0"], 0x10001, 0x10000, rate=12_500, ceil=12_500, buffer=1, cbuffer=1, prio=0, quantum=10_000
        )
        netlink.batch([root, slow, tc.clsact(links["p1"]), tc.redirect_filter(links["p1"], links["ifb0"])])
        with (
            pair.sender("a", "p0") as sender,
            pair.tap("b", "p1", ETH_P_ALL) as before,
            pair.tap("b", "p1", ETH_P_IP) as after,
        ):
            for nr in range(4):
                sender.send(frame(1226, mark=nr))
            assert len(drain(before, 4)) == 4
            early = drain(after)
            assert len(early) <= 2  # 1250 bytes take 0.1 s each
            assert [data[45] for data in early + drain(after, 4 - len(early))] == [0, 1, 2, 3]
            assert drain(before) == []


def test_what_the_kernel_cannot_do_is_refused_before_anything_is_built(features: Features) -> None:
    without = replace(features, marking="none", delay="agent", reasons={"kfunc": "no BTF", "netem": "unknown kind"})
    with pytest.raises(MissingCapability, match=r"ECN marking is not possible with marking by none.*no BTF"):
        PortSet(Plan((Port(),)), without)
    with pytest.raises(MissingCapability, match="packet trimming is not possible"):
        PortSet(Plan((Port(mark=False, trim=True),)), without)
    with pytest.raises(MissingCapability, match="netem is not possible: unknown kind"):
        PortSet(Plan((Port(mark=False),), delay_mode="netem"), without)


def test_the_virtual_queue_marks_a_burst_by_its_own_clock(pair: Lab, features: Features) -> None:
    """Without kernel structures: packet i of a burst finds i lengths, whatever the shaper let through."""
    without = replace(features, marking="virtual-queue")
    port = Port(rate_bps=1_000_000, kmin_bytes=30_000, kmax_bytes=30_000, limit_bytes=60_000)
    with ports(pair, Plan((port,)), without) as made, pair.sender("a", "p0") as sender, pair.tap("b", "p1") as tap:
        for nr in range(50):
            sender.send(frame(976, mark=nr))
        marked = [struct.unpack("!I", data[42:46])[0] for data in drain(tap, 50) if ecn_of(data) == dscp.CE]
        assert marked[0] in (31, 32) and marked == list(range(marked[0], 50))
        assert made.counters()[port.name].marked == len(marked)


def test_without_bpf_code_points_choose_the_class(pair: Lab, features: Features) -> None:
    without = replace(features, marking="none")
    port = Port(mark=False)
    with ports(pair, Plan((port,)), without) as made, pair.sender("a", "p0") as sender:
        for code in (dscp.CONTROL, dscp.CONTROL, dscp.TRIMMED, dscp.TRIMMED_LAST_HOP, dscp.TRIMMED, dscp.DATA, 0):
            sender.send(frame(100, code))
        sender.send(frame6(100, dscp.CONTROL))
        empty(made)
        counted = made.counters()[port.name]
        assert {name: c.tx_packets for name, c in counted.classes.items()} == {"control": 3, "trimmed": 3, "data": 2}
        assert counted.seen_packets is None and counted.marked is None
