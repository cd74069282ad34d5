"""The tables of `fabriclab topo show`."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from emulator.topology.describe import Depth, PortGroup, oversubscription, path_facts, port_groups
from emulator.topology.limits import frame_bytes
from emulator.topology.model import Topology
from emulator.topology.units import format_duration, format_fraction, format_rate


def print_topology(topology: Topology, console: Console | None = None) -> None:
    """Counts, ports with their queues, paths and oversubscription."""
    out = console or Console(highlight=False)
    network = topology.network()
    out.print(f"[bold]{topology.name}[/bold] ({topology.shape})")
    if topology.description:
        out.print(topology.description)
    counts = f"{len(network.hosts)} hosts, {len(network.leaves)} leaves, {len(network.spines)} spines"
    frame = frame_bytes(network.mtu)
    out.print(f"{counts}, {len(network.links)} links; mtu {network.mtu} = {frame} bytes on the wire\n")
    groups = port_groups(network)
    out.print(_links(groups))
    out.print(_queues(groups))
    out.print(_paths(topology))
    ratios = oversubscription(network)
    if ratios:
        low, high = min(ratios.values()), max(ratios.values())
        spread = f"{low:g}:1" if low == high else f"{low:g}:1 to {high:g}:1"
        out.print(f"Oversubscription of a leaf: {spread} (its hosts' rate over its uplinks')")


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _links(groups: list[PortGroup]) -> Table:
    table = _table("Ports", ("direction",), ("ports", "rate", "delay"))
    table.add_column("notes")
    for group in groups:
        notes = [] if group.up else ["down"]
        notes += [f"loss {format_fraction(group.loss)}"] if group.loss else []
        notes += [", ".join(group.ports)] if len(group.ports) == 1 else []
        rate, delay = format_rate(group.rate_bps), format_duration(group.delay_ns)
        table.add_row(group.direction, str(len(group.ports)), rate, delay, "; ".join(notes))
    return table


def _queues(groups: list[PortGroup]) -> Table:
    """Groups with the same queue share their rows, whatever their direction."""
    table = _table("Queues", ("ports", "rate", "depth"), ("bytes", "full frames", "drains in"))
    alike: dict[tuple[object, ...], list[PortGroup]] = {}
    for group in groups:
        key = (
            group.rate_bps,
            group.limit,
            group.ecn,
            group.trim,
            group.kmin,
            group.kmax,
            group.pmax,
            group.burst_bytes,
        )
        alike.setdefault(key, []).append(group)
    for members in alike.values():
        group = members[0]
        frame = group.limit.bytes / group.limit.packets
        burst_us = group.burst_bytes * 8e6 / group.rate_bps
        depths = [("limit, trims above" if group.trim else "limit", group.limit)]
        if group.ecn:
            depths += [("kmin", group.kmin), (f"kmax, pmax {format_fraction(group.pmax)}", group.kmax)]
        depths += [
            (
                f"burst: {group.burst_rule.replace('two', '2')}",
                Depth(group.burst_bytes, group.burst_bytes / frame, burst_us),
            )
        ]
        names = list(dict.fromkeys(member.direction for member in members))
        for row in range(max(len(depths), len(names))):
            name = names[row] if row < len(names) else ""
            label, depth = depths[row] if row < len(depths) else ("", None)
            cells = (f"{depth.bytes:,}", f"{depth.packets:.1f}", f"{depth.us:.4g} us") if depth else ("", "", "")
            last = row == max(len(depths), len(names)) - 1
            table.add_row(name, format_rate(group.rate_bps) if row == 0 else "", label, *cells, end_section=last)
    return table


def _paths(topology: Topology) -> Table:
    table = _table("Paths, queues empty", ("from", "to"), ("links", "paths", "rate", "base RTT", "BDP in bytes"))
    for facts in path_facts(topology.network()):
        table.add_row(
            facts.src, facts.dst, str(facts.hops), str(facts.paths), format_rate(facts.rate_bps),
            f"{facts.base_rtt_ns / 1000:.2f} us", f"{facts.bdp_bytes:,}",
        )  # fmt: skip
    return table
