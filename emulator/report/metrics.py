"""The numbers of a summary that comparisons speak of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.report.text import fullest, size, time_us

Getter = Callable[[Mapping[str, Any]], float | None]


@dataclass(frozen=True)
class Metric:
    """One number of a summary: `show` spells it, `better` is `low`, `high` or empty where neither is."""

    key: str
    name: str
    get: Getter
    show: Callable[[float | None], str]
    better: str = ""


def _sum(key: str) -> Getter:
    return lambda s: s["packets"].get(key)


def _inner(part: str, key: str, inner: str | None = None) -> Getter:
    def get(s: Mapping[str, Any]) -> float | None:
        value = (s.get(part) or {}).get(key)
        if inner is not None:
            value = (value or {}).get(inner)
        return None if value is None else float(value)

    return get


def _queue(key: str) -> Getter:
    def get(s: Mapping[str, Any]) -> float | None:
        port = fullest(s["queues"])
        return None if port is None or port.get(key) is None else float(port[key])

    return get


def _again(s: Mapping[str, Any]) -> float | None:
    packets = s["packets"]
    return packets["retransmitted"] / packets["data"] if packets.get("data") else None


def count(v: float | None) -> str:
    """A number of packets."""
    return "unknown" if v is None else f"{v:,.0f}"


def share(v: float | None) -> str:
    """A part of one as percent."""
    return "unknown" if v is None else f"{100 * v:.3g} %"


def _plain(unit: str = "") -> Callable[[float | None], str]:
    return lambda v: "unknown" if v is None else f"{v:.4g}{unit}"


METRICS = (
    Metric("completion_us", "completion time", _inner("theory", "time_us"), time_us, "low"),
    Metric("ratio", "times the bound", _inner("theory", "ratio"), _plain(), "low"),
    Metric("busbw_gbps", "bus bandwidth", _inner("collective", "busbw_gbps"), _plain(" Gbit/s"), "high"),
    Metric("step_us", "step time", _inner("steps", "time_us", "mean"), time_us, "low"),
    Metric("idle", "idle share", _inner("steps", "idle_fraction"), share, "low"),
    Metric("goodput_gbps", "goodput", _inner("flows", "goodput_gbps"), _plain(" Gbit/s"), "high"),
    Metric("fct_p50_us", "FCT p50", _inner("flows", "fct_us", "p50"), time_us, "low"),
    Metric("fct_p99_us", "FCT p99", _inner("flows", "fct_us", "p99"), time_us, "low"),
    Metric("slowdown_p99", "slowdown p99", _inner("flows", "slowdown", "p99"), _plain(), "low"),
    Metric("fairness", "fairness", _inner("flows", "fairness"), _plain(), "high"),
    Metric("peak_bytes", "peak queue", _queue("max_bytes"), size, "low"),
    Metric("p99_bytes", "queue met, p99", _queue("p99_bytes"), size, "low"),
    Metric("marked", "marked", _sum("marked"), count),
    Metric("dropped", "dropped", _sum("dropped"), count, "low"),
    Metric("trimmed", "trimmed", _sum("trimmed"), count),
    Metric("again_share", "sent again", _again, share, "low"),
    Metric("timeouts", "time-outs", _sum("timeouts"), count, "low"),
    Metric("reordered", "reordered", _sum("reordered"), count),
    Metric("paths", "paths a pair", _inner("transport", "paths"), count),
    Metric("wrong", "wrong elements", _inner("collective", "wrong"), count, "low"),
)
