"""Pack and unpack the headers of MRC (Multipath Reliable Connection, OCP MRC 1.0) as plain bytes.

From the MRC paper (arXiv 2605.04333) and the public OCP headers: which headers exist, METH and RETH in every
data packet, the entropy value echoed in SACK and NACK, the 64-bit SACK bitmap, the NACK for a trimmed packet, the
port-status bitmap, probes.

From a **third-party reading** of the OCP MRC 1.0 specification (a public header module written from its 76 pages; the
text itself was not at hand): every opcode number, every field width and bit position below, the NACK reason numbers
(they equal those of Ultra Ethernet), the meaning of `m` and of `ftype`. Check these against the specification before
talking to hardware. Where that module swaps the SE and M bits of BTH byte 1, the InfiniBand order is kept here.

`reserved` bits are sent as zero and ignored on receipt.

**This project's own**, for want of a published layout: how receiver credits travel (algorithms of Ultra Ethernet's RCCC kind).
A sender's credit target is 24 bits, in units of 256 bytes, in a TSETH-shaped word of format FTYPE_CREDIT, in data packets and
in probes; the receiver's running total stands in place of `rcvd_bytes` in a SACK of CC_STATE type CC_CREDIT (the number that
Ultra Ethernet gives that type).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from traffic.packet.headers import Buffer

_METH: Final = struct.Struct(">HH")
_TSETH: Final = struct.Struct(">HH")
_SETH: Final = struct.Struct(">HhIHHIBBhQII")
_NETH: Final = struct.Struct(">HBBIHHIBBH")
_PETH: Final = struct.Struct(">HBBHHHHHH")
_ERTH: Final = struct.Struct(">HBBIIHH")
_EETH: Final = struct.Struct(">HH24xHHI")
_CREDIT: Final = struct.Struct(">I")

MPR_UNIT: Final = 128
"""PSNs per unit of the `mpr` (maximum PSN range) field."""
RCVD_UNIT: Final = 256
"""Bytes per unit of `rcvd_bytes`, and of credit."""
CC_NSCC: Final = 0
"""`cc_type` of a CC_STATE with the receiver's penalty and its count of bytes."""
CC_CREDIT: Final = 1
"""`cc_type` of a CC_STATE whose `rcvd_bytes` is the credit granted since the start."""
FTYPE_CREDIT: Final = 15
"""Format of a TSETH-shaped word that holds a credit target."""


class NackReason(IntEnum):
    """Why a receiver refuses a packet."""

    TRIMMED = 0x01
    TRIMMED_LAST_HOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class PathMark(IntEnum):
    """The two `m` bits of a SACK: what the receiver thinks of the echoed entropy value."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2


class EndpointOp(IntEnum):
    """What an endpoint request asks."""

    PORT_STATUS = 0
    EV_PROBE = 1


class Meth(NamedTuple):
    """Message header: request-queue and plain message sequence number."""

    rqmsn: int
    msn: int


class Tseth(NamedTuple):
    """Requester's timestamp, present when FLAG_TS is set in BTH byte 8."""

    timestamp: int
    tsr: bool
    ftype: int


class Sack(NamedTuple):
    """Selective acknowledgement (SETH with its CC_STATE).

    `cack_psn` is cumulative; the packet that caused the SACK has PSN `cack_psn + ack_psn_offset`; bit i of
    `bitmap` (bit 0 is the least significant) stands for PSN `cack_psn + sack_offset + i`, and a clear bit means
    "no information". `entropy` echoes the packet's entropy value. `rcv_cwnd_pen` is the receiver's penalty 0..127.
    `mpr` counts MPR_UNIT PSNs, `rcvd_bytes` (24 bits, wraps) RCVD_UNIT bytes.
    """

    cack_psn: int
    ack_psn_offset: int = 0
    sack_offset: int = 0
    bitmap: int = 0
    entropy: int = 0
    m: int = 0
    probe: bool = False
    spdcid: int = 0
    dpdcid: int = 0
    cc_type: int = 0
    cc_flags: int = 0
    mpr: int = 0
    timestamp: int = 0
    ooo_count: int = 0
    restore: bool = False
    rcv_cwnd_pen: int = 0
    rcvd_bytes: int = 0


class Nack(NamedTuple):
    """Negative acknowledgement of one PSN (NETH)."""

    nack_psn: int
    reason: int
    entropy: int = 0
    vendor: int = 0
    spdcid: int = 0
    dpdcid: int = 0
    cc_type: int = 2
    cc_flags: int = 0
    timestamp: int = 0


class Probe(NamedTuple):
    """Reliability probe (PETH): answered by a SACK, uses no PSN."""

    probe_id: int
    spdcid: int = 0
    dpdcid: int = 0
    timestamp: int = 0
    tsr: bool = False
    ftype: int = 1
    vendor: int = 0


class EndpointRequest(NamedTuple):
    """Endpoint request (ERTH): tells port states or probes an entropy value."""

    op: int
    port_mask: int = 0
    timestamp: int = 0
    tsr: bool = False
    ftype: int = 1
    vendor: int = 0


class EndpointResponse(NamedTuple):
    """Endpoint response (EETH)."""

    op: int
    timestamp: int = 0


def pack_meth(rqmsn: int, msn: int) -> bytes:
    """4 bytes; both numbers are taken modulo 2^16."""
    return _METH.pack(rqmsn & 0xFFFF, msn & 0xFFFF)


def unpack_meth(ext: Buffer, offset: int = 0) -> Meth:
    """The METH at `offset`."""
    return Meth._make(_METH.unpack_from(ext, offset))


def pack_tseth(timestamp: int, tsr: bool = False, ftype: int = 1) -> bytes:
    """4 bytes; the timestamp is taken modulo 2^16."""
    return _TSETH.pack(timestamp & 0xFFFF, tsr << 15 | ftype & 15)


def unpack_tseth(ext: Buffer, offset: int = 4) -> Tseth:
    """The TSETH; `offset` defaults to the place behind the METH."""
    timestamp, low = _TSETH.unpack_from(ext, offset)
    return Tseth(timestamp, bool(low >> 15), low & 15)


def pack_credit_target(total: int) -> bytes:
    """4 bytes in the shape of a TSETH: `total` units of credit since the start (taken modulo 2^24)."""
    return _CREDIT.pack((total & 0xFFFFFF) << 8 | FTYPE_CREDIT)


def unpack_credit_target(ext: Buffer, offset: int) -> int | None:
    """The credit target in the word at `offset`, modulo 2^24; None if the word is of another format."""
    (word,) = _CREDIT.unpack_from(ext, offset)
    return word >> 8 if word & 15 == FTYPE_CREDIT else None


def pack_sack(sack: Sack) -> bytes:
    """36 bytes."""
    return _SETH.pack(
        (sack.m & 3) << 5 | sack.probe << 1,
        sack.ack_psn_offset,
        sack.entropy,
        sack.spdcid,
        sack.dpdcid,
        sack.cack_psn & 0xFFFFFF,
        sack.cc_type << 4 | sack.cc_flags & 15,
        sack.mpr,
        sack.sack_offset,
        sack.bitmap,
        (sack.timestamp & 0xFFFF) << 16 | sack.ooo_count & 0x7FFF,
        sack.restore << 31 | (sack.rcv_cwnd_pen & 0x7F) << 24 | sack.rcvd_bytes & 0xFFFFFF,
    )


def unpack_sack(ext: Buffer, offset: int = 0) -> Sack:
    """The SETH and CC_STATE at `offset`."""
    head, ack_off, entropy, spdcid, dpdcid, cack, cc, mpr, sack_off, bitmap, ts_ooo, rx = _SETH.unpack_from(ext, offset)
    return Sack(
        cack_psn=cack & 0xFFFFFF,
        ack_psn_offset=ack_off,
        sack_offset=sack_off,
        bitmap=bitmap,
        entropy=entropy,
        m=head >> 5 & 3,
        probe=bool(head >> 1 & 1),
        spdcid=spdcid,
        dpdcid=dpdcid,
        cc_type=cc >> 4,
        cc_flags=cc & 15,
        mpr=mpr,
        timestamp=ts_ooo >> 16,
        ooo_count=ts_ooo & 0x7FFF,
        restore=bool(rx >> 31),
        rcv_cwnd_pen=rx >> 24 & 0x7F,
        rcvd_bytes=rx & 0xFFFFFF,
    )


def pack_nack(nack: Nack) -> bytes:
    """20 bytes."""
    return _NETH.pack(
        0,
        nack.reason,
        nack.vendor,
        nack.entropy,
        nack.spdcid,
        nack.dpdcid,
        nack.nack_psn & 0xFFFFFF,
        nack.cc_type << 4 | nack.cc_flags & 15,
        0,
        nack.timestamp & 0xFFFF,
    )


def unpack_nack(ext: Buffer, offset: int = 0) -> Nack:
    """The NETH at `offset`; an unknown reason stays a number."""
    _, reason, vendor, entropy, spdcid, dpdcid, psn, cc, _, timestamp = _NETH.unpack_from(ext, offset)
    return Nack(psn & 0xFFFFFF, reason, entropy, vendor, spdcid, dpdcid, cc >> 4, cc & 15, timestamp)


def pack_probe(probe: Probe) -> bytes:
    """16 bytes."""
    low = probe.tsr << 15 | probe.ftype & 15
    return _PETH.pack(0, 0, probe.vendor, probe.probe_id, 0, probe.spdcid, probe.dpdcid, probe.timestamp & 0xFFFF, low)


def pack_credit_request(total: int) -> bytes:
    """16 bytes: a reliability probe, number 0, that carries a credit target."""
    return pack_probe(Probe(0))[:12] + pack_credit_target(total)


def unpack_probe(ext: Buffer, offset: int = 0) -> Probe:
    """The PETH at `offset`."""
    _, _, vendor, probe_id, _, spdcid, dpdcid, timestamp, low = _PETH.unpack_from(ext, offset)
    return Probe(probe_id, spdcid, dpdcid, timestamp, bool(low >> 15), low & 15, vendor)


def pack_endpoint_request(request: EndpointRequest) -> bytes:
    """16 bytes."""
    low = request.tsr << 15 | request.ftype & 15
    return _ERTH.pack(request.op & 3, 0, request.vendor, request.port_mask, 0, request.timestamp & 0xFFFF, low)


def unpack_endpoint_request(ext: Buffer, offset: int = 0) -> EndpointRequest:
    """The ERTH at `offset`."""
    head, _, vendor, port_mask, _, timestamp, low = _ERTH.unpack_from(ext, offset)
    return EndpointRequest(head & 3, port_mask, timestamp, bool(low >> 15), low & 15, vendor)


def pack_endpoint_response(response: EndpointResponse) -> bytes:
    """36 bytes."""
    return _EETH.pack((response.op & 3) << 4, 0, response.timestamp & 0xFFFF, 0, 0)


def unpack_endpoint_response(ext: Buffer, offset: int = 0) -> EndpointResponse:
    """The EETH at `offset`."""
    head, _, timestamp, _, _ = _EETH.unpack_from(ext, offset)
    return EndpointResponse(head >> 4 & 3, timestamp)
