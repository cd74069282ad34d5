"""Receiver halves that report: congestion notification packets, and the window penalty of MRC."""

from __future__ import annotations

from typing import Any

from traffic.congestion.base import Loss, PathInfo, ReceiverControl
from traffic.congestion.params import Formula, Params, param


class CnpParams(Params):
    """Parameters of the CNP generator."""

    cnp_interval_ns: int = param(
        50_000, low=0, text="at most one CNP per queue pair in this time",
        source="DCQCN (SIGCOMM 2015) section 3.1; bobzhuyb/ns3-rdma CNPInterval 50 us",
    )  # fmt: skip
    cnp_delay_ns: int = param(
        0, low=0, text="time the receiver's NIC takes to make a CNP; one report measured about 55 us on real NICs",
        source="none modelled by default; aliyun/ns-3-alibabacloud issue 12",
    )  # fmt: skip


class CnpReceiver(ReceiverControl):
    """The notification point of DCQCN: the first marked packet brings a CNP at once; after it, at most one an interval,
    sent at the interval's end if a marked packet came within it."""

    parameters = CnpParams

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self._interval: int = params.cnp_interval_ns
        self._delay: int = params.cnp_delay_ns
        self._open: dict[int, int] = {}  # queue pair -> end of its running interval
        self._marked: set[int] = set()  # queue pairs marked within it
        self._making: list[tuple[int, int]] = []  # (when ready, queue pair), in order
        self._ready: list[int] = []

    def arrived(
        self, *, now: int, qp: int, size: int, ce: bool, credit_target: int = 0, trimmed: Loss | None = None
    ) -> None:
        if not ce:
            return
        if now >= self._open.get(qp, now):
            self._marked.discard(qp)
            self._notify(now, qp)
        else:
            self._marked.add(qp)

    def idle(self, *, now: int, qp: int) -> None:
        self._open.pop(qp, None)
        self._marked.discard(qp)

    def next_timer(self) -> int | None:
        times = [self._open[qp] for qp in self._marked]
        if self._making:
            times.append(self._making[0][0])
        return min(times, default=None)

    def expired(self, *, now: int) -> None:
        for qp in sorted(self._marked, key=lambda qp: (self._open[qp], qp)):
            if self._open[qp] <= now:
                self._marked.discard(qp)
                self._notify(self._open[qp], qp)
        while self._making and self._making[0][0] <= now:
            self._ready.append(self._making.pop(0)[1])

    def take_cnps(self) -> list[int]:
        ready, self._ready = self._ready, []
        return ready

    def _notify(self, when: int, qp: int) -> None:
        self._open[qp] = when + self._interval
        if self._delay:
            self._making.append((when + self._delay, qp))
        else:
            self._ready.append(qp)


class PenaltyParams(Params):
    """Parameters of the receiver's penalty."""

    penalty: int = param(
        0, low=0, high=127, text="restraint asked of every sender, always: 0 none … 127 one packet a round trip",
        source="range: OCP MRC rcv_cwnd_pen (7 bits); the value is the user's",
    )  # fmt: skip
    penalty_for_trims: bool = param(
        False, text="also ask for restraint in proportion to the share of last-hop trims in each penalty interval",
        source="own rule: the specification leaves the receiver's policy open",
    )  # fmt: skip
    penalty_interval_ns: int = param(
        Formula("base RTT", lambda path, _: path.base_rtt_ns),
        low=1,
        text="time over which that share is taken",
        source="own rule",
    )


class PenaltyReceiver(ReceiverControl):
    """A receiver that presses its senders through the penalty field of each acknowledgement."""

    parameters = PenaltyParams

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self._fixed: int = params.penalty
        self._by_trims: bool = params.penalty_for_trims
        self._interval: int = params.penalty_interval_ns
        self._penalty: int = self._fixed
        self._ends: int | None = None
        self._packets = self._trims = 0

    def arrived(
        self, *, now: int, qp: int, size: int, ce: bool, credit_target: int = 0, trimmed: Loss | None = None
    ) -> None:
        if not self._by_trims:
            return
        if self._ends is None:
            self._ends = now + self._interval
        elif now >= self._ends:
            self.expired(now=now)
            self._ends = now + self._interval
        self._packets += 1
        self._trims += trimmed is Loss.TRIM_LAST_HOP

    def next_timer(self) -> int | None:
        return self._ends

    def expired(self, *, now: int) -> None:
        if self._ends is None or now < self._ends:
            return
        share = self._trims / self._packets if self._packets else 0.0
        self._penalty = max(self._fixed, round(127 * share))
        self._ends = now + self._interval if self._packets else None
        self._packets = self._trims = 0

    def penalty(self, *, qp: int) -> int:
        return self._penalty
