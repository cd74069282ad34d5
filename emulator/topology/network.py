"""The fabric spelled out: nodes, ports, links and the shortest paths between hosts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from emulator.errors import UsageError
from emulator.topology.limits import MIN_WIRE_BYTES, frame_bytes
from emulator.topology.suggest import nearest

Kind = Literal["host", "leaf", "spine"]


@dataclass(frozen=True, slots=True)
class Node:
    """A host or a switch. `index` counts within its kind; for a host it is its rank. `leaf` is a host's leaf."""

    name: str
    kind: Kind
    index: int
    leaf: int | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """The egress side of one link at one node: `leaf0:spine1` is leaf0's port towards spine1.

    `delay_ns` and `loss` belong to the wire behind the port. `ecn` and `trim` say whether the port marks and trims: a host's never does.
    `last_hop` is true for a switch port towards a host. `index` is unique and stable for a given topology.
    """

    name: str
    node: str
    peer: str
    rate_bps: int
    delay_ns: int
    limit_bytes: int
    kmin_bytes: int
    kmax_bytes: int
    pmax: float
    ecn: bool
    trim: bool
    loss: float
    up: bool
    last_hop: bool
    index: int

    @property
    def reverse_name(self) -> str:
        return f"{self.peer}:{self.node}"

    def serialization_ns(self, wire_bytes: int) -> int:
        """Time on the wire of so many bytes, rounded up to a nanosecond."""
        return -(-wire_bytes * 8 * 10**9 // self.rate_bps)


@dataclass(frozen=True, slots=True)
class Link:
    """Two ports, one for each direction; `a_port` sits at the lower tier (host below leaf below spine)."""

    a_port: Port
    b_port: Port

    @property
    def name(self) -> str:
        return self.a_port.name

    @property
    def up(self) -> bool:
        return self.a_port.up and self.b_port.up


@dataclass(frozen=True)
class Network:
    """The fabric spelled out. Nodes and links are in a fixed order: hosts by rank, host links before uplinks."""

    name: str
    shape: str
    mtu: int
    hosts: tuple[Node, ...]
    leaves: tuple[Node, ...]
    spines: tuple[Node, ...]
    links: tuple[Link, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.hosts + self.leaves + self.spines

    @property
    def switches(self) -> tuple[Node, ...]:
        return self.leaves + self.spines

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """All ports, in the order of their index."""
        return tuple(port for link in self.links for port in (link.a_port, link.b_port))

    def port(self, name: str) -> Port:
        """The port `leaf0:spine1`; UsageError with the nearest name if there is none."""
        found = self._port_by_name.get(name)
        if found is None:
            raise UsageError(f'no port "{name}" in {self.name}', where=name, remedy=nearest(name, self._port_by_name))
        return found

    def node(self, name: str) -> Node:
        """The node of that name; UsageError with the nearest name if there is none."""
        found = self._node_by_name.get(name)
        if found is None:
            raise UsageError(f'no node "{name}" in {self.name}', where=name, remedy=nearest(name, self._node_by_name))
        return found

    def ports_of(self, node: str) -> tuple[Port, ...]:
        """The egress ports of a node, down ones included."""
        return self._ports_by_node.get(self.node(node).name, ())

    def paths(self, src: str, dst: str) -> list[list[Port]]:
        """All shortest paths from one host to another over links that are up; none if there is no way."""
        distance = self._distances_to(self.node(dst).name)
        if self.node(src).name not in distance or src == dst:
            return []
        return [list(path) for path in self._walk(src, dst, distance)]

    def path_delay_ns(self, path: Iterable[Port]) -> int:
        """Propagation delay of a path, without serialization."""
        return sum(port.delay_ns for port in path)

    def path_rate_bps(self, path: Iterable[Port]) -> int:
        """Rate of the slowest port of a path."""
        return min(port.rate_bps for port in path)

    def hops(self, src: str, dst: str) -> int:
        """Links crossed between two hosts; 0 for a host and itself, -1 if there is no way."""
        return self._distances_to(self.node(dst).name).get(self.node(src).name, -1)

    def one_way_ns(self, path: Iterable[Port], wire_bytes: int) -> int:
        """Store-and-forward latency of one packet on an empty path: propagation and serialization at every port."""
        return sum(port.delay_ns + port.serialization_ns(wire_bytes) for port in path)

    def base_rtt_ns(self, src: str, dst: str, wire_bytes: int | None = None, ack_bytes: int = MIN_WIRE_BYTES) -> int:
        """Round trip on empty queues: a packet out (a full frame unless told), an acknowledgement back.

        Of several shortest paths the quickest counts in each direction. UsageError if there is no path.
        """
        size = frame_bytes(self.mtu) if wire_bytes is None else wire_bytes
        return self._quickest(src, dst, size) + self._quickest(dst, src, ack_bytes)

    def reachable(self, node: str) -> frozenset[str]:
        """Nodes that a node reaches over links that are up, itself included."""
        return frozenset(self._distances_to(self.node(node).name))

    def _quickest(self, src: str, dst: str, wire_bytes: int) -> int:
        times = [self.one_way_ns(path, wire_bytes) for path in self.paths(src, dst)]
        if not times:
            raise UsageError(f"no path from {src} to {dst}", where=self.name, remedy="bring up a link between them")
        return min(times)

    @cached_property
    def _port_by_name(self) -> Mapping[str, Port]:
        return {port.name: port for port in self.ports}

    @cached_property
    def _node_by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _ports_by_node(self) -> Mapping[str, tuple[Port, ...]]:
        grouped: dict[str, list[Port]] = {}
        for port in self.ports:
            grouped.setdefault(port.node, []).append(port)
        return {node: tuple(ports) for node, ports in grouped.items()}

    @cached_property
    def _up_neighbours(self) -> Mapping[str, tuple[Port, ...]]:
        usable = {port.name for link in self.links if link.up for port in (link.a_port, link.b_port)}
        return {node: tuple(p for p in ports if p.name in usable) for node, ports in self._ports_by_node.items()}

    def _distances_to(self, target: str) -> dict[str, int]:
        """Links to the target from every node that reaches it; a link is up or down in both directions."""
        distance = {target: 0}
        queue = deque([target])
        while queue:
            node = queue.popleft()
            for port in self._up_neighbours.get(node, ()):
                # A host does not forward.
                if port.peer not in distance and (node == target or self._node_by_name[node].kind != "host"):
                    distance[port.peer] = distance[node] + 1
                    queue.append(port.peer)
        return distance

    def _walk(self, node: str, dst: str, distance: Mapping[str, int]) -> Iterator[tuple[Port, ...]]:
        if node == dst:
            yield ()
            return
        for port in self._up_neighbours[node]:
            if distance.get(port.peer) == distance[node] - 1:
                for rest in self._walk(port.peer, dst, distance):
                    yield (port, *rest)
