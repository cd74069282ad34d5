"""From an experiment whose workload is a program to a run that leaves nothing open. Pure but for the planner's budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from emulator.errors import UsageError
from emulator.exec.program import KIND, ComputeMode, Program, choose_hosts
from emulator.experiment.planner import Choice, choose
from emulator.experiment.resolve import Resolved, resolve
from emulator.experiment.spec import Experiment, Workload
from emulator.topology.suggest import nearest
from emulator.topology.units import UnitError, parse_duration
from traffic.collective.registry import kinds
from traffic.collective.schedule import Move, Schedule

if TYPE_CHECKING:
    from emulator.topology.model import Topology
    from emulator.topology.network import Network

TCP_HEADERS: Final = 52
"""IPv4 20, TCP 20, time stamps 12: what an interface's MTU loses to a segment's headers."""

SAMPLE_NS: Final = 100_000
"""Sampling period on the virtual clock where none is named."""

KERNEL_BPS: Final = 1_000_000_000
"""What all hosts of a program may send together in wall time: full-sized segments through three ports each, on one core."""

MEASURED_SAMPLE_NS: Final = 50_000_000
"""The same where CPU time counts, the sampler's own too."""

COLLECTIVES: Final = ("allreduce", "reduce_scatter", "all_gather", "broadcast")
_PARAMS: Final = ("command", "hosts", "ranks", "ranks_per_host", "mpi", "compute", "env", "cwd", "algorithms")


def resolve_program(experiment: Experiment, topology: Topology, base: Path | None = None) -> tuple[Resolved, str]:
    """The resolved run, and why this clock and factor. Raises UsageError and MissingCapability."""
    network = topology.network()
    names = [host.name for host in network.hosts]
    program = program_of(experiment.workload.params, names)
    program = dataclasses.replace(program, cwd=str(((base or Path()) / program.cwd).resolve()))
    used = [names.index(host) for host in program.hosts]
    kind = experiment.transport.kind
    _refuse_idle(program, experiment.workload, kind)
    # The packets of a program are as large as the interfaces allow.
    mtu = topology.mtu - TCP_HEADERS if kind == "tcp" else experiment.transport.mtu
    choice = _choose(experiment, network, _everyone(used, len(names)))
    # Between which ranks traffic will go is not known before: the times that depend on it hold for every pair.
    stand_in = experiment.model_copy(
        update={
            "workload": Workload(kind="all_to_all", bytes=4 * len(names), params={"ranks": len(names)}, values=None)
        }
    )
    resolved = resolve(stand_in, topology, clock=choice.clock, tdf=choice.tdf, base=base)
    sample = resolved.sample_ns
    if experiment.sample is None and choice.clock == "virtual":
        sample = MEASURED_SAMPLE_NS if program.compute == "measured" else SAMPLE_NS
    if program.compute == "measured" and choice.clock != "virtual":
        raise UsageError(
            "--compute measured needs the virtual clock", where="--compute",
            remedy="leave it out: on the real clock a program's computing takes what it takes",
        )  # fmt: skip
    workload = {"kind": KIND, "algorithm": None, "bytes": 0, **program.to_dict()}
    transport = {**resolved.transport, "mtu": mtu}
    name = experiment.name or f"exec-{PurePath(_title(program)).name}-{program.ranks}"
    return dataclasses.replace(
        resolved, name=name, workload=workload, transport=transport, sample_ns=sample
    ), choice.why


def _refuse_idle(program: Program, workload: Workload, kind: str) -> None:
    """Raises UsageError for what would do nothing."""
    given = workload.bytes if "bytes" in workload.model_fields_set else 0
    for key, value in (("algorithm", workload.algorithm), ("bytes", given), ("values", workload.values)):
        if value:
            raise UsageError("a program decides itself what it sends", where=f"workload.{key}", remedy="leave it out")
    if program.mpi and kind != "tcp":
        raise UsageError(
            f"MPI's messages go by TCP, not by {kind}",
            where="--transport",
            remedy="leave it out, or use --transport tcp",
        )
    if workload.params.get("algorithms") and kind == "tcp":
        raise UsageError(
            "a program's own TCP has no algorithm to choose", where="--algorithm", remedy="add --transport roce or mrc"
        )


def _choose(experiment: Experiment, network: Network, senders: Schedule) -> Choice:
    """Clock and factor. The kernel's own TCP carries more than our agents do, so it has a budget of its own."""
    if experiment.transport.kind != "tcp" or experiment.tdf != "auto":
        return choose(experiment, network, senders)
    choice = choose(experiment.model_copy(update={"tdf": 1}), network, senders)
    if choice.clock == "virtual":
        return choice
    names = [host.name for host in network.hosts]
    rate = sum(network.ports_of(names[move.src])[0].rate_bps for move in senders.moves)
    tdf = max(1, -(-rate // KERNEL_BPS))
    why = f"{rate / 1e9:.4g} Gbit/s of hosts on a machine that is trusted with {KERNEL_BPS / 1e9:g}: slowed {tdf}×"
    return Choice("real", tdf, f"{choice.why}; {why}; programs see wall time, results are fabric time")


def _title(program: Program) -> str:
    """The word of the command that names it: the script of an interpreter, else the program."""
    scripts = (word for word in program.command[1:] if word.endswith((".py", ".sh")))
    return next(scripts, program.command[0])


def _everyone(used: Sequence[int], hosts: int) -> Schedule:
    """A schedule in which each of the hosts that take part sends, for the planner."""
    ring = zip(used, [*used[1:], used[0]], strict=True)
    moves = tuple(Move(i, a, b, 0, 0, 1) for i, (a, b) in enumerate(ring) if a != b)
    return Schedule(KIND, KIND, hosts, 0, 0, moves)


def program_of(params: Mapping[str, Any], hosts: Sequence[str]) -> Program:
    """The program that a workload's parameters describe, on a fabric with these hosts. Raises UsageError."""
    unknown = next((key for key in params if key not in _PARAMS), None)
    if unknown is not None:
        raise UsageError(f'no parameter "{unknown}"; {nearest(unknown, _PARAMS)}', where="workload.params", remedy="")
    command = params.get("command")
    if not isinstance(command, Sequence) or isinstance(command, str) or not command:
        raise UsageError("there is no command", where="workload.params.command", remedy="give it as a list of words")
    per_host = int(params.get("ranks_per_host", 1))
    if per_host < 1:
        raise UsageError(f"{per_host} ranks a host", where="--ranks-per-host", remedy="use 1 or more")
    chosen, ranks = choose_hosts(hosts, hosts=params.get("hosts"), ranks=params.get("ranks"), ranks_per_host=per_host)
    mode, lasting = parse_compute(str(params.get("compute", "free")))
    return Program(
        command=tuple(map(str, command)),
        hosts=chosen,
        ranks=ranks,
        ranks_per_host=per_host,
        mpi=bool(params.get("mpi", False)),
        compute=mode,
        compute_ns=lasting,
        env={str(k): str(v) for k, v in dict(params.get("env", {})).items()},
        cwd=str(params.get("cwd", "/")),
        algorithms=_algorithms(dict(params.get("algorithms", {}))),
    )


def parse_compute(text: str) -> tuple[ComputeMode, int | None]:
    """`free`, `measured`, `fixed` or `fixed=2ms` as mode and nanoseconds. Raises UsageError."""
    remedy = "write free, measured, fixed, or fixed=2ms"
    if text == "free":
        return "free", None
    if text == "measured":
        return "measured", None
    name, equals, value = text.partition("=")
    if name != "fixed":
        raise UsageError(f'"{text}" is no way to compute', where="--compute", remedy=remedy)
    if not equals:
        return "fixed", None
    try:
        return "fixed", int(parse_duration(value))
    except UnitError as error:
        raise UsageError(error.what, where="--compute", remedy=error.remedy) from error


def _algorithms(given: Mapping[str, Any]) -> dict[str, str]:
    """The algorithm of each collective: the first known one, or what was asked for."""
    known = kinds()
    for name in given:
        if name not in COLLECTIVES:
            raise UsageError(
                f'no collective "{name}"; {nearest(name, COLLECTIVES)}',
                where="--algorithm",
                remedy="write NAME=ALGORITHM",
            )
        if given[name] not in known[name]:
            raise UsageError(
                f'{name} has no algorithm "{given[name]}"',
                where="--algorithm",
                remedy=f"choose {', '.join(known[name])}",
            )
    return {name: str(given.get(name, known[name][0])) for name in COLLECTIVES}
