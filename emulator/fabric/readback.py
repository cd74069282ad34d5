"""What the kernel says it has, as plain data, and where that differs from the plan (check F1: plan = reality).

A read that fails is an error; it never counts as "not there".
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from emulator.errors import FabricError
from emulator.fabric import kernel
from emulator.fabric.apply import IFF_NOARP, NUD_PERMANENT, has_ipv6, refused, sysctl_path
from emulator.fabric.offloads import Offloads
from emulator.fabric.plan import FabricPlan, PlanNode
from emulator.port.delay import ifb_name
from emulator.port.netlink import inside

_IFF_UP: Final = 0x1
_RT_TABLE_MAIN: Final = 254
_RTPROT_KERNEL: Final = 2
#: linux/rtnetlink.h: a next hop that is not used.
_RTNH_F_DEAD, _RTNH_F_LINKDOWN = 1, 16


def read_nodes(plan: FabricPlan, netns: Callable[[str], Path]) -> dict[str, Any]:
    """Node → {namespace, sysctls, loopback, interfaces, routes}. Raises FabricError where the kernel does not answer."""
    nodes: dict[str, Any] = {}
    for node in plan.nodes:
        with inside(netns(node.name)):
            nodes[node.name] = _read_node(node)
    return nodes


def _read_node(node: PlanNode) -> dict[str, Any]:
    from pyroute2 import IPRoute

    with IPRoute() as ip, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        with refused(node.name, "reading of interfaces"):
            links = list(ip.get_links())
            features = Offloads.of_kernel(sock, "lo")
            interfaces = {name: _interface(link, features, sock) for link in links if (name := _name(link)) != "lo"}
        names = {link["index"]: _name(link) for link in links}
        loopback = any(link["flags"] & _IFF_UP for link in links if _name(link) == "lo")
        with refused(node.name, "reading of addresses"):
            for address in ip.get_addr():
                entry = interfaces.get(names.get(address["index"], ""))
                if entry is not None:
                    entry["addresses"].append(f"{address.get_attr('IFA_ADDRESS')}/{address['prefixlen']}")
        with refused(node.name, "reading of neighbours"):
            for neighbour in ip.get_neighbours(family=socket.AF_INET):
                entry = interfaces.get(names.get(neighbour["ifindex"], ""))
                if entry is not None and neighbour["state"] == NUD_PERMANENT:
                    entry["neighbours"][neighbour.get_attr("NDA_DST")] = neighbour.get_attr("NDA_LLADDR")
        with refused(node.name, "reading of routes"):
            routes = dict(
                sorted(_route(route, names) for route in ip.get_routes(family=socket.AF_INET) if _ours(route))
            )
    return {
        "namespace": node.namespace,
        "sysctls": _sysctls(node),
        "loopback": loopback,
        "interfaces": interfaces,
        "routes": routes,
    }


def _name(link: Any) -> str:
    return str(link.get_attr("IFLA_IFNAME"))


def _interface(link: Any, features: Offloads, sock: socket.socket) -> dict[str, Any]:
    name = _name(link)
    info = link.get_attr("IFLA_LINKINFO")
    return {
        "kind": info.get_attr("IFLA_INFO_KIND") if info else None,
        "alias": link.get_attr("IFLA_IFALIAS"),
        "mac": link.get_attr("IFLA_ADDRESS"),
        "mtu": link.get_attr("IFLA_MTU"),
        "up": bool(link["flags"] & _IFF_UP),
        "arp": not link["flags"] & IFF_NOARP,
        "carrier": bool(link.get_attr("IFLA_CARRIER")),
        "queues": link.get_attr("IFLA_NUM_TX_QUEUES"),
        "gso_max_segs": link.get_attr("IFLA_GSO_MAX_SEGS"),
        "offloads": features.active(sock, name),
        "addresses": [],
        "neighbours": {},
    }


def _ours(route: Any) -> bool:
    """Routes that somebody set; the kernel's own, of the /31 links, are not."""
    return bool(route.get_attr("RTA_TABLE", route["table"]) == _RT_TABLE_MAIN and route["proto"] != _RTPROT_KERNEL)


def _route(route: Any, names: dict[int, str]) -> tuple[str, list[list[str]]]:
    """Prefix → sorted [interface, gateway, condition]."""
    prefix = f"{route.get_attr('RTA_DST') or '0.0.0.0'}/{route['dst_len']}"
    several = route.get_attr("RTA_MULTIPATH")
    if several:
        hops = [(hop["oif"], hop.get_attr("RTA_GATEWAY"), hop["flags"]) for hop in several]
    else:
        hops = [(route.get_attr("RTA_OIF"), route.get_attr("RTA_GATEWAY"), route["flags"])]
    return prefix, sorted([names.get(index, str(index)), str(via), _condition(flags)] for index, via, flags in hops)


def _condition(flags: int) -> str:
    return "dead" if flags & _RTNH_F_DEAD else "linkdown" if flags & _RTNH_F_LINKDOWN else "up"


def _sysctls(node: PlanNode) -> dict[str, str | None]:
    """The values of the planned sysctls; None for IPv6 on a kernel without it."""
    found: dict[str, str | None] = {}
    ipv6 = has_ipv6()
    for key in node.sysctls:
        if key.startswith("net.ipv6.") and not ipv6:
            found[key] = None
            continue
        try:
            found[key] = kernel.read_file(sysctl_path(key)).strip()
        except OSError as error:
            raise FabricError(
                f"cannot read sysctl {key} ({error.strerror})", where=node.name, remedy="run as root of the machine"
            ) from error
    return found


def compare_nodes(plan: FabricPlan, nodes: dict[str, Any]) -> list[str]:
    """Every difference between the plan and what `read_nodes` found, in words; none if they agree."""
    words: list[str] = []
    for node in plan.nodes:
        found = nodes[node.name]
        for key, value in node.sysctls.items():
            if found["sysctls"][key] not in (value, None):
                words.append(_words(node.name, key, found["sysctls"][key], value))
        if not found["loopback"]:
            words.append(f"{node.name}: the loopback is down, the plan says up")
        words += _compare_interfaces(plan, node, found["interfaces"])
        words += _compare_routes(plan, node, found["routes"])
    return words


def _words(where: str, what: str, found: object, planned: object) -> str:
    return f"{where}: {what} is {found}, the plan says {planned}"


def _compare_interfaces(plan: FabricPlan, node: PlanNode, found: dict[str, Any]) -> list[str]:
    words: list[str] = []
    neighbours = {n.port: {n.ip: n.mac} for n in plan.neighbours if n.node == node.name}
    planned = {port.ifname: port for port in plan.ports_of(node.name)}
    # The port room delays what arrives on an IFB, and compares that one itself.
    delaying = (
        {ifb_name(plan.port(port.peer_name)) for port in planned.values()} if plan.delay_mode == "netem" else set()
    )
    words += [
        f"{node.name}: interface {name} is not in the plan"
        for name in found
        if name not in planned and name not in delaying
    ]
    for name, port in planned.items():
        if name not in found:
            words.append(f"{port.name}: interface {name} is not there")
            continue
        right = {
            "kind": "veth",
            "alias": port.alias,
            "mac": port.mac,
            "mtu": plan.mtu,
            "up": port.up,
            "arp": False,
            "carrier": port.carrier,
            "queues": 1,
            "gso_max_segs": 1,
            "offloads": [],
            "addresses": [f"{port.ip}/31"],
            "neighbours": neighbours.get(port.name, {}),
        }
        words += [
            _words(port.name, key, found[name][key], value) for key, value in right.items() if found[name][key] != value
        ]
    return words


def _compare_routes(plan: FabricPlan, node: PlanNode, found: dict[str, Any]) -> list[str]:
    planned = {
        route.prefix: sorted([hop.ifname, hop.via, "up"] for hop in route.next_hops)
        for route in plan.routes
        if route.node == node.name
    }
    words: list[str] = []
    for prefix in sorted(planned.keys() | found.keys()):
        if prefix not in planned:
            words.append(f"{node.name}: route {prefix} via {_hops(found[prefix])} is not in the plan")
        elif prefix not in found:
            words.append(f"{node.name}: route {prefix} is not there, the plan says via {_hops(planned[prefix])}")
        elif planned[prefix] != found[prefix]:
            words.append(
                _words(node.name, f"route {prefix}", f"via {_hops(found[prefix])}", f"via {_hops(planned[prefix])}")
            )
    return words


def _hops(hops: list[list[str]]) -> str:
    return " and ".join(f"{via} on {ifname}" + ("" if state == "up" else f" ({state})") for ifname, via, state in hops)
