"""A fabric as it will be made, as frozen data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from emulator.fabric.routes import PlanRoute
from emulator.fabric.timing import Timing
from emulator.topology.network import Kind, Network

DelayMode = Literal["netem", "agent", "none"]


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node: its name for users, the short one for Mininet, its namespace under /run/netns, its sysctls."""

    name: str
    kind: Kind
    index: int
    short: str
    namespace: str
    hash_seed: int | None
    sysctls: dict[str, str]


@dataclass(frozen=True, slots=True)
class PlanPort:
    """One egress port. Rate and delay are the kernel's (divided and multiplied by the TDF), `fabric_*` the user's.

    `number` counts from 0 without gaps. `carrier` says whether both ends of the link are up.
    """

    name: str
    node: str
    peer: str
    number: int
    ifname: str
    alias: str
    mac: str
    ip: str
    peer_name: str
    peer_ifname: str
    peer_mac: str
    peer_ip: str
    rate_bps: int
    delay_ns: int
    fabric_rate_bps: int
    fabric_delay_ns: int
    limit_bytes: int
    burst_bytes: int
    burst_reason: str
    kmin_bytes: int
    kmax_bytes: int
    pmax: float
    mark: bool
    trim: bool
    loss: float
    up: bool
    carrier: bool
    last_hop: bool


@dataclass(frozen=True, slots=True)
class PlanNeighbour:
    """A permanent neighbour entry: who is at the other end of a port."""

    node: str
    port: str
    ifname: str
    ip: str
    mac: str


@dataclass(frozen=True)
class FabricPlan:
    """The whole fabric as it will be made. Addresses are IPv4; IPv6 is off in every namespace."""

    run_id: str
    name: str
    seed: int
    tdf: int
    mtu: int
    delay_mode: DelayMode
    nodes: tuple[PlanNode, ...]
    ports: tuple[PlanPort, ...]
    routes: tuple[PlanRoute, ...]
    neighbours: tuple[PlanNeighbour, ...]
    notes: tuple[str, ...]
    network: Network
    unmodelled_delay_ns: int = 0
    """Propagation of the longest path that the topology asks for and nothing here keeps, fabric time."""

    @cached_property
    def _nodes(self) -> dict[str, PlanNode]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _ports(self) -> dict[str, PlanPort]:
        return {port.name: port for port in self.ports}

    @cached_property
    def _timing(self) -> Timing:
        return Timing(self.network)

    @property
    def hosts(self) -> tuple[PlanNode, ...]:
        """The hosts by rank."""
        return tuple(node for node in self.nodes if node.kind == "host")

    def node(self, name: str) -> PlanNode:
        """The node of that name; UsageError with the nearest name if there is none."""
        return self._nodes[self.network.node(name).name]

    def port(self, name: str) -> PlanPort:
        """The port `leaf0:spine1`; UsageError with the nearest name if there is none."""
        return self._ports[self.network.port(name).name]

    def ports_of(self, node: str) -> tuple[PlanPort, ...]:
        """The ports of one node."""
        return tuple(self._ports[port.name] for port in self.network.ports_of(node))

    def address(self, host: str) -> str:
        """A host's IPv4 address."""
        return self.ports_of(host)[0].ip

    def links(self) -> Iterator[tuple[PlanPort, PlanPort]]:
        """The two ports of every link, the lower tier first."""
        for link in self.network.links:
            yield self._ports[link.a_port.name], self._ports[link.b_port.name]

    def base_rtt_ns(self, src: str, dst: str, wire_bytes: int | None = None) -> int:
        """Round trip of a packet (a full frame unless told) and its acknowledgement on an empty fabric, fabric time."""
        return self._timing.base_rtt_ns(src, dst, wire_bytes)

    def path_delay_ns(self, src: str, dst: str) -> int:
        """Propagation from one node to another on the quickest of its shortest paths, fabric time."""
        return self._timing.reach(src, dst).min_delay_ns

    def hops(self, src: str, dst: str) -> int:
        """Links crossed between two nodes."""
        return self._timing.reach(src, dst).hops

    def hold_ns(self, src: str, dst: str) -> int:
        """Propagation that the agent at `dst` must add to a packet's arrival, fabric time: none where netem delays."""
        return self.path_delay_ns(src, dst) if self.delay_mode == "agent" else 0

    def hold_ps_per_byte(self, src: str, dst: str) -> int:
        """Transmission time of a wire byte over all links from `src` to `dst`, in fabric picoseconds, that the agent at `dst` must add.

        A shaper lets a packet go when its transmission begins; where netem delays, it adds the transmission too.
        """
        if self.delay_mode != "agent" or src == dst:
            return 0
        return max(sum(8 * 10**12 // port.rate_bps for port in path) for path in self.network.paths(src, dst))

    def to_dict(self) -> dict[str, Any]:
        """As plain data; without the network, which says the same in other words."""
        single = ("run_id", "name", "seed", "tdf", "mtu", "delay_mode", "unmodelled_delay_ns")
        plain = {name: getattr(self, name) for name in single}
        for name in ("nodes", "ports", "routes", "neighbours"):
            plain[name] = [asdict(item) for item in getattr(self, name)]
        return {**plain, "notes": list(self.notes)}
