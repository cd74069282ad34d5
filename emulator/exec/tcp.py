"""The congestion control of a program's own TCP: a metric of its host's routes, so that every socket gets it by default.

The sysctl of a namespace takes only what the machine allows unprivileged users (net/ipv4/tcp_cong.c,
TCP_CONG_NON_RESTRICTED); a route takes any (RTAX_CC_ALGO), and its metrics bring what DCTCP needs of ECN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from emulator.exec.sockets import Flow
from emulator.fabric.apply import refused
from emulator.fabric.plan import FabricPlan
from emulator.port.netlink import inside

_STATIC = 4  # RTPROT_STATIC, as the fabric's own routes


def set_congestion(plan: FabricPlan, netns: Callable[[str], Path], cc: str) -> None:
    """Give all hosts' routes the congestion control `cc`. Raises FabricError where the kernel refuses."""
    from pyroute2 import IPRoute

    hosts = {node.name for node in plan.hosts}
    for name in hosts:
        with inside(netns(name)), IPRoute() as ip:
            index = {link.get_attr("IFLA_IFNAME"): link["index"] for link in ip.get_links()}
            for route in plan.routes:
                if route.node != name:
                    continue
                hops = [{"gateway": hop.via, "oif": index[hop.ifname]} for hop in route.next_hops]
                with refused(name, f"congestion control {cc} of route {route.prefix}"):
                    ip.route(
                        "replace",
                        dst=route.prefix,
                        proto=_STATIC,
                        metrics={"cc_algo": cc},
                        **(hops[0] if len(hops) == 1 else {"multipath": hops}),
                    )


def others(flows: Iterable[Flow], cc: str) -> dict[str, int]:
    """How many ends used another congestion control than `cc`, by name: a program may choose its own."""
    found: dict[str, int] = {}
    for flow in flows:
        if flow.cc and flow.cc != cc:
            found[flow.cc] = found.get(flow.cc, 0) + 1
    return found
