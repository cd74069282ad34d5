"""The fabric spelled out: names, ranks, values in force, paths."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import UsageError
from emulator.topology.describe import describe, oversubscription
from emulator.topology.model import Topology
from emulator.topology.network import Network


def network(leaves: int = 2, spines: int = 2, hosts_per_leaf: int = 4, **changes: Any) -> Network:
    counts = {"leaves": leaves, "spines": spines, "hosts_per_leaf": hosts_per_leaf}
    return Topology.model_validate({**counts, **changes}).network()


def names(paths: list[list[Any]]) -> list[list[str]]:
    return [[port.name for port in path] for path in paths]


def test_hosts_are_ranked_leaf_by_leaf() -> None:
    assert [(host.name, host.index, host.leaf) for host in network().hosts] == [
        ("host0", 0, 0), ("host1", 1, 0), ("host2", 2, 0), ("host3", 3, 0),
        ("host4", 4, 1), ("host5", 5, 1), ("host6", 6, 1), ("host7", 7, 1),
    ]  # fmt: skip


def test_twelve_hosts_on_one_leaf_keep_their_own_ports() -> None:
    # p4lang tutorials issue 328: only one digit of port 12 was read.
    fabric = network(hosts_per_leaf=12)
    assert fabric.port("leaf0:host11").peer == "host11"
    assert fabric.port("leaf1:host12").peer == "host12"
    assert len({port.index for port in fabric.ports}) == len(fabric.ports) == 2 * (24 + 4)
    assert [port.index for port in fabric.ports] == list(range(len(fabric.ports)))


def test_paths_go_over_every_spine() -> None:
    fabric = network()
    assert names(fabric.paths("host0", "host4")) == [
        ["host0:leaf0", "leaf0:spine0", "spine0:leaf1", "leaf1:host4"],
        ["host0:leaf0", "leaf0:spine1", "spine1:leaf1", "leaf1:host4"],
    ]
    assert names(fabric.paths("host0", "host1")) == [["host0:leaf0", "leaf0:host1"]]
    assert fabric.paths("host0", "host0") == []
    assert (fabric.hops("host0", "host4"), fabric.hops("host0", "host1"), fabric.hops("host0", "host0")) == (4, 2, 0)


def test_a_down_link_carries_no_path() -> None:
    fabric = network(overrides=[{"link": "spine1:leaf1", "state": "down"}])
    assert not fabric.port("leaf1:spine1").up and not fabric.port("spine1:leaf1").up
    assert names(fabric.paths("host0", "host4")) == [["host0:leaf0", "leaf0:spine0", "spine0:leaf1", "leaf1:host4"]]


def test_base_round_trip_by_hand() -> None:
    # Four links of 500 ns; 9038 bytes at 100 Gbit/s take 723.04 ns, rounded up to 724; 84 bytes take 6.72, up to 7.
    fabric = network()
    assert fabric.base_rtt_ns("host0", "host4") == 4 * (500 + 724) + 4 * (500 + 7)
    assert fabric.path_delay_ns(fabric.paths("host0", "host4")[0]) == 2000


def test_an_override_holds_in_both_directions_or_forward_only() -> None:
    both = network(overrides=[{"link": "leaf0:spine1", "rate": "25Gbit", "ecn": {"kmin": "50KB"}}])
    assert both.port("leaf0:spine1").rate_bps == both.port("spine1:leaf0").rate_bps == 25 * 10**9
    assert both.port("leaf0:spine1").kmin_bytes == 50_000
    assert both.port("leaf0:spine0").rate_bps == 100 * 10**9
    forward = network(overrides=[{"link": "spine1:leaf0", "direction": "forward", "loss": 0.01}])
    assert (forward.port("spine1:leaf0").loss, forward.port("leaf0:spine1").loss) == (0.01, 0.0)


def test_hosts_do_not_mark_and_the_last_hop_may_be_left_out() -> None:
    fabric = network()
    assert not fabric.port("host0:leaf0").ecn and fabric.port("leaf0:host0").ecn and fabric.port("leaf0:spine0").ecn
    inner = network(ecn={"last_hop": False})
    assert not inner.port("leaf0:host0").ecn and inner.port("spine0:leaf0").ecn
    assert fabric.port("leaf0:host0").last_hop and not fabric.port("leaf0:spine0").last_hop


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UsageError, match='did you mean "leaf0:spine1"'):
        network().port("leaf0:spine11")
    with pytest.raises(UsageError, match="no node"):
        network().paths("host0", "host99")


def test_oversubscription_counts_links_that_are_up() -> None:
    assert oversubscription(network()) == {"leaf0": 2.0, "leaf1": 2.0}
    down = network(overrides=[{"link": "leaf0:spine0", "state": "down"}])
    assert oversubscription(down) == {"leaf0": 4.0, "leaf1": 2.0}


def test_description_states_a_queue_in_bytes_packets_and_time() -> None:
    groups = describe(Topology(shape="single-switch", hosts=8))["port_groups"]
    switch = next(group for group in groups if group["direction"] == "leaf to host")
    # 100 KB / 9038 B = 11.06 frames; 800 kbit at 100 Gbit/s drain in 8 us.
    assert switch["kmin"] == {"bytes": 100_000, "packets": 11.06, "us": 8.0}


@given(st.integers(2, 5), st.integers(1, 5), st.integers(1, 6), st.data())
def test_every_path_is_a_chain_of_the_right_length(leaves: int, spines: int, hosts: int, data: st.DataObject) -> None:
    fabric = network(leaves, spines, hosts)
    ranks = st.integers(0, leaves * hosts - 1)
    src, dst = data.draw(ranks), data.draw(ranks)
    paths = fabric.paths(f"host{src}", f"host{dst}")
    same_leaf = src // hosts == dst // hosts
    assert len(paths) == (0 if src == dst else 1 if same_leaf else spines)
    for path in paths:
        assert path[0].node == f"host{src}" and path[-1].peer == f"host{dst}"
        assert all(one.peer == other.node for one, other in itertools.pairwise(path))
