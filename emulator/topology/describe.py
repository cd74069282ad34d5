"""What a topology amounts to: queues in bytes, packets and time, round trips, bandwidth-delay products, oversubscription."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from emulator.topology.limits import frame_bytes, shaper_burst
from emulator.topology.model import Topology
from emulator.topology.network import Network, Port


@dataclass(frozen=True)
class Depth:
    """A queue depth: in bytes, in full frames, and as the time the port needs to drain it."""

    bytes: int
    packets: float
    us: float


@dataclass(frozen=True)
class PortGroup:
    """Ports that are alike in everything but their name."""

    direction: str
    ports: tuple[str, ...]
    rate_bps: int
    delay_ns: int
    loss: float
    up: bool
    ecn: bool
    trim: bool
    limit: Depth
    kmin: Depth
    kmax: Depth
    pmax: float
    burst_bytes: int
    burst_rule: str


@dataclass(frozen=True)
class PathFacts:
    """Two hosts: hops, equal paths, round trip of a full frame and its acknowledgement, and the bytes it takes to fill."""

    src: str
    dst: str
    hops: int
    paths: int
    rate_bps: int
    base_rtt_ns: int
    bdp_bytes: int


def port_groups(network: Network) -> list[PortGroup]:
    """Ports grouped by direction and settings, in the order of their first member."""
    groups: dict[tuple[object, ...], list[Port]] = {}
    for port in network.ports:
        direction = f"{network.node(port.node).kind} to {network.node(port.peer).kind}"
        key = (
            direction, port.rate_bps, port.delay_ns, port.loss, port.up, port.ecn, port.trim, port.limit_bytes, port.kmin_bytes,
            port.kmax_bytes, port.pmax,
        )  # fmt: skip
        groups.setdefault(key, []).append(port)
    return [_group(str(key[0]), ports, network.mtu) for key, ports in groups.items()]


def _group(direction: str, ports: list[Port], mtu: int) -> PortGroup:
    port = ports[0]
    frame = frame_bytes(mtu)

    def depth(size: int) -> Depth:
        return Depth(size, round(size / frame, 2), round(size * 8e6 / port.rate_bps, 3))

    burst, rule = shaper_burst(mtu, port.kmin_bytes, ecn=port.ecn)
    return PortGroup(
        direction=direction,
        ports=tuple(each.name for each in ports),
        rate_bps=port.rate_bps,
        delay_ns=port.delay_ns,
        loss=port.loss,
        up=port.up,
        ecn=port.ecn,
        trim=port.trim,
        limit=depth(port.limit_bytes),
        kmin=depth(port.kmin_bytes),
        kmax=depth(port.kmax_bytes),
        pmax=port.pmax,
        burst_bytes=burst,
        burst_rule=rule,
    )


def path_facts(network: Network) -> list[PathFacts]:
    """Two examples: rank 0 to a host of its own leaf, and to the last host of another leaf."""
    first = network.hosts[0]
    near = [host for host in network.hosts[1:] if host.leaf == first.leaf][:1]
    far = [host for host in network.hosts if host.leaf != first.leaf][-1:]
    return [_facts(network, first.name, host.name) for host in near + far]


def _facts(network: Network, src: str, dst: str) -> PathFacts:
    paths = network.paths(src, dst)
    rate = max(network.path_rate_bps(path) for path in paths)
    rtt = network.base_rtt_ns(src, dst)
    return PathFacts(src, dst, network.hops(src, dst), len(paths), rate, rtt, rate * rtt // (8 * 10**9))


def oversubscription(network: Network) -> dict[str, float]:
    """For each leaf the rate of its hosts over the rate of its uplinks that are up; empty without spines."""
    ratios: dict[str, float] = {}
    spines = {node.name for node in network.spines}
    for leaf in network.leaves:
        ports = [port for port in network.ports_of(leaf.name) if port.up]
        upward = sum(port.rate_bps for port in ports if port.peer in spines)
        if upward:
            ratios[leaf.name] = round(sum(port.rate_bps for port in ports if port.last_hop) / upward, 3)
    return ratios


def describe(topology: Topology) -> dict[str, Any]:
    """Everything above as plain values, for `topo show --json`."""
    network = topology.network()
    return {
        "topology": topology.model_dump(mode="json"),
        "counts": {
            "hosts": len(network.hosts), "leaves": len(network.leaves), "spines": len(network.spines),
            "links": len(network.links), "ports": len(network.ports),
        },
        "frame_bytes": frame_bytes(network.mtu),
        "port_groups": [asdict(group) for group in port_groups(network)],
        "paths": [asdict(facts) for facts in path_facts(network)],
        "oversubscription": oversubscription(network),
        "nodes": [asdict(node) for node in network.nodes],
        "ports": [asdict(port) for port in network.ports],
    }  # fmt: skip
