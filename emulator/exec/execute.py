"""Run a program in the kernel this process is in, and leave `raw/` behind (docs/raw-results.md): on either clock."""

from __future__ import annotations

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
from emulator.exec.compute import MARKS, MODE, TDF
from emulator.exec.enter import Door, names_table
from emulator.exec.launch import Process, record
from emulator.exec.program import Program, Rank, rank_environment
from emulator.exec.session import Limits, Member, Outcome, Session, end_all
from emulator.exec.sockets import Flow, TcpWatch
from emulator.exec.tcp import others, set_congestion
from emulator.experiment.entropy import label_paths
from emulator.experiment.execute import Say, capture_of, monotonic_start, write_json, write_samples
from emulator.experiment.tcp import host_sysctls, require_cc
from emulator.fabric.fabric import Fabric
from emulator.fabric.plan import FabricPlan, make_plan
from emulator.fabric.registry import MARK_VARIABLE
from emulator.port.features import probe
from emulator.topology.model import Topology
from traffic.agent.clock import Clock
from traffic.agent.recorder import run_wait_ns
from traffic.agent.spec import WorkerResult

if TYPE_CHECKING:
    from emulator.collect.capture import Capture

_GRID_NS = 100_000_000
_TELL_NS = 200_000_000
_MOST_TRACED = 1024
_SETTLE_NS = 2_000_000


class _Queues:
    """The queue sampler as something periodic; empties a capture too, and tells who watches."""

    def __init__(self, sampler: Sampler, capture: Capture | None, say: Say, tell_ns: int) -> None:
        self.sampler = sampler
        self.capture = capture
        self.say = say
        self.tell_ns = tell_ns
        self.told = -tell_ns

    def round(self, now: int) -> None:
        self.sampler.sample(now)
        if self.capture is not None:
            self.capture.drain()
        if now - self.told >= self.tell_ns:
            self.told = now
            self.say("progress", {"time_ns": now, **self.sampler.latest()})


def execute_program(run_dir: Path, manifest: Mapping[str, Any], *, say: Say) -> WorkerResult:
    """Build, run, measure, take away. A program that fails is a `problem` of the result; `raw/` is there all the same."""
    raw, output = run_dir / "raw", run_dir / "output"
    for folder in (raw, output):
        folder.mkdir(exist_ok=True)
    run = manifest["resolved"]
    program = Program.from_dict(run["workload"])
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
            result, samples, told = _run(fabric, program, run, run_dir, say, capture)
        after = counters()
        end = fabric.readback()
        last = fabric.differences(plan, end)
        write_json(raw / "worker.json", result.to_json())
        write_json(raw / "program.json", told)
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
    fabric: Fabric, program: Program, run: Mapping[str, Any], run_dir: Path, say: Say, capture: Capture | None
) -> tuple[WorkerResult, dict[str, Any], dict[str, Any]]:
    plan, tdf, virtual = fabric.plan, int(run["tdf"]), run["clock"] == "virtual"
    hosts = [node.name for node in plan.hosts]
    spaces = [fabric.netns(name) for name in hosts]
    with ExitStack() as stack:
        watch = TcpWatch(spaces, {plan.address(name): i for i, name in enumerate(hosts)})
        stack.callback(watch.close)
        before = [records.host_counts(str(path)) for path in spaces]
        start_ns = monotonic_start(0.0, _GRID_NS if virtual else 1_000_000)
        sampler = Sampler(
            fabric.ports,
            period_ns=run["sample_ns"],
            # Reading a clock costs virtual time, and a round takes none there.
            clock=None if virtual else lambda: (time.monotonic_ns() - start_ns) // tdf,
        )
        began, waited, used = time.monotonic(), run_wait_ns(), time.process_time()
        time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
        if capture is not None:
            capture.zero_ns = Clock(tdf=tdf, start_ns=start_ns).offset_ns + start_ns
        say("step", {"text": "program running", "done": 0, "total": 1})
        members = start_program(fabric, program, run, run_dir, say)
        stack.callback(end_all, members)
        session = Session(
            members,
            start_ns=start_ns,
            tdf=tdf,
            period_ns=run["sample_ns"],
            limits=Limits(run["time_limit_ns"], float("inf") if virtual else run["wall_limit_s"]),
            rounds=[_Queues(sampler, capture, say, _TELL_NS // tdf), watch],
        )
        outcome = session.run()
        if capture is not None:
            capture.stop(outcome.end_ns)
        watch.round(session.now())
        end_all(members)
        time.sleep(_SETTLE_NS * tdf / 1e9)
        watch.round(session.now())
        after = [records.host_counts(str(path)) for path in spaces]
        flows = watch.flows()
        traced = _paths(fabric, flows, hosts, run_dir / "raw")
        calls = _calls(program, run_dir / "raw", start_ns, tdf)
        result = WorkerResult(
            moves=records.moves_of(flows),
            hosts=records.host_records(before, after),
            start_monotonic_ns=start_ns,
            end_ns=outcome.end_ns,
            wrong=0,
            checked=0,
            values=None,
            rates=records.dilated(records.rates_of(flows, watch.samples), tdf),
            paths=traced,
            events=_events(members, calls, start_ns, tdf),
            loop={
                "cpu_s": time.process_time() - used,
                "wall_s": time.monotonic() - began,
                "run_wait_ns": run_wait_ns() - waited,
                "missed_closings": watch.missed,
            },
            reorder={},
            problem=outcome.problem,
        )
        facts = told(program, members, calls, outcome, start_ns, tdf)
        facts["other_congestion_control"] = others((flow for _, flow in flows), run["transport"]["cc"])
        return result, sampler.finish(), facts


def start_program(fabric: Fabric, program: Program, run: Mapping[str, Any], run_dir: Path, say: Say) -> list[Member]:
    """Start every rank on its host; if one cannot be started, end those that were."""
    plan = fabric.plan
    table = run_dir / "raw" / "hosts"
    table.write_text(names_table([(node.name, plan.address(node.name)) for node in plan.hosts]), encoding="ascii")
    members: list[Member] = []
    try:
        for rank in program.placement():
            members.append(_start_rank(fabric, program, rank, run, run_dir, table, say))
    except BaseException:
        end_all(members)
        raise
    return members


def _start_rank(
    fabric: Fabric, program: Program, rank: Rank, run: Mapping[str, Any], run_dir: Path, table: Path, say: Say
) -> Member:
    plan = fabric.plan
    port = plan.ports_of(rank.host)[0]
    environment = rank_environment(
        program,
        rank,
        address=port.ip,
        interface=port.ifname,
        peers=[plan.address(host) for host in program.hosts],
        base={**os.environ, **run_environment(program, rank, plan, run, run_dir)},
    )
    process = Process(
        program.command,
        door=Door(rank.host, fabric.pid(rank.host), program.cwd, table if rank.local == 0 else None),
        env=environment,
        file=run_dir / "output" / f"rank{rank.rank}.txt",
        on_line=lambda line: say("note", {"text": f"[{rank.rank} {rank.host}] {line}"}),
    )
    fabric.adopt(process.pid)
    return Member(f"rank {rank.rank} on {rank.host}", rank.host, process)


def run_environment(
    program: Program, rank: Rank, plan: FabricPlan, run: Mapping[str, Any], run_dir: Path
) -> dict[str, str]:
    """What the product itself tells a rank: the run's mark, how it computes, where it notes its steps."""
    mode: str = program.compute
    if program.compute == "fixed" and program.compute_ns is not None:
        mode = f"fixed:{program.compute_ns}"
    return {
        MARK_VARIABLE: plan.run_id,
        MODE: mode,
        TDF: str(run["tdf"]),
        MARKS: str((run_dir / "raw" / f"marks-{rank.rank}").resolve()),
    }


def _calls(program: Program, raw: Path, start_ns: int, tdf: int) -> dict[int, list[tuple[int, int]]]:
    return {r.rank: steps.read_calls(raw / f"marks-{r.rank}", start_ns, tdf) for r in program.placement()}


def _events(
    members: Sequence[Member], calls: Mapping[int, steps.Calls], start_ns: int, tdf: int
) -> list[dict[str, Any]]:
    ends = [
        {
            "time_ns": (m.process.ending.at_ns - start_ns) // tdf,
            "kind": "exit",
            "who": m.name,
            "exit_code": m.process.ending.code,
        }
        for m in members
        if m.process.ending is not None
    ]
    return sorted([*ends, *steps.events_of(steps.steps_of(calls))], key=lambda e: (e["time_ns"], e["kind"]))


def told(
    program: Program,
    members: Sequence[Member],
    calls: Mapping[int, steps.Calls],
    outcome: Outcome,
    start_ns: int,
    tdf: int,
) -> dict[str, Any]:
    """The content of program.json: each process's end, and the times of the calls of `emulator.compute`."""
    placed = program.placement()
    rows = []
    for i, member in enumerate(members):
        row = {"name": member.name, "host": member.host, **record(member.process, start_ns, tdf)}
        rows.append({**row, "rank": placed[i].rank, "output": f"output/rank{placed[i].rank}.txt"})
    return {
        "command": list(program.command),
        "processes": rows,
        "calls": {str(rank): list(map(list, found)) for rank, found in calls.items()},
        "end_ns": outcome.end_ns,
    }


def _paths(
    fabric: Fabric, flows: Sequence[tuple[records.Key, Flow]], hosts: Sequence[str], raw: Path
) -> list[tuple[int, int, int, int]]:
    """The rows (src, dst, source port, packets) of the flows, with `paths.json` saying which ports each crossed."""
    by_port: dict[int, list[tuple[int, int, int, int]]] = {}
    for _, flow in flows[:_MOST_TRACED]:
        packets = 0 if flow.info is None else flow.info.data_segments
        by_port.setdefault(flow.dport, []).append((flow.src, flow.dst, flow.sport, packets))
    labels: dict[str, list[str]] = {}
    for port, rows in by_port.items():
        labels |= label_paths(fabric.plan, fabric.netns, rows, hosts, socket.IPPROTO_TCP, port)
    write_json(raw / "paths.json", labels)
    return [row for rows in by_port.values() for row in rows]
