"""The worker that a specification asks for."""

from __future__ import annotations

from traffic.agent.spec import WorkerSpec
from traffic.agent.tcp_worker import TcpWorker
from traffic.agent.worker import Worker


def make_worker(spec: WorkerSpec, *, delayed: bool) -> Worker | TcpWorker:
    """A worker with its sockets open and its connections made; `delayed` where netem delays what arrives."""
    return TcpWorker(spec, delayed=delayed) if spec.transport.kind == "tcp" else Worker(spec, delayed=delayed)
