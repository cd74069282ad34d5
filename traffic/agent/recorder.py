"""What the worker writes down while it runs: rates, lateness, paths, arrivals."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from traffic.agent.clock import Clock
from traffic.agent.nic import Nic
from traffic.agent.spec import WorkerResult, WorkerSpec
from traffic.agent.work import Work
from traffic.packet.codec import Packet
from traffic.packet.dscp import CONTROL
from traffic.transport.base import QueuePair, Sink

_LATE_BINS: Final = 64
_MOST_ARRIVALS: Final = 200_000
_FIXED: Final = ("time_ns", "flow", "qp", "rate_bps", "window_bytes", "rtt_ns", "trigger")


class Recorder:
    """Grows plain lists; nothing here waits or touches the kernel."""

    def __init__(self, spec: WorkerSpec, nics: list[Nic]) -> None:
        self.spec = spec
        self.nics = nics
        self.end_ns = -1
        self.wakeups = 0
        self.longest_rtt_ns = max((max(row) for row in spec.base_rtt_ns), default=0)
        self.rows: list[dict[str, Any]] = []
        self._last: dict[int, tuple[int, str]] = {}
        self._late = [0] * _LATE_BINS
        self._late_max = 0
        self.gaps: defaultdict[int, list[int]] = defaultdict(list)
        self._cut: set[int] = set()
        self.on_phase: Callable[[str], None] | None = None
        """Told of `begin` and `end` of the loop, for a bench that watches from outside."""
        self.cpu_s = self.wall_s = 0.0
        self.waited_ns = 0

    def start(self) -> None:
        """The loop begins."""
        if self.on_phase is not None:
            self.on_phase("begin")
        self.cpu_s, self.wall_s = time.process_time(), time.monotonic()
        self.waited_ns = run_wait_ns()

    def stop(self) -> None:
        """The loop has ended: what it cost, without set-up and checks."""
        self.cpu_s, self.wall_s = time.process_time() - self.cpu_s, time.monotonic() - self.wall_s
        self.waited_ns = run_wait_ns() - self.waited_ns
        if self.on_phase is not None:
            self.on_phase("end")

    def late(self, ns: int) -> None:
        """An action came `ns` of fabric time after its deadline (bins of powers of two)."""
        if ns > 0:
            self._late[min(_LATE_BINS - 1, ns.bit_length())] += 1
            if ns > self._late_max:
                self._late_max = ns
        else:
            self._late[0] += 1

    def arrived(self, rank: int, packet: Packet, at: int) -> None:
        """A packet reached its host; arrival times of full packets tell the spacing of the last port.

        A time is negative where a trimmed packet, or one of the data class that is not full, came since the one before.
        """
        if packet.payload.nbytes < self.spec.transport.mtu:
            if packet.dscp != CONTROL:
                self._cut.add(rank)
        else:
            times = self.gaps[rank]
            if len(times) < _MOST_ARRIVALS:
                times.append(-at if rank in self._cut else at)
                self._cut.discard(rank)

    def rate(self, qp: QueuePair, now: int) -> None:
        """Note rate and window of a sender, at most once a period unless the reason changed."""
        if qp.flow < 0:
            return
        cc = qp.cc
        last = self._last.get(qp.qpn)
        if last is not None and now - last[0] < self.spec.rate_sample_ns and cc.trigger == last[1]:
            return
        if qp.idle and last is None:
            return
        self._last[qp.qpn] = (now, cc.trigger)
        self.rows.append(
            {
                "time_ns": now,
                "flow": qp.flow,
                "qp": qp.qpn,
                "rate_bps": cc.rate_bps,
                "window_bytes": cc.window_bytes,
                "rtt_ns": qp.last_rtt_ns if qp.last_rtt_ns >= 0 else None,
                "trigger": cc.trigger,
                **cc.state(),
            }
        )

    def snapshot(self, now: int, job: Work) -> dict[str, Any]:
        """Where the run stands, for the progress line."""
        done, total = job.progress()
        sent = sum(n.record.tx_data for n in self.nics)
        return {
            "time_ns": now,
            "bytes_done": done,
            "bytes_total": total,
            "moves_left": job.undelivered,
            "packets": sent,
            "late_p99_ns": self._late_percentile(0.99),
            **job.state(),
        }

    def _late_percentile(self, share: float) -> int:
        """Upper edge of the bin that holds the percentile."""
        total = sum(self._late)
        seen = 0
        for i, count in enumerate(self._late):
            seen += count
            if total and seen >= share * total:
                return min(self._late_max, (1 << i) - 1) if i else 0
        return 0

    def result(self, job: Work, sink: Sink, clock: Clock) -> WorkerResult:
        """Everything measured, checked against what the workload should have left in memory."""
        wrong, checked = job.verify()
        for nic in self.nics:
            nic.record.kernel_drops = nic.socket.read_drops()
        names = list(_FIXED) + sorted({k for row in self.rows for k in row} - set(_FIXED))
        problem = None
        if sink.failures:
            first = sink.failures[0]
            problem = {"what": first.what, "where": first.where, "remedy": first.remedy}
        elif not job.finished:
            stuck = next((r for r in job.final_records() if r.delivered_ns < 0 or r.bytes_acked < r.size), None)
            names_of = [h.name for h in self.spec.hosts]
            problem = (
                None
                if stuck is None
                else {
                    "what": f"not finished within {self.spec.limit_fabric_ns / 1e6:g} ms of fabric time: "
                    f"sent {stuck.sent} packets, {stuck.bytes_acked} of {stuck.size} bytes acknowledged",
                    "where": f"{names_of[stuck.src]}>{names_of[stuck.dst]} (step {stuck.step})",
                    "remedy": "raise --time-limit, or look at drops and retransmissions in the summary",
                }
            )
        return WorkerResult(
            moves=job.final_records(),
            hosts=[n.record for n in self.nics],
            start_monotonic_ns=clock.start_ns,
            end_ns=self.end_ns if self.end_ns >= 0 else clock.now(),
            wrong=wrong,
            checked=checked,
            values=job.averages(),
            rates={name: [row.get(name) for row in self.rows] for name in names},
            paths=[(n.rank, peer, port, count) for n in self.nics for (peer, port), count in sorted(n.paths.items())],
            events=sorted(sink.log, key=lambda e: e["time_ns"]),
            loop={
                "wakeups": self.wakeups,
                "late_p50_ns": self._late_percentile(0.5),
                "late_p99_ns": self._late_percentile(0.99),
                "late_max_ns": self._late_max,
                "cpu_s": self.cpu_s,
                "wall_s": self.wall_s,
                "run_wait_ns": self.waited_ns,
                "clock_step_ns": clock.stepped_ns(),
                "cnp_sent": sink.cnp_sent,
                "naks_sent": sink.naks_sent,
            },
            reorder={str(k): v for k, v in sorted(sink.reorder.items())},
            arrivals={str(k): v for k, v in sorted(self.gaps.items())},
            problem=problem,
        )


def run_wait_ns() -> int:
    """How long this process was ready to run and had no core (second field of /proc/self/schedstat); 0 where not kept."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
