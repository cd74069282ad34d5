"""From a topology to its network: one function for each shape, then the overrides.

`SHAPES` lists the shapes with the keys each one reads; a new shape is one more entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from emulator.topology.network import Kind, Link, Network, Node, Port

if TYPE_CHECKING:
    from emulator.topology.model import LinkSpec, Override, Topology

__all__ = ["SHAPES", "Kind", "Link", "Network", "Node", "Port", "ShapeKind", "build_network"]


@dataclass(frozen=True)
class ShapeKind:
    """A shape: the counts it needs, other keys it reads, and its builder of node and link names."""

    counts: tuple[str, ...]
    link_classes: tuple[str, ...]
    build: Callable[[Topology], tuple[list[Node], list[tuple[str, str, str]]]]


def _leaf_spine(topology: Topology) -> tuple[list[Node], list[tuple[str, str, str]]]:
    """Nodes, and links as (lower node, upper node, link class)."""
    leaves, spines, per_leaf = topology.leaves or 0, topology.spines or 0, topology.hosts_per_leaf or 0
    nodes = [Node(f"host{rank}", "host", rank, rank // per_leaf) for rank in range(leaves * per_leaf)]
    nodes += [Node(f"leaf{leaf}", "leaf", leaf) for leaf in range(leaves)]
    nodes += [Node(f"spine{spine}", "spine", spine) for spine in range(spines)]
    links = [(f"host{rank}", f"leaf{rank // per_leaf}", "host_link") for rank in range(leaves * per_leaf)]
    links += [(f"leaf{leaf}", f"spine{spine}", "uplink") for leaf in range(leaves) for spine in range(spines)]
    return nodes, links


def _single_switch(topology: Topology) -> tuple[list[Node], list[tuple[str, str, str]]]:
    hosts = topology.hosts or 0
    nodes = [Node(f"host{rank}", "host", rank, 0) for rank in range(hosts)]
    return [*nodes, Node("leaf0", "leaf", 0)], [(f"host{rank}", "leaf0", "host_link") for rank in range(hosts)]


SHAPES: Final[Mapping[str, ShapeKind]] = {
    "leaf-spine": ShapeKind(("leaves", "spines", "hosts_per_leaf"), ("host_link", "uplink"), _leaf_spine),
    "single-switch": ShapeKind(("hosts",), ("host_link",), _single_switch),
}


#: The keys that describe a class of links.
LINK_CLASSES: Final = tuple(dict.fromkeys(name for kind in SHAPES.values() for name in kind.link_classes))


def build_network(topology: Topology) -> Network:
    """The network of a topology, its overrides applied in the order of the file.

    An override of a link that does not exist is passed over: validation has refused it before.
    """
    network = base_network(topology)
    links = {link.name: link for link in network.links}
    for override in topology.overrides:
        link = find_link(links, override.link)
        if link is not None:
            links[link.name] = apply_override(network, link, override)
    return replace(network, links=tuple(links.values()))


def base_network(topology: Topology) -> Network:
    """The network before any override."""
    nodes, names = SHAPES[topology.shape].build(topology)
    kinds = {node.name: node.kind for node in nodes}
    links = []
    for number, (lower, upper, link_class) in enumerate(names):
        spec: LinkSpec = getattr(topology, link_class)
        a_port = _port(topology, spec, lower, upper, kinds, 2 * number)
        links.append(Link(a_port, _port(topology, spec, upper, lower, kinds, 2 * number + 1)))
    return Network(
        name=topology.name,
        shape=topology.shape,
        mtu=topology.mtu,
        hosts=tuple(node for node in nodes if node.kind == "host"),
        leaves=tuple(node for node in nodes if node.kind == "leaf"),
        spines=tuple(node for node in nodes if node.kind == "spine"),
        links=tuple(links),
    )


def find_link(links: Mapping[str, Link], name: str) -> Link | None:
    """The link of that name, its two nodes in either order."""
    first, _, second = name.partition(":")
    return links.get(name) or links.get(f"{second}:{first}")


def overridden_ports(link: Link, override: Override) -> tuple[Port, ...]:
    """The ports of a link that an override speaks of."""
    first = override.link.partition(":")[0]
    return tuple(p for p in (link.a_port, link.b_port) if override.direction == "both" or p.node == first)


def apply_override(network: Network, link: Link, override: Override) -> Link:
    """The link with an override applied; `network` tells the kinds of its nodes."""
    touched = {port.name for port in overridden_ports(link, override)}
    a_port, b_port = (
        _overridden(port, override, network.node(port.node).kind) if port.name in touched else port
        for port in (link.a_port, link.b_port)
    )
    return Link(a_port, b_port)


def _port(topology: Topology, spec: LinkSpec, node: str, peer: str, kinds: Mapping[str, Kind], index: int) -> Port:
    ecn = topology.ecn
    last_hop = kinds[peer] == "host"
    return Port(
        name=f"{node}:{peer}",
        node=node,
        peer=peer,
        rate_bps=spec.rate,
        delay_ns=spec.delay,
        limit_bytes=topology.queue.limit,
        kmin_bytes=ecn.kmin,
        kmax_bytes=ecn.kmax,
        pmax=ecn.pmax,
        ecn=ecn.enabled and kinds[node] != "host" and (ecn.last_hop or not last_hop),
        trim=topology.queue.trim and kinds[node] != "host",
        loss=spec.loss,
        up=True,
        last_hop=last_hop,
        index=index,
    )


def _overridden(port: Port, override: Override, kind: Kind) -> Port:
    ecn = override.ecn
    marks = port.ecn if ecn is None or ecn.enabled is None else ecn.enabled and kind != "host"
    return replace(
        port,
        rate_bps=port.rate_bps if override.rate is None else override.rate,
        delay_ns=port.delay_ns if override.delay is None else override.delay,
        loss=port.loss if override.loss is None else override.loss,
        limit_bytes=port.limit_bytes if override.limit is None else override.limit,
        kmin_bytes=port.kmin_bytes if ecn is None or ecn.kmin is None else ecn.kmin,
        kmax_bytes=port.kmax_bytes if ecn is None or ecn.kmax is None else ecn.kmax,
        pmax=port.pmax if ecn is None or ecn.pmax is None else ecn.pmax,
        ecn=marks,
        trim=port.trim if override.trim is None else override.trim and kind != "host",
        up=port.up if override.state is None else override.state == "up",
    )
