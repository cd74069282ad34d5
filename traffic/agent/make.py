"""The worker that a specification asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traffic.agent.spec import WorkerSpec
    from traffic.agent.tcp_worker import TcpWorker
    from traffic.agent.worker import Worker


def make_worker(spec: WorkerSpec, *, delayed: bool) -> Worker | TcpWorker:
    """A worker with its sockets open and its connections made; `delayed` where netem delays what arrives."""
    if spec.transport.kind == "tcp":
        from traffic.agent.tcp_worker import TcpWorker

        return TcpWorker(spec, delayed=delayed)
    from traffic.agent.worker import Worker

    return Worker(spec, delayed=delayed)
