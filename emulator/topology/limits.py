"""Bounds on what a topology may ask for, and why each bound is there."""

from __future__ import annotations

from typing import Final

#: Each host and switch is a network namespace; the address plan has room for these many.
MAX_HOSTS: Final = 512
MAX_SWITCHES: Final = 128
MAX_LINKS: Final = 4096
#: /31 pairs in the last octet of an IPv4 address: hosts of one leaf.
MAX_HOSTS_PER_LEAF: Final = 128

#: IPv6 demands 1280 (RFC 8200 section 5); 9216 is the usual jumbo limit of switches.
MIN_MTU: Final = 1280
MAX_MTU: Final = 9216

#: Ethernet header 14, preamble 8, frame check sequence 4, inter-packet gap 12 (IEEE 802.3).
WIRE_OVERHEAD_BYTES: Final = 38
#: The smallest Ethernet frame on the wire, preamble and gap included.
MIN_WIRE_BYTES: Final = 84

#: Bytes on one wire at once (rate x delay); they are held in memory by the emulator.
MAX_INFLIGHT_BYTES: Final = 256 * 10**6

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"


def frame_bytes(mtu: int) -> int:
    """Wire length in bytes of a frame that carries a full MTU."""
    return mtu + WIRE_OVERHEAD_BYTES


def shaper_burst(mtu: int, kmin_bytes: int, *, ecn: bool) -> tuple[int, str]:
    """Burst of a port's shaper in bytes, and which rule set it.

    Two frames keep the shaper from running dry; a quarter of kmin keeps one burst from crossing the next queue's
    threshold by itself. The smaller wins.
    """
    two_frames = 2 * frame_bytes(mtu)
    if ecn and kmin_bytes // 4 < two_frames:
        return kmin_bytes // 4, "kmin/4"
    return two_frames, "two frames"
