"""Parse RoCE v2 and MRC frames as bytes, every byte of them checked by the ICRC."""

from __future__ import annotations

import struct
from typing import NamedTuple

from traffic.packet.dscp import TRIMMED, TRIMMED_LAST_HOP
from traffic.packet.headers import Buffer
from traffic.packet.icrc import CRC_AFTER_LRH, CRC_RESIDUE, crc32
from traffic.packet.opcodes import EXT_LEN, EXT_LEN_TS, ROCE_PORT

_FRAME_V4 = struct.Struct(">12xHBBHHHBB2xIIHHHHBBHII")
_FRAME_V6 = struct.Struct(">12xHIHBB16s16sHHHHBBHII")
_MASK_V4 = int(f"00ff000000000000ff00ffff{0:016x}000000000000ffff00000000ff{0:014x}", 16)
_MASK_V6 = int(f"0fffffff000000ff{0:064x}000000000000ffff00000000ff{0:014x}", 16)
_TRIMMED = frozenset((TRIMMED, TRIMMED_LAST_HOP))
_EMPTY = memoryview(b"")


class Packet(NamedTuple):
    """One received RoCE v2 or MRC packet; addresses as integers, `ext` and `payload` views into the frame.

    `payload` comes without pad. `flags8` is BTH byte 8 without the acknowledge request. An opcode that is not in the
    table has an empty `ext`. A `trimmed` packet has its headers only: no payload, and no ICRC to check (`icrc_ok` is
    False); `dscp` tells a last-hop trim from one in the core.
    """

    src_ip: int
    dst_ip: int
    sport: int
    dscp: int
    ecn: int
    ttl: int
    opcode: int
    se: bool
    pad: int
    pkey: int
    dest_qpn: int
    becn: bool
    ack_req: bool
    flags8: int
    psn: int
    ext: memoryview
    payload: memoryview
    icrc_ok: bool
    trimmed: bool


_new = tuple.__new__


def parse(frame: Buffer) -> Packet | None:
    """The packet in an Ethernet frame as AF_PACKET gives it; None if it is not RoCE v2 or not whole. Never raises.

    Lengths in the headers must agree, the IPv4 header must be 20 bytes and no fragment; Ethernet padding is ignored.
    The ICRC is computed over every byte received. Headers longer than what is left (a flipped opcode) give None too.
    """
    view = memoryview(frame)
    size = len(view)
    if size < 54:
        return None
    # fmt: off
    (kind, version, tos, total, _, fragment, ttl, protocol, src, dst,
     sport, dport, udp_length, _, opcode, byte1, pkey, qpn, psn) = _FRAME_V4.unpack_from(view)
    # fmt: on
    if kind != 0x0800:
        return _parse_v6(view, size) if kind == 0x86DD else None
    end = total + 14
    if (
        version != 0x45
        or protocol != 17
        or dport != ROCE_PORT
        or udp_length != total - 20
        or end > size
        or fragment & 0x3FFF
    ):
        return None
    start = 54 + (EXT_LEN_TS if psn & 0x10000000 else EXT_LEN)[opcode]
    if start < 54:
        start = 54
    if tos >> 2 in _TRIMMED:
        if start > end:
            return None
        pad, payload, ok, trimmed = 0, _EMPTY, False, True
    else:
        pad = byte1 >> 4 & 3
        tail = end - 4 - pad
        if start > tail:
            return None
        masked = (int.from_bytes(view[14:54]) | _MASK_V4).to_bytes(40)
        ok = crc32(view[54:end], crc32(masked, CRC_AFTER_LRH)) == CRC_RESIDUE
        payload, trimmed = view[start:tail], False
    # fmt: off
    return _new(Packet, (
        src, dst, sport, tos >> 2, tos & 3, ttl, opcode, byte1 > 127, pad, pkey, qpn & 0xFFFFFF, qpn & 0x40000000 != 0,
        psn > 0x7FFFFFFF, psn >> 24 & 127, psn & 0xFFFFFF, view[54:start], payload, ok, trimmed,
    ))
    # fmt: on


def _parse_v6(view: memoryview, size: int) -> Packet | None:
    if size < 74:
        return None
    # fmt: off
    (_, word, length, protocol, ttl, src, dst,
     sport, dport, udp_length, _, opcode, byte1, pkey, qpn, psn) = _FRAME_V6.unpack_from(view)
    # fmt: on
    end = length + 54
    if word >> 28 != 6 or protocol != 17 or dport != ROCE_PORT or udp_length != length or end > size:
        return None
    tos = word >> 20 & 255
    start = 74 + max(0, (EXT_LEN_TS if psn & 0x10000000 else EXT_LEN)[opcode])
    trimmed = tos >> 2 in _TRIMMED
    pad = 0 if trimmed else byte1 >> 4 & 3
    tail = end if trimmed else end - 4 - pad
    if start > tail:
        return None
    masked = (int.from_bytes(view[14:74]) | _MASK_V6).to_bytes(60)
    ok = not trimmed and crc32(view[74:end], crc32(masked, CRC_AFTER_LRH)) == CRC_RESIDUE
    # fmt: off
    return _new(Packet, (
        int.from_bytes(src), int.from_bytes(dst), sport, tos >> 2, tos & 3, ttl, opcode, byte1 > 127, pad, pkey,
        qpn & 0xFFFFFF, qpn & 0x40000000 != 0, psn > 0x7FFFFFFF, psn >> 24 & 127, psn & 0xFFFFFF,
        view[74:start], _EMPTY if trimmed else view[start:tail], ok, trimmed,
    ))
    # fmt: on
