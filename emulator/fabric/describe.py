"""A plan in words: tables for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emulator.fabric.plan import FabricPlan, PlanPort
from emulator.fabric.registry import NAMESPACES
from emulator.topology.units import format_duration, format_rate, format_size


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Left-aligned columns, two blanks apart."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def picture(plan: FabricPlan) -> list[str]:
    """The fabric at a glance: the spines in a row, each leaf with its hosts and their addresses."""
    network = plan.network
    lines = ["  ".join(spine.name for spine in network.spines)] if network.spines else []
    for leaf in network.leaves:
        lines.append(leaf.name)
        lines += [f"  {host.name}  {plan.address(host.name)}" for host in network.hosts if host.leaf == leaf.index]
    return lines


def describe(plan: FabricPlan) -> list[str]:
    """Everything that would be made, line by line."""
    return [line for part in _parts(plan) for line in (*part, "")][:-1]


def _parts(plan: FabricPlan) -> Iterator[list[str]]:
    dilation = "in real time" if plan.tdf == 1 else f"{plan.tdf} times slower than the fabric it stands for"
    yield [
        f"{plan.name}: {len(plan.nodes)} nodes, {len(plan.ports) // 2} links, mtu {plan.mtu}, tdf {plan.tdf} ({dilation}), "
        f"delay: {plan.delay_mode}, seed {plan.seed}",
        *(f"note: {note}" for note in plan.notes),
    ]
    yield table(
        ["node", "kind", "namespace under " + str(NAMESPACES), "ECMP hash seed"],
        [[n.name, n.kind, n.namespace, "-" if n.hash_seed is None else n.hash_seed] for n in plan.nodes],
    )
    yield table(
        ["port", "interface", "address", "MAC", "state"],
        [[p.name, p.ifname, f"{p.ip}/31", p.mac, "up" if p.carrier else "down"] for p in plan.ports],
    )
    yield table(
        ["port", "rate", "kernel rate", "delay", "kernel delay", "queue", "burst", "marks from", "to", "loss"],
        [_shaper(port) for port in plan.ports],
    )
    reasons = dict.fromkeys((port.burst_bytes, port.burst_reason) for port in plan.ports)
    yield [f"burst {size} B: {reason}" for size, reason in reasons]
    yield table(
        ["node", "route", "next hops"],
        [[r.node, r.prefix, ", ".join(f"{hop.via} ({hop.port})" for hop in r.next_hops)] for r in plan.routes],
    )
    yield [f"neighbours: {len(plan.neighbours)} permanent entries, one at each port that is up; ARP off"]
    yield list(_sysctls(plan))


def _shaper(port: PlanPort) -> list[object]:
    marks = (
        [format_size(port.kmin_bytes), f"{format_size(port.kmax_bytes)}, pmax {port.pmax:g}"]
        if port.mark
        else ["-", "-"]
    )
    return [
        port.name,
        format_rate(port.fabric_rate_bps),
        format_rate(port.rate_bps),
        format_duration(port.fabric_delay_ns),
        format_duration(port.delay_ns),
        format_size(port.limit_bytes) + (", trims" if port.trim else ""),
        f"{port.burst_bytes} B",
        *marks,
        f"{port.loss:g}",
    ]


def _sysctls(plan: FabricPlan) -> Iterator[str]:
    """Settings that several nodes share stand once; `*` is any of a node's interfaces."""
    ports = {port.ifname for port in plan.ports}
    owners: dict[str, dict[str, None]] = {}
    kinds = {node.name: "hosts" if node.kind == "host" else "switches" for node in plan.nodes}
    for node in plan.nodes:
        for key, value in node.sysctls.items():
            general = ".".join("*" if part in ports else part for part in key.split("."))
            if not general.endswith("hash_seed"):
                owners.setdefault(f"{general} = {value}", {})[kinds[node.name]] = None
    for setting, who in owners.items():
        yield f"sysctl {setting} ({' and '.join(who)})"
