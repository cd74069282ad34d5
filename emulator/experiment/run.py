"""One run from an experiment to a finished run directory, on either clock: what every run command calls."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from emulator.collect.environment import environment
from emulator.errors import NO_ROOM, FabricError, MissingCapability, RunFailed, no_room
from emulator.exec.program import KIND as PROGRAM
from emulator.exec.program import RUNNING
from emulator.experiment.manifest import SPOILED, keep_plugin, make_manifest, new_run_dir, write_json
from emulator.experiment.planner import Choice, choose, slower_after
from emulator.experiment.resolve import Resolved, make_workload, resolve
from emulator.experiment.spec import Experiment
from traffic import native
from traffic.errors import TrafficError

_MARK = "\x1efabriclab "
"""What a line of the guest begins with when it speaks to the host side and not to the user."""


class Watcher(Protocol):
    """Who is told how a run goes: a progress line, a live view, or nobody."""

    def step(self, text: str, done: int, total: int) -> None:
        """Building or taking away."""

    def progress(self, state: Mapping[str, Any]) -> None:
        """Traffic: `time_ns`, `bytes_done`, `bytes_total` …"""

    def note(self, text: str) -> None:
        """A sentence for the user."""


@dataclass(frozen=True)
class Finished:
    """A run that came to its end: where its results are, the summary, and the exit code of the verdict."""

    run_dir: Path
    summary: dict[str, Any]
    exit_code: int


def run(
    experiment: Experiment,
    *,
    out: Path,
    argv: Sequence[str],
    watch: Watcher,
    base: Path | None = None,
    earlier: Sequence[float] = (),
) -> Finished:
    """Run an experiment. `base` is the folder its paths are relative to; the run directory is made in `out`.

    `earlier` are the completion times (us) of runs of the same experiment and seed: the verdict looks at their spread.
    A run whose dilation was ours to choose and that only the machine spoiled is made once more, more slowly.
    """
    from emulator.topology.load import load_topology  # not needed in the guest, which imports this module too

    path = Path(experiment.topology)
    topology = load_topology(path if base is None or path.is_absolute() else base / path, experiment.topology_set)
    if experiment.workload.kind == PROGRAM:
        from emulator.exec.resolve import resolve_program

        resolved, why = resolve_program(experiment, topology, base)
        return run_resolved(resolved, out=out, argv=argv, watch=watch, why=why, earlier=earlier)
    network = topology.network()
    schedule, _ = make_workload(experiment, network)

    def attempt(choice: Choice) -> Finished:
        resolved = resolve(experiment, topology, clock=choice.clock, tdf=choice.tdf, base=base)
        return run_resolved(resolved, out=out, argv=argv, watch=watch, why=choice.why, earlier=earlier)

    choice = choose(experiment, network, schedule)
    first = attempt(choice)
    slower = slower_after(choice, experiment, first.summary)
    if slower is None:
        return first
    second = attempt(slower)
    first.run_dir.rename(second.run_dir / SPOILED)
    return second


def run_resolved(
    resolved: Resolved, *, out: Path, argv: Sequence[str], watch: Watcher, why: str, earlier: Sequence[float] = ()
) -> Finished:
    """Run what leaves nothing open; also how `rerun` runs an earlier manifest."""
    run_dir = new_run_dir(out, resolved.name)
    try:
        return _run_in(run_dir, resolved, argv=argv, watch=watch, why=why, earlier=earlier)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(error, str(run_dir)) from error
        raise


def _run_in(
    run_dir: Path, resolved: Resolved, *, argv: Sequence[str], watch: Watcher, why: str, earlier: Sequence[float]
) -> Finished:
    from emulator.experiment.finish import finish

    manifest = make_manifest(run_dir, resolved, argv=argv, why=why)
    keep_plugin(run_dir, resolved.transport)
    watch.note(why)
    before = environment()
    began = time.monotonic()
    if resolved.clock == "virtual":
        _in_guest(run_dir, manifest, resolved, watch)
    else:
        _here(run_dir, manifest, watch)
    manifest["clock"]["wall_s"] = round(time.monotonic() - began, 3)
    write_json(run_dir / "manifest.json", manifest)
    write_json(run_dir / "environment.json", {"before": before, "after": environment()})
    watch.step("writing results", 0, 1)
    summary, exit_code = finish(run_dir, manifest, earlier=earlier)
    _raise_problem(run_dir)
    return Finished(run_dir, summary, exit_code)


def _raise_problem(run_dir: Path) -> None:
    problem = json.loads((run_dir / "raw" / "worker.json").read_text(encoding="utf-8"))["problem"]
    if problem is not None:
        raise RunFailed(
            problem["what"],
            where=problem["where"],
            remedy=f"{problem['remedy']}{_and(problem['remedy'])}what was measured is in {run_dir}",
        )


def _and(remedy: str) -> str:
    """What joins a remedy and one more: after lines that a program printed it is a line of its own."""
    return "\n  " if "\n" in remedy else "; "


def _here(run_dir: Path, manifest: Mapping[str, Any], watch: Watcher) -> None:
    from emulator.experiment.execute import execute

    execute(run_dir, manifest, say=lambda kind, fields: _tell(watch, kind, fields))


def _tell(watch: Watcher, kind: str, fields: Mapping[str, Any]) -> None:
    if kind == "step":
        watch.step(fields["text"], fields["done"], fields["total"])
    elif kind == "progress":
        watch.progress(fields)
    elif kind != RUNNING:
        watch.note(str(fields.get("text", "")))


def _in_guest(run_dir: Path, manifest: Mapping[str, Any], resolved: Resolved, watch: Watcher) -> None:
    from emulator.clock.virtual import GuestLate, run_guest
    from emulator.port.objects import cache_dir, ensure_object

    ensure_object("bpf")
    run_dir = run_dir.resolve()
    failure: list[dict[str, Any]] = []
    running: list[str] = []
    other: list[str] = []

    def on_line(line: str) -> None:
        if line.startswith(_MARK):
            message = json.loads(line[len(_MARK) :])
            if message["kind"] == "failure":
                failure.append(message)
            elif message["kind"] == RUNNING:
                running[:] = message["names"]
            else:
                _tell(watch, message["kind"], message)
        elif line.strip():
            other.append(line)

    more: dict[str, Any] = {}
    if resolved.workload["kind"] == PROGRAM:
        from emulator.exec.guest import guest_options

        more = guest_options(resolved.workload)
    inside = str(more.get("run_at", run_dir))
    watch.step("starting the guest kernel", 0, 1)
    try:
        status = run_guest(
            [sys.executable, "-m", "emulator.experiment.guest", inside],
            run_dir=run_dir,
            wall_limit_s=resolved.wall_limit_s,
            on_line=on_line,
            cwd=Path(__file__).resolve().parents[2],
            seed=resolved.seed,
            env={"FABRICLAB_BPF_DIR": str(cache_dir()), **native.environment(), **more.pop("env", {})},
            **more,
        )
    except GuestLate as late:
        if not running:
            raise
        raise RunFailed(
            f"not finished after {resolved.wall_limit_s:g} s of wall time: {', '.join(running)} still running",
            where="virtual clock",
            remedy="raise --wall-limit, or see whether one of them computes without end: the virtual clock stands still meanwhile; "
            f"what they printed is in {run_dir / 'output'}",
        ) from late
    if failure:
        kind = MissingCapability if failure[0]["exit_code"] == MissingCapability.exit_code else RunFailed
        what, where, remedy = (failure[0][part].replace(inside, str(run_dir)) for part in ("what", "where", "remedy"))
        raise kind(what, where=where or "guest", remedy=remedy)
    if status != 0:
        tail = "\n".join(other[-15:])
        raise RunFailed(_ending(status), where="guest", remedy=tail or _SMALLER)


_SMALLER = (
    "it printed nothing; where vectors are large the memory or, after a segmentation fault, this machine's limit of memory maps "
    "(vm.max_map_count) may have run out: use fewer bytes or ranks, else report this"
)


def _ending(status: int) -> str:
    if status - 128 not in signal.valid_signals():
        return f"the program in the guest ended with status {status}"
    return f"the program in the guest was ended by {signal.Signals(status - 128).name}"


def guest_main(run_dir: Path) -> int:
    """What runs inside the guest: the same `execute`, told to the host side line by line.

    The run's id in there is the name by which the guest knows the run directory.
    """
    from emulator.experiment.execute import execute

    def say(kind: str, fields: Mapping[str, Any]) -> None:
        sys.stdout.write(_MARK + json.dumps({"kind": kind, **fields}) + "\n")
        sys.stdout.flush()

    manifest = {**json.loads((run_dir / "manifest.json").read_text(encoding="utf-8")), "run_id": run_dir.name}
    try:
        try:
            execute(run_dir, manifest, say=say)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise no_room(error, str(run_dir)) from error
            raise
    except (FabricError, TrafficError) as error:
        code = error.exit_code if isinstance(error, FabricError) else RunFailed.exit_code
        say("failure", {"what": error.what, "where": error.where, "remedy": error.remedy, "exit_code": code})
        return code
    return 0
