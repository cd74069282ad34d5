"""What the machine was like around a run: kernel, CPU, sysctls, versions; counters that tell of interference."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

_SYSCTLS = (
    "kernel.sched_rt_runtime_us",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.default_qdisc",
    "net.core.bpf_jit_enable",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
)
_PACKAGES = ("scapy", "numpy", "pandas", "pyarrow", "pydantic", "pyroute2", "mininet", "isal")


def environment() -> dict[str, Any]:
    """Kernel, processor, sysctls of the root namespace, versions. What cannot be read is left out."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": versions(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "memory_kb": _meminfo(),
        "load": _read("/proc/loadavg"),
        "sysctls": {key: _read("/proc/sys/" + key.replace(".", "/")) for key in _SYSCTLS},
        **counters(),
    }


def versions() -> dict[str, str]:
    """Versions of the product and of what its results depend on."""
    found = {}
    for name in ("fabriclab", *_PACKAGES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def counters() -> dict[str, Any]:
    """Counters that grow, for the difference over a run; what cannot be read is left out.

    `dropped` and `squeezed` of softnet (packets, all cores), `cpu_ticks` (a row of eight a core: user … steal, as proc(5)
    lists them), `pressure_us` (some CPU stall), `udp_rcvbuf_errors`, `monotonic_ns`.
    """
    out: dict[str, Any] = {
        **_softnet(),
        "cpu_ticks": _cpu_ticks(),
        "pressure_us": _pressure(),
        "udp_rcvbuf_errors": _rcvbuf_errors(),
        "monotonic_ns": time.monotonic_ns(),
    }
    return {key: value for key, value in out.items() if value is not None}


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _cpu_model() -> str | None:
    text = _read("/proc/cpuinfo") or ""
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")), None)


def _meminfo() -> int | None:
    text = _read("/proc/meminfo") or ""
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("MemTotal")), None)


def _softnet() -> dict[str, int]:
    """Columns 2 and 3 of /proc/net/softnet_stat, summed over cores."""
    text = _read("/proc/net/softnet_stat")
    if text is None:
        return {}
    rows = [[int(word, 16) for word in line.split()] for line in text.splitlines()]
    return {"dropped": sum(r[1] for r in rows), "squeezed": sum(r[2] for r in rows)}


def _cpu_ticks() -> list[list[int]] | None:
    text = _read("/proc/stat")
    if text is None:
        return None
    cores = [line.split() for line in text.splitlines() if line.startswith("cpu") and line[3] != " "]
    return [[int(word) for word in words[1:9]] for words in cores]


def _pressure() -> int | None:
    text = _read("/proc/pressure/cpu")
    return None if text is None else int(text.splitlines()[0].rsplit("total=", 1)[1])


def _rcvbuf_errors() -> int | None:
    text = _read("/proc/net/snmp") or ""
    rows = [line.split() for line in text.splitlines() if line.startswith("Udp:")]
    if len(rows) != 2 or "RcvbufErrors" not in rows[0]:
        return None
    return int(rows[1][rows[0].index("RcvbufErrors")])
