"""NSCC: the window of Ultra Ethernet and MRC, from ECN and delay together; formulas of uet-htsim's uec.cpp.

d = RTT − base RTT, T = target delay; an acknowledgement of `acked` bytes does
  no ECN, d < T    inc += alpha acked (T − d); after a whole window with d < 1 us instead window += fi_scale acked
  no ECN, d ≥ T    inc += fi acked
  ECN,    d ≥ T    window = window × max(1 − gamma (avg − T)/avg, 1 − max_cut) if avg > T, once a base RTT
  ECN,    d < T    nothing: the path changes, not the window
every 8 MTU or base RTT window += inc/window, every base RTT window += eta
Trim, loss         window −= packet, and quick adapt is armed
Quick adapt        every base RTT + T: if armed or d > 4 T, and less than max window / 8 came through: window = what came
                   through; marked and lost packets of one flight are then ignored. Only if half a window was in flight when
                   that time began (our own rule): of a flow that had little to send, little coming through says nothing
Penalty p          window −= acked p/127
"""

from __future__ import annotations

from typing import Any

from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo
from traffic.congestion.flight import Flight
from traffic.congestion.nscc_params import NsccParams
from traffic.congestion.receiver import PenaltyReceiver


class Nscc(CongestionControl):
    """Window of one flow, at most `max_bdp` of its own path."""

    name = "nscc"
    feedback = Feedback.ACK
    source = "ultraethernet/uet-htsim uec.cpp; the Ultra Ethernet specification is authoritative"
    parameters = NsccParams
    receiver = PenaltyReceiver

    params: NsccParams
    window_bytes: float

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        p = self.params
        self._base = path.base_rtt_ns
        self._floor = float(path.mtu_bytes)
        self._set_max(path.bdp_payload_bytes)
        self.window_bytes = self._max
        self._qa_gate = p.qa_gate
        self.avg_delay = 0.0
        self.delay = 0
        self._flight = Flight()
        self._inc = 0.0
        self._received = 0  # since the last adjustment
        self._achieved = 0  # since quick adapt last looked
        self._qa_at: int | None = None
        self._qa_armed = False
        self._qa_used = False  # whether half a window was in flight when it last looked
        self._ignore = self._ignored = 0
        self._fast = 0
        self._fast_on = False
        self._last_cut: int | None = None
        self._last_adjust = 0
        self._penalty = 0

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def sent(self, *, now: int, size: int) -> None:
        if not self._flight.bytes:
            self._qa_at = None
        self._flight.sent += size

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        self._flight.settled += size
        self._achieved += size
        self._received += size
        self._ignored += size
        if self._penalty:
            self._set(self.window_bytes - size * self._penalty / 127)
        delay = self._measure(rtt_ns, ce)
        if self._quick_adapt(now, ce, lossy=False, delay=delay):
            return
        target = self.params.target_ns
        if ce:
            if delay >= target:
                self._decrease(now)
        elif delay >= target:
            self._inc += self.params.fi_bytes * size
            self.trigger = "fair_increase"
        else:
            self._proportional(size, delay)
        self._set(self.window_bytes)
        if self._received > self.params.adjust_bytes or now - self._last_adjust > self._base:
            self._adjust(now)

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        self._flight.settled += size
        if kind is Loss.TIMEOUT:
            self._set(self.window_bytes - size)
            self._qa_armed = True
            self.trigger = kind.value
            return
        self._ignored += size
        self._average(self.params.trim_delay_ns)
        self._qa_armed = True
        if self._quick_adapt(now, True, lossy=True, delay=0):
            return
        if kind is Loss.TRIM_LAST_HOP and self.params.ignore_last_hop_trims:
            return
        self._set(self.window_bytes - size)
        self.trigger = kind.value

    def penalised(self, *, now: int, penalty: int) -> None:
        self._penalty = min(127, max(0, penalty))

    def state(self) -> dict[str, float]:
        return {
            "delay_ns": self.delay,
            "avg_delay_ns": self.avg_delay,
            "target_ns": self.params.target_ns,
            "penalty": self._penalty,
            "in_flight_bytes": self._flight.bytes,
        }

    # -- delay ---------------------------------------------------------------------------------------------------------

    def _measure(self, rtt_ns: int | None, ce: bool) -> int:
        if rtt_ns is None or rtt_ns <= 0:
            return round(self.avg_delay)
        if rtt_ns < self._base:
            # Only the delay is measured against the quicker packet (a short one, or one acknowledged at once): the window
            # must still cover the path's own round trip, in which acknowledgements wait for a few packets.
            self._base = rtt_ns
        self.delay = rtt_ns - self._base
        slow = not ce and self.delay > self.params.target_ns
        self._average(self._base / 4 if slow else self.delay)
        return self.delay

    def _average(self, delay: float) -> None:
        gain = self.params.delay_gain
        self.avg_delay += gain * (delay - self.avg_delay)

    # -- window --------------------------------------------------------------------------------------------------------

    def _proportional(self, size: int, delay: int) -> None:
        if delay < self.params.fast_below_ns:
            self._fast += size
            if self._fast_on or self._fast > self.window_bytes:
                self._fast_on = True
                self._set(self.window_bytes + size * self.params.fi_scale)
                self.trigger = "fast_increase"
                return
        else:
            self._fast = 0
        self._fast_on = False
        self._inc += self.params.alpha * size * (self.params.target_ns - delay)
        self.trigger = "proportional_increase"

    def _decrease(self, now: int) -> None:
        self._fast_on, self._fast = False, 0
        average, p = self.avg_delay, self.params
        if average <= p.target_ns or (self._last_cut is not None and now - self._last_cut <= self._base):
            return
        self._last_cut = now
        self._set(self.window_bytes * max(1 - p.gamma * (average - p.target_ns) / average, 1 - p.max_cut))
        self.trigger = "decrease"

    def _adjust(self, now: int) -> None:
        window = self.window_bytes + self._inc / self.window_bytes
        if now - self._last_adjust >= self._base:
            window += self.params.eta_bytes
            self._last_adjust = now
        self._set(window)
        self._inc, self._received = 0.0, 0

    def _quick_adapt(self, now: int, ce: bool, *, lossy: bool, delay: int) -> bool:
        p = self.params
        if not p.quick_adapt:
            return False
        done = False
        if self._ignored < self._ignore and ce:
            done = True
        elif self._qa_at is None or now > self._qa_at:
            bad = self._qa_armed or lossy or delay > p.qa_threshold_ns
            if self._qa_at is not None and bad and self._qa_used and self._achieved < self._max * self._qa_gate:
                self._set(self._achieved)
                self._ignore, self._ignored = self._flight.bytes, 0
                self._qa_armed = False
                self.trigger = "quick_adapt"
                done = True
            self._achieved = 0
            self._qa_at = now + self._base + p.target_ns
            self._qa_used = 2 * self._flight.bytes >= self.window_bytes
        if done:
            self._inc, self._received = 0.0, 0
        return done

    def _set_max(self, bdp: int) -> None:
        self._max = max(self._floor, self.params.max_bdp * bdp)

    def _set(self, window: float) -> None:
        self.window_bytes = min(self._max, max(self._floor, window))
