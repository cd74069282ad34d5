"""Starting a program's processes, with all that they find in their environment, and what is kept of them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.exec.agents import ADDRESS
from emulator.exec.compute import MARKS, MODE, TDF
from emulator.exec.dice import preloaded
from emulator.exec.enter import Door, write_tables
from emulator.exec.guest import program_path
from emulator.exec.launch import Process, record
from emulator.exec.mpi import TaggedOutput, mpirun_argv, write_map
from emulator.exec.program import RANK_VARIABLES, RUNNING, Program, Rank, rank_environment
from emulator.exec.session import Member, end_all
from emulator.exec.steps import Calls
from emulator.experiment.execute import Say
from emulator.fabric.fabric import Fabric
from emulator.fabric.registry import MARK_VARIABLE


@dataclass(frozen=True)
class Start:
    """Where and when a program starts.

    `agent` is the socket of the agents, if there are any; `lead_s` how long rank 0 is alone; `dice` the library that every
    rank finds preloaded (see `emulator.exec.dice`).
    """

    fabric: Fabric
    program: Program
    run_dir: Path
    start_ns: int
    tdf: int
    agent: str | None
    say: Say
    lead_s: float = 0.0
    dice: Path | None = None

    def now(self) -> int:
        """Fabric time."""
        return (time.monotonic_ns() - self.start_ns) // self.tdf

    @property
    def marks(self) -> Path:
        """Where ranks note their calls of `emulator.compute`: the start of the files' names."""
        return self.run_dir.resolve() / "raw" / "marks"

    def door(self, host: str, binds: tuple[tuple[Path, str], ...] = ()) -> Door:
        """The way into a host."""
        return Door(host, self.fabric.pid(host), self.program.cwd, binds)

    def environment(self, rank: Rank) -> dict[str, str]:
        """All that a rank finds in its environment."""
        plan, program = self.fabric.plan, self.program
        port = plan.ports_of(rank.host)[0]
        mode: str = program.compute
        if program.compute == "fixed" and program.compute_ns is not None:
            mode = f"fixed:{program.compute_ns}"
        base = {
            **os.environ,
            "PATH": program_path(os.environ.get("PATH", "")),
            MARK_VARIABLE: plan.run_id,
            MODE: mode,
            TDF: str(self.tdf),
            MARKS: str(self.marks),
            **({} if self.agent is None else {ADDRESS: self.agent}),
        }
        peers = [plan.address(host) for host in program.hosts]
        found = rank_environment(program, rank, address=port.ip, interface=port.ifname, peers=peers, base=base)
        return preloaded(found, self.dice)


def start_program(start: Start) -> list[Member]:
    """Start every rank on its host (or mpirun on the first); if one cannot be started, end those that were."""
    plan = start.fabric.plan
    raw = start.run_dir.resolve() / "raw"
    tables = write_tables(raw, [(node.name, plan.address(node.name)) for node in plan.hosts])
    if start.program.mpi:
        return [_start_mpirun(start, raw, tables)]
    members: list[Member] = []
    try:
        for rank in start.program.placement():
            members.append(_start_rank(start, rank, tables if rank.local == 0 else ()))
            if rank.rank == 0:
                time.sleep(start.lead_s)
            # On the virtual clock a rank that computes without end keeps the next one from starting: name it now.
            start.say(RUNNING, {"names": [member.name for member in members]})
    except BaseException:
        end_all(members)
        raise
    return members


def _start_rank(start: Start, rank: Rank, binds: tuple[tuple[Path, str], ...]) -> Member:
    process = Process(
        start.program.command,
        door=start.door(rank.host, binds),
        env=start.environment(rank),
        file=start.run_dir / "output" / f"rank{rank.rank}.txt",
        on_line=lambda line: start.say("note", {"text": f"[{rank.rank} {rank.host}] {line}"}),
    )
    start.fabric.adopt(process.pid)
    return Member(f"rank {rank.rank} on {rank.host}", rank.host, process, rank.rank)


def _start_mpirun(start: Start, raw: Path, tables: tuple[tuple[Path, str], ...]) -> Member:
    """mpirun on the first host; it starts the ranks."""
    program, first = start.program, start.program.placement()[0]
    where = raw / "mpi-hosts.json"
    write_map(where, {host: start.fabric.pid(host) for host in program.hosts}, program.cwd, tables)
    output = TaggedOutput(program, start.run_dir / "output", raw, lambda text: start.say("note", {"text": text}))
    environment = start.environment(first)
    for name in RANK_VARIABLES:
        environment.pop(name, None)
    process = Process(
        mpirun_argv(program, where),
        door=start.door(first.host, tables),
        env={**environment, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        file=start.run_dir / "output" / "mpirun.txt",
        on_line=output.line,
    )
    start.fabric.adopt(process.pid)
    return Member(f"mpirun on {first.host}", first.host, process, None, output.problem, output.running)


def told(start: Start, members: Sequence[Member], calls: Mapping[int, Calls]) -> dict[str, Any]:
    """The content of program.json: each process's end, and the times of the calls of `emulator.compute`."""
    rows = []
    for member in members:
        row = {"name": member.name, "host": member.host, **record(member.process, start.start_ns, start.tdf)}
        rows.append({**row, "rank": member.rank, "output": f"output/{member.process.file.name}"})
    return {
        "command": list(start.program.command),
        "seeded_dice": start.dice is not None,
        "processes": rows,
        "calls": {str(rank): list(map(list, found)) for rank, found in calls.items()},
    }
