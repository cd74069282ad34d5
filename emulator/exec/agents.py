"""The agents of a program's run: one process that serves all its ranks, started before them and ended after them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from emulator.errors import RunFailed
from emulator.exec.program import Program
from emulator.experiment.beside import Lines, died
from emulator.experiment.execute import settle_transport, worker_spec
from emulator.fabric.fabric import Fabric
from traffic.agent.spec import WorkerResult, WorkerSpec
from traffic.collective.schedule import Move, Schedule

ADDRESS: Final = "FABRICLAB_AGENT"
_READY_S: Final = 60.0
_END_S: Final = 60.0


class Agents:
    """A context manager. Between `start` and `finish` the ranks find the agents at `address`.

    `fd` becomes readable when the agents have something to say; `problem` then tells whether they gave up.
    """

    def __init__(self, fabric: Fabric, program: Program, manifest: Mapping[str, Any], run_dir: Path) -> None:
        names = [node.name for node in fabric.plan.hosts]
        self._scratch = ExitStack()
        folder = self._scratch.enter_context(fabric.scratch())
        folder.chmod(0o755)  # ranks may be other users
        self.address = str(folder / "agent")
        self._answer = folder / "result.json"
        task = folder / "task.json"
        spec = program_spec(fabric, program, manifest, run_dir)
        order = {
            "spec": spec.to_json(),
            "delayed": fabric.plan.delay_mode == "netem",
            "host_of": [names.index(rank.host) for rank in program.placement()],
            "algorithms": program.algorithms,
            "socket": self.address,
            "answer": str(self._answer),
        }
        task.write_text(json.dumps(order), encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "traffic.agent.serve", str(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        fabric.adopt(self._process.pid)
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout)
        self.fd = self._process.stdout.fileno()

    def __enter__(self) -> Agents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._scratch.close()

    def await_ready(self) -> None:
        """Until their sockets are open and the idle fabric is measured. Raises RunFailed."""
        deadline = time.monotonic() + _READY_S
        while not self._lines.take("ready"):
            if not self._lines.wait(max(0.0, deadline - time.monotonic())) or time.monotonic() > deadline:
                raise died(self._process)
            for failure in self._lines.all("failed"):
                raise RunFailed(failure["what"], where=failure["where"] or "agents", remedy=failure["remedy"])

    def start(self, start_ns: int) -> None:
        """Their clock begins at this CLOCK_MONOTONIC time."""
        self._order({"start": start_ns})

    def problem(self) -> dict[str, str] | None:
        """Why they gave up, if they did; called when `fd` is readable."""
        is_open = self._lines.wait(0.0)
        for message in self._lines.all("done"):
            return dict(
                message["problem"] or {"what": "the agents left early", "where": "agents", "remedy": "see raw/"}
            )
        if not is_open:
            error = died(self._process)
            return {"what": error.what, "where": error.where, "remedy": error.remedy}
        return None

    def finish(self, *, well: bool) -> WorkerResult | None:
        """End them and take what they measured; None where they have nothing."""
        if self._process.poll() is None:
            self._order({"end": True} if well else {"stop": True})
            try:
                self._process.wait(timeout=_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if not self._answer.exists():
            return None
        return WorkerResult.from_json(json.loads(self._answer.read_text(encoding="utf-8")))

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it has gone; `problem` or `finish` says so


def program_spec(fabric: Fabric, program: Program, manifest: Mapping[str, Any], run_dir: Path) -> WorkerSpec:
    """What the agents are told: all hosts, and as schedule one move between each two hosts that take part."""
    plan = fabric.plan
    names = [node.name for node in plan.hosts]
    stand_in = {"kind": "all_to_all", "algorithm": None, "bytes": 4 * len(names), "ranks": len(names)}
    resolved = {**manifest["resolved"], "workload": stand_in}
    spec = worker_spec({**manifest, "resolved": resolved}, plan, fabric.netns)
    used = [names.index(host) for host in program.hosts]
    pairs = [(a, b) for a in used for b in used if a != b]
    moves = tuple(Move(i, a, b, 0, 0, 4) for i, (a, b) in enumerate(pairs))
    spec = dataclasses.replace(spec, schedule=Schedule("exec", "exec", len(names), 4, 0, moves))
    settle_transport(spec, manifest["resolved"]["transport"], fabric, run_dir)
    return spec
