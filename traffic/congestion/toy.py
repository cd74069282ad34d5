"""One bottleneck in a few hundred lines: N senders, one marking queue, one receiver; for the checker and for lessons.

It is a model in memory, not the emulator: no network, no transport, an endless supply of data. Numbers from it belong in no report.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import ceil

from traffic.congestion.base import CongestionControl, Loss, PathInfo, ReceiverControl
from traffic.congestion.params import Params
from traffic.congestion.registry import Algorithm, algorithm, create, create_receiver, parameters
from traffic.rng import Rng

_ENDLESS = 1 << 40
_MAX_TIMERS = 10_000  # of one sender at one instant


@dataclass(frozen=True, slots=True)
class Scene:
    """`senders` into one port: the first all the time, the others from `join_ns` to `leave_ns`."""

    senders: int = 8
    line_rate_bps: int = 100_000_000_000
    base_rtt_ns: int = 8_000
    mtu_bytes: int = 4096
    overhead_bytes: int = 94
    limit_bytes: int = 1_000_000
    kmin_bytes: int = 40_000
    kmax_bytes: int = 200_000
    pmax: float = 0.2
    trimming: bool = False
    join_ns: int = 500_000
    leave_ns: int = 1_500_000
    end_ns: int = 2_500_000
    bin_ns: int = 25_000

    @property
    def path(self) -> PathInfo:
        """As the senders see it."""
        return PathInfo(
            self.line_rate_bps, self.base_rtt_ns, self.mtu_bytes, self.mtu_bytes + self.overhead_bytes, 2, self.trimming
        )


@dataclass(slots=True)
class Outcome:
    """Per bin: payload rate of each sender as it arrived (bit/s), and the queue's high-water mark (bytes); and totals."""

    rates_bps: list[list[float]]
    queue_bytes: list[int]
    delivered_bytes: list[int] = field(default_factory=list)
    packets: int = 0
    marked: int = 0
    dropped: int = 0
    trimmed: int = 0


class Toy:
    """A run of one scene; `run` returns its outcome. The same arguments give the same outcome."""

    def __init__(self, which: Algorithm, *, params: Params | None = None, scene: Scene | None = None) -> None:
        self.scene = scene or Scene()
        path, cls = self.scene.path, algorithm(which)
        ready = params or parameters(cls, path=path)
        self.senders: list[CongestionControl] = [
            create(cls, path=path, params=ready) for _ in range(self.scene.senders)
        ]
        self.receiver: ReceiverControl = create_receiver(cls, path=path, params=ready)
        bins = -(-self.scene.end_ns // self.scene.bin_ns)
        self.out = Outcome([[0.0] * bins for _ in self.senders], [0] * bins, [0] * len(self.senders))
        self.now = 0
        self._heap: list[tuple[int, int, str, int, tuple[int, ...]]] = []
        self._count = 0
        self._free = [0] * len(self.senders)  # when each sender's pace allows the next packet
        self._trying = [False] * len(self.senders)
        self._flight = [0] * len(self.senders)
        self._timer: dict[int, int] = {}  # sender (−1 the receiver) -> when its timer is set
        self._busy = 0.0  # when the bottleneck has sent all it holds
        self._rng = Rng(0, "toy")
        self._wire = path.wire_mtu_bytes
        self._tx = self._wire * 8e9 / path.line_rate_bps
        self._way = (path.base_rtt_ns - 2 * self._tx) / 4  # host to switch, and switch to host; half of it all, back

    def run(self) -> Outcome:
        """Play the scene to its end."""
        for who in range(len(self.senders)):
            self._at(0 if who == 0 else self.scene.join_ns, "start", who)
            if who:
                self._at(self.scene.leave_ns + 1, "leave", who)
        while self._heap and self._heap[0][0] < self.scene.end_ns:
            self.now, _, what, who, args = heapq.heappop(self._heap)
            getattr(self, f"_{what}")(who, *args)
        bits = 8e9 / self.scene.bin_ns
        self.out.rates_bps = [[value * bits for value in line] for line in self.out.rates_bps]
        return self.out

    # -- what happens --------------------------------------------------------------------------------------------------

    def _at(self, when: float, what: str, who: int, *args: int) -> None:
        self._count += 1
        heapq.heappush(self._heap, (round(when), self._count, what, who, args))

    def _active(self, who: int) -> bool:
        return who == 0 or self.scene.join_ns <= self.now < self.scene.leave_ns

    def _start(self, who: int) -> None:
        self._ask(who)
        self._try(who)

    def _leave(self, who: int) -> None:
        self.receiver.idle(now=self.now, qp=who)
        self._after_receiver()

    def _ask(self, who: int) -> None:
        target = self.senders[who].credit_target(backlog=_ENDLESS)
        if target:
            self._at(self.now + 2 * self._way, "request", who, target)

    def _request(self, who: int, target: int) -> None:
        if not self._active(who):
            return
        self.receiver.requested(now=self.now, qp=who, credit_target=target)
        self._after_receiver()

    def _try(self, who: int) -> None:
        """Send one packet if the algorithm lets it, and come again when the pace allows the next."""
        self._trying[who] = False
        cc, size = self.senders[who], self.scene.mtu_bytes
        if not self._active(who) or not cc.may_send(in_flight=self._flight[who], size=size):
            return
        if self.now < self._free[who]:
            self._wake(who)
            return
        cc.sent(now=self.now, size=size)
        self._flight[who] += size
        rate = self.scene.line_rate_bps if cc.rate_bps is None else min(cc.rate_bps, self.scene.line_rate_bps)
        self._free[who] = self.now + ceil(self._wire * 8e9 / max(rate, 1.0))
        self._at(self.now + self._tx + self._way, "queue", who, self.now, cc.credit_target(backlog=_ENDLESS))
        self._wake(who)
        self._set_timer(who)

    def _wake(self, who: int) -> None:
        if not self._trying[who]:
            self._trying[who] = True
            self._at(max(self.now, self._free[who]), "try", who)

    def _queue(self, who: int, sent_at: int, target: int) -> None:
        scene = self.scene
        backlog = max(0.0, self._busy - self.now) * scene.line_rate_bps / 8e9
        slot = self.now // scene.bin_ns
        self.out.packets += 1
        if backlog + self._wire > scene.limit_bytes:
            self.out.trimmed += scene.trimming
            self.out.dropped += not scene.trimming
            if scene.trimming:
                self._at(self.now + self._way, "trim", who, target)
            lag = 3 * self._way if scene.trimming else 3 * self._way + max(0.0, self._busy - self.now)
            self._at(self.now + lag, "lose", who)
            return
        self.out.queue_bytes[slot] = max(self.out.queue_bytes[slot], round(backlog + self._wire))
        span = max(1, scene.kmax_bytes - scene.kmin_bytes)
        chance = 1.0 if backlog > scene.kmax_bytes else scene.pmax * max(0.0, backlog - scene.kmin_bytes) / span
        ce = chance > 0 and self._rng.uniform() < chance
        self.out.marked += ce
        self._busy = max(self._busy, self.now) + self._tx
        self._at(self._busy + self._way, "arrive", who, sent_at, target, int(ce))

    def _trim(self, who: int, target: int) -> None:
        size, trim = self.scene.mtu_bytes, Loss.TRIM_LAST_HOP
        if self._active(who):
            self.receiver.arrived(now=self.now, qp=who, size=size, ce=False, credit_target=target, trimmed=trim)
        self._after_receiver()

    def _arrive(self, who: int, sent_at: int, target: int, ce: int) -> None:
        size = self.scene.mtu_bytes
        self.out.rates_bps[who][self.now // self.scene.bin_ns] += size
        self.out.delivered_bytes[who] += size
        if self._active(who):
            self.receiver.arrived(now=self.now, qp=who, size=size, ce=bool(ce), credit_target=target)
        self._at(self.now + 2 * self._way, "ack", who, sent_at, ce, self.receiver.penalty(qp=who))
        self._after_receiver()

    def _ack(self, who: int, sent_at: int, ce: int, penalty: int) -> None:
        cc, size = self.senders[who], self.scene.mtu_bytes
        self._flight[who] -= size
        cc.penalised(now=self.now, penalty=penalty)
        cc.acked(now=self.now, size=size, rtt_ns=self.now - sent_at, ce=bool(ce))
        self._after(who)

    def _lose(self, who: int) -> None:
        self._flight[who] -= self.scene.mtu_bytes
        kind = Loss.TRIM_LAST_HOP if self.scene.trimming else Loss.NACK
        self.senders[who].lost(now=self.now, size=self.scene.mtu_bytes, kind=kind)
        self._ask(who)
        self._after(who)

    def _cnp(self, who: int) -> None:
        self.senders[who].marked(now=self.now)
        self._after(who)

    def _grant(self, who: int, size: int) -> None:
        self.senders[who].credited(now=self.now, size=size)
        self._after(who)

    def _after(self, who: int) -> None:
        self._set_timer(who)
        self._wake(who)

    def _after_receiver(self) -> None:
        for qp in self.receiver.take_cnps():
            self._at(self.now + 2 * self._way, "cnp", qp)
        for qp, size in self.receiver.take_grants():
            self._at(self.now + 2 * self._way, "grant", qp, size)
        self._set_timer(-1)

    # -- timers --------------------------------------------------------------------------------------------------------

    def _set_timer(self, who: int) -> None:
        machine = self.senders[who] if who >= 0 else self.receiver
        due = machine.next_timer()
        if due is not None and self._timer.get(who) != due:
            self._timer[who] = due
            self._at(max(due, self.now), "expire", who)

    def _expire(self, who: int) -> None:
        machine = self.senders[who] if who >= 0 else self.receiver
        for _ in range(_MAX_TIMERS):
            due = machine.next_timer()
            if due is None or due > self.now:
                break
            machine.expired(now=self.now)
        self._timer.pop(who, None)
        if who >= 0:
            self._after(who)
        else:
            self._after_receiver()


def sparkline(values: list[float], top: float, width: int = 60) -> str:
    """A line of ASCII, one character a share of the time, from `_` for nothing to `@` for `top`."""
    ramp = "_.-:=+*#%@"
    if not values:
        return ""
    width = min(width, len(values))
    out = []
    for column in range(width):
        part = values[
            column * len(values) // width : max((column + 1) * len(values) // width, column * len(values) // width + 1)
        ]
        level = sum(part) / len(part) / top if top > 0 else 0.0
        out.append(ramp[min(len(ramp) - 1, max(0, int(level * len(ramp))))])
    return "".join(out)
