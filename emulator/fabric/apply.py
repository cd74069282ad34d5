"""Give every namespace what the plan says: sysctls, interfaces, addresses, neighbours, routes. No process is started.

The thread enters each namespace once; sockets and files opened there belong to it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from emulator.errors import FabricError, MissingCapability
from emulator.fabric import kernel
from emulator.fabric.offloads import Offloads
from emulator.fabric.plan import FabricPlan, PlanNode, PlanPort
from emulator.fabric.routes import PlanRoute
from emulator.port.netlink import inside

#: linux/if.h
IFF_NOARP: Final = 0x80
#: linux/neighbour.h
NUD_PERMANENT: Final = 0x80
RTPROT_STATIC: Final = 4

_SYSCTL: Final = Path("/proc/sys")
_IPV6: Final = "net.ipv6."


def apply(plan: FabricPlan, netns: Callable[[str], Path]) -> None:
    """Configure all namespaces; the links exist. Raises FabricError with the node and setting that was refused."""
    for node in plan.nodes:
        with inside(netns(node.name)):
            _apply_node(plan, node)


def sysctl_path(key: str) -> str:
    """The file of a sysctl. Interface names here hold no dots."""
    return f"{_SYSCTL}/{key.replace('.', '/')}"


def has_ipv6() -> bool:
    """Whether this kernel knows IPv6 at all; one that does not needs none switched off."""
    return (_SYSCTL / "net/ipv6").is_dir()


def write_sysctls(node: PlanNode) -> None:
    """Set a node's sysctls in the namespace of the calling thread."""
    ipv6 = has_ipv6()
    for key, value in node.sysctls.items():
        if key.startswith(_IPV6) and not ipv6:
            continue
        try:
            kernel.write_file(sysctl_path(key), value)
        except FileNotFoundError as error:
            raise MissingCapability(
                f"this kernel has no sysctl {key}", where=node.name, remedy="use --clock virtual, whose kernel has it"
            ) from error
        except OSError as error:
            raise FabricError(
                f"sysctl {key} does not take {value} ({error.strerror})",
                where=node.name,
                remedy="run as root of the machine",
            ) from error


def _apply_node(plan: FabricPlan, node: PlanNode) -> None:
    from pyroute2 import IPRoute

    write_sysctls(node)
    ports = plan.ports_of(node.name)
    with IPRoute() as ip, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        with refused(node.name, "list of interfaces"):
            features = Offloads.of_kernel(sock, "lo")
            index = {link.get_attr("IFLA_IFNAME"): link["index"] for link in ip.get_links()}
        with refused(node.name, "loopback"):
            ip.link("set", index=index["lo"], state="up")
        for port in ports:
            with refused(port.name, f"interface {port.ifname}"):
                features.switch_off(sock, port.ifname)
                _apply_port(ip, port, index[port.ifname])
        for neighbour in plan.neighbours:
            if neighbour.node == node.name:
                with refused(neighbour.port, f"neighbour {neighbour.ip}"):
                    ip.neigh(
                        "replace", dst=neighbour.ip, lladdr=neighbour.mac, state=NUD_PERMANENT,
                        ifindex=index[neighbour.ifname],
                    )  # fmt: skip
        for route in plan.routes:
            if route.node == node.name:
                with refused(node.name, f"route {route.prefix}"):
                    replace_route(ip, route, index)


def _apply_port(ip: Any, port: PlanPort, index: int) -> None:
    flags = {"flags": IFF_NOARP, "change": IFF_NOARP}
    ip.link("set", index=index, ifalias=port.alias, **flags)
    ip.addr("add", index=index, address=port.ip, prefixlen=31)
    if port.up:
        ip.link("set", index=index, state="up")


def replace_route(ip: Any, route: PlanRoute, index: dict[str, int]) -> None:
    """Put a route, with all its next hops, in the main table."""
    hops = [{"gateway": hop.via, "oif": index[hop.ifname]} for hop in route.next_hops]
    ways: dict[str, Any] = hops[0] if len(hops) == 1 else {"multipath": hops}
    ip.route("replace", dst=route.prefix, proto=RTPROT_STATIC, **ways)


@contextmanager
def refused(where: str, what: str) -> Iterator[None]:
    """Turn the kernel's refusal of a setting into an error that names both."""
    from pyroute2.netlink.exceptions import NetlinkError

    remedy = "see `fabriclab doctor`"
    try:
        yield
    except NetlinkError as error:
        name = errno.errorcode.get(error.code, str(error.code))
        raise FabricError(f"the kernel refused the {what}: {name} {error}", where=where, remedy=remedy) from error
    except (OSError, KeyError) as error:
        raise FabricError(f"the kernel refused the {what}: {error!r}", where=where, remedy=remedy) from error
