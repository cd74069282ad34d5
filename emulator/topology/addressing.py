"""Addresses, MAC addresses and kernel interface names of every port. Pure and stable: the same topology, the same plan.

| what | IPv4 /31 (RFC 3021) | IPv6 /127 (RFC 6164) |
|---|---|---|
| host k of leaf L | host 10.0.L.(2k+1), leaf 10.0.L.(2k) | fdfa:b:0:L::(2k+1), fdfa:b:0:L::(2k) |
| leaf L, spine S | leaf 10.128.L.(2S), spine 10.128.L.(2S+1) | fdfa:b:80:L::(2S), fdfa:b:80:L::(2S+1) |

IPv6 groups are hexadecimal, so leaf 10 is `a` there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Final

from emulator.errors import UsageError
from emulator.topology.network import Link, Network
from emulator.topology.suggest import nearest

#: Linux refuses interface names of 16 characters or more (IFNAMSIZ counts the closing zero).
MAX_INTERFACE_NAME: Final = 15

_TAG = re.compile(r"[a-z0-9]{1,6}")
_HOST_OCTET: Final = 0
_UPLINK_OCTET: Final = 128
_IPV6_BASE: Final = int(IPv6Address("fdfa:b::"))
_IPV4_BASE: Final = int(IPv4Address("10.0.0.0"))
#: First octet 02: locally administered, unicast (IEEE 802, bit 1 set and bit 0 clear).
_MAC_BASE: Final = 0x02FAB0_000000


@dataclass(frozen=True, slots=True)
class PortAddress:
    """The addresses of one port, and its interface's name in the kernel."""

    port: str
    ip4: IPv4Interface
    ip6: IPv6Interface
    mac: str
    ifname: str


@dataclass(frozen=True)
class AddressPlan:
    """The addresses of all ports of a network in one run."""

    tag: str
    ports: Mapping[str, PortAddress]
    hosts: Mapping[str, PortAddress]

    def of(self, port: str) -> PortAddress:
        """The addresses of a port; UsageError with the nearest name if there is none."""
        found = self.ports.get(port)
        if found is None:
            raise UsageError(f'no port "{port}"', where=port, remedy=nearest(port, self.ports))
        return found

    def peer_of(self, port: str) -> PortAddress:
        """The addresses of the port at the other end of the link."""
        node, _, peer = port.partition(":")
        return self.of(f"{peer}:{node}")

    def host(self, name: str) -> PortAddress:
        """A host's own address, that of its port."""
        found = self.hosts.get(name)
        if found is None:
            raise UsageError(f'no host "{name}"', where=name, remedy=nearest(name, self.hosts))
        return found


def plan_addresses(network: Network, run_id: str) -> AddressPlan:
    """The address plan of a network; interface names carry a tag made from the run id."""
    tag = run_tag(run_id)
    slots = _slots(network)
    ports: dict[str, PortAddress] = {}
    for link in network.links:
        octet, leaf, pair = _pair(network, link, slots)
        # At a host's link the switch has the even address; at an uplink the leaf has.
        ends = (link.b_port, link.a_port) if octet == _HOST_OCTET else (link.a_port, link.b_port)
        for bit, port in enumerate(ends):
            low = 2 * pair + bit
            ports[port.name] = PortAddress(
                port=port.name,
                ip4=IPv4Interface((_IPV4_BASE | octet << 16 | leaf << 8 | low, 31)),
                ip6=IPv6Interface((_IPV6_BASE | octet << 80 | leaf << 64 | low, 127)),
                mac=mac_address(port.index),
                ifname=interface_name(tag, port.index),
            )
    hosts = {host.name: ports[network.ports_of(host.name)[0].name] for host in network.hosts}
    ordered = {port.name: ports[port.name] for port in network.ports}
    return AddressPlan(tag, ordered, hosts)


def run_tag(run_id: str) -> str:
    """Six characters that stand for a run id in interface names."""
    return hashlib.blake2s(run_id.encode(), digest_size=3).hexdigest()


def interface_name(tag: str, index: int) -> str:
    """The kernel's name of a port's interface, `fl3fa21bp12`; UsageError if the kernel would refuse it."""
    name = f"fl{tag}p{index}"
    if not _TAG.fullmatch(tag):
        raise UsageError(f'"{tag}" is no run tag', where=tag, remedy=f"it must match {_TAG.pattern}")
    if len(name) > MAX_INTERFACE_NAME:
        what = f"interface name {name} has {len(name)} characters, the kernel takes {MAX_INTERFACE_NAME}"
        raise UsageError(what, where=name, remedy="use fewer ports or a shorter tag")
    return name


def mac_address(index: int) -> str:
    """The MAC address of a port: locally administered, unicast, its last three bytes the port's index."""
    return ":".join(f"{byte:02x}" for byte in (_MAC_BASE | index & 0xFFFFFF).to_bytes(6, "big"))


def _slots(network: Network) -> Mapping[str, int]:
    """The place of each host among the hosts of its leaf."""
    seen: dict[int, int] = {}
    slots: dict[str, int] = {}
    for host in network.hosts:
        leaf = host.leaf or 0
        slots[host.name] = seen.get(leaf, 0)
        seen[leaf] = slots[host.name] + 1
    return slots


def _pair(network: Network, link: Link, slots: Mapping[str, int]) -> tuple[int, int, int]:
    """(second octet, third octet, number of the pair in the fourth) of a link."""
    lower, upper = network.node(link.a_port.node), network.node(link.a_port.peer)
    if lower.kind == "host":
        return _HOST_OCTET, upper.index, slots[lower.name]
    return _UPLINK_OCTET, lower.index, upper.index
