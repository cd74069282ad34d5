"""Bounds against numbers worked out by hand, for 100 Gbit/s links of 500 ns and packets of 4,000 bytes (320 ns each)."""

from __future__ import annotations

import pytest

from emulator.errors import FabricError
from emulator.judge.theory import Theory, smallest_packet
from emulator.judge.wires import Edge, Wires
from traffic.collective.registry import make_schedule

RATE = 100_000_000_000
MTU = 4000
TX = 320.0  # ns of a full packet's payload
DELAY = 500


def leaf_spine(leaves: int, spines: int, hosts: int, uplink: int = RATE, burst: int = 0) -> Wires:
    names = [f"host{i}" for i in range(leaves * hosts)]
    ends = [(h, f"leaf{i // hosts}", RATE) for i, h in enumerate(names)]
    ends += [(f"leaf{i}", f"spine{s}", uplink) for i in range(leaves) for s in range(spines)]
    edges = [Edge(a, b, r, DELAY, burst) for a, b, r in ends] + [Edge(b, a, r, DELAY, burst) for a, b, r in ends]
    return Wires(names, edges)


@pytest.mark.parametrize(("size", "smallest"), [(1, 1), (4000, 4000), (4001, 1), (8000, 4000), (10_000, 2000)])
def test_smallest_packet(size: int, smallest: int) -> None:
    assert smallest_packet(size, MTU) == smallest


def test_one_transfer_alone() -> None:
    theory = Theory(leaf_spine(2, 2, 4), MTU)
    # same leaf, one packet: two transmissions, two wires
    assert theory.alone_ns(0, 1, 4000) == pytest.approx(2 * TX + 2 * DELAY)
    # other leaf, 1 MB in 250 packets: 80,000 ns at the narrowest hop, three more transmissions, four wires
    assert theory.alone_ns(0, 7, 1_000_000) == pytest.approx(80_000 + 3 * TX + 4 * DELAY)
    # half a packet: four transmissions of half a packet
    assert theory.alone_ns(0, 7, 2000) == pytest.approx(4 * TX / 2 + 4 * DELAY)


def test_slow_uplinks_together_limit_a_transfer() -> None:
    # two uplinks of 25 Gbit/s: 50 Gbit/s between leaves, so 160,000 ns; a packet takes 1,280 ns on one of them
    wires = leaf_spine(2, 2, 4, uplink=RATE // 4)
    assert wires.between(wires.groups[0], wires.groups[7]) == (50e9, 2)
    # the least latency has two such transmissions and two of 320 ns; one at the narrowest place counts in the 160,000
    assert Theory(wires, MTU).alone_ns(0, 7, 1_000_000) == pytest.approx(160_000 + 4 * DELAY + 2 * TX + 1280)


def test_incast_is_the_receivers_link() -> None:
    theory = Theory(leaf_spine(2, 2, 4), MTU)
    schedule = make_schedule("incast", ranks=8, senders=7, size=1_000_000, receiver=0)
    bound = theory.bound(schedule.moves)
    # 7 MB at 100 Gbit/s; the nearest sender's first packet needs a transmission and a wire, the last packet a wire
    assert bound.ns == pytest.approx(560_000 + TX + 2 * DELAY)
    assert bound.because == "7000000 bytes enter host0"
    assert bound.us == pytest.approx(561.32)


def test_rounds_of_an_incast_add_up() -> None:
    theory = Theory(leaf_spine(2, 2, 4), MTU)
    once = theory.bound(make_schedule("incast", ranks=8, senders=7, size=1_000_000).moves).ns
    five = theory.bound(make_schedule("incast", ranks=8, senders=7, size=1_000_000, rounds=5).moves).ns
    assert five == pytest.approx(5 * once)


def test_ring_is_two_n_minus_one_chunks_and_latencies() -> None:
    # one leaf of 8: 2·7 steps of 500,000 bytes = 125 packets: 40,000 ns, one more transmission, two wires
    theory = Theory(leaf_spine(1, 1, 8), MTU)
    bound = theory.bound(make_schedule("allreduce", ranks=8, size=4_000_000).moves)
    assert bound.ns == pytest.approx(14 * (40_000 + TX + 2 * DELAY))
    assert bound.because == "a chain of 14 transfers"
    # 2(N-1)/N·S/B = 560,000 ns is the part that the size makes
    assert bound.ns > 560_000


def test_ring_over_two_leaves_pays_the_long_way_where_a_chunk_crosses() -> None:
    # of 8 links of the ring two cross; in 14 steps a chunk crosses 3 or 4 times: 4 (it starts before a border)
    theory = Theory(leaf_spine(2, 2, 4), MTU)
    bound = theory.bound(make_schedule("allreduce", ranks=8, size=4_000_000).moves)
    near, far = 40_000 + TX + 2 * DELAY, 40_000 + 3 * TX + 4 * DELAY
    assert bound.ns == pytest.approx(10 * near + 4 * far)


def test_tree_is_bound_by_what_an_inner_rank_sends() -> None:
    # rank 4 of 8 is inner in the first tree: up 1 and down 2 halves, and a leaf in the second: 1 half up = 2 vectors
    schedule = make_schedule("allreduce", ranks=8, size=4_000_000, algorithm="tree")
    bound = Theory(leaf_spine(1, 1, 8), MTU).bound(schedule.moves)
    assert sum(m.size for m in schedule.moves if m.src == 4) == 8_000_000
    assert 640_000 < bound.ns < 700_000


def test_all_to_all_over_oversubscribed_uplinks_is_a_cut() -> None:
    # 2 leaves of 4, one 100 Gbit/s uplink each: 4·4 blocks of 500,000 bytes leave a leaf = 640,000 ns
    theory = Theory(leaf_spine(2, 1, 4), MTU)
    bound = theory.bound(make_schedule("all_to_all", ranks=8, size=4_000_000).moves)
    assert bound.because == "8000000 bytes leave leaf0"
    assert bound.ns == pytest.approx(640_000 + 2 * (TX + DELAY))


def test_permutation_on_a_full_fabric_is_one_flow_alone() -> None:
    theory = Theory(leaf_spine(2, 4, 4), MTU)
    schedule = make_schedule("permutation", ranks=8, size=1_000_000, seed=2)
    assert any(m.src // 4 != m.dst // 4 for m in schedule.moves)
    assert theory.bound(schedule.moves).ns == pytest.approx(80_000 + 3 * TX + 4 * DELAY)


def test_staggered_starts_count() -> None:
    theory = Theory(leaf_spine(1, 1, 4), MTU)
    schedule = make_schedule("staggered", ranks=4, senders=2, size=4000, gap_ns=1_000_000)
    assert theory.bound(schedule.moves).ns == pytest.approx(1_000_000 + 2 * TX + 2 * DELAY)


def test_floor_lets_bursts_and_idle_ports_pass() -> None:
    # 8,000 bytes of burst a port: 92,000 bytes at 100 Gbit/s and the wires, no transmission of single packets
    theory = Theory(leaf_spine(1, 1, 4, burst=8000), MTU, floor=True)
    assert theory.alone_ns(0, 1, 100_000) == pytest.approx(92_000 * 0.08 + 2 * DELAY)
    assert theory.alone_ns(0, 1, 4000) == pytest.approx(2 * DELAY)


def test_floor_is_never_above_the_bound() -> None:
    wires = leaf_spine(2, 2, 4, burst=8000)
    for kind, more in (
        ("allreduce", {}),
        ("all_to_all", {}),
        ("incast", {"senders": 5, "rounds": 3}),
        ("permutation", {}),
    ):
        for size in (4, 4000, 100_000):
            moves = make_schedule(kind, ranks=8, size=size, **more).moves
            assert Theory(wires, MTU, floor=True).bound(moves).ns <= Theory(wires, MTU).bound(moves).ns


def test_three_tiers_and_planes() -> None:
    # two planes: each host on a leaf of either; 2 x 100 Gbit/s from host to host
    edges = []
    for plane in (0, 1):
        for leaf in (0, 1):
            ends = [(f"host{leaf}", f"p{plane}l{leaf}"), (f"p{plane}l{leaf}", f"p{plane}s")]
            edges += [Edge(a, b, RATE, DELAY) for x, y in ends for a, b in ((x, y), (y, x))]
    theory = Theory(Wires(["host0", "host1"], edges), MTU)
    assert theory.alone_ns(0, 1, 1_000_000) == pytest.approx(40_000 + 3 * TX + 4 * DELAY)


def test_a_link_down_is_no_way() -> None:
    plan = {
        "nodes": [{"name": "host0", "kind": "host"}, {"name": "host1", "kind": "host"}, {"name": "leaf0", "kind": "leaf"}],
        "ports": [
            {"node": a, "peer": b, "fabric_rate_bps": RATE, "fabric_delay_ns": 1, "burst_bytes": 9, "carrier": up}
            for a, b, up in (("host0", "leaf0", True), ("leaf0", "host0", True), ("host1", "leaf0", False), ("leaf0", "host1", False))
        ],
    }  # fmt: skip
    wires = Wires.from_plan(plan)
    assert len(wires.edges) == 2 and wires.edges[0].burst_bytes == 9
    with pytest.raises(FabricError, match="no path from host0 to host1"):
        Theory(wires, MTU).alone_ns(0, 1, 1)


def test_a_step_without_a_barrier_does_not_add_up() -> None:
    """Step 1 needs only one of two moves of step 0: the other one may still run, so the times must not be added."""
    from traffic.collective.schedule import Move

    theory = Theory(leaf_spine(1, 1, 4), MTU)
    long, short = Move(0, 0, 1, 0, 0, 4_000_000), Move(1, 2, 3, 0, 0, 4000)
    after = Move(2, 2, 3, 0, 0, 4000, needs=(1,), step=1)
    assert theory.bound([long, short, after]).ns == pytest.approx(320_000 + TX + 2 * DELAY)
    late = Move(3, 2, 3, 0, 0, 4000, needs=(2,), step=2)  # all of step 1, but not all since the last barrier
    assert theory.bound([long, short, after, late]).ns == pytest.approx(320_000 + TX + 2 * DELAY)
