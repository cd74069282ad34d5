"""Parameters of NSCC: scaled from a reference network of 100 Gbit/s and 12 us, as uet-htsim scales them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from traffic.congestion.base import PathInfo
from traffic.congestion.params import Formula, param
from traffic.congestion.receiver import PenaltyParams

_UET: Final = "ultraethernet/uet-htsim uec.cpp initNsccParams"
_REFERENCE_BDP: Final = 150_000  # bytes: 100 Gbit/s × 12 us
_REFERENCE_RTT: Final = 12_000


def _a(path: PathInfo) -> float:
    """The BDP of this network in BDPs of the reference."""
    return path.bdp_bytes / _REFERENCE_BDP


def _alpha(path: PathInfo, done: Mapping[str, Any]) -> float:
    target: int = done["target_ns"]
    return 4 * path.mtu_bytes * _a(path) * (target / _REFERENCE_RTT) / target


class NsccParams(PenaltyParams):
    """Parameters of `nscc`; a is BDP / (100 Gbit/s × 12 us), MSS the payload of a packet."""

    target_ns: int = param(
        Formula("0.75 base RTT with trimming, 1 without", lambda path, _: path.base_rtt_ns * (0.75 if path.trimming else 1.0)),
        low=1, text="T: queueing delay to aim at", source=_UET,
    )  # fmt: skip
    max_bdp: float = param(1.5, above=0, unit="BDP", text="the greatest window, and the first", source=_UET)
    alpha: float = param(
        Formula("4 MSS a (T/12 us) / T", _alpha),
        low=0,
        unit="bytes/ns",
        text="weight of the proportional increase",
        source=_UET,
    )
    fi_bytes: float = param(
        Formula("5 MSS a", lambda path, _: 5 * path.mtu_bytes * _a(path)), low=0, text="fair increase", source=_UET
    )
    fi_scale: float = param(
        Formula("0.25 a", lambda path, _: 0.25 * _a(path)),
        low=0,
        text="share of each byte added in fast increase",
        source=_UET,
    )
    fast_below_ns: int = param(
        1_000, low=0, text="delay below which fast increase counts", source="uec.cpp fast_increase"
    )
    eta_bytes: float = param(
        Formula("0.15 MSS a", lambda path, _: 0.15 * path.mtu_bytes * _a(path)), low=0,
        text="added every base RTT whatever happens", source=_UET,
    )  # fmt: skip
    gamma: float = param(0.8, above=0, high=1, text="strength of a decrease", source=_UET)
    max_cut: float = param(0.5, above=0, high=1, text="the greatest share that one decrease takes", source=_UET)
    delay_gain: float = param(0.0125, above=0, high=1, text="weight of the newest delay in the average", source=_UET)
    adjust_bytes: int = param(
        Formula("8 MTU", lambda path, _: 8 * path.mtu_bytes), low=1, text="received bytes after which increases are applied",
        source=_UET,
    )  # fmt: skip
    quick_adapt: bool = param(True, text="quick adapt is on", source=f"{_UET}; OCP MRC disable_qa")
    qa_gate: float = param(
        0.125,
        above=0,
        high=1,
        text="quick adapt only if less than this share of the greatest window came through",
        source=_UET,
    )
    qa_threshold_ns: int = param(
        Formula("4 T", lambda _, done: 4 * done["target_ns"]),
        low=1,
        text="delay that calls for quick adapt by itself",
        source=_UET,
    )
    trim_delay_ns: int = param(
        Formula("base RTT", lambda path, _: path.base_rtt_ns), low=0, text="delay that a trimmed packet stands for in the average",
        source="uec.cpp updateCwndOnNack_NSCC",
    )  # fmt: skip
    ignore_last_hop_trims: bool = param(
        False, text="a last-hop trim leaves the window alone (meant where receiver credits own the last hop)",
        source="uec.cpp updateCwndOnNack_NSCC",
    )  # fmt: skip
