"""RCCC: credits of the receiver own its port (Ultra Ethernet; uet-htsim uec.cpp). The receiver's half is `arbiter.py`.

Start       credit = the greatest window, on trust; the first grant or acknowledgement takes back what is left of it
Send        while credit > 0; each packet spends its size and states the total credit wished for:
            granted so far + min(backlog, greatest window) − credit, in whole quanta
Grant       credit += granted, at most the greatest window
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar

from traffic.congestion.arbiter import CreditArbiter, CreditParams
from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo
from traffic.congestion.params import Preset, param

_UET = "ultraethernet/uet-htsim uec.cpp"


class RcccParams(CreditParams):
    """Parameters of `rccc`, both halves."""

    speculate: bool = param(
        True, text="a flow starts with a window of credit on trust; else it asks first", source=_UET
    )


class Rccc(CongestionControl):
    """The sender's half: spends credit."""

    name = "rccc"
    feedback = Feedback.CREDIT
    source = f"{_UET}; the Ultra Ethernet specification is authoritative"
    parameters = RcccParams
    presets: ClassVar = MappingProxyType({
        "oversubscribed": Preset(
            "for a fabric whose core is narrower than its edge: the receiver lowers its pull rate by ECN and trims",
            "uet-htsim oversubscribed_cc.cpp", {"oversubscribed": True},
        ),
    })  # fmt: skip
    receiver = CreditArbiter

    params: RcccParams
    credit_bytes: float

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self._window = self.params.window_bytes
        self._quantum = self.params.quantum_bytes
        self._speculating = self.params.speculate
        self.credit_bytes = float(self._window) if self._speculating else 0.0
        self._granted = 0

    def sent(self, *, now: int, size: int) -> None:
        self.credit_bytes -= size

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        self._settle()

    def lost(self, *, now: int, size: int, kind: Loss) -> None:
        self._settle()

    def credited(self, *, now: int, size: int) -> None:
        self._settle()
        self._granted += size
        self.credit_bytes = min(float(self._window), self.credit_bytes + size)
        self.trigger = "grant"

    def credit_target(self, *, backlog: int) -> int:
        wish = min(backlog, self._window) - self.credit_bytes
        if self._speculating and backlog > 0:
            wish = max(wish, self.path.mtu_bytes)
        return self._granted + max(0, -int(-wish // self._quantum)) * self._quantum

    def state(self) -> dict[str, float]:
        return {"credit_bytes": self.credit_bytes, "granted_bytes": self._granted}

    def _settle(self) -> None:
        if self._speculating:
            self._speculating = False
            self.credit_bytes = min(0.0, self.credit_bytes)
            self.trigger = "trust_ended"
