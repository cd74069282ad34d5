"""Run a program in the kernel this process is in, and leave `raw/` behind (docs/raw-results.md): on either clock."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.collect.environment import counters
from emulator.collect.sampler import Sampler
from emulator.exec import records, steps
from emulator.exec.agents import Agents
from emulator.exec.dice import put_in_place
from emulator.exec.program import RUNNING, Program
from emulator.exec.quiet import Taps
from emulator.exec.rounds import PROGRESS_NS, Each, Progress, Rounds
from emulator.exec.session import Limits, Member, Outcome, Session, end_all
from emulator.exec.sockets import Flow, TcpWatch
from emulator.exec.start import Start, start_program, told
from emulator.exec.tcp import others, set_congestion
from emulator.experiment.entropy import label_paths
from emulator.experiment.execute import Say, capture_of, monotonic_start, write_json, write_samples
from emulator.experiment.tcp import host_sysctls, require_cc
from emulator.fabric.fabric import Fabric
from emulator.fabric.plan import make_plan
from emulator.port.features import probe
from emulator.topology.model import Topology
from traffic.agent.clock import Clock
from traffic.agent.recorder import run_wait_ns
from traffic.agent.spec import WorkerResult

if TYPE_CHECKING:
    from emulator.collect.capture import Capture

_GRID_NS = 100_000_000
_LEAD_S = 0.002
"""How long rank 0 runs before the others on the virtual clock, where all would be ready at the same instant. A rank of PyTorch that
finds nobody listening tries again some hundred milliseconds later."""
_MOST_TRACED = 1024
_SETTLE_NS = 2_000_000
"""Fabric time for what is still under way when the last process has ended."""


def execute_program(run_dir: Path, manifest: Mapping[str, Any], *, say: Say) -> WorkerResult:
    """Build, run, measure, take away. A program that fails is a `problem` of the result; `raw/` is there all the same."""
    raw, output = run_dir / "raw", run_dir / "output"
    for folder in (raw, output):
        folder.mkdir(exist_ok=True)
    run = manifest["resolved"]
    transport = run["transport"]
    if transport["kind"] == "tcp":
        require_cc(transport["cc"], clock=run["clock"])
    features = probe()
    plan = make_plan(
        Topology.model_validate(run["topology"]),
        run_id=manifest["run_id"],
        seed=run["seed"],
        tdf=run["tdf"],
        features=features,
        agents=transport["kind"] != "tcp",
        host_sysctls=host_sysctls(transport, run["tdf"]),
    )
    write_json(raw / "plan.json", plan.to_dict())
    write_json(raw / "features.json", features.to_dict())
    log: list[str] = []

    def on_step(text: str, done: int, total: int) -> None:
        say("step", {"text": text, "done": done, "total": total})

    if run["clock"] == "virtual":
        go_first()
    with Fabric(plan, features, log.append, on_step=on_step, about={"run_dir": str(run_dir)}) as fabric:
        if transport["kind"] == "tcp":
            set_congestion(plan, fabric.netns, transport["cc"])
        start = fabric.readback()
        first = fabric.differences(plan, start)
        before = counters()
        with capture_of(run, fabric, raw) as capture:
            result, samples, facts = _run(fabric, manifest, run_dir, say, capture)
        after = counters()
        end = fabric.readback()
        last = fabric.differences(plan, end)
        write_json(raw / "worker.json", result.to_json())
        write_json(raw / "program.json", facts)
        write_json(raw / "ports.json", fabric.ports.ports_json())
        write_json(raw / "applied.json", {"start": start, "end": end, "differences": {"start": first, "end": last}})
        before["run_wait_ns"], after["run_wait_ns"] = 0, int(result.loop["run_wait_ns"])
        lost = None if capture is None else capture.drops
        write_json(raw / "softnet.json", {"start": before, "end": after, "capture_drops": lost})
        write_samples(raw / "samples.npz", samples)
        (run_dir / "commands.log").write_text("".join(line + "\n" for line in log), encoding="utf-8")
        say("step", {"text": "taking the fabric away", "done": 0, "total": 1})
    return result


def go_first() -> None:
    """Run before the program's processes when both could: samples are then taken when they are due.

    On the virtual clock only, where this process's own work takes no time. What it starts is ordinary again.
    """
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(10))


def _run(
    fabric: Fabric, manifest: Mapping[str, Any], run_dir: Path, say: Say, capture: Capture | None
) -> tuple[WorkerResult, dict[str, Any], dict[str, Any]]:
    """The program from start to end: what was carried, the samples, and what is kept of its processes."""
    run = manifest["resolved"]
    program = Program.from_dict(run["workload"])
    plan, tdf, virtual = fabric.plan, int(run["tdf"]), run["clock"] == "virtual"
    hosts = [node.name for node in plan.hosts]
    spaces = [fabric.netns(name) for name in hosts]
    with ExitStack() as stack:
        watch = TcpWatch(spaces, {plan.address(name): i for i, name in enumerate(hosts)})
        stack.callback(watch.close)
        agents: Agents | None = None
        if run["transport"]["kind"] != "tcp":
            agents = stack.enter_context(Agents(fabric, program, manifest, run_dir))
            agents.await_ready()
        before = [records.host_counts(str(path)) for path in spaces]
        # To OpenMPI's MPI_Wtime second 0 is a clock that was not read yet; the guest has only just been started.
        lead_s = max(0.0, 1.0 - time.monotonic()) if virtual else 0.0
        start_ns = monotonic_start(lead_s, _GRID_NS if virtual else 1_000_000)
        agent = None if agents is None else agents.address
        start = Start(fabric, program, run_dir, start_ns, tdf, agent, say)
        if virtual:
            start = dataclasses.replace(start, lead_s=_LEAD_S, dice=put_in_place())
        sampler = Sampler(
            fabric.ports,
            period_ns=run["sample_ns"],
            # Reading a clock costs virtual time, and a round takes none there.
            clock=None if virtual else start.now,
        )
        began, waited, used = time.monotonic(), run_wait_ns(), time.process_time()
        taps = None
        if virtual:
            taps = Taps((fabric.netns(name), plan.ports_of(name)[0].ifname) for name in hosts)
            stack.callback(taps.close)
        extra: list[Each] = [watch.round]
        if capture is not None:
            capture.zero_ns = Clock(tdf=tdf, start_ns=0).offset_ns + start_ns
            extra.append(lambda _: capture.drain())
        extra.append(Progress(sampler, say, every_ns=PROGRESS_NS[run["clock"]] // tdf).round)
        rounds = Rounds(sampler, run["sample_ns"], others=extra, woken=[watch.woke], taps=taps)
        if agents is not None:
            agents.start(start_ns)
        time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
        say("step", {"text": "program running", "done": 0, "total": 1})
        rounds.begin(start.now())
        members = start_program(start)
        stack.callback(end_all, members)
        session = Session(
            members,
            start_ns=start_ns,
            tdf=tdf,
            limits=Limits(run["time_limit_ns"], float("inf") if virtual else run["wall_limit_s"]),
            rounds=rounds,
            watch=[] if agents is None else [(agents.fd, agents.problem)],
            on_running=lambda names: say(RUNNING, {"names": names}),
        )
        outcome = session.run()
        watch.round(session.now())
        end_all(members)
        carried = None if agents is None else agents.finish(well=outcome.problem is None)
        time.sleep(_SETTLE_NS * tdf / 1e9)
        watch.round(session.now())
        if capture is not None:
            capture.stop()
        flows = watch.flows()
        calls = {r.rank: steps.read_calls(start.marks, r.rank, start_ns, tdf) for r in program.placement()}
        facts = {**told(start, members, calls), "end_ns": outcome.end_ns}
        if agents is not None:
            result = _of_agents(carried, outcome, start_ns)
            paths = label_paths(plan, fabric.netns, result.paths, hosts)
            facts["tcp_bytes"] = sum(flow.acked for _, flow in flows)
        else:
            after = [records.host_counts(str(path)) for path in spaces]
            rows, paths = _paths(fabric, flows, hosts)
            facts["other_congestion_control"] = others((flow for _, flow in flows), run["transport"]["cc"])
            result = WorkerResult(
                moves=records.moves_of(flows),
                hosts=records.host_records(before, after),
                start_monotonic_ns=start_ns,
                end_ns=outcome.end_ns,
                wrong=0,
                checked=0,
                values=None,
                rates=records.dilated(records.rates_of(flows, watch.samples), tdf),
                paths=rows,
                events=[],
                loop={
                    "cpu_s": time.process_time() - used,
                    "wall_s": time.monotonic() - began,
                    "run_wait_ns": run_wait_ns() - waited,
                    "missed_closings": watch.missed,
                },
                reorder={},
                problem=outcome.problem,
            )
        write_json(run_dir / "raw" / "paths.json", paths)
        result.events = _in_order([*result.events, *_ends(members, start), *steps.events_of(steps.steps_of(calls))])
        return result, sampler.finish(), facts


def _of_agents(carried: WorkerResult | None, outcome: Outcome, start_ns: int) -> WorkerResult:
    """What the agents measured, with the program's own end; empty where they died."""
    if carried is None:
        carried = WorkerResult([], [], start_ns, outcome.end_ns, 0, 0, None, {}, [], [], {"run_wait_ns": 0}, {})
    carried.end_ns = outcome.end_ns
    carried.problem = outcome.problem or carried.problem
    return carried


def _ends(members: Sequence[Member], start: Start) -> list[dict[str, Any]]:
    return [
        {
            "time_ns": (m.process.ending.at_ns - start.start_ns) // start.tdf,
            "kind": "exit",
            "who": m.name,
            "exit_code": m.process.ending.code,
        }
        for m in members
        if m.process.ending is not None
    ]


def _in_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(events, key=lambda e: (e["time_ns"], e["kind"]))


def _paths(
    fabric: Fabric, flows: Sequence[tuple[records.Key, Flow]], hosts: Sequence[str]
) -> tuple[list[tuple[int, int, int, int]], dict[str, list[str]]]:
    """The rows (src, dst, source port, packets) of the flows, and the ports that each crossed."""
    by_port: dict[int, list[tuple[int, int, int, int]]] = {}
    for _, flow in flows[:_MOST_TRACED]:
        packets = 0 if flow.info is None else flow.info.data_segments
        by_port.setdefault(flow.dport, []).append((flow.src, flow.dst, flow.sport, packets))
    labels: dict[str, list[str]] = {}
    for port, rows in by_port.items():
        labels |= label_paths(fabric.plan, fabric.netns, rows, hosts, socket.IPPROTO_TCP, port)
    return [row for rows in by_port.values() for row in rows], labels
