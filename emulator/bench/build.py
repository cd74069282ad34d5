"""How long a fabric takes to plan, build, read back and take away, beside plain Mininet making as many hosts and links."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from emulator.fabric.fabric import Fabric
from emulator.fabric.plain import plain_mininet
from emulator.fabric.plan import make_plan
from emulator.fabric.registry import new_run_id
from emulator.port.features import probe
from emulator.topology.model import Topology

SIZES: Final = ((2, 2, 4), (4, 4, 8), (8, 8, 16))
"""Leaves, spines, hosts a leaf."""


@dataclass(frozen=True)
class Build:
    """Seconds of wall time; `ratio` is build and destroy over plain Mininet's making and ending of the same nodes and links."""

    name: str
    nodes: int
    links: int
    plan_s: float
    build_s: float
    readback_s: float
    destroy_s: float
    mininet_build_s: float
    mininet_stop_s: float
    ratio: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def topology(leaves: int, spines: int, hosts_per_leaf: int) -> Topology:
    """A leaf-spine fabric of that size at real rates."""
    link = {"rate": "100Gbit", "delay": "500ns"}
    return Topology.model_validate(
        {
            "name": f"leaf-spine-{leaves}x{spines}x{hosts_per_leaf}",
            "shape": "leaf-spine",
            "leaves": leaves,
            "spines": spines,
            "hosts_per_leaf": hosts_per_leaf,
            "host_link": link,
            "uplink": link,
        }
    )


def measure(size: tuple[int, int, int]) -> Build:
    """One size, once. Needs root."""
    shape = topology(*size)
    features = probe()
    begun = time.monotonic()
    plan = make_plan(shape, run_id=new_run_id("bench"), seed=1, tdf=1000, features=features)
    planned = time.monotonic()
    with Fabric(plan, features) as fabric:
        built = time.monotonic()
        fabric.differences(plan, fabric.readback())
        read = time.monotonic()
    gone = time.monotonic()
    pairs = sorted({tuple(sorted((port.node, port.peer))) for port in plan.ports})
    names = [node.name for node in plan.nodes]
    made, stopped = plain_mininet(names, [(a, b) for a, b in pairs])
    mine = built - planned + gone - read
    return Build(
        name=shape.name,
        nodes=len(names),
        links=len(pairs),
        plan_s=planned - begun,
        build_s=built - planned,
        readback_s=read - built,
        destroy_s=gone - read,
        mininet_build_s=made,
        mininet_stop_s=stopped,
        ratio=mine / (made + stopped),
    )
