"""Parse RoCE v2 and MRC frames as bytes, every byte of them checked by the ICRC."""

from __future__ import annotations

import struct
from typing import Any, Final

from traffic.packet.dscp import TRIMMED, TRIMMED_LAST_HOP
from traffic.packet.headers import Buffer
from traffic.packet.icrc import CRC_AFTER_LRH, CRC_RESIDUE, crc32
from traffic.packet.opcodes import EXT_LEN, EXT_LEN_TS, ROCE_PORT

_ETHERTYPE_IPV4: Final = struct.Struct(">HBBHHHBBHII")
_UDP_BTH: Final = struct.Struct(">HHHHBBHII")
_FRAME_V6: Final = struct.Struct(">12xHIHBB16s16sHHHHBBHII")
_MASK_V6: Final = int(f"0fffffff000000ff{0:064x}000000000000ffff00000000ff{0:014x}", 16)
_TRIMMED: Final = frozenset((TRIMMED, TRIMMED_LAST_HOP))
_EMPTY: Final = memoryview(b"")
_UDP_V4: Final = 34
_BTH_END_V4: Final = 54
_HEADERS_KEPT: Final = 1 << 14


# fmt: off
_FIELDS: Final = (
    "src_ip", "dst_ip", "sport", "dscp", "ecn", "ttl", "opcode", "se", "pad", "pkey", "dest_qpn", "becn", "ack_req", "flags8",
    "psn", "ext", "payload", "icrc_ok", "trimmed",
)
# fmt: on


class Packet:
    """One received RoCE v2 or MRC packet; addresses as integers, `ext` and `payload` views into the frame.

    `payload` comes without pad. `flags8` is BTH byte 8 without the acknowledge request. An opcode that is not in the
    table has an empty `ext`. A `trimmed` packet has its headers only: no payload, and no ICRC to check (`icrc_ok` is
    False); `dscp` tells a last-hop trim from one in the core.
    """

    __slots__ = _FIELDS

    def __init__(
        self,
        src_ip: int,
        dst_ip: int,
        sport: int,
        dscp: int,
        ecn: int,
        ttl: int,
        opcode: int,
        se: bool,
        pad: int,
        pkey: int,
        dest_qpn: int,
        becn: bool,
        ack_req: bool,
        flags8: int,
        psn: int,
        ext: memoryview,
        payload: memoryview,
        icrc_ok: bool,
        trimmed: bool,
    ) -> None:
        self.src_ip = src_ip
        self.dst_ip = dst_ip
        self.sport = sport
        self.dscp = dscp
        self.ecn = ecn
        self.ttl = ttl
        self.opcode = opcode
        self.se = se
        self.pad = pad
        self.pkey = pkey
        self.dest_qpn = dest_qpn
        self.becn = becn
        self.ack_req = ack_req
        self.flags8 = flags8
        self.psn = psn
        self.ext = ext
        self.payload = payload
        self.icrc_ok = icrc_ok
        self.trimmed = trimmed

    def but(self, **changes: Any) -> Packet:
        """A copy that differs in some fields."""
        return Packet(**({name: getattr(self, name) for name in _FIELDS} | changes))


class _Ipv4:
    """What an IPv4 header says; the CRC up to its end, and the one that a whole packet has, taken as it came."""

    __slots__ = ("crc", "dscp", "dst", "ecn", "end", "src", "trimmed", "ttl", "want")

    def __init__(self, src: int, dst: int, tos: int, ttl: int, end: int, crc: int, want: int) -> None:
        self.src = src
        self.dst = dst
        self.dscp = tos >> 2
        self.ecn = tos & 3
        self.ttl = ttl
        self.end = end
        self.crc = crc
        self.want = want
        self.trimmed = self.dscp in _TRIMMED


class Parser:
    """Reads frames; remembers the IPv4 headers it has seen, of which a flow has few."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Ipv4] = {}

    def parse(self, frame: Buffer) -> Packet | None:
        """The packet in an Ethernet frame as AF_PACKET gives it; None if it is not RoCE v2 or not whole. Never raises.

        Lengths in the headers must agree, the IPv4 header must be 20 bytes and no fragment; Ethernet padding is ignored.
        The ICRC is computed over every byte received. Headers longer than what is left (a flipped opcode) give None too.
        """
        view = memoryview(frame)
        size = len(view)
        if size < _BTH_END_V4:
            return None
        ip = self._known.get(bytes(view[12:_UDP_V4])) or self._ipv4(view)
        if ip is None:
            return _parse_v6(view, size)
        fields: tuple[int, int, int, int, int, int, int, int, int] = _UDP_BTH.unpack_from(view, _UDP_V4)
        sport, dport, length, checksum, opcode, byte1, pkey, qpn, psn = fields
        end = ip.end
        if dport != ROCE_PORT or length != end - _UDP_V4 or end > size:
            return None
        start = _BTH_END_V4 + (EXT_LEN_TS if psn & 0x10000000 else EXT_LEN)[opcode]
        if start < _BTH_END_V4:
            start = _BTH_END_V4
        pad, payload, ok = 0, _EMPTY, False
        if ip.trimmed:
            if start > end:
                return None
        else:
            pad = byte1 >> 4 & 3
            tail = end - 4 - pad
            if start > tail:
                return None
            payload = view[start:tail]
            if checksum or qpn > 0xFFFFFF:
                masked = bytearray(view[_UDP_V4:_BTH_END_V4])
                masked[6] = masked[7] = masked[12] = 0xFF
                ok = crc32(view[_BTH_END_V4:end], crc32(masked, ip.crc)) == CRC_RESIDUE
            else:
                ok = crc32(view[_UDP_V4:end], ip.crc) == ip.want
        # fmt: off
        return Packet(
            ip.src, ip.dst, sport, ip.dscp, ip.ecn, ip.ttl, opcode, byte1 > 127, pad, pkey, qpn & 0xFFFFFF,
            qpn & 0x40000000 != 0, psn > 0x7FFFFFFF, psn >> 24 & 127, psn & 0xFFFFFF, view[_BTH_END_V4:start], payload, ok,
            ip.trimmed,
        )
        # fmt: on

    def _ipv4(self, view: memoryview) -> _Ipv4 | None:
        kind, version, tos, total, _, fragment, ttl, protocol, _, src, dst = _ETHERTYPE_IPV4.unpack_from(view, 12)
        if kind != 0x0800 or version != 0x45 or protocol != 17 or fragment & 0x3FFF or total < 40:
            return None
        masked = bytearray(view[14:_UDP_V4])
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
        crc = crc32(masked, CRC_AFTER_LRH)
        # A CRC is affine: taking the UDP checksum and the BTH's byte 4 as ones instead of zeros changes it by a constant.
        rest = bytearray(total - 20)
        want = CRC_RESIDUE ^ crc32(rest, crc)
        rest[6] = rest[7] = rest[12] = 0xFF
        want ^= crc32(rest, crc)
        if len(self._known) >= _HEADERS_KEPT:
            self._known.clear()
        found = self._known[bytes(view[12:_UDP_V4])] = _Ipv4(src, dst, tos, ttl, total + 14, crc, want)
        return found


def parse(frame: Buffer) -> Packet | None:
    """`Parser.parse` for a single frame."""
    return Parser().parse(frame)


def _parse_v6(view: memoryview, size: int) -> Packet | None:
    if size < 74 or bytes(view[12:14]) != b"\x86\xdd":
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
    return Packet(
        int.from_bytes(src), int.from_bytes(dst), sport, tos >> 2, tos & 3, ttl, opcode, byte1 > 127, pad, pkey,
        qpn & 0xFFFFFF, qpn & 0x40000000 != 0, psn > 0x7FFFFFFF, psn >> 24 & 127, psn & 0xFFFFFF,
        view[74:start], _EMPTY if trimmed else view[start:tail], ok, trimmed,
    )
    # fmt: on
