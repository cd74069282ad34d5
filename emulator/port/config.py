"""A port's settings and first state as the BPF program reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emulator.port.layout import CONFIG, FLAG_LAST_HOP, FLAG_MARK, FLAG_TRIM, SCALE, STATS, Records
from emulator.port.model import PortLike
from emulator.port.shaper import other_limit, rate_bytes
from traffic.rng import Rng

LIVE = ("loss", "mark", "trim", "kmin_bytes", "kmax_bytes", "pmax", "last_hop")
"""Fields of a port that can be changed while traffic runs."""

BINS_TO_LIMIT = 56
"""Bins up to the queue's limit; the rest of the 64 leave room for what lies above it."""

TRIM_KEEP_BYTES = 12 + 4 + 4 + 16 + 4
"""Kept behind the UDP header, the longest a data packet has there: BTH, METH, TSETH, RETH, immediate data."""


def bin_bytes(limit_bytes: int) -> int:
    """Width of a histogram bin."""
    return max(1, -(-limit_bytes // BINS_TO_LIMIT))


def probability(value: float) -> int:
    """A probability in units of 2^-32, rounded."""
    return min(SCALE, max(0, round(value * SCALE)))


def port_config(port: PortLike, trim_keep_bytes: int, changed: Mapping[str, Any]) -> Records:
    """One record of the map `port_config`; `changed` overrides fields of the plan's port."""

    def get(name: str) -> Any:
        return changed.get(name, getattr(port, name))

    out = np.zeros(1, CONFIG)
    out["flags"] = bool(get("mark")) * FLAG_MARK | bool(get("trim")) * FLAG_TRIM | bool(get("last_hop")) * FLAG_LAST_HOP
    out["loss"] = min(SCALE - 1, probability(get("loss")))
    out["kmin"], out["kmax"] = get("kmin_bytes"), get("kmax_bytes")
    out["pmax"] = probability(get("pmax"))
    out["limit"], out["limit_other"] = port.limit_bytes, other_limit(port)
    out["bin"] = bin_bytes(port.limit_bytes)
    out["trim"] = trim_keep_bytes
    out["ps_per_byte"] = max(1, round(10**12 / rate_bytes(port.rate_bps)))
    return out


def port_stats(port: PortLike, seed: int) -> Records:
    """One record of the map `port_stats`: nothing counted yet, the generators seeded from (seed, port number)."""
    out = np.zeros(1, STATS)
    out["mark_state"] = Rng(seed, "port", port.number, "mark").next64()
    out["loss_state"] = Rng(seed, "port", port.number, "loss").next64()
    return out
