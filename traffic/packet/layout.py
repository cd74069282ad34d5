"""Every header bit by bit, in words: what the command line shows, and what a frame is explained with.

The names and widths of BTH and extension headers are those of the Scapy layers (a test compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from traffic.packet.opcodes import Ext


class Field(NamedTuple):
    """One field: width in bits, meaning, and how its value is written (dec, hex, mac, ip, signed)."""

    name: str
    bits: int
    meaning: str
    style: str = "dec"


_RES = "reserved, zero"
_TIMESTAMP = "sender's clock, modulo 2^16"
_SPDC, _DPDC = "source delivery context", "destination delivery context"

ETHERNET = (
    Field("dst", 48, "MAC of the next hop", "mac"),
    Field("src", 48, "MAC of the sender on this link", "mac"),
    Field("type", 16, "0x0800 IPv4, 0x86dd IPv6", "hex"),
)
IPV4 = (
    Field("version", 4, "4"),
    Field("ihl", 4, "header length in words of 4 bytes"),
    Field("dscp", 6, "class of traffic; switches may rewrite it"),
    Field("ecn", 2, "0 not ECN-capable, 1 or 2 capable, 3 congestion experienced"),
    Field("len", 16, "bytes from here through the ICRC"),
    Field("id", 16, "identification; under the ICRC, so nobody may rewrite it"),
    Field("flags", 3, "2 is DF: do not fragment"),
    Field("frag", 13, "fragment offset, 0"),
    Field("ttl", 8, "hops left; each router takes one"),
    Field("proto", 8, "17 is UDP"),
    Field("chksum", 16, "of this header; changes with every hop", "hex"),
    Field("src", 32, "sender's address", "ip"),
    Field("dst", 32, "receiver's address", "ip"),
)
IPV6 = (
    Field("version", 4, "6"),
    Field("dscp", 6, "class of traffic; switches may rewrite it"),
    Field("ecn", 2, "0 not ECN-capable, 1 or 2 capable, 3 congestion experienced"),
    Field("fl", 20, "flow label; may carry entropy", "hex"),
    Field("plen", 16, "bytes behind this header, through the ICRC"),
    Field("nh", 8, "17 is UDP"),
    Field("hlim", 8, "hops left; each router takes one"),
    Field("src", 128, "sender's address", "ip"),
    Field("dst", 128, "receiver's address", "ip"),
)
UDP = (
    Field("sport", 16, "entropy: the hash of ECMP picks a path by it"),
    Field("dport", 16, "4791 is RoCE v2"),
    Field("len", 16, "bytes from here through the ICRC"),
    Field("chksum", 16, "0: the ICRC does the work", "hex"),
)
BTH = (
    Field("opcode", 8, "transport (3 bits) and operation (5 bits)", "hex"),
    Field("solicited", 1, "SE: raise an event at the receiver"),
    Field("migreq", 1, "M: path migration state"),
    Field("padcount", 2, "pad bytes between payload and ICRC"),
    Field("version", 4, "TVer, 0"),
    Field("pkey", 16, "partition key", "hex"),
    Field("fecn", 1, "forward congestion, not used with IP ECN"),
    Field("becn", 1, "backward congestion: set in a CNP"),
    Field("resv6", 6, _RES),
    Field("dqpn", 24, "destination queue pair", "hex"),
    Field("ackreq", 1, "A: please acknowledge"),
    Field("flags8", 7, "reserved in RoCE; MRC: r, rtx (retransmission), ts (TSETH follows), 4 reserved", "hex"),
    Field("psn", 24, "packet sequence number, modulo 2^24"),
)

EXTENSION: Mapping[Ext, tuple[Field, ...]] = MappingProxyType(
    {
        Ext.RETH: (
            Field("va", 64, "virtual address at the receiver", "hex"),
            Field("rkey", 32, "key of the memory region", "hex"),
            Field("length", 32, "bytes of the whole message"),
        ),
        Ext.ATOMIC_ETH: (
            Field("va", 64, "virtual address of the 8-byte word", "hex"),
            Field("rkey", 32, "key of the memory region", "hex"),
            Field("swap_add", 64, "new value, or what to add", "hex"),
            Field("compare", 64, "value expected there (COMPARE SWAP)", "hex"),
        ),
        Ext.ATOMIC_ACK_ETH: (Field("value", 64, "what was there before", "hex"),),
        Ext.AETH: (
            Field("syndrome", 8, "ACK, RNR NAK or NAK, and its code", "hex"),
            Field("msn", 24, "messages completed, modulo 2^24"),
        ),
        Ext.DETH: (
            Field("qkey", 32, "queue key: 0x80010000 for QP 1", "hex"),
            Field("reserved", 8, _RES),
            Field("src_qpn", 24, "sender's queue pair", "hex"),
        ),
        Ext.IMMDT: (Field("value", 32, "immediate data, opaque to the transport", "hex"),),
        Ext.IETH: (Field("rkey", 32, "key to take away", "hex"),),
        Ext.FETH: (
            Field("reserved", 26, _RES),
            Field("selectivity", 2, "0 the range, 1 the memory region"),
            Field("placement", 4, "1 global visibility, 2 persistence"),
        ),
        Ext.CNP: (Field("reserved1", 64, _RES, "hex"), Field("reserved2", 64, _RES, "hex")),
        Ext.CRETH: (
            Field("grant", 1, "0 asks for credit, 1 gives it (own header: no standard has one for RC)"),
            Field("reserved", 7, _RES),
            Field("total", 24, "total credit since the start, in 256 bytes"),
        ),
        Ext.METH: (
            Field("rqmsn", 16, "receive-queue message number"),
            Field("msn", 16, "message number"),
        ),
        Ext.TSETH: (
            Field("timestamp", 16, _TIMESTAMP),
            Field("tsr", 1, "timestamp response wanted"),
            Field("reserved", 11, _RES),
            Field("ftype", 4, "format"),
        ),
        Ext.SETH: (
            Field("type", 4, _RES),
            Field("nxt", 5, _RES),
            Field("m", 2, "entropy value: 0 good, 1 skip once, 2 always skip"),
            Field("reserved1", 3, _RES),
            Field("probe", 1, "answers a probe"),
            Field("reserved2", 1, _RES),
            Field("ack_psn_offset", 16, "PSN that caused this SACK, from cack_psn", "signed"),
            Field("entropy", 32, "entropy value of that packet, echoed", "hex"),
            Field("spdcid", 16, _SPDC),
            Field("dpdcid", 16, _DPDC),
            Field("reserved3", 8, _RES),
            Field("cack_psn", 24, "cumulative acknowledgement"),
            Field("cc_type", 4, "layout of the congestion state"),
            Field("cc_flags", 4, "congestion flags"),
            Field("mpr", 8, "maximum PSN range, in 128 PSNs"),
            Field("sack_offset", 16, "PSN of bitmap bit 0, from cack_psn", "signed"),
            Field("bitmap", 64, "1: arrived; 0: no information", "hex"),
            Field("timestamp", 16, "CC_STATE: timestamp echoed"),
            Field("reserved4", 1, _RES),
            Field("ooo_count", 15, "CC_STATE: packets out of order"),
            Field("restore", 1, "CC_STATE: restore the window"),
            Field("rcv_cwnd_pen", 7, "CC_STATE: receiver's penalty, 127 is one packet a round trip"),
            Field("rcvd_bytes", 24, "CC_STATE: bytes received, in 256 bytes"),
        ),
        Ext.NETH: (
            Field("type", 4, _RES),
            Field("nxt", 5, _RES),
            Field("reserved1", 7, _RES),
            Field("reason", 8, "why the packet was refused", "hex"),
            Field("vendor", 8, "vendor's own"),
            Field("entropy", 32, "entropy value of that packet, echoed", "hex"),
            Field("spdcid", 16, _SPDC),
            Field("dpdcid", 16, _DPDC),
            Field("reserved2", 8, _RES),
            Field("nack_psn", 24, "PSN refused"),
            Field("cc_type", 4, "layout of the congestion state"),
            Field("cc_flags", 4, "congestion flags"),
            Field("reserved3", 8, _RES),
            Field("timestamp", 16, "timestamp echoed"),
        ),
        Ext.PETH: (
            Field("type", 4, _RES),
            Field("nxt", 5, _RES),
            Field("reserved1", 7, _RES),
            Field("reserved2", 8, _RES),
            Field("vendor", 8, "vendor's own"),
            Field("probe_id", 16, "number of the probe"),
            Field("reserved3", 16, _RES),
            Field("spdcid", 16, _SPDC),
            Field("dpdcid", 16, _DPDC),
            Field("timestamp", 16, _TIMESTAMP),
            Field("tsr", 1, "timestamp response wanted"),
            Field("reserved4", 11, _RES),
            Field("ftype", 4, "format"),
        ),
        Ext.ERTH: (
            Field("type", 4, _RES),
            Field("nxt", 5, _RES),
            Field("reserved1", 5, _RES),
            Field("op", 2, "0 port status, 1 entropy value probe"),
            Field("reserved2", 8, _RES),
            Field("vendor", 8, "vendor's own"),
            Field("port_mask", 32, "one bit a port of the sender", "hex"),
            Field("reserved3", 32, _RES),
            Field("timestamp", 16, _TIMESTAMP),
            Field("tsr", 1, "timestamp response wanted"),
            Field("reserved4", 11, _RES),
            Field("ftype", 4, "format"),
        ),
        Ext.EETH: (
            Field("type", 4, _RES),
            Field("nxt", 5, _RES),
            Field("reserved1", 1, _RES),
            Field("op", 2, "0 port status, 1 entropy value probe"),
            Field("reserved2", 4, _RES),
            Field("reserved3", 16, _RES),
            Field("reserved4", 192, _RES, "hex"),
            Field("timestamp", 16, "timestamp echoed"),
            Field("reserved5", 16, _RES),
            Field("reserved6", 32, _RES),
        ),
    }
)


def picture(fields: tuple[Field, ...]) -> list[str]:
    """A header as the RFCs draw it: 32 bits a row, two columns a bit."""
    rule = "+" + "-+" * 32
    lines = [
        " " + "".join(f"{bit // 10 if bit % 10 == 0 else ' '} " for bit in range(32)).rstrip(),
        " " + " ".join(str(bit % 10) for bit in range(32)),
        rule,
    ]
    row, used = "|", 0
    for field in fields:
        left, label = field.bits, field.name
        while left:
            bits = min(left, 32 - used)
            width = 2 * bits - 1
            row += (label if len(label) <= width else label[:width]).center(width) + "|"
            label = ""
            left -= bits
            used += bits
            if used == 32:
                lines += [row, rule]
                row, used = "|", 0
    return [*lines, row, "+" + "-+" * used] if used else lines
