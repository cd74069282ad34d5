"""The agents of a program's run as a process: told by a file and its standard input, open to the ranks at a Unix socket.

Orders come as JSON lines: `{"start": CLOCK_MONOTONIC ns}` once, then `{"end": true}` when the program has ended well, or
`{"stop": true}` to leave at once. It answers `ready`, `problem` (a connection failed), and `done` with its result in a file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traffic.agent.calls import Calls
from traffic.agent.rank_server import RankServer
from traffic.agent.spec import WorkerSpec
from traffic.agent.worker import Worker
from traffic.errors import TrafficError
from traffic.transport.base import Memory


def _say(kind: str, fields: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **fields}) + "\n")
    sys.stdout.flush()


class _Orders:
    """The launcher's words on standard input; its end means that the launcher is gone."""

    def __init__(self) -> None:
        self.stopped = False
        self.ended = False
        self._pending = b""

    def read(self) -> None:
        """Take the lines that wait."""
        data = os.read(0, 4096)
        self.stopped = self.stopped or not data
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            self.stopped = self.stopped or bool(order.get("stop"))
            self.ended = self.ended or bool(order.get("end"))


class _Caller:
    """The rank server as the loop sees it."""

    def __init__(self, server: RankServer, orders: _Orders, calls: Calls) -> None:
        self.fd = server.fd
        self._server = server
        self._orders = orders
        self._calls = calls

    @property
    def stopped(self) -> bool:
        """Whether to leave at once."""
        return self._orders.stopped

    def serve(self, now: int) -> None:
        """Take what waits: calls of the ranks, and orders."""
        self._server.serve(now)
        self._calls.closing = self._orders.ended


def main() -> int:
    """Serve the ranks of the program named on the command line."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spec = WorkerSpec.from_json(task["spec"])
    made: list[Calls] = []
    if spec.clock == "virtual":
        # Where this work takes no time it is done before the ranks go on, like that of a network card.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))

    def work(of: WorkerSpec, memories: list[Memory]) -> Calls:
        made.append(Calls(of, memories, task["host_of"]))
        return made[0]

    try:
        worker = Worker(spec, delayed=task["delayed"], work=work)
    except TrafficError as error:
        _say("failed", {"what": error.what, "where": error.where, "remedy": error.remedy})
        return 1
    calls, orders = made[0], _Orders()
    server = RankServer(Path(task["socket"]), calls, worker.memories, task["algorithms"], {0: orders.read})
    worker.caller = _Caller(server, orders, calls)
    try:
        probes = worker.probe()
        _say("ready", {})
        line = bytearray()
        while not line.endswith(b"\n"):  # byte by byte: what follows is read by the loop
            byte = os.read(0, 1)
            if not byte:
                return 1
            line += byte
        result = worker.run(json.loads(line)["start"])
        result.probes = probes + ([] if orders.stopped else worker.probe())
        result.events = sorted([*result.events, *calls.events], key=lambda e: e["time_ns"])
        Path(task["answer"]).write_text(json.dumps(result.to_json()), encoding="utf-8")
        _say("done", {"problem": result.problem})
    finally:
        worker.close()
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
