"""Parameters of DCQCN, and the sets of them that are published."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from traffic.congestion.base import PathInfo
from traffic.congestion.params import Formula, Preset, param
from traffic.congestion.receiver import CnpParams

_PAPER: Final = "DCQCN paper, deployed values (from memory of the paper)"
_ZHU: Final = "bobzhuyb/ns3-rdma"
_HPCC: Final = "HPCC simulator (alibaba-edu), run.py and rdma-hw.cc"
_CX4: Final = "dump of a ConnectX-4's factory values (ManiAm/GNS-QOS)"


class DcqcnParams(CnpParams):
    """Parameters of `dcqcn`; the defaults are the paper's."""

    g: float = param(1 / 256, above=0, high=1, text="weight of the newest sample in alpha", source=_PAPER)
    initial_alpha: float = param(1.0, low=0, high=1, text="alpha before the first CNP", source=_PAPER)
    alpha_timer_ns: int = param(
        55_000, low=1, text="alpha decays after this long without a CNP, and again", source=_PAPER
    )
    timer_ns: int = param(55_000, low=1, text="period of the rate-increase timer", source=_PAPER)
    byte_counter_bytes: int = param(
        10_000_000,
        low=0,
        text="bytes sent that count as one rate-increase event; 0 switches the byte counter off",
        source=_PAPER,
    )
    fast_recovery: int = param(
        5, low=0, unit="", text="F: increase events that only go back half-way to the target", source=_PAPER
    )
    ai_bps: float = param(40e6, low=0, text="additive increase of the target", source=_PAPER)
    hai_bps: float = param(
        200e6, low=0, text="hyper increase of the target", source=f"{_ZHU} config.txt (the paper names none)"
    )
    min_rate_bps: float = param(100e6, above=0, text="no cut goes below this rate", source=f"{_ZHU} MinRate")
    order: str = param(
        "cut-alpha", choices=("cut-alpha", "alpha-cut"),
        text="on a CNP (machine event), cut with the alpha of before (the paper) or raise alpha first (its author's simulator)",
        source="DCQCN paper equation 1 (from memory); ns3-rdma rpr_cnm_received",
    )  # fmt: skip
    clamp_target: bool = param(
        True, text="each cut takes the current rate as the new target; else only a cut after some increase does",
        source="DCQCN paper; ClampTargetRate in both simulators",
    )  # fmt: skip
    machine: str = param(
        "event", choices=("event", "polled"),
        text="act at each CNP, or look for CNPs every alpha_timer_ns and cut_interval_ns", source=f"DCQCN paper; {_HPCC}",
    )  # fmt: skip
    cut_interval_ns: int = param(
        0, low=0, text="least time between two cuts (event), or period of the look for CNPs (polled)", source=_HPCC
    )
    halve_in_hyper: bool = param(
        False, text="timer and byte counter count at half their length in hyper increase", source=_ZHU
    )
    shrink_target: bool = param(
        False,
        text="at the first stage a target above 10 times the rate falls to an eighth",
        source=f"{_ZHU} AdjustRates",
    )

    def problems(self, path: PathInfo) -> list[str]:
        if self.machine == "polled" and not self.cut_interval_ns:
            return ["machine polled needs cut_interval_ns above 0"]
        return []


def _scaled(mbps: int) -> Formula:
    return Formula(f"{mbps} Mbit/s × line rate / 25 Gbit/s", lambda path, _: mbps * 1e6 * path.line_rate_bps / 25e9)


def _marking(pmax: float) -> dict[str, object]:
    return {
        "kmin_bytes": Formula("100 KB × line rate / 25 Gbit/s", lambda path, _: 100e3 * path.line_rate_bps / 25e9),
        "kmax_bytes": Formula("400 KB × line rate / 25 Gbit/s", lambda path, _: 400e3 * path.line_rate_bps / 25e9),
        "pmax": pmax,
    }


_HPCC_COMMON: Final = {
    "machine": "polled", "clamp_target": False, "byte_counter_bytes": 0, "fast_recovery": 1,
    "ai_bps": _scaled(5), "hai_bps": _scaled(50), "min_rate_bps": 1e9,
}  # fmt: skip

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType({
    "paper": Preset(
        "what the paper deployed on 40 Gbit/s links; the defaults", _PAPER, {},
        {"kmin_bytes": 5_000, "kmax_bytes": 200_000, "pmax": 0.01},
    ),
    "zhu": Preset(
        "the public simulator of the paper's first author; its FAST_RECOVERY_TIMES 5 makes four fast recoveries",
        f"{_ZHU} mix/config.txt, qbb-net-device.cc",
        {
            "timer_ns": 60_000, "byte_counter_bytes": 300_000_000, "fast_recovery": 4, "order": "alpha-cut",
            "initial_alpha": 0.5, "halve_in_hyper": True, "shrink_target": True,
        },
        {"kmin_bytes": 40_000, "kmax_bytes": 1_000_000, "pmax": 1.0},
    ),
    "hpcc-paper": Preset(
        "the paper's timers in the NIC model of the HPCC simulator", f"{_HPCC}, dcqcn_paper",
        {**_HPCC_COMMON, "alpha_timer_ns": 50_000, "cut_interval_ns": 50_000, "timer_ns": 55_000, "cnp_interval_ns": 0},
        _marking(0.2),
    ),
    "hpcc-mellanox": Preset(
        "the vendor's timers in the NIC model of the HPCC simulator", f"{_HPCC}, dcqcn",
        {**_HPCC_COMMON, "alpha_timer_ns": 1_000, "cut_interval_ns": 4_000, "timer_ns": 300_000, "cnp_interval_ns": 0},
        _marking(0.2),
    ),
    "deployment": Preset(
        "what NICs are shipped with: a ConnectX-4's factory values, absolute at any line rate; g read as 1 − 1019/1024", _CX4,
        {
            "machine": "polled", "clamp_target": False, "fast_recovery": 1, "g": 5 / 1024, "initial_alpha": 1023 / 1024,
            "alpha_timer_ns": 1_000, "cut_interval_ns": 4_000, "timer_ns": 300_000, "byte_counter_bytes": 32_767,
            "ai_bps": 5e6, "hai_bps": 50e6, "min_rate_bps": 1e6, "cnp_interval_ns": 0,
        },
    ),
})  # fmt: skip
