"""The worker: one event loop over all hosts' sockets, queue pairs and timers.

In real time it is a process of its own; in the guest it runs inside the caller, which hooks its sampler into the loop.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from traffic.agent.clock import Clock, Poller, set_timer_slack, sleep_until
from traffic.agent.connections import Connector
from traffic.agent.job import Job
from traffic.agent.nic import Nic
from traffic.agent.packet_socket import PacketSocket
from traffic.agent.probes import probe_paths
from traffic.agent.recorder import Recorder
from traffic.agent.ring_socket import RingSocket
from traffic.agent.spec import HostRecord, HostSpec, WorkerResult, WorkerSpec
from traffic.agent.work import Caller, Work
from traffic.packet.codec import Parser
from traffic.transport.base import NEVER, Memory, Sink

_SPIN_NS: Final = 60_000
_PROGRESS_NS: Final = {"real": 200_000_000, "virtual": 50_000}
"""CLOCK_MONOTONIC between two reports; what is printed costs no virtual time."""


class Hook(Protocol):
    """Something to do between events at its own times: `due` (fabric ns) says when, `run` does it."""

    due: int

    def run(self, now: int) -> None:
        """Called at or soon after `due`; must move `due` on."""


class Worker:
    """Runs one `WorkerSpec`. Sockets are opened by `__init__`; `run` starts at a CLOCK_MONOTONIC time and returns the result.

    `work` makes what is carried (the schedule of the specification unless told); `caller` brings more of it on the way.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        delayed: bool,
        work: Callable[[WorkerSpec, list[Memory]], Work] = Job,
        caller: Caller | None = None,
    ) -> None:
        self.spec = spec
        self.caller = caller
        self.sink = Sink()
        self.hold = any(any(row) for row in spec.hold_ns)
        self.records = [HostRecord(h.rank) for h in spec.hosts]
        self.memories = [Memory() for _ in spec.hosts]
        self.sockets = [self._open(h, delayed) for h in spec.hosts]
        self.everybody = list(range(len(self.sockets)))
        self.by_fd = {s.fd: i for i, s in enumerate(self.sockets)}
        self.called = False
        self.addresses = [ip_number(h.ip) for h in spec.hosts]
        self.parser = Parser()
        self.nics = [
            Nic(rank=h.rank, rate_bps=h.rate_bps, socket=s, record=r, catch_up_ns=4 * spec.quantum_ns)
            for h, s, r in zip(spec.hosts, self.sockets, self.records, strict=True)
        ]
        self.job = work(spec, self.memories)
        self.job.connect(Connector(spec, self.nics, self.memories, self.sink), spec.transport.options["qps"])
        self.owner = {ip_number(h.ip): h.rank for h in spec.hosts}
        self.held: list[tuple[int, int, int, bytes, int]] = []
        self.released: dict[bytes, int] = {}
        self.order = 0
        self.recorder = Recorder(spec, self.nics)
        self.active = False

    def _open(self, host: HostSpec, delayed: bool) -> PacketSocket:
        spec = self.spec
        if spec.clock != "virtual":
            return PacketSocket(host.netns, host.ifname, delayed=delayed)
        # Between two looks at most a few quanta of full packets arrive, and acknowledgements of as many sent.
        slots = 8 * host.rate_bps * max(1_000, spec.quantum_ns) // (8_000_000_000 * spec.transport.mtu)
        return RingSocket(host.netns, host.ifname, delayed=delayed, slots=slots)

    def run(
        self,
        start_ns: int,
        *,
        hooks: Sequence[Hook] = (),
        progress: Callable[[dict[str, Any]], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> WorkerResult:
        """Run from `start_ns` (CLOCK_MONOTONIC) to the end of the workload, a limit, or `stop()`; then drain."""
        set_timer_slack()
        spec = self.spec
        caller = self.caller
        poller = Poller([*(s.fd for s in self.sockets), *(() if caller is None else (caller.fd,))])
        self._warm_up(poller)
        self.clock = clock = Clock(tdf=spec.tdf, start_ns=start_ns)
        sleep_until(start_ns)
        self.recorder.start()
        wall_limit = time.monotonic_ns() + int(spec.limit_wall_s * 1e9) if spec.clock == "real" else NEVER
        next_progress = 0
        drain_until = NEVER
        now, ready = clock.now(), self._ready(poller.wait(0))
        while True:
            self.active = False
            if caller is not None and self.called:
                caller.serve(now)
            self._receive(ready, now)
            self._step(now)
            for hook in hooks:
                if hook.due <= now:
                    hook.run(now)
            job = self.job
            if self.sink.failures or now > spec.limit_fabric_ns or (caller is not None and caller.stopped):
                break
            if job.finished and not self.held:
                if drain_until == NEVER:
                    self.recorder.end_ns = now
                    for nic in self.nics:
                        if nic.receiving is not None:
                            nic.receiving.close(now)
                    drain_until = now + 2 * self.recorder.longest_rtt_ns + 2_000
                elif now >= drain_until:
                    break
            if progress is not None or stop is not None:
                wall = time.monotonic_ns() if spec.clock == "real" else now
                if wall > wall_limit:
                    break
                if wall >= next_progress:
                    next_progress = wall + _PROGRESS_NS[spec.clock]
                    if progress is not None:
                        progress(self.recorder.snapshot(now, self.job))
                    if stop is not None and stop():
                        break
            now, ready = self._wait(poller, now, min(drain_until, min((h.due for h in hooks), default=NEVER)))
        self.recorder.stop()
        poller.close()
        return self.recorder.result(self.job, self.sink, clock)

    def probe(self) -> list[tuple[int, int, int, int]]:
        """Idle probes over the workload's paths; only while no traffic runs."""
        return probe_paths(self.spec, self.sockets, self.records)

    def _warm_up(self, poller: Poller) -> None:
        """Take every first-time cost (pages, symbols, caches) before the clock that counts starts; drops what lies waiting."""
        for socket in self.sockets:
            while socket.receive():
                socket.release()
            socket.flush()
        poller.wait(0)
        sleep_until(time.monotonic_ns() + 1)

    def _receive(self, ready: list[int], now: int) -> None:
        clock, spec = self.clock, self.spec
        for index in ready:
            socket = self.sockets[index]
            while True:
                frames = socket.receive()
                self.active = self.active or bool(frames)
                for frame, stamp in frames:
                    at = clock.at(stamp) if stamp else now
                    if self.hold:
                        source = self.owner.get(int.from_bytes(frame[26:30]), index)
                        release = self._in_turn(frame, at + spec.held_ns(source, index, len(frame)))
                        self.order += 1
                        heapq.heappush(self.held, (release, self.order, index, bytes(frame), at))
                    else:
                        self._take(index, frame, now, at, at)
                socket.release()
                if len(frames) != socket.batch:
                    break
        while self.held and self.held[0][0] <= now:
            release, _, index, data, stamp = heapq.heappop(self.held)
            self.recorder.late(now - release)
            self._take(index, memoryview(data), now, release, stamp)

    def _in_turn(self, frame: memoryview, release: int) -> int:
        """Not before an earlier packet of the same path: a short one is held for less, but overtakes nothing."""
        path = bytes(frame[26:36])  # both addresses and the UDP source port
        release = self.released[path] = max(release, self.released.get(path, 0))
        return release

    def _take(self, index: int, frame: memoryview, now: int, at: int, stamp: int) -> None:
        """One frame: it arrives at `at`, and left the last port at `stamp` (the same unless this side adds the delay)."""
        record = self.records[index]
        packet = self.parser.parse(frame)
        if packet is None or packet.dst_ip != self.addresses[index]:
            record.rx_foreign += 1
            return
        record.rx_packets += 1
        record.rx_bytes += len(frame)
        if packet.ecn == 3:
            record.rx_ce += 1
        if packet.trimmed:
            record.rx_trimmed += 1
        elif not packet.icrc_ok:
            record.icrc_errors += 1
            return
        nic = self.nics[index]
        qp = nic.receive(packet, now, at)
        if qp is not None:
            self.recorder.arrived(index, packet, stamp)
            self.recorder.rate(qp, now)

    def _step(self, now: int) -> None:
        """Timers, deliveries, new moves, then everything that may leave."""
        until = now + self.spec.quantum_ns
        nics, job, sink = self.nics, self.job, self.sink
        for nic in nics:
            if nic.timer <= now:
                for qp in nic.expire(now):
                    self.recorder.rate(qp, now)
        if sink.delivered:
            for delivery in sink.delivered:
                job.delivered(delivery)
            sink.delivered.clear()
        if sink.completed:
            for work, at in sink.completed:
                job.completed(work, at)
            sink.completed.clear()
        for rank in job.post_due(now):
            nics[rank].wake()
        for nic in nics:
            if nic.ready <= until:
                if 0 < nic.ready < NEVER:
                    self.recorder.late(now - nic.ready)
                nic.transmit(now, until)
                self.active = True

    def _wait(self, poller: Poller, now: int, limit: int) -> tuple[int, list[int]]:
        """Sleep until something may happen; the time then, and the sockets that may have frames."""
        due = min(limit, self.spec.limit_fabric_ns + 1)
        for nic in self.nics:
            if nic.ready < due:
                due = nic.ready
            if nic.timer < due:
                due = nic.timer
        start = self.job.next_start()
        if start is not None and start < due:
            due = start
        if self.held and self.held[0][0] < due:
            due = self.held[0][0]
        clock, spec = self.clock, self.spec
        self.recorder.wakeups += 1
        if spec.clock == "virtual" and self.active and due > now:
            # Computing takes no time here: a sleep ends when it should, and looking at a ring is no system call.
            due = min(due, now + spec.quantum_ns)
            sleep_until(clock.monotonic(due))
            if self.caller is not None:
                self._ready(poller.wait(0))
            return due, self.everybody
        wait = clock.monotonic(due) - time.monotonic_ns()
        if spec.clock == "real":
            wait = min(wait, 50_000_000)
            wait = wait - _SPIN_NS if wait > _SPIN_NS else 0
        fds = poller.wait(max(0, wait))
        return clock.now(), self._ready(fds)

    def _ready(self, fds: list[int]) -> list[int]:
        """The hosts whose sockets are among the descriptors; notes whether the caller's is."""
        self.called = self.caller is not None and self.caller.fd in fds
        return [self.by_fd[fd] for fd in fds if fd in self.by_fd]

    def close(self) -> None:
        """Close all sockets."""
        for socket in self.sockets:
            socket.close()


def ip_number(address: str) -> int:
    """A dotted IPv4 address as the integer the codec reports."""
    a, b, c, d = (int(part) for part in address.split("."))
    return a << 24 | b << 16 | c << 8 | d
