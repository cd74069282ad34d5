"""Scapy layers of RoCE v2: what the fast codec is checked against, and what labs and the command line look at.

A packet is `Ether / IP / UDP / BTH / extension headers / payload`. On build the BTH sets the pad count, appends pad and
ICRC; UDP gets port 4791, a source port from the entropy range and checksum 0 unless told otherwise. On dissection the
ICRC is checked (`BTH.icrc_ok`, and shown by `show()`) and pad is taken off the payload. Packets whose DSCP says
"trimmed" end with their headers: neither pad nor ICRC.
"""

# ruff: noqa: RUF012 - Scapy wants its fields as a list in the class

from __future__ import annotations

from typing import Any

from scapy.fields import (
    BitField,
    ByteEnumField,
    Field,
    FlagsField,
    StrField,
    XBitField,
    XByteField,
    XIntField,
    XLongField,
    XShortField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_top_down

from traffic.packet import dscp, icrc
from traffic.packet.headers import describe_syndrome
from traffic.packet.opcodes import FLAG_TS, ROCE_PORT, SPORT_MIN, Ext, Opcode, extensions

OPCODE_NAMES = {int(op): op.name for op in Opcode}
_FLAGS8 = ["res0", "res1", "res2", "res3", "ts", "rtx", "r"]


class _IcrcField(Field[int | None, int]):
    """Last four bytes of the packet, shown in wire order; None means "compute on build"."""

    def __init__(self, name: str) -> None:
        super().__init__(name, None, "!I")

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int | None]:
        if not pkt.has_trailer or len(s) < 4:
            return s, None
        return s[:-4], int.from_bytes(s[-4:])

    def addfield(self, pkt: Any, s: bytes, val: int | None) -> bytes:
        return s

    def i2repr(self, pkt: Any, x: int | None) -> str:
        if x is None:
            return "None"
        return f"0x{x:08x} ({'good' if pkt.icrc_ok else 'BAD'})"


class _PadField(StrField):
    """Pad bytes between payload and ICRC; None means "to a multiple of four"."""

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        count = pkt.padcount if pkt.has_trailer else 0
        cut = len(s) - min(count, len(s))
        return s[:cut], s[cut:]

    def addfield(self, pkt: Any, s: bytes, val: bytes | None) -> bytes:
        return s


class BTH(Packet):
    """Base transport header, with the pad and ICRC that end the packet."""

    name = "BTH"
    fields_desc = [
        ByteEnumField("opcode", int(Opcode.RC_SEND_ONLY), OPCODE_NAMES),
        BitField("solicited", 0, 1),
        BitField("migreq", 0, 1),
        BitField("padcount", None, 2),
        BitField("version", 0, 4),
        XShortField("pkey", 0xFFFF),
        BitField("fecn", 0, 1),
        BitField("becn", 0, 1),
        BitField("resv6", 0, 6),
        XBitField("dqpn", 0, 24),
        BitField("ackreq", 0, 1),
        FlagsField("flags8", 0, 7, _FLAGS8),
        BitField("psn", 0, 24),
        _IcrcField("icrc"),
        _PadField("pad", None),
    ]

    @property
    def trimmed(self) -> bool:
        """Whether the IP header below says that a switch cut the payload off."""
        ip = self._ip()
        if ip is None:
            return False
        tos = ip.tos if isinstance(ip, IP) else ip.tc
        return tos >> 2 in (dscp.TRIMMED, dscp.TRIMMED_LAST_HOP)

    @property
    def has_trailer(self) -> bool:
        """Whether pad and ICRC belong to this packet: not without UDP/IP below, not on a trimmed one."""
        return self._ip() is not None and not self.trimmed

    @property
    def icrc_ok(self) -> bool | None:
        """Whether the ICRC fits the packet as it is now; None where there is none."""
        ip = self._ip()
        return icrc.icrc_ok(bytes(ip)) if ip is not None and self.has_trailer else None

    def post_dissect(self, s: bytes) -> bytes:
        """Drop the cache: Scapy would rebuild the header from it and never come to `post_build`."""
        self.raw_packet_cache = None
        return s

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Set the pad count, append pad and ICRC."""
        pad = b""
        if self.has_trailer:
            pad = bytes(-len(pay) & 3) if self.pad is None else self.pad
        if self.padcount is None:
            pkt = pkt[:1] + bytes([pkt[1] & 0xCF | (len(pad) & 3) << 4]) + pkt[2:]
        if not self.has_trailer:
            return pkt + pay
        body = pkt + pay + pad
        return body + (self._compute_icrc(body) if self.icrc is None else self.icrc.to_bytes(4, "big"))

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """The first extension header of the opcode, or plain payload."""
        return _next_layer(self, 0)

    def headers(self) -> tuple[Ext, ...]:
        """Extension headers this BTH announces, none for an unknown opcode."""
        if self.opcode not in OPCODE_NAMES:
            return ()
        return extensions(self.opcode, timestamp=bool(int(self.flags8) & FLAG_TS))

    def _ip(self) -> Any:
        udp = self.underlayer
        ip = udp.underlayer if isinstance(udp, UDP) else None
        return ip if isinstance(ip, IP | IPv6) else None

    def _compute_icrc(self, body: bytes) -> bytes:
        udp: Any = self.underlayer
        ip = self._ip()
        shadow = type(ip)(**{**ip.overloaded_fields, **ip.fields})
        shadow /= type(udp)(**{**udp.overloaded_fields, **udp.fields})
        return icrc.icrc_of(bytes(shadow / Raw(body + bytes(4))))


class ExtensionHeader(Packet):
    """A header between BTH and payload; which one follows is the opcode's business."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """The next extension header of the opcode, or plain payload."""
        depth = 1
        below = self.underlayer
        while isinstance(below, ExtensionHeader):
            depth += 1
            below = below.underlayer
        return _next_layer(below, depth)


def _next_layer(bth: Packet | None, depth: int) -> type[Packet]:
    headers = bth.headers() if isinstance(bth, BTH) else ()
    return layer_of(headers[depth]) if depth < len(headers) else Raw


class _SyndromeField(XByteField):
    def i2repr(self, pkt: Packet | None, x: int) -> str:
        return f"0x{x:02x} ({describe_syndrome(x)})"


class RETH(ExtensionHeader):
    """Where a WRITE or READ goes; `length` is that of the whole message."""

    name = "RETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), BitField("length", 0, 32)]


class AtomicETH(ExtensionHeader):
    """Operands of an atomic request."""

    name = "AtomicETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), XLongField("swap_add", 0), XLongField("compare", 0)]


class AtomicAckETH(ExtensionHeader):
    """Value that was in memory before the atomic operation."""

    name = "AtomicAckETH"
    fields_desc = [XLongField("value", 0)]


class AETH(ExtensionHeader):
    """Acknowledge header: syndrome and message sequence number."""

    name = "AETH"
    fields_desc = [_SyndromeField("syndrome", 0), BitField("msn", 0, 24)]


class DETH(ExtensionHeader):
    """Datagram header: Q_Key and the sender's queue pair."""

    name = "DETH"
    fields_desc = [XIntField("qkey", 0), BitField("reserved", 0, 8), XBitField("src_qpn", 0, 24)]


class ImmDt(ExtensionHeader):
    """Immediate data, opaque to the transport."""

    name = "ImmDt"
    fields_desc = [XIntField("value", 0)]


class IETH(ExtensionHeader):
    """R_Key that a SEND with invalidate takes away."""

    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class FETH(ExtensionHeader):
    """Flush header."""

    name = "FETH"
    fields_desc = [BitField("reserved", 0, 26), BitField("selectivity", 0, 2), BitField("placement", 0, 4)]


class CNPReserved(ExtensionHeader):
    """The sixteen reserved bytes of a congestion notification packet."""

    name = "CNP"
    fields_desc = [XLongField("reserved1", 0), XLongField("reserved2", 0)]


class CRETH(ExtensionHeader):
    """Receiver credit over RC: asks for a total, or gives one. This project's own."""

    name = "CRETH"
    fields_desc = [BitField("grant", 0, 1), BitField("reserved", 0, 7), BitField("total", 0, 24)]


LAYERS: dict[Ext, type[Packet]] = {
    Ext.RETH: RETH,
    Ext.ATOMIC_ETH: AtomicETH,
    Ext.ATOMIC_ACK_ETH: AtomicAckETH,
    Ext.AETH: AETH,
    Ext.DETH: DETH,
    Ext.IMMDT: ImmDt,
    Ext.IETH: IETH,
    Ext.FETH: FETH,
    Ext.CNP: CNPReserved,
    Ext.CRETH: CRETH,
}


def layer_of(header: Ext) -> type[Packet]:
    """The Scapy class of an extension header, of RoCE v2 or MRC."""
    from traffic.packet import mrc  # builds on this module

    return LAYERS[header] if header in LAYERS else mrc.LAYERS[header]


def default_tos(opcode: Opcode) -> int:
    """TOS of the class an opcode travels in: ECN-capable data, or control."""
    return dscp.tos(dscp.DATA, dscp.ECT0) if opcode.carries_payload else dscp.tos(dscp.CONTROL)


def roce_frame(
    opcode: int,
    *,
    src_ip: str = "10.0.0.1",
    dst_ip: str = "10.0.0.2",
    src_mac: str = "02:00:00:00:00:01",
    dst_mac: str = "02:00:00:00:00:02",
    dest_qpn: int = 0x12,
    psn: int = 0,
    payload: bytes = b"",
    sport: int = SPORT_MIN,
    tos: int | None = None,
    ttl: int = 64,
    timestamp: bool = False,
) -> Packet:
    """A whole frame of `opcode` with all its headers at their defaults, to be changed by name: `f[RETH].va = 0x1000`.

    IPv4 has DF set and identification 0. `tos` defaults to that of the class the opcode travels in.
    """
    op = Opcode(opcode)
    if tos is None:
        tos = default_tos(op)
    if ":" in dst_ip:
        ip: Packet = IPv6(src=src_ip, dst=dst_ip, tc=tos, hlim=ttl)
    else:
        ip = IP(src=src_ip, dst=dst_ip, id=0, flags="DF", tos=tos, ttl=ttl)
    bth = BTH(opcode=int(op), dqpn=dest_qpn, psn=psn, flags8=FLAG_TS if timestamp else 0)
    frame = Ether(src=src_mac, dst=dst_mac) / ip / UDP(sport=sport) / bth
    for header in extensions(op, timestamp=timestamp):
        frame /= layer_of(header)()
    if op is Opcode.CNP:
        frame[BTH].becn = 1
    if Ext.RETH in extensions(op):
        frame[RETH].length = len(payload)
    return frame / Raw(payload) if payload else frame


bind_top_down(UDP, BTH, dport=ROCE_PORT, sport=SPORT_MIN, chksum=0)
# In front, or UDP's default source port 53 makes the frame a DNS message.
UDP.payload_guess = [({"dport": ROCE_PORT}, BTH), *UDP.payload_guess]
bind_top_down(BTH, CNPReserved, opcode=int(Opcode.CNP), becn=1)
