"""Runs for tests: one call from an experiment to a finished run, each distinct one made once a session."""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator.experiment.run import Finished, run
from emulator.experiment.spec import Experiment
from emulator.report.api import Run

ROOT = Path(__file__).parents[1]
TOPOLOGIES = ROOT / "topologies"


class Silent:
    """Nobody watches."""

    def step(self, text: str, done: int, total: int) -> None:
        pass

    def progress(self, state: Mapping[str, Any]) -> None:
        pass

    def note(self, text: str) -> None:
        pass


@functools.cache
def runs_folder() -> Path:
    """Where the runs of this session lie; removed at its end."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="fabriclab-tests-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder, True)
    return folder


def fresh(**experiment: Any) -> Finished:
    """A new run of an experiment; `topology` is a name in topologies/."""
    spec = Experiment.model_validate({**experiment, "topology": str(TOPOLOGIES / f"{experiment['topology']}.yaml")})
    return run(spec, out=runs_folder(), argv=["tests"], watch=Silent())


@functools.cache
def _made(key: str) -> Finished:
    return fresh(**json.loads(key))


def busy_elsewhere() -> bool:
    """Whether other work keeps this machine busier than one test can: then the real clock may not be believed, and no test blames it."""
    return os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)


def made(**experiment: Any) -> Run:
    """The run of an experiment, made at the first asking."""
    return Run(_made(json.dumps(experiment, sort_keys=True)).run_dir)


def incast(clock: str, transport: str = "roce", cc: str | None = None, *, senders: int = 7, **more: Any) -> Run:
    """An incast on leaf-spine-2x2x4."""
    return made(
        topology="leaf-spine-2x2x4",
        workload={"kind": "incast", "bytes": "1MB", "params": {"senders": senders}},
        transport={"kind": transport, "cc": cc},
        clock=clock,
        **more,
    )


def allreduce(clock: str, transport: str, *, size: str = "4MB", topology: str = "leaf-spine-2x2x4", **more: Any) -> Run:
    """A ring all-reduce over eight ranks."""
    return made(
        topology=topology,
        workload={"kind": "allreduce", "bytes": size, "params": {"ranks": 8}},
        transport={"kind": transport},
        clock=clock,
        **more,
    )


def check_of(run: Run, ident: str) -> dict[str, Any]:
    """One check of the verdict, F1 … F14."""
    return next(c for c in run.summary["verdict"]["checks"] if c["id"] == ident)


def port_of(run: Run, name: str) -> dict[str, Any]:
    """One port's line of the summary."""
    return next(q for q in run.summary["queues"] if q["port"] == name)
