"""TIMELY: a rate steered by the gradient of the round trip (Mittal et al., SIGCOMM 2015), as the HPCC simulator has it.

Once a round trip    diff = (1 − a) diff + a (RTT − previous RTT); gradient = diff / least RTT
RTT < T_low          rate += AI
RTT > T_high         rate = rate (1 − b (1 − T_high / RTT))
gradient ≤ 0         rate += AI, or HAI after 5 increases in a row
gradient > 0         rate = rate (1 − b gradient)
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar

from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo
from traffic.congestion.flight import Flight
from traffic.congestion.params import Formula, Params, Preset, param

_HPCC = "HPCC simulator (alibaba-edu), rdma-hw.cc and run.py"


class TimelyParams(Params):
    """Parameters of `timely`; the defaults are the HPCC simulator's."""

    a: float = param(0.875, above=0, high=1, text="weight of the newest difference of round trips", source=_HPCC)
    b: float = param(0.8, above=0, high=1, text="strength of a decrease", source=_HPCC)
    t_low_ns: int = param(50_000, low=0, text="below this round trip the rate only grows", source=_HPCC)
    t_high_ns: int = param(
        500_000, low=1, text="above this round trip the rate falls whatever the gradient", source=_HPCC
    )
    min_rtt_ns: int = param(20_000, low=1, text="round trip that a gradient is measured in", source=_HPCC)
    ai_bps: float = param(
        Formula("10 Mbit/s × line rate / 10 Gbit/s", lambda path, _: 10e6 * path.line_rate_bps / 10e9),
        low=0, text="additive increase", source=_HPCC,
    )  # fmt: skip
    hai_bps: float = param(
        Formula("50 Mbit/s × line rate / 10 Gbit/s", lambda path, _: 50e6 * path.line_rate_bps / 10e9),
        low=0, text="increase after `hai_after` increases in a row", source=_HPCC,
    )  # fmt: skip
    hai_after: int = param(5, low=0, unit="", text="increases in a row before hyper increase", source=_HPCC)
    min_rate_bps: float = param(1e9, above=0, text="no decrease goes below this rate", source=f"{_HPCC}, MIN_RATE")

    def problems(self, path: PathInfo) -> list[str]:
        return ["t_low_ns is above t_high_ns"] if self.t_low_ns > self.t_high_ns else []


class Timely(CongestionControl):
    """A rate machine that needs no switch: it listens to round trips only."""

    name = "timely"
    feedback = Feedback.ACK
    source = f"Mittal et al., SIGCOMM 2015; {_HPCC}"
    parameters = TimelyParams
    presets: ClassVar = MappingProxyType({
        "hpcc": Preset("the HPCC simulator's values; the defaults", _HPCC, {}),
        "scaled": Preset(
            "the same ratios to the base round trip as in that simulator, for fabrics faster than 20 us",
            "own scaling: T_low 2.5, T_high 25, least RTT 1 base round trip",
            {
                "t_low_ns": Formula("2.5 base RTT", lambda path, _: 2.5 * path.base_rtt_ns),
                "t_high_ns": Formula("25 base RTT", lambda path, _: 25 * path.base_rtt_ns),
                "min_rtt_ns": Formula("base RTT", lambda path, _: path.base_rtt_ns),
            },
        ),
    })  # fmt: skip

    params: TimelyParams
    rate_bps: float

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self._line = float(path.line_rate_bps)
        self._floor = min(self.params.min_rate_bps, self._line)
        self.rate_bps = self._line
        self._flight = Flight()
        self._previous: int | None = None
        self._diff = 0.0
        self._streak = 0
        self._rtt = 0

    def sent(self, *, now: int, size: int) -> None:
        self._flight.sent += size

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        self._flight.settled += size
        if rtt_ns is None or rtt_ns < 0 or not self._flight.round_over():
            return
        if self._previous is not None:
            self._update(rtt_ns, rtt_ns - self._previous)
        self._previous = self._rtt = rtt_ns

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        self._flight.settled += size

    def _update(self, rtt: int, difference: int) -> None:
        p = self.params
        self._diff = (1 - p.a) * self._diff + p.a * difference
        gradient = self._diff / p.min_rtt_ns
        if rtt < p.t_low_ns:
            self._increase("below_low")
        elif rtt > p.t_high_ns:
            self._decrease(p.b * (1 - p.t_high_ns / rtt), "above_high")
        elif gradient <= 0:
            self._increase("gradient_down")
        else:
            self._decrease(p.b * gradient, "gradient_up")

    def _increase(self, why: str) -> None:
        step = self.params.ai_bps if self._streak < self.params.hai_after else self.params.hai_bps
        self._streak += 1
        self.rate_bps = min(self._line, self.rate_bps + step)
        self.trigger = why

    def _decrease(self, share: float, why: str) -> None:
        self._streak = 0
        self.rate_bps = max(self._floor, self.rate_bps * max(0.0, 1 - share))
        self.trigger = why

    def state(self) -> dict[str, float]:
        return {"rtt_ns": self._rtt, "gradient": self._diff / self.params.min_rtt_ns, "streak": self._streak}
