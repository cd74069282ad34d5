"""The fast path: RoCE v2 and MRC frames as bytes, without Scapy.

`FlowTemplate.build` makes header and trailer of a packet, `parse` reads a frame, `pack_*` and `unpack_*` (`headers`,
`mrc_headers`) do the extension headers. A property test holds them byte-equal to the Scapy layers for every opcode.
"""

from __future__ import annotations

from typing import Final

from traffic.packet.opcodes import ext_bytes
from traffic.packet.parse import Packet, Parser, parse
from traffic.packet.template import Address, FlowTemplate, compile_template

__all__ = [
    "BTH_BYTES",
    "ETHERNET_BYTES",
    "ICRC_BYTES",
    "IPV4_BYTES",
    "IPV6_BYTES",
    "UDP_BYTES",
    "WIRE_OVERHEAD_BYTES",
    "Address",
    "FlowTemplate",
    "Packet",
    "Parser",
    "compile_template",
    "frame_bytes",
    "header_bytes",
    "parse",
    "wire_bytes",
]

ETHERNET_BYTES: Final = 14
IPV4_BYTES: Final = 20
IPV6_BYTES: Final = 40
UDP_BYTES: Final = 8
BTH_BYTES: Final = 12
ICRC_BYTES: Final = 4
WIRE_OVERHEAD_BYTES: Final = 24
"""Preamble 8, FCS 4 and interframe gap 12: what the shaper's size table adds to each frame."""


def header_bytes(opcode: int, *, timestamp: bool = False, ip_version: int = 4) -> int:
    """Bytes from Ethernet through the last extension header; raises ValueError for an unknown opcode."""
    ip = IPV4_BYTES if ip_version == 4 else IPV6_BYTES
    return ETHERNET_BYTES + ip + UDP_BYTES + BTH_BYTES + ext_bytes(opcode, timestamp=timestamp)


def frame_bytes(opcode: int, payload_bytes: int, *, timestamp: bool = False, ip_version: int = 4) -> int:
    """Bytes of the frame as a socket sees it: headers, payload, pad and ICRC, no FCS."""
    pad = -payload_bytes & 3
    return header_bytes(opcode, timestamp=timestamp, ip_version=ip_version) + payload_bytes + pad + ICRC_BYTES


def wire_bytes(opcode: int, payload_bytes: int, *, timestamp: bool = False, ip_version: int = 4) -> int:
    """Bytes the frame takes on the wire, as the shaper charges it (no padding to the Ethernet minimum)."""
    return frame_bytes(opcode, payload_bytes, timestamp=timestamp, ip_version=ip_version) + WIRE_OVERHEAD_BYTES
