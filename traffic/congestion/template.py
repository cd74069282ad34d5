"""My own congestion control: halve on a mark, grow steadily while nothing is marked. Change it, then run `fabriclab cc check`.

Times are fabric nanoseconds, sizes payload bytes, rates bit/s. Set `rate_bps`, `window_bytes` or both; `None` is no limit.
"""

from typing import Any

from traffic.congestion.base import CongestionControl, Feedback, PathInfo
from traffic.congestion.params import Params, param


class MyParams(Params):
    cut: float = param(0.5, low=0, high=1, text="share of the rate kept on a mark")
    step: float = param(0.01, above=0, text="share of line rate gained a round trip")


class MyRate(CongestionControl):
    feedback = Feedback.ACK  # an acknowledgement for every packet; Feedback.CNP brings marked() instead
    parameters = MyParams

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self.rate_bps: float = path.line_rate_bps
        self.next_change = 0  # one change a round trip

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        if now < self.next_change:
            return
        self.next_change = now + (rtt_ns or self.path.base_rtt_ns)
        if ce:
            self.rate_bps = max(self.rate_bps * self.params.cut, 1e6)
            self.trigger = "mark"
        else:
            self.rate_bps = min(self.rate_bps + self.params.step * self.path.line_rate_bps, self.path.line_rate_bps)
            self.trigger = "grow"
