"""The worker for kernel TCP: one event loop over all hosts' sockets; the kernels do the rest."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from traffic.agent import kernel_counts, tcp_socket
from traffic.agent.clock import Clock, Poller, set_timer_slack, sleep_until
from traffic.agent.job import Job
from traffic.agent.packet_socket import PacketSocket
from traffic.agent.probes import probe_paths
from traffic.agent.spec import HostRecord, KernelHostRecord, WorkerResult, WorkerSpec
from traffic.agent.tcp_connections import TcpConnection, TcpConnector
from traffic.agent.tcp_recorder import TcpRecorder
from traffic.errors import TrafficError
from traffic.transport.base import NEVER, Delivery, Memory, Verb
from traffic.transport.tcp import HEADER

if TYPE_CHECKING:
    from traffic.agent.worker import Hook

_PROGRESS_NS = {"real": 200_000_000, "virtual": 50_000}
_CHECK_NS = 50_000_000
_SETTLE_WALL_NS = 2_000_000
_PIECE = 4096
"""Pieces are multiples of this, and so of every segment size."""
_FIRST = 16 << 10
"""Bytes each connection gets to send before any gets more: handing over costs the guest's time, and starts are to be common."""


class TcpWorker:
    """Runs one `WorkerSpec` of kind tcp. Connections are made by `__init__`; `run` starts at a CLOCK_MONOTONIC time."""

    def __init__(self, spec: WorkerSpec, *, delayed: bool) -> None:
        self.spec = spec
        self.delayed = delayed
        self.memories = [Memory() for _ in spec.hosts]
        self._probed = [HostRecord(h.rank) for h in spec.hosts]
        self._first_probes: list[tuple[int, int, int, int]] | None = self._send_probes()
        # Probes are packets of ours, which the packet sockets count; the kernel's counters cover what is not.
        self.before = [kernel_counts.read(h.netns) for h in spec.hosts]
        self.connector = TcpConnector(spec, self.memories)
        self.job = Job(spec, self.memories)
        try:
            self.job.connect(self.connector, spec.transport.options["qps"])
        except TrafficError:
            self.connector.close()
            raise
        self.connector.close_listeners()
        self.connections = self.connector.connections
        self.dirty = self.connector.dirty
        self.recorder = TcpRecorder(spec, self.connections)
        self.failures: list[TrafficError] = []
        self.hosts: list[KernelHostRecord] = []
        self._senders = {c.sock.fileno(): c for c in self.connections}
        self._receivers = {c.peer.fileno(): c for c in self.connections}
        for c in self.connections:
            tcp_socket.await_bytes(c.peer, HEADER.size)

    def probe(self) -> list[tuple[int, int, int, int]]:
        """Idle probes over the workload's paths: at first those sent before the connections were made, then new ones."""
        first, self._first_probes = self._first_probes, None
        if first is not None:
            return first
        probes = self._send_probes()
        self._add_probes()
        return probes

    def _add_probes(self) -> None:
        """Put what the probes' sockets counted to the hosts' records."""
        for record, counted in zip(self.hosts, self._probed, strict=True):
            kernel_counts.add(record, counted)
        self._probed = [HostRecord(h.rank) for h in self.spec.hosts]

    def _send_probes(self) -> list[tuple[int, int, int, int]]:
        sockets = [PacketSocket(h.netns, h.ifname, delayed=self.delayed) for h in self.spec.hosts]
        try:
            return probe_paths(self.spec, sockets, self._probed)
        finally:
            for sock in sockets:
                sock.close()

    def run(
        self,
        start_ns: int,
        *,
        hooks: Sequence[Hook] = (),
        progress: Callable[[dict[str, Any]], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> WorkerResult:
        """Run from `start_ns` (CLOCK_MONOTONIC) to the end of the workload, a limit, or `stop()`; then drain and close."""
        set_timer_slack()
        spec, recorder, job = self.spec, self.recorder, self.job
        fds = [*self._senders, *self._receivers]
        self.poller = poller = Poller(fds, [0] * len(self._senders) + [select.EPOLLIN] * len(self._receivers))
        self.clock = clock = Clock(tdf=spec.tdf, start_ns=start_ns)
        sleep_until(start_ns)
        recorder.start()
        wall_limit = time.monotonic_ns() + int(spec.limit_wall_s * 1e9) if spec.clock == "real" else NEVER
        next_progress = 0
        drain_until = NEVER
        events = poller.events(0)
        while True:
            now = clock.now()
            for hook in hooks:  # before anything else takes time
                if hook.due <= now:
                    hook.run(now)
            for fd, mask in events:
                self._event(fd, mask, now)
            job.post_due(now)
            self._push(now)
            recorder.sample(now)
            if self.failures or now > spec.limit_fabric_ns:
                break
            if not job.undelivered and not job.unacked:
                if drain_until == NEVER:
                    recorder.end_ns = now
                    drain_until = now + 2 * recorder.longest_rtt_ns + 2_000
                elif now >= drain_until:
                    break
            if progress is not None or stop is not None:
                wall = time.monotonic_ns()
                if wall > wall_limit:
                    break
                if wall >= next_progress:
                    next_progress = wall + _PROGRESS_NS[spec.clock]
                    if progress is not None:
                        progress(recorder.snapshot(now, job))
                    if stop is not None and stop():
                        break
            events = self._wait(poller, min(drain_until, min((h.due for h in hooks), default=NEVER)))
        recorder.stop()
        poller.close()
        self.hosts = self._finish()
        self._add_probes()
        return recorder.result(job, clock, self.failures, self.hosts)

    def _event(self, fd: int, mask: int, now: int) -> None:
        sender = self._senders.get(fd)
        c = sender or self._receivers[fd]
        try:
            if sender is not None:
                self._acknowledged(sender, mask, now)
            else:
                self._read(c, now)
        except OSError as error:
            self._fail(c, error.strerror or str(error))
        except TrafficError as error:
            self.failures.append(error)

    def _fail(self, c: TcpConnection, why: str) -> None:
        self.failures.append(
            TrafficError(f"the connection failed: {why}", where=c.label, remedy="look at the drops in the summary")
        )

    def _acknowledged(self, c: TcpConnection, mask: int, now: int) -> None:
        """The sender's socket has room, or knows of an acknowledgement; epoll comes again for more (to ask in vain costs time)."""
        if mask & select.EPOLLERR:
            found = tcp_socket.ack_stamp(c.sock)
            if found is None:
                self._fail(c, os.strerror(tcp_socket.failure(c.sock)))
                return
            done = c.outbox.acknowledged(found[0])
            if done:
                self.recorder.settle(c, self.job, done)
                at = min(now, self.clock.at(found[1]))
                for work in done:
                    self.job.completed(work, at)
        if mask & select.EPOLLOUT:
            c.room = tcp_socket.NOT_SENT // 2
            self.dirty.append(c)

    def _read(self, c: TcpConnection, now: int) -> None:
        """Take what has come up to the end of a message, to its place; if more is there, epoll says so at once."""
        while True:
            target = c.inbox.want()
            count, stamp = tcp_socket.receive(c.peer, target)
            if count < 0:
                break
            if count == 0:
                self._fail(c, "the other end closed it")
                return
            done = c.inbox.took(count)
            if done is not None:
                tcp_socket.acknowledge(c.peer)
                at = min(now, self.clock.at(stamp)) if stamp else now
                if self.job.dependents.get(done.move):
                    self.recorder.late.append(now - at)
                self.job.delivered(Delivery(c.number, Verb.WRITE_IMM, done.move, done.size, at, 0, 0, 0))
                break
            if count < target.nbytes:
                break
        tcp_socket.await_bytes(c.peer, c.inbox.want().nbytes)

    def _push(self, now: int) -> None:
        """Hand over what the kernel has room for, as far as that is known; epoll tells when there is more (EPOLLOUT)."""
        todo = [c for c in dict.fromkeys(self.dirty) if c.outbox.waiting]
        self.dirty.clear()
        for c in todo:
            self.recorder.watch(c, now)
        most, ready = _FIRST, todo
        while ready:
            ready = [c for c in ready if self._hand(c, min(most, c.room // _PIECE * _PIECE))]
            most = tcp_socket.NOT_SENT
        for c in todo:
            blocked = bool(c.outbox.waiting)
            if blocked != c.blocked:
                c.blocked = blocked
                self.poller.change(c.sock.fileno(), select.EPOLLOUT if blocked else 0)

    def _hand(self, c: TcpConnection, most: int) -> bool:
        """One piece of what waits at a connection, up to `most` bytes; whether the kernel has room for another one."""
        if not most:
            return False
        buffers, last = c.outbox.gather(most)
        try:
            taken = tcp_socket.send(c.sock, buffers, last=last)
        except OSError as error:
            self._fail(c, error.strerror or str(error))
            return False
        c.outbox.handed(taken)
        c.room = c.room - taken if taken == sum(len(b) for b in buffers) else 0
        return bool(c.outbox.waiting)

    def _wait(self, poller: Poller, limit: int) -> list[tuple[int, int]]:
        """Sleep until something may happen; what did."""
        due = min(limit, self.spec.limit_fabric_ns + 1, self.recorder.next_sample)
        start = self.job.next_start()
        if start is not None and start < due:
            due = start
        self.recorder.wakeups += 1
        wait = max(0, self.clock.monotonic(due) - time.monotonic_ns())
        return poller.events(min(wait, _CHECK_NS) if self.spec.clock == "real" else wait)

    def _finish(self) -> list[KernelHostRecord]:
        """Last counts of every connection, then resets, and what the hosts counted once those have arrived."""
        for c in self.connections:
            self.recorder.settle(c, self.job, ())
        for ends in ([c.sock for c in self.connections], [c.peer for c in self.connections]):
            for sock in ends:
                tcp_socket.reset(sock)
            rest = 2 * self.recorder.longest_rtt_ns * self.spec.tdf
            sleep_until(time.monotonic_ns() + rest + (_SETTLE_WALL_NS if self.spec.clock == "real" else 0))
        after = [kernel_counts.read(h.netns) for h in self.spec.hosts]
        pairs = zip(self.spec.hosts, self.before, after, strict=True)
        return [kernel_counts.host_record(h.rank, old, new) for h, old, new in pairs]

    def close(self) -> None:
        """Close all sockets."""
        self.connector.close()
