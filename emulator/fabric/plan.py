"""Everything that will be made, as data: namespaces, links, addresses, routes, sysctls, shapers. Pure, needs no root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from emulator.errors import MissingCapability, UsageError
from emulator.fabric.model import DelayMode, FabricPlan, PlanNeighbour, PlanNode, PlanPort
from emulator.fabric.registry import alias, check_run_id, namespace_name
from emulator.fabric.routes import PlanRoute, compute_routes, usable_ports
from emulator.fabric.timing import Timing
from emulator.topology.addressing import AddressPlan, plan_addresses
from emulator.topology.limits import frame_bytes, shaper_burst
from emulator.topology.network import Kind, Network, Node, Port
from traffic.rng import Rng

if TYPE_CHECKING:
    from emulator.port.features import Features
    from emulator.topology.model import Topology

__all__ = ["FabricPlan", "PlanNeighbour", "PlanNode", "PlanPort", "PlanRoute", "make_plan"]

_SHORT: Final[dict[Kind, str]] = {"host": "h", "leaf": "l", "spine": "s"}


def make_plan(
    topology: Topology,
    *,
    run_id: str,
    seed: int,
    tdf: int,
    features: Features,
    agents: bool = True,
    host_sysctls: Mapping[str, str] | None = None,
) -> FabricPlan:
    """The plan of a topology at a time dilation factor, for a kernel with these features.

    `agents` says whether agents receive the packets, who can hold them where the kernel cannot delay; `host_sysctls` are
    set in the hosts' namespaces beside the plan's own.

    Raises UsageError for an impossible TDF or run id, MissingCapability where the kernel cannot do what the file asks.
    """
    check_run_id(run_id)
    network = topology.network()
    _check_tdf(network, tdf)
    network, unmodelled = (network, 0) if agents else _kept(network, features)
    mode = _delay_mode(network, features)
    addresses = plan_addresses(network, run_id)
    usable = {port.name for ports in usable_ports(network).values() for port in ports}
    ports = tuple(
        _port(port, network, addresses, run_id, tdf, port.name in usable, features.guest) for port in network.ports
    )
    seeds = _hash_seeds(network, seed) if features.multipath_seed else {}
    return FabricPlan(
        run_id=run_id,
        name=network.name,
        seed=seed,
        tdf=tdf,
        mtu=network.mtu,
        delay_mode=mode,
        nodes=tuple(
            _node(node, network, addresses, run_id, seeds.get(node.name), host_sysctls or {}) for node in network.nodes
        ),
        ports=ports,
        routes=compute_routes(network, addresses),
        neighbours=tuple(PlanNeighbour(p.node, p.name, p.ifname, p.peer_ip, p.peer_mac) for p in ports if p.carrier),
        notes=_notes(mode, features, unmodelled),
        network=network,
        unmodelled_delay_ns=unmodelled,
    )


def _check_tdf(network: Network, tdf: int) -> None:
    if tdf < 1:
        raise UsageError(f"a time dilation factor of {tdf}", where="--tdf", remedy="write a whole number from 1")
    slowest = min(network.ports, key=lambda port: port.rate_bps)
    if slowest.rate_bps // tdf < 8000:
        raise UsageError(
            f"a time dilation factor of {tdf} slows {slowest.name} below 8 kbit/s",
            where="--tdf", remedy=f"write at most {slowest.rate_bps // 8000}",
        )  # fmt: skip


def _delay_mode(network: Network, features: Features) -> DelayMode:
    """Where propagation is kept: in the kernel if it can, else at the receiving agents, if that is the same thing.

    With netem a port also stores and forwards, so it is used where nothing is delayed too.
    """
    if features.delay in ("netem", "unknown"):
        return "netem"
    if not any(port.delay_ns for port in network.ports):
        return "none"
    timing = Timing(network)
    for src in network.hosts:
        for dst in network.hosts:
            reach = timing.reach(src.name, dst.name)
            if reach.min_delay_ns != reach.max_delay_ns:
                raise MissingCapability(
                    f"paths from {src.name} to {dst.name} differ in delay ({reach.min_delay_ns} to {reach.max_delay_ns} ns), "
                    "which is not modelled on this kernel: without netem the delay of a whole path is kept at its end",
                    where=network.name,
                    remedy="use --clock virtual, whose kernel has netem, or give these paths one delay",
                )
    return "agent"


def _kept(network: Network, features: Features) -> tuple[Network, int]:
    """The network with the delays that are really kept where no agent holds packets, and what the longest path lacks (ns)."""
    if features.delay in ("netem", "unknown") or not any(port.delay_ns for port in network.ports):
        return network, 0
    timing = Timing(network)
    hosts = [node.name for node in network.hosts]
    longest = max(timing.reach(a, b).max_delay_ns for a in hosts for b in hosts)
    links = tuple(
        replace(link, a_port=replace(link.a_port, delay_ns=0), b_port=replace(link.b_port, delay_ns=0))
        for link in network.links
    )
    return replace(network, links=links), longest


def _notes(mode: DelayMode, features: Features, unmodelled: int) -> tuple[str, ...]:
    notes = []
    if unmodelled:
        notes.append(
            f"propagation: not modelled ({unmodelled} ns on the longest path): this kernel has no netem, and no agent holds "
            "the packets of kernel TCP; base round trips and bounds here count none"
        )
    if features.delay == "unknown":
        notes.append("without root nobody knows whether this kernel has netem; the plan assumes that it has")
    if mode == "agent":
        notes.append(
            "this kernel has no netem: the receiving agents hold each packet for the delay of its path; "
            "ping, iperf3 and other programs see none"
        )
    if not features.multipath_seed:
        notes.append(
            "this kernel has no fib_multipath_hash_seed (Linux 6.11 has): which flow takes which uplink does not repeat "
            "from one boot to the next"
        )
    return tuple(notes)


def _hash_seeds(network: Network, seed: int) -> dict[str, int]:
    """A seed for the ECMP hash of each switch: all different, else tiers choose alike; none 0, which means random."""
    seeds: dict[str, int] = {}
    rng = Rng(seed, "ecmp")
    for node in network.switches:
        value = 0
        while value == 0 or value in seeds.values():
            value = rng.next64() >> 32
        seeds[node.name] = value
    return seeds


def _node(
    node: Node, network: Network, addresses: AddressPlan, run_id: str, seed: int | None, host_sysctls: Mapping[str, str]
) -> PlanNode:
    switch = node.kind != "host"
    # ip_forward goes first: writing it resets others.
    sysctls = {"net.ipv4.ip_forward": "1" if switch else "0", "net.ipv4.fib_multipath_hash_policy": "1"}
    if seed is not None:
        sysctls["net.ipv4.fib_multipath_hash_seed"] = str(seed)
    for where in ("all", "default", *(addresses.of(port.name).ifname for port in network.ports_of(node.name))):
        sysctls[f"net.ipv4.conf.{where}.rp_filter"] = "0"
        sysctls[f"net.ipv4.conf.{where}.ignore_routes_with_linkdown"] = "1"
        sysctls[f"net.ipv4.conf.{where}.send_redirects"] = "0"
        sysctls[f"net.ipv4.conf.{where}.accept_redirects"] = "0"
        sysctls[f"net.ipv6.conf.{where}.disable_ipv6"] = "1"
    if not switch:
        sysctls.update(host_sysctls)
    name = node.name
    short = f"{_SHORT[node.kind]}{node.index}"
    return PlanNode(name, node.kind, node.index, short, namespace_name(run_id, name), seed, sysctls)


def _port(
    port: Port, network: Network, addresses: AddressPlan, run_id: str, tdf: int, carrier: bool, exact: bool
) -> PlanPort:
    burst, reason = (1, "timers are exact here, so packets leave one by one") if exact else _burst(network.mtu, port)
    own, peer = addresses.of(port.name), addresses.peer_of(port.name)
    return PlanPort(
        name=port.name,
        node=port.node,
        peer=port.peer,
        number=port.index,
        ifname=own.ifname,
        alias=alias(run_id, port.name),
        mac=own.mac,
        ip=str(own.ip4.ip),
        peer_name=peer.port,
        peer_ifname=peer.ifname,
        peer_mac=peer.mac,
        peer_ip=str(peer.ip4.ip),
        rate_bps=port.rate_bps // tdf,
        delay_ns=port.delay_ns * tdf,
        fabric_rate_bps=port.rate_bps,
        fabric_delay_ns=port.delay_ns,
        limit_bytes=port.limit_bytes,
        burst_bytes=burst,
        burst_reason=reason,
        kmin_bytes=port.kmin_bytes,
        kmax_bytes=port.kmax_bytes,
        pmax=port.pmax,
        mark=port.ecn,
        trim=port.trim,
        loss=port.loss,
        up=port.up,
        carrier=carrier,
        last_hop=port.last_hop,
    )


def _burst(mtu: int, port: Port) -> tuple[int, str]:
    """Bytes the shaper may let through at once, and why so many: see `shaper_burst`."""
    burst, rule = shaper_burst(mtu, port.kmin_bytes, ecn=port.ecn)
    two, quarter = 2 * frame_bytes(mtu), port.kmin_bytes // 4
    if rule == "two frames":
        return burst, f"two frames of {two // 2} B" + (
            f", below kmin/4 = {quarter} B" if port.ecn else "; the port does not mark"
        )
    return burst, f"kmin/4, below two frames = {two} B, so that no burst reaches kmin by itself"
