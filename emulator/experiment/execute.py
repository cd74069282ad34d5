"""Run a resolved experiment in the kernel this process is in, and leave `raw/` behind (docs/raw-results.md).

The same code on both clocks. On the real one the worker is a process of its own and the sampler runs beside it; in the guest
both share one process, since a switch between processes is the dear part there.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.collect.environment import counters
from emulator.errors import RunFailed
from emulator.exec.program import KIND as PROGRAM
from emulator.experiment.deny import path_orders
from emulator.experiment.entropy import entropy_sets, label_paths
from emulator.experiment.resolve import full_packet_wire_bytes
from emulator.experiment.tcp import host_sysctls, require_cc
from emulator.fabric.fabric import Fabric
from emulator.fabric.plan import FabricPlan, make_plan
from emulator.port.features import probe
from emulator.topology.model import Topology
from traffic.agent.spec import HostSpec, TransportSpec, WorkerResult, WorkerSpec
from traffic.agent.tcp_socket import PORT as TCP_PORT
from traffic.collective.registry import make_schedule
from traffic.collective.schedule import Schedule
from traffic.packet.opcodes import ROCE_PORT

if TYPE_CHECKING:
    from emulator.collect.capture import Capture

Say = Callable[[str, Mapping[str, Any]], None]
"""Told of progress: a kind (`step`, `progress`, `note`) and its fields."""


def schedule_of(workload: Mapping[str, Any]) -> Schedule:
    """The schedule of a resolved workload."""
    extra = {k: v for k, v in workload.items() if k not in ("kind", "algorithm", "bytes", "values")}
    return make_schedule(workload["kind"], algorithm=workload["algorithm"], size=workload["bytes"], **extra)


def worker_spec(manifest: Mapping[str, Any], plan: FabricPlan, netns: Callable[[str], Path]) -> WorkerSpec:
    """What the worker is told; `netns` gives the namespace of a host."""
    run = manifest["resolved"]
    schedule = schedule_of(run["workload"])
    wire = full_packet_wire_bytes(run["transport"]["kind"], run["transport"]["mtu"])
    names = [node.name for node in plan.hosts][: schedule.ranks]
    hosts = []
    for rank, name in enumerate(names):
        port = plan.ports_of(name)[0]
        hosts.append(
            HostSpec(
                name=name,
                rank=rank,
                netns=str(netns(name)),
                ifname=port.ifname,
                mac=port.mac,
                gateway_mac=port.peer_mac,
                ip=port.ip,
                rate_bps=port.fabric_rate_bps,
            )
        )

    def table(value: Callable[[str, str], int]) -> list[list[int]]:
        return [[0 if a == b else value(a, b) for b in names] for a in names]

    return WorkerSpec(
        run_id=plan.run_id,
        seed=run["seed"],
        tdf=plan.tdf,
        clock=run["clock"],
        hosts=hosts,
        transport=TransportSpec(
            kind=run["transport"]["kind"],
            mtu=run["transport"]["mtu"],
            cc=run["transport"]["cc"],
            cc_params=run["transport"]["cc_params"],
            options=dict(run["transport"]["options"]),
        ),
        schedule=schedule,
        base_rtt_ns=table(lambda a, b: plan.base_rtt_ns(a, b, wire)),
        hops=table(plan.hops),
        hold_ns=table(plan.hold_ns),
        hold_ps_per_byte=table(plan.hold_ps_per_byte),
        limit_fabric_ns=run["time_limit_ns"],
        limit_wall_s=run["wall_limit_s"],
        quantum_ns=run["quantum_ns"],
        values=run["workload"].get("values"),
    )


def execute(run_dir: Path, manifest: Mapping[str, Any], *, say: Say) -> WorkerResult:
    """Build, run, measure, take away. Raises RunFailed when the traffic could not finish; `raw/` is there all the same."""
    run = manifest["resolved"]
    if run["workload"]["kind"] == PROGRAM:
        from emulator.exec.execute import execute_program

        return execute_program(run_dir, manifest, say=say)
    raw = run_dir / "raw"
    raw.mkdir(exist_ok=True)
    kind = run["transport"]["kind"]
    if kind == "tcp":
        require_cc(run["transport"]["cc"], clock=run["clock"])
    features = probe()
    plan = make_plan(
        Topology.model_validate(run["topology"]),
        run_id=manifest["run_id"],
        seed=run["seed"],
        tdf=run["tdf"],
        features=features,
        agents=kind != "tcp",
        host_sysctls=host_sysctls(run["transport"], run["tdf"]),
    )
    write_json(raw / "plan.json", plan.to_dict())
    write_json(raw / "features.json", features.to_dict())
    log: list[str] = []

    def on_step(text: str, done: int, total: int) -> None:
        say("step", {"text": text, "done": done, "total": total})

    with Fabric(plan, features, log.append, on_step=on_step, about={"run_dir": str(run_dir)}) as fabric:
        start = fabric.readback()
        first = fabric.differences(plan, start)
        spec = worker_spec(manifest, plan, fabric.netns)
        settle_transport(spec, run["transport"], fabric, run_dir)
        before = counters()
        if run["clock"] == "virtual":
            from emulator.experiment.inside import run_worker
        else:
            from emulator.experiment.beside import run_worker
        with capture_of(run, fabric, raw) as capture:
            result, samples = run_worker(spec, fabric, run["sample_ns"], say, capture)
        after = counters()
        end = fabric.readback()
        last = fabric.differences(plan, end)
        protocol = (socket.IPPROTO_TCP, TCP_PORT) if kind == "tcp" else (socket.IPPROTO_UDP, ROCE_PORT)
        paths = label_paths(plan, fabric.netns, result.paths, [h.name for h in spec.hosts], *protocol)
        ports = fabric.ports.ports_json()
        write_json(raw / "worker.json", result.to_json())
        write_json(raw / "ports.json", ports)
        write_json(raw / "paths.json", paths)
        write_json(raw / "applied.json", {"start": start, "end": end, "differences": {"start": first, "end": last}})
        before["run_wait_ns"], after["run_wait_ns"] = 0, result.loop["run_wait_ns"]
        lost = None if capture is None else capture.drops
        write_json(raw / "softnet.json", {"start": before, "end": after, "capture_drops": lost})
        write_samples(raw / "samples.npz", samples)
        (run_dir / "commands.log").write_text("".join(line + "\n" for line in log), encoding="utf-8")
        say("step", {"text": "taking the fabric away", "done": 0, "total": 1})
    return result


def settle_transport(spec: WorkerSpec, transport: Mapping[str, Any], fabric: Fabric, run_dir: Path) -> None:
    """What only the built fabric can tell: where a user's own algorithm lies, which entropy takes which path."""
    if transport.get("cc_source") is not None:
        spec.transport.cc = str(run_dir.resolve() / transport["cc"])
    if spec.transport.kind == "mrc":
        options = spec.transport.options
        values = options["entropy_values"] = entropy_sets(fabric.plan, fabric.netns, spec)
        if options["deny"]:
            options["path_orders"] = path_orders(fabric.plan, fabric.netns, spec, options["deny"], values)


def capture_of(run: Mapping[str, Any], fabric: Fabric, raw: Path) -> AbstractContextManager[Capture | None]:
    """The capture that a resolved run asks for; None inside the block where it asks for none."""
    if not run["pcap"]:
        return nullcontext()
    from emulator.collect.capture import Capture

    return Capture(fabric.plan, fabric.netns, run["pcap"], snap_bytes=run["pcap_snap"], clock=run["clock"], folder=raw)


def check(result: WorkerResult) -> None:
    """Raises RunFailed if the traffic could not finish: which flow, what it had sent, what was acknowledged."""
    if result.problem is not None:
        raise RunFailed(result.problem["what"], where=result.problem["where"], remedy=result.problem["remedy"])


def write_json(path: Path, data: object) -> None:
    """JSON for programs: no spaces."""
    path.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")


def write_samples(path: Path, samples: Mapping[str, Any]) -> None:
    """The sampler's arrays."""
    import numpy as np

    with path.open("wb") as file:
        np.savez_compressed(file, **samples)


def monotonic_start(lead_s: float, grid_ns: int) -> int:
    """A CLOCK_MONOTONIC start at least `lead_s` ahead, on a grid so that its phase against the kernel's ticks is fixed."""
    earliest = time.monotonic_ns() + int(lead_s * 1e9)
    return -(-earliest // grid_ns) * grid_ns
