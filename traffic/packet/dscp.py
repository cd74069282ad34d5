"""Differentiated-services code points that tell a port which class a packet belongs to.

DATA and CONTROL follow common RoCE practice (DSCP 26 for data, 48 for CNPs: ConnectX defaults); the trimmed values
are the operator's choice (UEC 1.0; SAI pull 2155 lets the last hop use its own).
"""

from __future__ import annotations

from typing import Final

DATA: Final = 26
CONTROL: Final = 48
TRIMMED: Final = 46
TRIMMED_LAST_HOP: Final = 47

ECT0: Final = 0b10
CE: Final = 0b11


def tos(dscp: int, ecn: int = 0) -> int:
    """The IPv4 TOS (IPv6 traffic class) byte of a code point and ECN bits."""
    return dscp << 2 | ecn
