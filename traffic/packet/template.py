"""Build RoCE v2 and MRC frames as bytes from a template that keeps what does not change."""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, SupportsBytes

from traffic.errors import TrafficError
from traffic.packet.headers import Buffer
from traffic.packet.icrc import CRC_AFTER_LRH, crc32
from traffic.packet.opcodes import EXT_LEN, EXT_LEN_TS, FLAG_TS, ROCE_PORT, Opcode, extensions
from traffic.packet.parse import parse

Address = str | int | ipaddress.IPv4Address | ipaddress.IPv6Address

_UDP_BTH: Final = ">HHHHBBHII"
_UDP_BTH_BYTES: Final = struct.calcsize(_UDP_BTH)
_ICRC_BYTES: Final = 4
_ETHERNET_BYTES: Final = 14
_SIZES_KEPT: Final = 4096
_TEMPLATE: Final = "flow template"


class _Sizes(dict[int, tuple[bytes, int, int]]):
    """By bytes between BTH and ICRC: the Ethernet and IP headers, and what turns the CRC of the packet into its ICRC."""

    def __init__(self, template: FlowTemplate, tos: int) -> None:
        super().__init__()
        self._template = template
        self._tos = tos

    def __missing__(self, body: int) -> tuple[bytes, int, int]:
        if len(self) >= _SIZES_KEPT:
            self.clear()
        prefix = self._template._ip_part(body, self._tos)
        fix, fix_becn = (self._template._fix(prefix, body, becn) for becn in (False, True))
        entry = self[body] = (prefix, fix, fix_becn)
        return entry


class FlowTemplate:
    """Frames of one direction between two queue pairs: everything constant is kept, `write` and `build` fill in the rest.

    `tos` is the default of `build`. IP version 4 or 6 is that of the addresses; an integer below 2^32 is IPv4. The IPv4
    identification stays `ip_id` on every packet (it is under the ICRC, so nobody may rewrite it: keep DF set).
    Raises TrafficError for a value that does not fit its field.
    """

    __slots__ = ("_bth", "_by_tos", "_byte1", "_byte4", "_eth_ip", "_head", "_pkey", "_qpn", "_tos", "_v6")

    def __init__(
        self,
        *,
        src_mac: str | bytes,
        dst_mac: str | bytes,
        src_ip: Address,
        dst_ip: Address,
        dest_qpn: int,
        tos: int = 0,
        ttl: int = 64,
        pkey: int = 0xFFFF,
        ip_id: int = 0,
        dont_fragment: bool = True,
        flow_label: int = 0,
        migreq: bool = False,
        fecn: bool = False,
    ) -> None:
        macs = _mac_bytes(dst_mac) + _mac_bytes(src_mac)
        source, target = ipaddress.ip_address(src_ip), ipaddress.ip_address(dst_ip)
        if source.version != target.version:
            raise TrafficError(
                f"{source} and {target} are of two IP versions", where=_TEMPLATE, remedy="use IPv4 or IPv6 for both"
            )
        limits = {"dest_qpn": (dest_qpn, 24), "tos": (tos, 8), "ttl": (ttl, 8), "pkey": (pkey, 16)}
        for name, (value, bits) in (limits | {"ip_id": (ip_id, 16), "flow_label": (flow_label, 20)}).items():
            if not 0 <= value < 1 << bits:
                raise TrafficError(f"{name} {value} is out of range", where=_TEMPLATE, remedy=f"it has {bits} bits")
        self._v6 = source.version == 6
        if self._v6:
            ip = struct.pack(">IHBB", 6 << 28 | flow_label, 0, 17, ttl)
            self._eth_ip = macs + b"\x86\xdd" + ip + source.packed + target.packed
        else:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 0, ip_id, dont_fragment << 14, ttl, 17, 0)
            self._eth_ip = macs + b"\x08\x00" + ip + source.packed + target.packed
        self._pkey = pkey
        self._qpn = dest_qpn
        self._byte1 = migreq << 6
        self._byte4 = fecn << 7
        self._tos = tos
        self._by_tos: dict[int, _Sizes] = {}
        self._bth = len(self._eth_ip) + _UDP_BTH_BYTES
        self._head = struct.Struct(f">{len(self._eth_ip)}s{_UDP_BTH[1:]}")

    def build(
        self,
        opcode: int,
        psn: int,
        ext: bytes,
        payload: Buffer,
        *,
        sport: int,
        ack_req: bool = False,
        tos: int | None = None,
        becn: bool = False,
        flags8: int = 0,
        solicited: bool = False,
        flow_label: int | None = None,
    ) -> tuple[bytes, bytes]:
        """Header (Ethernet through the last extension header) and trailer (pad and ICRC) of one packet.

        The payload, of one-byte items, goes between them and is not copied. `psn` is taken modulo 2^24; `flags8` are
        the low seven bits of BTH byte 8; `flow_label` counts for IPv6 only. Raises TrafficError if `ext` is not as long
        as `opcode` wants it.
        """
        frame = memoryview(bytearray(self._bth + len(ext) + len(payload) + 3 + _ICRC_BYTES))
        tos = self._tos if tos is None else tos
        size = self.write(frame, opcode, psn, ext, payload, sport, ack_req, tos, becn, flags8, solicited)
        if flow_label is not None and self._v6:
            # Under the ICRC's mask: nothing else depends on it.
            word = int.from_bytes(frame[14:18]) & 0xFFF00000 | flow_label & 0xFFFFF
            frame[14:18] = word.to_bytes(4)
        start = self._bth + len(ext)
        return bytes(frame[:start]), bytes(frame[start + len(payload) : size])

    def write(
        self,
        frame: memoryview,
        opcode: int,
        psn: int,
        ext: bytes,
        payload: Buffer,
        sport: int,
        ack_req: bool,
        tos: int,
        becn: bool = False,
        flags8: int = 0,
        solicited: bool = False,
    ) -> int:
        """Lay one packet out in `frame`, which is long enough; its length. Fields and errors as in `build`.

        The ICRC is that of one run over the packet as it is. A CRC is affine: two packets of one length whose difference is
        fixed (here the fields that the ICRC takes as ones) have CRCs whose difference is fixed too.
        """
        if len(ext) != (EXT_LEN_TS if flags8 & FLAG_TS else EXT_LEN)[opcode]:
            raise _wrong_ext(opcode, len(ext))
        size = len(payload)
        pad = -size & 3
        body = len(ext) + size + pad
        prefix, fix, fix_becn = (self._by_tos.get(tos) or self._tos_sizes(tos))[body]
        byte1 = self._byte1 | pad << 4 | solicited << 7
        qpn = (self._byte4 | becn << 6) << 24 | self._qpn
        last = (ack_req << 7 | flags8) << 24 | psn & 0xFFFFFF
        self._head.pack_into(frame, 0, prefix, sport, ROCE_PORT, body + 24, 0, opcode, byte1, self._pkey, qpn, last)
        start = self._bth
        if ext:
            frame[start : start + len(ext)] = ext
            start += len(ext)
        end = start + size
        frame[start:end] = payload
        if pad:
            frame[end : end + pad] = bytes(pad)
            end += pad
        crc = crc32(frame[_ETHERNET_BYTES:end], CRC_AFTER_LRH) ^ (fix_becn if becn else fix)
        frame[end : end + _ICRC_BYTES] = crc.to_bytes(_ICRC_BYTES, "little")
        return end + _ICRC_BYTES

    def _tos_sizes(self, tos: int) -> _Sizes:
        sizes = self._by_tos.get(tos)
        if sizes is None:
            if not 0 <= tos < 256:
                raise TrafficError(f"tos {tos} is out of range", where=_TEMPLATE, remedy="it has 8 bits")
            sizes = self._by_tos[tos] = _Sizes(self, tos)
        return sizes

    def _ip_part(self, body: int, tos: int) -> bytes:
        total = body + 24
        head = bytearray(self._eth_ip)
        if total + (0 if self._v6 else 20) > 0xFFFF:
            raise TrafficError(
                f"{body} bytes do not fit an IP packet", where=_TEMPLATE, remedy="split the message at the path MTU"
            )
        if self._v6:
            struct.pack_into(">H", head, 18, total)
            head[14] |= tos >> 4
            head[15] |= tos << 4 & 0xF0
        else:
            struct.pack_into(">H", head, 16, total + 20)
            head[15] = tos
            struct.pack_into(">H", head, 24, _ipv4_checksum(head[14:]))
        return bytes(head)

    def _fix(self, prefix: bytes, body: int, becn: bool) -> int:
        """CRC of a packet with its masked fields as ones, exclusive-or the CRC of the same packet as sent."""
        rest = struct.pack(_UDP_BTH, 0, 0, 0, 0, 0, 0, 0, (self._byte4 | becn << 6) << 24, 0) + bytes(body)
        sent = bytearray(prefix[_ETHERNET_BYTES:] + rest)
        masked = bytearray(sent)
        if self._v6:
            masked[0] |= 0x0F
            masked[1:4] = b"\xff\xff\xff"
            masked[7] = 0xFF
        else:
            masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
        udp = len(prefix) - _ETHERNET_BYTES
        masked[udp + 6] = masked[udp + 7] = masked[udp + 12] = 0xFF
        return crc32(masked, CRC_AFTER_LRH) ^ crc32(sent, CRC_AFTER_LRH)


def compile_template(pkt: SupportsBytes) -> FlowTemplate:
    """The template of a frame, given as a Scapy packet from Ethernet on (or its bytes).

    Addresses, TTL, TOS, IP identification, DF, flow label, P_Key, destination QPN, MigReq and FECN are kept; what
    changes from packet to packet (opcode, PSN, source port, flags, extension headers, payload) is not.
    """
    raw = bytes(pkt)
    seen = parse(raw)
    v6 = raw[12:14] == b"\x86\xdd"
    bth = 62 if v6 else 42
    if seen is None:
        raise TrafficError("not a RoCE v2 frame", where=_TEMPLATE, remedy="build Ether / IP / UDP(dport=4791) / BTH")
    if raw[bth + 1] & 0x0F or raw[bth + 4] & 0x3F:
        raise TrafficError("reserved BTH bits are set", where=_TEMPLATE, remedy="leave TVer and the reserved bits zero")
    return FlowTemplate(
        src_mac=raw[6:12],
        dst_mac=raw[:6],
        src_ip=ipaddress.IPv6Address(seen.src_ip) if v6 else ipaddress.IPv4Address(seen.src_ip),
        dst_ip=ipaddress.IPv6Address(seen.dst_ip) if v6 else ipaddress.IPv4Address(seen.dst_ip),
        dest_qpn=seen.dest_qpn,
        tos=seen.dscp << 2 | seen.ecn,
        ttl=seen.ttl,
        pkey=seen.pkey,
        ip_id=0 if v6 else int.from_bytes(raw[18:20]),
        dont_fragment=not v6 and bool(raw[20] & 0x40),
        flow_label=int.from_bytes(raw[14:18]) & 0xFFFFF if v6 else 0,
        migreq=bool(raw[bth + 1] & 0x40),
        fecn=bool(raw[bth + 4] & 0x80),
    )


def _mac_bytes(mac: str | bytes) -> bytes:
    raw = bytes.fromhex(mac.replace(":", "")) if isinstance(mac, str) else bytes(mac)
    if len(raw) != 6:
        raise TrafficError(f"{mac!r} is not a MAC address", where=_TEMPLATE, remedy="six bytes: 02:00:00:00:00:01")
    return raw


def _ipv4_checksum(header: bytes | bytearray) -> int:
    """RFC 791 checksum of a header whose checksum field is zero."""
    total: int = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _wrong_ext(opcode: int, size: int) -> TrafficError:
    if EXT_LEN[opcode] < 0:
        return TrafficError(f"unknown opcode {opcode:#04x}", where=_TEMPLATE, remedy="use a member of opcodes.Opcode")
    wanted = " ".join(extensions(opcode)) or "no extension header"
    return TrafficError(
        f"{Opcode(opcode).name} with {size} bytes of extension headers",
        where=_TEMPLATE,
        remedy=f"it carries {wanted}: {EXT_LEN[opcode]} bytes (4 more with a timestamp, if FLAG_TS is set)",
    )
