"""Addresses, MAC addresses and interface names: right, unique, short enough."""

from __future__ import annotations

from ipaddress import IPv4Interface, IPv6Interface

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.errors import UsageError
from emulator.topology.addressing import interface_name, mac_address, plan_addresses, run_tag
from emulator.topology.model import Topology


def test_addresses_can_be_read() -> None:
    plan = plan_addresses(Topology(leaves=2, spines=2, hosts_per_leaf=4).network(), "a-run")
    assert plan.host("host0").ip4 == IPv4Interface("10.0.0.1/31")
    assert plan.host("host7").ip4 == IPv4Interface("10.0.1.7/31")
    assert plan.of("leaf1:host7").ip4 == IPv4Interface("10.0.1.6/31")
    assert plan.of("leaf1:spine1").ip4 == IPv4Interface("10.128.1.2/31")
    assert plan.peer_of("leaf1:spine1").ip4 == IPv4Interface("10.128.1.3/31")
    assert plan.host("host7").ip6 == IPv6Interface("fdfa:b:0:1::7/127")
    assert plan.of("spine1:leaf1").ip6 == IPv6Interface("fdfa:b:80:1::3/127")
    assert plan.host("host1").mac == "02:fa:b0:00:00:02"


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 20), st.integers(1, 20), st.integers(1, 20), st.text(min_size=1, max_size=60))
def test_plans_are_unique_and_links_share_a_subnet(leaves: int, spines: int, hosts: int, run_id: str) -> None:
    network = Topology(leaves=leaves, spines=spines, hosts_per_leaf=hosts).network()
    plan = plan_addresses(network, run_id)
    ports = list(plan.ports.values())
    for values in ([p.ip4 for p in ports], [p.ip6 for p in ports], [p.mac for p in ports], [p.ifname for p in ports]):
        assert len(set(values)) == len(network.ports)
    for link in network.links:
        one, other = plan.of(link.a_port.name), plan.of(link.b_port.name)
        assert one.ip4.network == other.ip4.network and one.ip4.network.prefixlen == 31
        assert one.ip6.network == other.ip6.network and one.ip6.network.prefixlen == 127
    # The kernel takes 15 characters (mininet issue 1133).
    assert max(len(port.ifname) for port in ports) <= 15


def test_largest_allowed_port_number_still_fits_the_kernel() -> None:
    assert interface_name("abcdef", 2 * 4096 - 1) == "flabcdefp8191"
    with pytest.raises(UsageError, match="has 16 characters, the kernel takes 15"):
        interface_name("abcdef", 10**6)


def test_names_differ_between_runs_and_repeat_within_one() -> None:
    assert run_tag("20261129-161200-incast") == run_tag("20261129-161200-incast") != run_tag("20261129-161201-incast")
    assert len(run_tag("x")) == 6


def test_mac_is_local_and_unicast() -> None:
    first = int(mac_address(70_000).split(":")[0], 16)
    assert first & 0b11 == 0b10
