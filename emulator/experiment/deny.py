"""The path controller's orders of a run: which entropy values of each pair of hosts they mean, asked of the kernel's routing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from emulator.experiment.entropy import tracing
from emulator.experiment.options import crosses
from emulator.fabric.plan import FabricPlan
from traffic.agent.spec import WorkerSpec


def path_orders(
    plan: FabricPlan,
    netns: Callable[[str], Path],
    spec: WorkerSpec,
    denied: Sequence[tuple[str, int, int | None]],
    values: dict[str, list[int]],
) -> dict[str, list[tuple[int, int, bool]]]:
    """`values` are the entropy values of each "src-dst"; its orders are (when, value, whether denied)."""
    names = [h.name for h in spec.hosts]
    out: dict[str, list[tuple[int, int, bool]]] = {}
    with tracing(plan, netns) as tracer:
        for key, evs in values.items():
            src, dst = (names[int(rank)] for rank in key.split("-"))
            orders: list[tuple[int, int, bool]] = []
            for ev in evs:
                ports = [(p.name, p.node, p.peer) for p in map(plan.port, tracer.path(src, dst, ev))]
                for via, at, until in denied:
                    if crosses(ports, via):
                        orders.append((at, ev, True))
                        if until is not None:
                            orders.append((until, ev, False))
            out[key] = sorted(orders)
    return out
