"""The plan as data: names, addresses, routes, rates, thresholds, sysctls. Right values come from docs/architecture.md."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import MissingCapability, UsageError
from emulator.fabric.plan import FabricPlan, make_plan
from emulator.topology.model import Topology

NETEM = SimpleNamespace(delay="netem", multipath_seed=True, guest=False)
NO_NETEM = SimpleNamespace(delay="agent", multipath_seed=True, guest=False)


def plan_of(features: Any = NETEM, *, seed: int = 1, tdf: int = 1, **keys: Any) -> FabricPlan:
    shape = {"leaves": 2, "spines": 2, "hosts_per_leaf": 4} | keys
    return make_plan(
        Topology.model_validate(shape), run_id="20261129-161200-incast-7to1", seed=seed, tdf=tdf, features=features
    )


sizes = st.tuples(st.integers(2, 6), st.integers(1, 5), st.integers(1, 13))


@given(sizes, st.integers(0, 2**63))
def test_names_addresses_and_seeds_are_unique(size: tuple[int, int, int], seed: int) -> None:
    leaves, spines, hosts = size
    plan = plan_of(leaves=leaves, spines=spines, hosts_per_leaf=hosts, seed=seed)
    assert [port.number for port in plan.ports] == list(range(2 * leaves * (hosts + spines)))
    for name in ("ifname", "mac", "ip", "name", "alias"):
        assert len({getattr(port, name) for port in plan.ports}) == len(plan.ports)
    # IFNAMSIZ is 16 with the terminating zero; a Mininet name appears in no interface name.
    assert max(len(port.ifname) for port in plan.ports) <= 15
    assert len({node.short for node in plan.nodes}) == len({node.namespace for node in plan.nodes}) == len(plan.nodes)
    seeds = [node.hash_seed for node in plan.nodes if node.kind != "host"]
    # 0 would mean the key drawn at boot; equal seeds make tiers choose alike.
    assert None not in seeds and 0 not in seeds and len(set(seeds)) == leaves + spines
    assert all(node.hash_seed is None for node in plan.hosts)


@given(sizes)
def test_every_host_reaches_every_other_by_the_routes(size: tuple[int, int, int]) -> None:
    """Follow the routes as the kernel does, by longest prefix: 2 links within a leaf, 4 between leaves, over all spines."""
    leaves, spines, hosts = size
    plan = plan_of(leaves=leaves, spines=spines, hosts_per_leaf=hosts)
    for src, dst in itertools.permutations([host.name for host in plan.hosts[:2] + plan.hosts[-2:]], 2):
        if src == dst:
            continue
        ends = walk(plan, src, dst)
        assert {len(path) for path in ends} == {plan.hops(src, dst)}
        assert len(ends) == (1 if plan.hops(src, dst) == 2 else spines)


def walk(plan: FabricPlan, src: str, dst: str) -> list[list[str]]:
    """All paths of port names from src to dst by addresses, routes and neighbours alone."""
    from ipaddress import ip_address, ip_network

    target = ip_address(plan.address(dst))
    paths: list[list[str]] = []
    stack: list[tuple[str, list[str]]] = [(src, [])]
    while stack:
        node, path = stack.pop()
        assert len(path) <= 6, "a loop"
        if node == dst:
            paths.append(path)
            continue
        direct = [port for port in plan.ports_of(node) if target in ip_network(f"{port.ip}/31", strict=False)]
        if direct:
            ways = [direct[0].name]
        else:
            found = [r for r in plan.routes if r.node == node and target in ip_network(r.prefix)]
            best = max(found, key=lambda r: ip_network(r.prefix).prefixlen)
            ways = [hop.port for hop in best.next_hops]
        for way in ways:
            (entry,) = [n for n in plan.neighbours if n.port == way]
            peer = plan.port(plan.port(way).peer_name)
            assert (entry.ip, entry.mac) == (peer.ip, peer.mac)
            stack.append((peer.node, [*path, way]))
    return paths


def test_dilation_divides_rates_multiplies_delays_and_leaves_bytes_alone() -> None:
    port = plan_of(tdf=200).port("leaf0:spine1")
    assert (port.rate_bps, port.delay_ns) == (500_000_000, 100_000)
    assert (port.fabric_rate_bps, port.fabric_delay_ns) == (100 * 10**9, 500)
    assert (port.kmin_bytes, port.kmax_bytes, port.limit_bytes) == (100_000, 400_000, 4_000_000)


@pytest.mark.parametrize(
    ("keys", "burst", "reason"),
    [
        # 9000 + 38 bytes on the wire, twice; 100 KB / 4 is more.
        ({}, 18_076, "two frames of 9038 B, below kmin/4 = 25000 B"),
        # 40 KB / 4 is less than two frames, so the quarter wins (bugs.md 23).
        (
            {"ecn": {"kmin": "40KB"}},
            10_000,
            "kmin/4, below two frames = 18076 B, so that no burst reaches kmin by itself",
        ),
    ],
)
def test_burst_says_which_limit_won(keys: dict[str, Any], burst: int, reason: str) -> None:
    port = plan_of(**keys).port("leaf0:spine1")
    assert (port.burst_bytes, port.burst_reason) == (burst, reason)


def test_a_link_that_is_down_carries_no_route_and_no_neighbour() -> None:
    plan = plan_of(overrides=[{"link": "leaf0:spine1", "state": "down"}])
    assert not plan.port("leaf0:spine1").carrier and not plan.port("spine1:leaf0").carrier
    used = {hop.port for route in plan.routes for hop in route.next_hops} | {n.port for n in plan.neighbours}
    assert not used & {"leaf0:spine1", "spine1:leaf0"}
    assert len(walk(plan, "host0", "host7")) == 1
    assert len(walk(plan, "host7", "host0")) == 1


def test_sysctls_of_switches_and_hosts() -> None:
    plan = plan_of()
    leaf, host = plan.node("leaf0"), plan.node("host0")
    own = plan.port("leaf0:spine1").ifname
    assert (leaf.sysctls["net.ipv4.ip_forward"], host.sysctls["net.ipv4.ip_forward"]) == ("1", "0")
    assert leaf.sysctls["net.ipv4.fib_multipath_hash_policy"] == "1"
    assert leaf.sysctls["net.ipv4.fib_multipath_hash_seed"] == str(leaf.hash_seed)
    # The effective rp_filter is the greater of `all` and the port's own.
    assert {leaf.sysctls[f"net.ipv4.conf.{where}.rp_filter"] for where in ("all", "default", own)} == {"0"}
    assert leaf.sysctls["net.ipv4.conf.all.ignore_routes_with_linkdown"] == "1"
    assert leaf.sysctls["net.ipv6.conf.all.disable_ipv6"] == "1"


def test_the_same_run_gives_the_same_plan_and_another_seed_another_hash() -> None:
    assert plan_of(seed=0).to_dict() == plan_of(seed=0).to_dict()
    first, second = (plan_of(seed=seed).node("leaf0").hash_seed for seed in (0, 1))
    assert first != second


def test_plain_data_is_json_and_holds_everything() -> None:
    plan = plan_of()
    plain = json.loads(json.dumps(plan.to_dict()))
    assert {key: len(plain[key]) for key in ("nodes", "ports", "routes", "neighbours")} == {
        "nodes": 12, "ports": 24, "routes": 8 + 6, "neighbours": 24,
    }  # fmt: skip
    assert plain["ports"][0]["name"] == "host0:leaf0"


@given(sizes, st.integers(64, 9038))
def test_base_rtt_is_the_networks(size: tuple[int, int, int], wire: int) -> None:
    """The fast walk and the network's own enumeration of paths agree, also with unequal links."""
    leaves, spines, hosts = size
    plan = plan_of(
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts,
        overrides=[{"link": "leaf1:spine0", "rate": "7Gbit", "delay": "3us"}],
    )
    network = plan.network
    for src, dst in (("host0", plan.hosts[-1].name), (plan.hosts[-1].name, "host0")):
        assert plan.base_rtt_ns(src, dst, wire) == network.base_rtt_ns(src, dst, wire)
        assert plan.path_delay_ns(src, dst) == min(network.path_delay_ns(path) for path in network.paths(src, dst))


def test_delay_held_at_the_agent_is_the_whole_path() -> None:
    plan = plan_of(NO_NETEM)
    assert plan.delay_mode == "agent"
    # Four links of 500 ns between leaves, two within one.
    assert (plan.hold_ns("host0", "host7"), plan.hold_ns("host0", "host1")) == (2000, 1000)
    assert plan_of(NETEM).hold_ns("host0", "host7") == 0


def test_unequal_delays_without_netem_are_refused_as_not_modelled() -> None:
    longer = [{"link": "leaf0:spine1", "delay": "5us"}]
    with pytest.raises(MissingCapability) as caught:
        plan_of(NO_NETEM, overrides=longer)
    assert caught.value.what == (
        "paths from host0 to host4 differ in delay (2000 to 6500 ns), which is not modelled on this kernel: "
        "without netem the delay of a whole path is kept at its end"
    )
    assert plan_of(NETEM, overrides=longer).delay_mode == "netem"


@pytest.mark.parametrize("tdf", [0, -1, 20_000_000])
def test_impossible_dilation(tdf: int) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(tdf=tdf)
    assert caught.value.where == "--tdf"


@pytest.mark.parametrize("run_id", ["", "a.b", "a/b", "../x", "x" * 81, "-x"])
def test_run_ids_that_cannot_name_a_namespace(run_id: str) -> None:
    topology = Topology.model_validate({"leaves": 2, "spines": 1, "hosts_per_leaf": 1})
    with pytest.raises(UsageError, match="cannot be a run id"):
        make_plan(topology, run_id=run_id, seed=1, tdf=1, features=NETEM)
