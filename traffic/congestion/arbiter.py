"""The receiver's half of RCCC: credit at about line rate, in turn to those who wait, and what an oversubscribed core changes.

Each pull     4 MTU of credit to the next queue pair in turn, never above what it asked for; the next pull follows when
              those bytes had time to arrive at 0.99 of line rate (headers included)
Nobody waits  queue pairs that have been served get credit on trust, up to one window each
Oversubscribed, every 1.5 base RTT: g = (g + marked share)/2; pull rate −= trims in the core / packets;
              pull rate = rate (1 − 0.5 (g − 0.3)) if g > 0.3; if neither, rate += 0.01, doubling each time nothing was marked
"""

from __future__ import annotations

from collections import deque
from typing import Any

from traffic.congestion.base import Loss, PathInfo, ReceiverControl
from traffic.congestion.params import Formula, Params, param

_UET = "ultraethernet/uet-htsim uec.cpp UecPullPacer"
_OVER = "uet-htsim oversubscribed_cc.cpp"
_LEAST_PACE = 1024  # bytes: what a pull that grants less than this takes from the pace


class CreditParams(Params):
    """Parameters of the credit arbiter."""

    window_bytes: int = param(
        Formula("1.5 BDP", lambda path, _: max(path.mtu_bytes, 1.5 * path.bdp_payload_bytes)), low=1,
        text="most credit that a sender may hold", source=_UET,
    )  # fmt: skip
    pull_bytes: int = param(
        Formula("4 MTU", lambda path, _: 4 * path.mtu_bytes), low=1, text="credit of one pull", source=_UET
    )
    quantum_bytes: int = param(256, low=1, text="unit in which credit is counted", source=f"{_UET} UEC_PULL_QUANTUM")
    pull_rate: float = param(0.99, above=0, high=1, text="pace of the pulls, as a share of line rate", source=_UET)
    slow_credit: bool = param(True, text="served queue pairs get credit on trust when nobody waits", source=_UET)
    oversubscribed: bool = param(False, text="lower the pull rate by ECN and trims in the core", source=_OVER)
    over_target: float = param(0.3, low=0, high=1, text="share of marks that is accepted", source=_OVER)
    over_cut: float = param(0.5, low=0, high=1, text="strength of a decrease by marks", source=_OVER)
    over_step: float = param(0.01, above=0, high=1, text="increase of the pull rate an interval", source=_OVER)
    over_floor: float = param(0.01, above=0, high=1, text="the least pull rate, as a share of line rate", source=_OVER)
    over_interval_ns: int = param(
        Formula("1.5 base RTT", lambda path, _: 1.5 * path.base_rtt_ns), low=1,
        text="time between two adjustments (the simulator varies it at random by a quarter; here it is fixed)", source=_OVER,
    )  # fmt: skip


class CreditArbiter(ReceiverControl):
    """One receiving port: who waits for credit, and when the next pull may go out."""

    parameters = CreditParams

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        p = self.params
        self._ns_per_byte = 8e9 / path.line_rate_bps * path.wire_mtu_bytes / path.mtu_bytes / p.pull_rate
        self._target: dict[int, int] = {}  # queue pair -> total credit it asked for
        self._granted: dict[int, int] = {}
        self._waiting: deque[int] = deque()
        self._served: deque[int] = deque()
        self._next: float | None = None  # when the next pull may go out; None while there is nobody to serve
        self._free_at = 0.0  # when the pace allows the next pull
        self._grants: dict[int, int] = {}
        self._over = Oversubscription(p) if p.oversubscribed else None

    @property
    def pull_rate(self) -> float:
        """The present pull rate as a share of the usual one."""
        return self._over.rate if self._over else 1.0

    def arrived(
        self, *, now: int, qp: int, size: int, ce: bool, credit_target: int = 0, trimmed: Loss | None = None
    ) -> None:
        if self._over:
            self._over.count(now, ce=ce, trimmed=trimmed)
        self.requested(now=now, qp=qp, credit_target=credit_target)

    def requested(self, *, now: int, qp: int, credit_target: int) -> None:
        known = qp in self._granted
        granted = self._granted.setdefault(qp, 0)
        if known and credit_target <= self._target[qp]:
            return
        self._target[qp] = credit_target
        if credit_target > granted and qp not in self._waiting:
            if qp in self._served:
                self._served.remove(qp)
            self._waiting.append(qp)
            if self._next is None:
                self._next = max(float(now), self._free_at)

    def idle(self, *, now: int, qp: int) -> None:
        for queue in (self._waiting, self._served):
            if qp in queue:
                queue.remove(qp)
        self._target.pop(qp, None)
        self._granted.pop(qp, None)
        if not self._waiting and not self._served:
            self._next = None

    def next_timer(self) -> int | None:
        times = [-int(-self._next // 1)] if self._next is not None else []
        if self._over and self._over.ends is not None:
            times.append(self._over.ends)
        return min(times, default=None)

    def expired(self, *, now: int) -> None:
        if self._over:
            self._over.expired(now)
        while self._next is not None and self._next <= now:
            self._pull()

    def take_grants(self) -> list[tuple[int, int]]:
        grants, self._grants = list(self._grants.items()), {}
        return grants

    def _pull(self) -> None:
        assert self._next is not None
        p = self.params
        if self._waiting:
            qp = self._waiting.popleft()
            size = min(p.pull_bytes, self._target[qp] - self._granted[qp])
            self._give(qp, size)
            if self._granted[qp] < self._target[qp]:
                self._waiting.append(qp)
            elif p.slow_credit:
                self._served.append(qp)
        else:
            qp, size = self._served.popleft(), p.pull_bytes
            self._give(qp, size)
            if self._granted[qp] + p.pull_bytes <= self._target[qp] + p.window_bytes:
                self._served.append(qp)
        self._free_at = self._next + max(size, _LEAST_PACE) * self._ns_per_byte / self.pull_rate
        self._next = self._free_at if self._waiting or self._served else None

    def _give(self, qp: int, size: int) -> None:
        self._granted[qp] += size
        self._grants[qp] = self._grants.get(qp, 0) + size


class Oversubscription:
    """The share of line rate that the core carries, from the marks and trims that arrive."""

    def __init__(self, params: Any) -> None:
        self._p = params
        self.rate = 1.0
        self.ends: int | None = None
        self._g = 0.0
        self._packets = self._marked = self._trimmed = self._trimmed_core = 0
        self._streak = 0

    def count(self, now: int, *, ce: bool, trimmed: Loss | None) -> None:
        """A packet arrived."""
        if self.ends is None:
            self.ends = now + self._p.over_interval_ns
        self._packets += 1
        self._marked += ce and trimmed is None
        self._trimmed += trimmed is not None
        self._trimmed_core += trimmed is Loss.TRIM

    def expired(self, now: int) -> None:
        """Adjust the rate at the end of each interval; rest once nothing arrives and the rate is whole."""
        while self.ends is not None and self.ends <= now:
            quiet = not self._packets and self.rate >= 1
            self._adjust()
            self.ends = None if quiet else self.ends + self._p.over_interval_ns

    def _adjust(self) -> None:
        p = self._p
        whole = self._packets - self._trimmed
        self._g = (self._g + (self._marked / whole if whole else 0.0)) / 2
        lower = self._trimmed_core > 0
        if lower:
            self.rate -= self._trimmed_core / self._packets
        if self._g > p.over_target:
            self.rate *= 1 - p.over_cut * (self._g - p.over_target)
            lower = True
        if lower:
            self._streak = 0
        else:
            self.rate += p.over_step * (2 ** min(self._streak, 20) if not self._marked else 1)
            self._streak += 1
        self.rate = min(1.0, max(p.over_floor, self.rate))
        self._packets = self._marked = self._trimmed = self._trimmed_core = 0
