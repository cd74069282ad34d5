"""Pack and unpack the extension headers of RoCE v2 as plain bytes.

Layouts as in Linux `drivers/infiniband/sw/rxe/rxe_hdr.h`; all in network order. Every `unpack_*` takes the extension
bytes of a packet and an offset into them, so it works on the `ext` of `codec.Packet` without copying.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview

_RETH: Final = struct.Struct(">QII")
_ATOMIC: Final = struct.Struct(">QIQQ")
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_U32X2: Final = struct.Struct(">II")

ACK: Final = 0x00
RNR_NAK: Final = 0x20
NAK: Final = 0x60
_KIND_MASK: Final = 0xE0
_VALUE_MASK: Final = 0x1F

ACK_NO_CREDITS: Final = 0x1F
"""AETH syndrome of an acknowledgement that says nothing about credits."""
NAK_PSN_SEQUENCE: Final = 0x60
NAK_INVALID_REQUEST: Final = 0x61
NAK_REMOTE_ACCESS: Final = 0x62
NAK_REMOTE_OPERATION: Final = 0x63
NAK_INVALID_RD_REQUEST: Final = 0x64

_NAK_NAMES: Final = (
    "PSN sequence error",
    "invalid request",
    "remote access error",
    "remote operational error",
    "invalid RD request",
)

RNR_TIMER_US: Final[tuple[int, ...]] = (
    *(655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920),
    *(2_560, 3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760),
    *(327_680, 491_520),
)
"""Microseconds to wait after an RNR NAK, by the syndrome's low five bits (Linux `rxe_comp.c`; its 61410 is a slip)."""


class Reth(NamedTuple):
    """RDMA extended transport header: where a WRITE or READ goes, and the length of the whole message."""

    va: int
    rkey: int
    length: int


class Aeth(NamedTuple):
    """Acknowledge extended transport header; `syndrome` as one byte, see `describe_syndrome`."""

    syndrome: int
    msn: int

    @property
    def is_ack(self) -> bool:
        """Whether it acknowledges (bits 7:5 are zero)."""
        return self.syndrome & _KIND_MASK == ACK

    @property
    def is_rnr(self) -> bool:
        """Whether the receiver was not ready; the wait is `RNR_TIMER_US[syndrome & 31]`."""
        return self.syndrome & _KIND_MASK == RNR_NAK

    @property
    def is_nak(self) -> bool:
        """Whether it refuses the packet, by one of the NAK_* codes."""
        return self.syndrome & _KIND_MASK == NAK


class AtomicEth(NamedTuple):
    """Atomic extended transport header: FETCH ADD uses `swap_add`, COMPARE SWAP both operands."""

    va: int
    rkey: int
    swap_add: int
    compare: int


class Deth(NamedTuple):
    """Datagram extended transport header."""

    qkey: int
    src_qpn: int


class Feth(NamedTuple):
    """Flush extended transport header: placement type (4 bits) and selectivity (2 bits)."""

    placement: int
    selectivity: int


def pack_reth(va: int, rkey: int, length: int) -> bytes:
    """16 bytes; `length` is that of the message, not of the packet."""
    return _RETH.pack(va, rkey, length)


def unpack_reth(ext: Buffer, offset: int = 0) -> Reth:
    """The RETH at `offset`."""
    return Reth._make(_RETH.unpack_from(ext, offset))


def pack_aeth(syndrome: int, msn: int) -> bytes:
    """4 bytes; `msn` is taken modulo 2^24."""
    return _U32.pack(syndrome << 24 | msn & 0xFFFFFF)


def unpack_aeth(ext: Buffer, offset: int = 0) -> Aeth:
    """The AETH at `offset`."""
    (word,) = _U32.unpack_from(ext, offset)
    return Aeth(word >> 24, word & 0xFFFFFF)


def pack_immdt(value: int) -> bytes:
    """4 bytes of immediate data, opaque to the transport."""
    return _U32.pack(value)


def unpack_immdt(ext: Buffer, offset: int = 0) -> int:
    """The immediate data at `offset`."""
    value: int = _U32.unpack_from(ext, offset)[0]
    return value


def pack_atomic_eth(va: int, rkey: int, swap_add: int, compare: int = 0) -> bytes:
    """28 bytes."""
    return _ATOMIC.pack(va, rkey, swap_add, compare)


def unpack_atomic_eth(ext: Buffer, offset: int = 0) -> AtomicEth:
    """The AtomicETH at `offset`."""
    return AtomicEth._make(_ATOMIC.unpack_from(ext, offset))


def pack_atomic_ack_eth(original: int) -> bytes:
    """8 bytes: the value that was in memory before the operation."""
    return _U64.pack(original)


def unpack_atomic_ack_eth(ext: Buffer, offset: int = 4) -> int:
    """The original value; `offset` defaults to the place behind the AETH of an ATOMIC ACK."""
    original: int = _U64.unpack_from(ext, offset)[0]
    return original


def pack_deth(qkey: int, src_qpn: int) -> bytes:
    """8 bytes."""
    return _U32X2.pack(qkey, src_qpn & 0xFFFFFF)


def unpack_deth(ext: Buffer, offset: int = 0) -> Deth:
    """The DETH at `offset`."""
    qkey, word = _U32X2.unpack_from(ext, offset)
    return Deth(qkey, word & 0xFFFFFF)


def pack_ieth(rkey: int) -> bytes:
    """4 bytes: the R_Key that a SEND with invalidate takes away."""
    return _U32.pack(rkey)


def unpack_ieth(ext: Buffer, offset: int = 0) -> int:
    """The R_Key at `offset`."""
    rkey: int = _U32.unpack_from(ext, offset)[0]
    return rkey


def pack_feth(placement: int, selectivity: int) -> bytes:
    """4 bytes."""
    return _U32.pack((selectivity & 3) << 4 | placement & 15)


def unpack_feth(ext: Buffer, offset: int = 0) -> Feth:
    """The FETH at `offset`."""
    (word,) = _U32.unpack_from(ext, offset)
    return Feth(word & 15, word >> 4 & 3)


def pack_creth(*, grant: bool, total: int) -> bytes:
    """4 bytes: a request for, or a grant of, `total` units of credit since the start (taken modulo 2^24)."""
    return _U32.pack(grant << 31 | total & 0xFFFFFF)


def unpack_creth(ext: Buffer, offset: int = 0) -> tuple[bool, int]:
    """Whether it grants, and the total modulo 2^24."""
    (word,) = _U32.unpack_from(ext, offset)
    return bool(word >> 31), word & 0xFFFFFF


def describe_syndrome(syndrome: int) -> str:
    """What an AETH syndrome says, in words."""
    kind, value = syndrome & _KIND_MASK, syndrome & _VALUE_MASK
    if kind == ACK:
        return "ACK, no credit information" if value == ACK_NO_CREDITS else f"ACK, credit code {value}"
    if kind == RNR_NAK:
        return f"RNR NAK, retry after {RNR_TIMER_US[value] / 1000:g} ms"
    if kind == NAK:
        return f"NAK, {_NAK_NAMES[value] if value < len(_NAK_NAMES) else f'reserved code {value}'}"
    return "reserved"
