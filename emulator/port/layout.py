"""The structures that the BPF program and this side share (see port.bpf.c), as numpy types."""

from __future__ import annotations

from typing import Any

import numpy as np

CONTROL, DATA, TRIMMED = 0, 1, 2
CLASS_NAMES = ("control", "data", "trimmed")
BINS = 64

FLAG_MARK, FLAG_TRIM, FLAG_LAST_HOP = 1, 2, 4
SCALE = 1 << 32

CONFIG = np.dtype(
    [
        ("flags", "u4"),
        ("loss", "u4"),
        ("kmin", "u4"),
        ("kmax", "u4"),
        ("pmax", "u8"),
        ("limit", "u4"),
        ("bin", "u4"),
        ("trim", "u4"),
        ("limit_other", "u4"),
        ("ps_per_byte", "u8"),
    ]
)

CLASS_STATS = np.dtype([("packets", "u8"), ("bytes", "u8"), ("backlog_sum", "u8"), ("backlog_max", "u8")])

STATS = np.dtype(
    [
        ("lock", "u4"),
        ("pad", "u4"),
        ("mark_state", "u8"),
        ("loss_state", "u8"),
        ("busy_until_ps", "u8"),
        ("ect", "u8"),
        ("marked", "u8"),
        ("above_kmin", "u8"),
        ("trimmed", "u8"),
        ("lost", "u8"),
        ("overflow", "u8"),
        ("ce_dropped", "u8"),
        ("unmarked", "u8"),
        ("cls", CLASS_STATS, (3,)),
        ("histogram", "u8", (2, BINS)),
    ]
)

Records = np.ndarray[Any, np.dtype[np.void]]
