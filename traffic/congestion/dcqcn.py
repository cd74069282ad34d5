"""DCQCN: the rate machine at the sender of RoCE v2 (Zhu et al., SIGCOMM 2015; it descends from 802.1Qau QCN).

On a CNP    target = rate; rate = rate (1 − alpha/2); alpha = (1 − g) alpha + g; both stages to 0; timers start anew
Silence     alpha = (1 − g) alpha every `alpha_timer_ns`
Increase    each `timer_ns` counts the time stage, each `byte_counter_bytes` the byte stage, then
            both ≤ F: fast recovery · one > F: target += AI · both > F: target += (min − F) HAI · rate = (rate + target)/2
"""

from __future__ import annotations

from typing import Any, ClassVar

from traffic.congestion.base import CongestionControl, Feedback, PathInfo
from traffic.congestion.dcqcn_params import PRESETS, DcqcnParams
from traffic.congestion.receiver import CnpReceiver


class Dcqcn(CongestionControl):
    """Rate machine of one queue pair; it starts at line rate and stays there until the first CNP.

    `machine=event` acts at each CNP (the paper). `machine=polled` acts as the NIC model of the HPCC simulator: a CNP only sets
    flags; alpha is updated every `alpha_timer_ns` and the rate cut every `cut_interval_ns` in which one came.
    """

    name = "dcqcn"
    feedback = Feedback.CNP
    source = "Zhu et al., SIGCOMM 2015; bobzhuyb/ns3-rdma qbb-net-device.cc; HPCC simulator rdma-hw.cc"
    parameters = DcqcnParams
    presets: ClassVar = PRESETS
    receiver = CnpReceiver

    params: DcqcnParams

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self._line = float(path.line_rate_bps)
        self._floor = min(self.params.min_rate_bps, self._line)
        self.rate_bps: float = self._line
        self.target_bps = self._line
        self.alpha = self.params.initial_alpha
        self.time_stage = self.byte_stage = 0
        self._bytes = 0
        self._alpha_at: int | None = None
        self._cut_at: int | None = None  # polled: next look for a CNP; event: no cut before this
        self._increase_at: int | None = None
        self._alpha_flag = self._cut_flag = False
        self._polled = self.params.machine == "polled"

    # -- congestion ----------------------------------------------------------------------------------------------------

    def marked(self, *, now: int) -> None:
        self._catch_up(now)
        if self._polled:
            self._alpha_flag = self._cut_flag = True
            if self._alpha_at is None:
                self.alpha, self._alpha_flag = self.params.initial_alpha, False
                self._alpha_at = now + self.params.alpha_timer_ns
                self._cut_at = now + self.params.cut_interval_ns
            return
        self._alpha_at = now + self.params.alpha_timer_ns
        if self._cut_at is not None and now < self._cut_at:
            self._raise_alpha()
            return
        self._cut_at = now + self.params.cut_interval_ns
        if self.params.order == "alpha-cut":
            self._raise_alpha()
        self._cut(now)
        if self.params.order == "cut-alpha":
            self._raise_alpha()

    def _raise_alpha(self) -> None:
        self.alpha = (1 - self.params.g) * self.alpha + self.params.g

    def _cut(self, now: int) -> None:
        if self.params.clamp_target or self.time_stage or self.byte_stage:
            self.target_bps = self.rate_bps
        self.rate_bps = max(self._floor, self.rate_bps * (1 - self.alpha / 2))
        self.time_stage = self.byte_stage = self._bytes = 0
        self._increase_at = now + self.params.timer_ns
        self.trigger = "cnp"

    # -- recovery ------------------------------------------------------------------------------------------------------

    def sent(self, *, now: int, size: int) -> None:
        step = self.params.byte_counter_bytes
        if self._increase_at is None or not step:
            return
        if self._halved():
            step = max(1, step // 2)
        self._bytes += size
        while self._bytes >= step and self._increase_at is not None:
            self._bytes -= step
            self.byte_stage += 1
            self._increase()

    def _increase(self) -> None:
        p, stages = self.params, (self.time_stage, self.byte_stage)
        low, high = (min(stages), max(stages)) if p.byte_counter_bytes else (self.time_stage - 1, self.time_stage)
        if high <= p.fast_recovery:
            self.trigger, step = "fast_recovery", 0.0
        elif low <= p.fast_recovery:
            self.trigger, step = "additive", p.ai_bps
        else:
            self.trigger, step = "hyper", p.hai_bps * (low - p.fast_recovery if p.byte_counter_bytes else 1)
        if p.shrink_target and 1 in stages and self.target_bps > 10 * self.rate_bps:
            self.target_bps /= 8
        else:
            self.target_bps = min(self._line, self.target_bps + step)
        self.rate_bps = min(self._line, (self.rate_bps + self.target_bps) / 2)
        if self.rate_bps >= self._line * (1 - 1e-9) and self.target_bps >= self._line:
            self.rate_bps = self._line
            self._increase_at = None  # nothing left to gain until the next CNP

    def _halved(self) -> bool:
        p = self.params
        return p.halve_in_hyper and min(self.time_stage, self.byte_stage) > p.fast_recovery

    # -- timers --------------------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        alpha, cut = self._alpha_at, None
        if self._polled:  # a look that finds no CNP changes nothing but alpha, which _skip_looks makes up for
            alpha = self._alpha_at if self._alpha_flag else None
            cut = self._cut_at if self._cut_flag else None
        return min((t for t in (alpha, cut, self._increase_at) if t is not None), default=None)

    def expired(self, *, now: int) -> None:
        self._catch_up(now + 1)

    def _catch_up(self, now: int) -> None:
        """Do what was due before `now`, in order of time; at one instant alpha, then the cut, then the increase."""
        while (due := self.next_timer()) is not None and due < now:
            self._skip_looks(due + 1)
            if due == self._alpha_at:
                self.alpha = (1 - self.params.g) * self.alpha + self.params.g * self._alpha_flag
                self._alpha_flag = False
                self._alpha_at = due + self.params.alpha_timer_ns
            elif self._cut_flag and due == self._cut_at:
                self._cut_flag = False
                self._cut_at = due + self.params.cut_interval_ns
                self._cut(due)
            else:
                interval = self.params.timer_ns
                self.time_stage += 1
                self._increase_at = due + (max(1, interval // 2) if self._halved() else interval)
                self._increase()
        self._skip_looks(now)

    def _skip_looks(self, now: int) -> None:
        """Polled: the looks before `now` that found no CNP, all at once."""
        if not self._polled or self._alpha_at is None or self._cut_at is None:
            return
        if not self._alpha_flag and self._alpha_at < now:
            looks = (now - 1 - self._alpha_at) // self.params.alpha_timer_ns + 1
            self.alpha *= (1 - self.params.g) ** looks
            self._alpha_at += looks * self.params.alpha_timer_ns
        if not self._cut_flag and self._cut_at < now:
            looks = (now - 1 - self._cut_at) // self.params.cut_interval_ns + 1
            self._cut_at += looks * self.params.cut_interval_ns

    def state(self) -> dict[str, float]:
        return {
            "alpha": self.alpha,
            "target_bps": self.target_bps,
            "time_stage": self.time_stage,
            "byte_stage": self.byte_stage,
        }
