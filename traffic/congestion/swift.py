"""Swift: a window steered by delay, which may be below one packet (Kumar et al., SIGCOMM 2020), as htsim has it.

Target     base + hops × hop + clamp(A/√window + B, 0, fs_range), window in packets,
           A = fs_range / (1/√fs_min − 1/√fs_max), B = −A/√fs_max
Below it   window += ai × acked / window, or ai × acked for a window below 1
Above it   window = window × max(1 − b (delay − target)/delay, 1 − max_mdf), at most once a round trip
Window<1   one packet every RTT / window
Loss       window = window (1 − max_mdf), at most once a round trip; 5 time-outs in a row: the least window
"""

from __future__ import annotations

from math import sqrt
from types import MappingProxyType
from typing import Any, ClassVar

from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo
from traffic.congestion.params import Formula, Params, Preset, param

_HTSIM = "Broadcom/csg-htsim swift.cpp (which calls its constants guesses)"


class SwiftParams(Params):
    """Parameters of `swift`; windows are in packets."""

    ai: float = param(1.0, above=0, unit="packets", text="additive increase a round trip", source=_HTSIM)
    b: float = param(0.8, above=0, high=1, text="strength of a decrease", source=_HTSIM)
    max_mdf: float = param(0.5, above=0, high=1, text="the greatest share that one decrease takes", source=_HTSIM)
    base_ns: int = param(
        Formula("base RTT", lambda path, _: path.base_rtt_ns), low=1, text="delay allowed before hops and flow scaling",
        source="Swift section 3.5; htsim has 20 us whatever the path",
    )  # fmt: skip
    hop_ns: int = param(
        Formula("base_ns / 6.55", lambda _, done: done["base_ns"] / 6.55),
        low=0,
        text="delay allowed for each hop",
        source=_HTSIM,
    )
    fs_range_ns: int = param(
        Formula("5 base_ns", lambda _, done: 5 * done["base_ns"]),
        low=0,
        text="most that flow scaling adds",
        source=_HTSIM,
    )
    fs_min: float = param(0.1, above=0, unit="packets", text="window with all of fs_range", source=_HTSIM)
    fs_max: float = param(100.0, above=0, unit="packets", text="window with none of it", source=_HTSIM)
    initial_window: float = param(
        Formula("BDP in packets, at least 1", lambda path, _: max(1.0, path.bdp_payload_bytes / path.mtu_bytes)),
        above=0, unit="packets", text="window at the start", source="own choice: line rate at once; htsim has 12",
    )  # fmt: skip
    min_window: float = param(
        0.01, above=0, unit="packets", text="the least window", source="own choice; htsim has 10 bytes"
    )
    max_window: float = param(
        Formula("4 BDP and 10 packets", lambda path, _: 4 * path.bdp_payload_bytes / path.mtu_bytes + 10),
        above=0, unit="packets", text="the greatest window", source="own choice; htsim has 1000",
    )  # fmt: skip
    reset_after: int = param(
        5, low=1, unit="", text="time-outs in a row after which the window is the least", source=_HTSIM
    )

    def problems(self, path: PathInfo) -> list[str]:
        found = ["fs_min is not below fs_max"] if self.fs_min >= self.fs_max else []
        return found + (["min_window is above max_window"] if self.min_window > self.max_window else [])


class Swift(CongestionControl):
    """A window in packets; below one packet the flow is paced instead."""

    name = "swift"
    feedback = Feedback.ACK
    source = f"Kumar et al., SIGCOMM 2020; {_HTSIM}"
    parameters = SwiftParams
    presets: ClassVar = MappingProxyType({
        "htsim": Preset(
            "htsim's own values", _HTSIM, {"base_ns": 20_000, "initial_window": 12, "max_window": 1000, "min_window": 0.01}
        ),
    })  # fmt: skip

    params: SwiftParams
    window_bytes: float

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        p = self.params
        self._a = p.fs_range_ns / (1 / sqrt(p.fs_min) - 1 / sqrt(p.fs_max))
        self._b = -self._a / sqrt(p.fs_max)
        self._fixed_ns = p.base_ns + path.hops * p.hop_ns
        self.window = min(p.max_window, max(p.min_window, p.initial_window))
        self._rtt = float(path.base_rtt_ns)
        self._delay = 0
        self._last_cut: int | None = None
        self._timeouts = 0
        self._apply()

    def target_ns(self) -> float:
        """The delay to aim at with the present window."""
        scaling = self._a / sqrt(self.window) + self._b
        return self._fixed_ns + min(self.params.fs_range_ns, max(0.0, scaling))

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        self._timeouts = 0
        if rtt_ns is None or rtt_ns < 0:
            return
        target, self._delay = self.target_ns(), rtt_ns
        if rtt_ns < target:
            packets = size / self.path.mtu_bytes
            self.window += self.params.ai * packets / (self.window if self.window >= 1 else 1)
            self.trigger = "below_target"
        else:
            p = self.params
            self._cut(now, max(1 - p.b * (rtt_ns - target) / max(rtt_ns, 1), 1 - p.max_mdf), "above_target")
        self._rtt += (rtt_ns - self._rtt) / 8
        self._apply()

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        if kind is Loss.TIMEOUT:
            self._timeouts += 1
            if self._timeouts >= self.params.reset_after:
                self.window, self.trigger = self.params.min_window, "timeouts"
                self._apply()
                return
        self._cut(now, 1 - self.params.max_mdf, kind.value)
        self._apply()

    def _cut(self, now: int, factor: float, why: str) -> None:
        if self._last_cut is None or now - self._last_cut >= self._rtt:
            self.window *= factor
            self._last_cut = now
            self.trigger = why

    def _apply(self) -> None:
        self.window = min(self.params.max_window, max(self.params.min_window, self.window))
        self.window_bytes = self.window * self.path.mtu_bytes
        if self.window < 1:
            rate = self.window * self.path.wire_mtu_bytes * 8e9 / max(self._rtt, 1)
            self.rate_bps = min(rate, float(self.path.line_rate_bps))
        else:
            self.rate_bps = None

    def state(self) -> dict[str, float]:
        return {"delay_ns": self._delay, "target_ns": self.target_ns(), "window_packets": self.window}
