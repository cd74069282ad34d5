"""A rate or a window that the user fixes: the baseline with which to compare, and the hand brake of a lab."""

from __future__ import annotations

from typing import Any, ClassVar

from traffic.congestion.base import CongestionControl, PathInfo
from traffic.congestion.params import Formula, Params, Preset, param

BDP = Formula("BDP", lambda path, _: -(-path.bdp_payload_bytes // path.mtu_bytes) * path.mtu_bytes)
LINE = Formula("line rate", lambda path, _: path.line_rate_bps)


class FixedParams(Params):
    """Parameters of `fixed`."""

    rate_bps: float | None = param(
        None,
        text="pace of the flow; `line` is the line rate",
        source="user",
        above=0,
        words={"none": None, "line": LINE},
    )
    window_bytes: float | None = param(
        None,
        text="payload bytes in flight; `bdp` just fills the path with whole packets",
        source="user",
        low=1,
        words={"none": None, "bdp": BDP},
    )

    def problems(self, path: PathInfo) -> list[str]:
        if self.rate_bps is None and self.window_bytes is None:
            return ["fixed needs rate_bps, window_bytes or both (or preset bdp: a window of one BDP)"]
        if self.rate_bps is not None and self.rate_bps > path.line_rate_bps:
            return [f"rate_bps is {self.rate_bps:.0f}, above the line rate of {path.line_rate_bps}"]
        return []


class Fixed(CongestionControl):
    """A constant rate, a constant window, or both; nothing that happens changes them."""

    name = "fixed"
    formula = "rate = rate_bps, window = window_bytes"
    source = "no algorithm: the user's own values"
    parameters = FixedParams
    presets: ClassVar = {
        "bdp": Preset("a window of one bandwidth-delay product", "definition of the BDP", {"window_bytes": "bdp"})
    }

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self.rate_bps = params.rate_bps
        self.window_bytes = params.window_bytes
