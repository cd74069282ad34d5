"""Routes of a network: one prefix a leaf, equal-cost next hops over links that are up.

Pure. `compute_routes` serves the plan and, with other links down, the routing that follows a failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final

from emulator.topology.addressing import AddressPlan
from emulator.topology.network import Network, Node, Port

#: All hosts of a leaf share the first three octets of their addresses (emulator/topology/addressing.py).
_LEAF_PREFIX: Final = 24
EVERYWHERE: Final = "0.0.0.0/0"


@dataclass(frozen=True, slots=True)
class NextHop:
    """One way on: out of a port, to the address at its other end."""

    port: str
    ifname: str
    via: str


@dataclass(frozen=True, slots=True)
class PlanRoute:
    """A route of one node; several next hops share the flows by hash."""

    node: str
    prefix: str
    next_hops: tuple[NextHop, ...]


def usable_ports(network: Network, down: Collection[str] = ()) -> dict[str, list[Port]]:
    """Node → its ports on links that are up. `down` names links (or either port of them) that failed beside the file's."""
    usable: dict[str, list[Port]] = {node.name: [] for node in network.nodes}
    for link in network.links:
        if link.up and link.a_port.name not in down and link.b_port.name not in down:
            usable[link.a_port.node].append(link.a_port)
            usable[link.b_port.node].append(link.b_port)
    return usable


def leaf_prefix(network: Network, addresses: AddressPlan, leaf: Node) -> str | None:
    """The prefix of a leaf's hosts; None if it has none."""
    host = next((host for host in network.hosts if host.leaf == leaf.index), None)
    if host is None:
        return None
    return str(IPv4Network((int(addresses.host(host.name).ip4.ip), _LEAF_PREFIX), strict=False))


def compute_routes(network: Network, addresses: AddressPlan, down: Collection[str] = ()) -> tuple[PlanRoute, ...]:
    """Shortest-path routes of every node: a host to its leaf, a switch to each other leaf's prefix.

    A leaf reaches its own hosts by the /31 links themselves. A node with no way to a prefix has no route to it.
    """
    usable = usable_ports(network, down)
    hosts = {node.name for node in network.hosts}

    def hops(ports: list[Port]) -> tuple[NextHop, ...]:
        return tuple(NextHop(p.name, addresses.of(p.name).ifname, str(addresses.peer_of(p.name).ip4.ip)) for p in ports)

    routes = [PlanRoute(host.name, EVERYWHERE, hops(usable[host.name])) for host in network.hosts if usable[host.name]]
    for leaf in network.leaves:
        prefix = leaf_prefix(network, addresses, leaf)
        if prefix is None:
            continue
        distance = {leaf.name: 0}
        queue = deque([leaf.name])
        while queue:
            node = queue.popleft()
            for port in usable[node]:
                if port.peer not in distance and port.peer not in hosts:
                    distance[port.peer] = distance[node] + 1
                    queue.append(port.peer)
        for switch in network.switches:
            if switch.name in distance and switch.name != leaf.name:
                nearer = [p for p in usable[switch.name] if distance.get(p.peer) == distance[switch.name] - 1]
                routes.append(PlanRoute(switch.name, prefix, hops(nearer)))
    return tuple(routes)
