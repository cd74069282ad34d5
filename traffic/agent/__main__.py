"""The worker as a process: told by a file and its standard input, answers by a file and its standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traffic import native
from traffic.errors import TrafficError


def _say(kind: str, fields: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **fields}) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the specification named on the command line; with compiled modules where they are built."""
    native.enable()
    from traffic.agent.make import make_worker
    from traffic.agent.spec import WorkerSpec
    from traffic.congestion.plugin import blamed

    task = json.loads(Path(sys.argv[1]).read_text())
    parent = os.getppid()
    spec = WorkerSpec.from_json(task["spec"])
    try:
        with blamed(spec.transport.cc):
            worker = make_worker(spec, delayed=task["delayed"])
    except TrafficError as error:
        _say("failed", {"what": error.what, "where": error.where, "remedy": error.remedy})
        return 1
    try:
        probes = worker.probe()
        _say("ready", {})
        line = sys.stdin.readline()
        if not line:
            return 1
        with blamed(spec.transport.cc):
            result = worker.run(
                json.loads(line)["start"],
                progress=lambda state: _say("progress", state),
                stop=lambda: os.getppid() != parent,
            )
        _say("ended", {"time_ns": worker.clock.now()})
        result.probes = probes + worker.probe()
        Path(task["answer"]).write_text(json.dumps(result.to_json()))
        _say("done", {})
    except TrafficError as error:
        _say("failed", {"what": error.what, "where": error.where, "remedy": error.remedy})
        return 1
    finally:
        worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
