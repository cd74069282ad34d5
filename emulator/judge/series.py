"""Samples of a run as one series per port, and the gaps between arrivals behind the last ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.judge.rate import PortSeries
from emulator.judge.spacing import backlogged_windows, spacing_errors

CLASSES = ("control", "data", "trimmed")
HEADER_BYTES = 98
"""Wire bytes around a full packet's payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4, and FCS, preamble, gap 24."""

_GUESSED_PACKETS = 16


def port_series(
    samples: Mapping[str, Any], ports: Mapping[str, Any], planned: Sequence[Mapping[str, Any]], mtu: int
) -> list[PortSeries]:
    """One series per sampled port, its classes added up; rounds that miss a class are left out.

    Bytes sent are `tx_bytes` where the sampler recorded them, else packets taken in times the class's mean size over the
    run, less what waits; that guess widens the slack by a few packets.
    """
    number = np.asarray(samples["port"], dtype=np.int64)
    time = np.asarray(samples["time_ns"], dtype=np.int64)
    cls = np.asarray(samples["cls"], dtype=np.int64)
    backlog = np.asarray(samples["backlog_bytes"], dtype=np.int64)
    known = "tx_bytes" in samples
    counter = np.asarray(samples["tx_bytes" if known else "enqueued"], dtype=np.float64)
    packet = mtu + HEADER_BYTES
    out = []
    for plan in planned:
        mine = np.flatnonzero(number == plan["number"])
        if not len(mine) or plan["name"] not in ports or (counter[mine] < 0).any():
            continue
        sent = counter[mine]
        if not known:
            mean = np.array([_mean_packet(ports[plan["name"]], c, packet) for c in CLASSES])
            sent = sent * mean[cls[mine]] - backlog[mine]
        rounds, where, seen = np.unique(time[mine], return_inverse=True, return_counts=True)
        whole = seen == seen.max()
        total, waiting = np.zeros(len(rounds)), np.zeros(len(rounds), dtype=np.int64)
        np.add.at(total, where, sent)
        np.add.at(waiting, where, backlog[mine])
        slack = float(plan.get("burst_bytes") or 0) + packet * (1 if known else _GUESSED_PACKETS)
        out.append(
            PortSeries(
                plan["name"], int(plan["fabric_rate_bps"]), packet, slack, rounds[whole], waiting[whole], total[whole]
            )
        )
    return out


def _mean_packet(port: Mapping[str, Any], cls: str, default: int) -> float:
    counts = port["classes"].get(cls) or {}
    packets, size = counts.get("tx_packets"), counts.get("tx_bytes")
    return size / packets if packets and size else float(default)


def last_port_gaps(
    arrivals: Mapping[str, Sequence[int]],
    series: Sequence[PortSeries],
    plan: Mapping[str, Any],
    hosts: Sequence[str],
    mtu: int,
) -> dict[str, NDArray[np.float64]]:
    """Errors of the gaps between full packets at each host with one link, while its last port was backlogged.

    Arrivals are the kernel's stamps; where netem delays they come the link's delay after the packet left the port.
    """
    by_name = {s.name: s for s in series}
    out = {}
    for rank, times in arrivals.items():
        last = [p for p in plan["ports"] if p["peer"] == hosts[int(rank)]]
        if len(last) != 1 or last[0]["name"] not in by_name:
            continue
        port = by_name[last[0]["name"]]
        windows = backlogged_windows(port.time_ns, port.backlog_bytes, port.rate_bps)
        if plan.get("delay_mode") == "netem":
            windows = windows + int(last[0]["fabric_delay_ns"])
        stamps = np.asarray(times, dtype=np.int64)
        out[port.name] = spacing_errors(stamps, port.packet_bytes * 8e9 / port.rate_bps, windows)
    return out
