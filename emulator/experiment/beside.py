"""The worker as a process of its own, the sampler beside it: how a run goes on the real clock.

Protocol on the worker's standard streams, one JSON object a line: the worker says `ready` (or `failed` and why), is told `start`, says
`progress` now and then, and `done` when its result is in the file it was named.
"""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from emulator.collect.capture import DRAIN_NS
from emulator.collect.sampler import Sampler
from emulator.errors import RunFailed
from emulator.experiment.execute import monotonic_start
from emulator.fabric.fabric import Fabric
from traffic.agent.clock import Clock
from traffic.agent.spec import WorkerResult, WorkerSpec

if TYPE_CHECKING:
    from emulator.collect.capture import Capture

_READY_S = 60.0
_LEAD_S = 0.05
_LAST_S = 1.0


def run_worker(
    spec: WorkerSpec,
    fabric: Fabric,
    sample_ns: int,
    say: Callable[[str, Mapping[str, Any]], None],
    capture: Capture | None = None,
) -> tuple[WorkerResult, dict[str, Any]]:
    """Run the worker; its result and the samples."""
    with fabric.scratch() as folder:
        task, answer = folder / "spec.json", folder / "result.json"
        delayed = fabric.plan.delay_mode == "netem"
        task.write_text(json.dumps({"spec": spec.to_json(), "delayed": delayed, "answer": str(answer)}))
        process = subprocess.Popen(
            [sys.executable, "-m", "traffic.agent", str(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        fabric.adopt(process.pid)
        try:
            samples = _drive(process, spec, fabric, sample_ns, say, capture)
            if process.wait(timeout=30) != 0 or not answer.exists():
                raise died(process)
            return WorkerResult.from_json(json.loads(answer.read_text())), samples
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _drive(
    process: subprocess.Popen[bytes],
    spec: WorkerSpec,
    fabric: Fabric,
    sample_ns: int,
    say: Callable[[str, Mapping[str, Any]], None],
    capture: Capture | None,
) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    lines = Lines(process.stdout)
    deadline = time.monotonic() + _READY_S
    while not lines.take("ready"):
        if not lines.wait(max(0.0, deadline - time.monotonic())):
            raise died(process)
        _raise_failure(lines)
    start = monotonic_start(_LEAD_S, 1_000_000)
    if capture is not None:
        capture.zero_ns = Clock(tdf=spec.tdf, start_ns=start).offset_ns + start
    process.stdin.write(json.dumps({"start": start}).encode() + b"\n")
    process.stdin.flush()
    sampler = Sampler(fabric.ports, period_ns=sample_ns, clock=lambda: (time.monotonic_ns() - start) // spec.tdf)
    due, ended = start, None
    limit = time.monotonic() + spec.limit_wall_s + 30
    while not lines.take("done"):
        for state in lines.all("progress"):
            say("progress", {**state, **sampler.latest(), "wall_ns": time.monotonic_ns()})
        for message in lines.all("ended"):
            ended = message["time_ns"]
        _raise_failure(lines)
        now = time.monotonic_ns()
        if now >= due:
            sampler.sample((now - start) // spec.tdf)
            due += sample_ns * spec.tdf * max(1, (time.monotonic_ns() - due) // (sample_ns * spec.tdf) + 1)
        wake = due
        if capture is not None:
            capture.drain()
            wake = min(due, now + DRAIN_NS)
        if not lines.wait(max(0.0, (wake - time.monotonic_ns()) / 1e9)) or time.monotonic() > limit:
            raise died(process)
    if capture is not None:
        capture.stop(ended)
    return sampler.finish()


def _raise_failure(lines: Lines) -> None:
    for failure in lines.all("failed"):
        raise RunFailed(failure["what"], where=failure["where"] or "agents", remedy=failure["remedy"])


class Lines:
    """JSON lines of a pipe, read as they come."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.fd = pipe.fileno()
        self.pending = b""
        self.messages: list[dict[str, Any]] = []
        self.open = True

    def wait(self, seconds: float) -> bool:
        """Wait for input; False once the pipe is closed."""
        if select.select([self.fd], [], [], seconds)[0]:
            import os

            data = os.read(self.fd, 65536)
            if not data:
                self.open = False
            self.pending += data
            *whole, self.pending = self.pending.split(b"\n")
            self.messages += [json.loads(line) for line in whole if line.strip()]
        return self.open or bool(self.messages)

    def take(self, kind: str) -> bool:
        """Whether a message of that kind has come; it is taken away."""
        return bool(self.all(kind))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All messages of that kind so far, taken away."""
        out = [m for m in self.messages if m.get("kind") == kind]
        self.messages = [m for m in self.messages if m.get("kind") != kind]
        return out


def died(process: subprocess.Popen[bytes]) -> RunFailed:
    """Why a worker that speaks no more has ended; one that lives is ended."""
    try:
        process.wait(timeout=_LAST_S)  # its pipe closes a moment before it is gone
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return RunFailed(
            "the worker lives, but does not answer any more",
            where="agents",
            remedy="it was stopped or starved: run again when the machine is less busy, or use --clock virtual",
        )
    _, errors = process.communicate()
    text = errors.decode(errors="replace").strip().splitlines()
    if process.returncode < 0 and not text:
        return RunFailed(
            f"the worker was ended from outside ({signal.Signals(-process.returncode).name})",
            where="agents",
            remedy="a user did it, or the system when memory ran out (`dmesg` tells); run again",
        )
    return RunFailed(
        f"the worker ended with status {process.returncode}" + (f": {text[-1]}" if text else ""),
        where="agents",
        remedy="run again with -vv for its traceback" if not text else "\n".join(text[-12:]),
    )
