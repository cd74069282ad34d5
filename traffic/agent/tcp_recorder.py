"""What the TCP worker writes down: TCP_INFO over time, packets by move, and the result."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import Any

from traffic.agent import tcp_socket
from traffic.agent.clock import Clock
from traffic.agent.job import Job
from traffic.agent.recorder import run_wait_ns
from traffic.agent.spec import KernelHostRecord, MoveRecord, WorkerResult, WorkerSpec
from traffic.agent.tcp_connections import TcpConnection
from traffic.collective.check import averages, count_wrong
from traffic.errors import TrafficError
from traffic.transport.base import NEVER, WorkRequest
from traffic.transport.tcp import TcpInfo

_FIXED = ("time_ns", "flow", "qp", "rate_bps", "window_bytes", "rtt_ns", "trigger")
_LONGEST_STEP = 100
_LATE = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
_LEAST_WALL_NS = 1_000_000
"""On the real clock a sample costs system calls that packets wait for."""


class TcpRecorder:
    """Grows plain lists. A connection is sampled while it has something to send, less often while nothing changes."""

    def __init__(self, spec: WorkerSpec, connections: Sequence[TcpConnection]) -> None:
        self.spec = spec
        self.connections = connections
        self.period_ns = spec.rate_sample_ns
        if spec.clock == "real":
            self.period_ns = max(self.period_ns, _LEAST_WALL_NS // spec.tdf)
        self.longest_rtt_ns = max((max(row) for row in spec.base_rtt_ns), default=0)
        self.end_ns = -1
        self.wakeups = 0
        self.bytes_acked = 0
        self.late: list[int] = []
        """How long messages that others wait for lay with the kernel, whole, before the agent took them."""
        self.rows: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._due: list[tuple[int, int]] = []
        self._step: dict[int, int] = {}
        self._last: dict[int, TcpInfo] = {}
        self._paced = spec.transport.cc == "bbr"
        self.cpu_s = self.wall_s = 0.0
        self.waited_ns = 0

    def start(self) -> None:
        """The loop begins."""
        self.cpu_s, self.wall_s = time.process_time(), time.monotonic()
        self.waited_ns = run_wait_ns()

    def stop(self) -> None:
        """The loop has ended."""
        self.cpu_s, self.wall_s = time.process_time() - self.cpu_s, time.monotonic() - self.wall_s
        self.waited_ns = run_wait_ns() - self.waited_ns

    @property
    def next_sample(self) -> int:
        """When the next connection is to be looked at."""
        return self._due[0][0] if self._due else NEVER

    def watch(self, c: TcpConnection, now: int) -> None:
        """A connection has something to send."""
        if c.number not in self._step:
            heapq.heappush(self._due, (now, c.number))
        self._step[c.number] = self.period_ns

    def sample(self, now: int) -> None:
        """Look at the connections whose time has come."""
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            c = self.connections[number]
            info = tcp_socket.info(c.sock)
            old = self._last.get(number)
            if info != old:
                self._note(c, info, old, now)
                self._last[number] = info
                self._step[number] = self.period_ns
            else:
                self._step[number] = min(2 * self._step[number], _LONGEST_STEP * self.period_ns)
            if c.idle:
                del self._step[number]
            else:
                step = self._step[number]
                heapq.heappush(self._due, (due + step * max(1, -(-(now + 1 - due) // step)), number))

    def _note(self, c: TcpConnection, info: TcpInfo, old: TcpInfo | None, now: int) -> None:
        tdf = self.spec.tdf
        pacing = None if info.pacing_rate is None else info.pacing_rate * 8 * tdf
        own = tcp_socket.cc_info(c.sock, self.spec.transport.cc)
        if "bandwidth" in own:
            own["bandwidth_bps"] = own.pop("bandwidth") * tdf
        self.rows.append(
            {
                "time_ns": now,
                "flow": c.flow,
                "qp": c.number,
                "rate_bps": pacing if self._paced else None,
                "window_bytes": info.cwnd * info.mss,
                "rtt_ns": info.rtt_us * 1000 // tdf or None,
                "trigger": info.state,
                "ssthresh_bytes": None if info.ssthresh is None else info.ssthresh * info.mss,
                "min_rtt_ns": info.min_rtt_us * 1000 // tdf or None,
                "pacing_bps": pacing,
                "delivery_bps": info.delivery_rate * 8 * tdf or None,
                "in_flight_packets": info.unacked,
                "retransmitted": info.retransmits,
                "timeouts": info.timeouts,
                "delivered_ce": info.delivered_ce - c.first.delivered_ce,
                **own,
            }
        )
        if info.timeouts and info.timeouts > ((old or c.first).timeouts or 0):
            self.events.append({"time_ns": now, "kind": "timeout", "flow": c.label, "timeouts": info.timeouts})

    def settle(self, c: TcpConnection, job: Job, done: Sequence[WorkRequest]) -> None:
        """Give what a connection counted since the last time to the oldest of the messages that were acknowledged.

        TCP counts packets, not messages: where messages overlap on a connection only their sum is exact.
        """
        info, old = tcp_socket.info(c.sock), c.counted
        oldest = c.outbox.oldest(info.bytes_acked - c.first.bytes_acked)
        if oldest is not None:
            oldest[0].bytes_acked = oldest[1]
        first = done[0] if done else oldest[0] if oldest is not None else c.last_work
        if first is None:
            return
        first.sent += info.data_segments - old.data_segments
        first.retransmitted += info.retransmits - old.retransmits
        first.timeouts += (info.timeouts or 0) - (old.timeouts or 0)
        record = job.records[first.id]
        record.ce = (record.ce or 0) + info.delivered_ce - old.delivered_ce
        for work in done:
            work.bytes_acked = work.local.nbytes
            self.bytes_acked += work.local.nbytes
            c.last_work = work
        c.counted = info

    def snapshot(self, now: int, job: Job) -> dict[str, Any]:
        """Where the run stands, for the progress line."""
        return {
            "time_ns": now,
            "bytes_done": self.bytes_acked,
            "bytes_total": sum(m.size for m in job.schedule.moves),
            "moves_left": job.undelivered,
            "packets": sum(c.counted.data_segments - c.first.data_segments for c in self.connections),
            **job.state(),
        }

    def _records(self, job: Job) -> list[MoveRecord]:
        """Moves with what TCP knows. A mark is told per packet by DCTCP alone (RFC 8257, 3.2), and needs ECN to be made."""
        cc, ecn = self.spec.transport.cc, self.spec.transport.options["ecn"]
        counts_timeouts = all(c.first.timeouts is not None for c in self.connections)
        records = job.final_records()
        for r in records:
            r.reordered = None
            if ecn and cc != "dctcp":
                r.ce = None
            if not counts_timeouts:
                r.timeouts = None
        return records

    def result(
        self, job: Job, clock: Clock, failures: Sequence[TrafficError], hosts: list[KernelHostRecord]
    ) -> WorkerResult:
        """Everything measured; `hosts` are what the hosts' kernels counted."""
        spec = self.spec
        records = self._records(job)
        wrong, checked = count_wrong(spec.schedule, job.buffers, spec.seed, spec.values)
        names = [*_FIXED, *sorted({k for row in self.rows for k in row} - set(_FIXED))]
        sent = [(c.src, c.dst, c.sport, c.counted.data_segments - c.first.data_segments) for c in self.connections]
        return WorkerResult(
            moves=records,
            hosts=hosts,
            start_monotonic_ns=clock.start_ns,
            end_ns=self.end_ns if self.end_ns >= 0 else clock.now(),
            wrong=wrong,
            checked=checked,
            values=sorted(averages(spec.schedule, job.buffers).items()) if spec.values is not None else None,
            rates={name: [row.get(name) for row in self.rows] for name in names},
            paths=sorted(sent),
            events=sorted(self.events, key=lambda e: e["time_ns"]),
            loop={
                "wakeups": self.wakeups,
                **self._lateness(),
                "cpu_s": self.cpu_s,
                "wall_s": self.wall_s,
                "run_wait_ns": self.waited_ns,
                "clock_step_ns": clock.stepped_ns(),
            },
            reorder={},
            problem=self._problem(job, records, failures),
        )

    def _lateness(self) -> dict[str, float]:
        late = sorted(self.late)
        if not late:
            return {}
        return {f"late_{n}_ns": late[min(len(late) - 1, int(q * len(late)))] for n, q in _LATE}

    def _problem(
        self, job: Job, records: Sequence[MoveRecord], failures: Sequence[TrafficError]
    ) -> dict[str, str] | None:
        if failures:
            first = failures[0]
            return {"what": first.what, "where": first.where, "remedy": first.remedy}
        if not job.undelivered and not job.unacked:
            return None
        stuck = next(r for r in records if r.delivered_ns < 0 or r.acked_ns < 0)
        names = [h.name for h in self.spec.hosts]
        return {
            "what": f"not finished within {self.spec.limit_fabric_ns / 1e6:g} ms of fabric time: "
            f"sent {stuck.sent} packets, {stuck.bytes_acked} of {stuck.size} bytes acknowledged",
            "where": f"{names[stuck.src]}>{names[stuck.dst]} (step {stuck.step})",
            "remedy": "raise --time-limit (a time-out of TCP takes 200 ms), or look at drops in the summary",
        }
