"""Scapy layers of MRC (Multipath Reliable Connection), on the BTH of `traffic.packet.roce`.

What is **from a third-party reading** of the OCP MRC 1.0 specification, and so to be checked before it meets hardware:
every opcode number from 0xC0 up, every field width and position here, the NACK reasons, the meaning of `m` and `ftype`,
the `r`, `rtx` and `ts` bits of BTH byte 8. What is from the MRC paper or the public OCP headers is listed in
`traffic.packet.mrc_headers`, which packs the same headers without Scapy.
"""

# ruff: noqa: RUF012 - Scapy wants its fields as a list in the class

from __future__ import annotations

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    ShortField,
    SignedShortField,
    StrFixedLenField,
    XIntField,
    XLongField,
)
from scapy.packet import Packet

from traffic.packet.mrc_headers import EndpointOp, NackReason, PathMark
from traffic.packet.opcodes import Ext
from traffic.packet.roce import ExtensionHeader

_MARKS = {int(m): m.name for m in PathMark}
_REASONS = {int(r): r.name for r in NackReason}
_OPS = {int(o): o.name for o in EndpointOp}


class METH(ExtensionHeader):
    """Message header of every data packet: message sequence numbers."""

    name = "METH"
    fields_desc = [ShortField("rqmsn", 0), ShortField("msn", 0)]


class TSETH(ExtensionHeader):
    """Requester's timestamp, present when the `ts` bit of BTH byte 8 is set."""

    name = "TSETH"
    fields_desc = [
        ShortField("timestamp", 0),
        BitField("tsr", 0, 1),
        BitField("reserved", 0, 11),
        BitField("ftype", 1, 4),
    ]


class SETH(ExtensionHeader):
    """Selective acknowledgement, its last eight bytes the CC_STATE."""

    name = "SETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nxt", 0, 5),
        BitEnumField("m", 0, 2, _MARKS),
        BitField("reserved1", 0, 3),
        BitField("probe", 0, 1),
        BitField("reserved2", 0, 1),
        SignedShortField("ack_psn_offset", 0),
        XIntField("entropy", 0),
        ShortField("spdcid", 0),
        ShortField("dpdcid", 0),
        ByteField("reserved3", 0),
        BitField("cack_psn", 0, 24),
        BitField("cc_type", 0, 4),
        BitField("cc_flags", 0, 4),
        ByteField("mpr", 0),
        SignedShortField("sack_offset", 0),
        XLongField("bitmap", 0),
        ShortField("timestamp", 0),
        BitField("reserved4", 0, 1),
        BitField("ooo_count", 0, 15),
        BitField("restore", 0, 1),
        BitField("rcv_cwnd_pen", 0, 7),
        BitField("rcvd_bytes", 0, 24),
    ]


class NETH(ExtensionHeader):
    """Negative acknowledgement of one PSN."""

    name = "NETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nxt", 0, 5),
        BitField("reserved1", 0, 7),
        ByteEnumField("reason", int(NackReason.TRIMMED), _REASONS),
        ByteField("vendor", 0),
        XIntField("entropy", 0),
        ShortField("spdcid", 0),
        ShortField("dpdcid", 0),
        ByteField("reserved2", 0),
        BitField("nack_psn", 0, 24),
        BitField("cc_type", 2, 4),
        BitField("cc_flags", 0, 4),
        ByteField("reserved3", 0),
        ShortField("timestamp", 0),
    ]


class PETH(ExtensionHeader):
    """Reliability probe: no PSN of its own, answered by a SACK."""

    name = "PETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nxt", 0, 5),
        BitField("reserved1", 0, 7),
        ByteField("reserved2", 0),
        ByteField("vendor", 0),
        ShortField("probe_id", 0),
        ShortField("reserved3", 0),
        ShortField("spdcid", 0),
        ShortField("dpdcid", 0),
        ShortField("timestamp", 0),
        BitField("tsr", 0, 1),
        BitField("reserved4", 0, 11),
        BitField("ftype", 1, 4),
    ]


class ERTH(ExtensionHeader):
    """Endpoint request: port states of the sender, or a probe of one entropy value."""

    name = "ERTH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nxt", 0, 5),
        BitField("reserved1", 0, 5),
        BitEnumField("op", 0, 2, _OPS),
        ByteField("reserved2", 0),
        ByteField("vendor", 0),
        XIntField("port_mask", 0),
        BitField("reserved3", 0, 32),
        ShortField("timestamp", 0),
        BitField("tsr", 0, 1),
        BitField("reserved4", 0, 11),
        BitField("ftype", 1, 4),
    ]


class EETH(ExtensionHeader):
    """Endpoint response."""

    name = "EETH"
    fields_desc = [
        BitField("type", 0, 4),
        BitField("nxt", 0, 5),
        BitField("reserved1", 0, 1),
        BitEnumField("op", 0, 2, _OPS),
        BitField("reserved2", 0, 4),
        ShortField("reserved3", 0),
        StrFixedLenField("reserved4", bytes(24), 24),
        ShortField("timestamp", 0),
        ShortField("reserved5", 0),
        BitField("reserved6", 0, 32),
    ]


LAYERS: dict[Ext, type[Packet]] = {
    Ext.METH: METH,
    Ext.TSETH: TSETH,
    Ext.SETH: SETH,
    Ext.NETH: NETH,
    Ext.PETH: PETH,
    Ext.ERTH: ERTH,
    Ext.EETH: EETH,
}
