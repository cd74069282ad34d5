"""BTH opcodes of RoCE v2 and MRC, and the extension headers each one carries.

One table serves the Scapy layers, the fast codec, the transports and the dissector. Sources: RoCE v2 values and header
order from Linux `include/rdma/ib_pack.h` and `drivers/infiniband/sw/rxe/rxe_opcode.c`; MRC values (0xC0 and up) from a
third-party reading of the OCP MRC 1.0 specification, see `traffic.packet.mrc_headers`. CREDIT is this project's own, in
the range that InfiniBand leaves to vendors: receiver credits over RC, for which no standard has a header.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

ROCE_PORT: Final = 4791
"""UDP destination port of RoCE v2 (IANA) and of MRC."""
SPORT_MIN: Final = 0xC000
SPORT_MAX: Final = 0xFFFF
"""UDP source ports that carry entropy (Linux `rdma_flow_label_to_udp_sport`)."""

FLAG_RTX: Final = 0x20
"""MRC: bit of BTH byte 8 set on a retransmission."""
FLAG_TS: Final = 0x10
"""MRC: bit of BTH byte 8 that announces a TSETH after the METH."""

GSI_QKEY: Final = 0x80010000
"""Q_Key of the general services queue pair (QP 1)."""


class Ext(StrEnum):
    """Extension headers, by the name the standards give them (CNP: the 16 reserved bytes of a CNP)."""

    RETH = "RETH"
    ATOMIC_ETH = "AtomicETH"
    ATOMIC_ACK_ETH = "AtomicAckETH"
    AETH = "AETH"
    DETH = "DETH"
    IMMDT = "ImmDt"
    IETH = "IETH"
    FETH = "FETH"
    CNP = "CNP"
    CRETH = "CRETH"
    METH = "METH"
    TSETH = "TSETH"
    SETH = "SETH"
    NETH = "NETH"
    PETH = "PETH"
    ERTH = "ERTH"
    EETH = "EETH"


EXT_BYTES: Final[Mapping[Ext, int]] = MappingProxyType(
    {
        Ext.RETH: 16,
        Ext.ATOMIC_ETH: 28,
        Ext.ATOMIC_ACK_ETH: 8,
        Ext.AETH: 4,
        Ext.DETH: 8,
        Ext.IMMDT: 4,
        Ext.IETH: 4,
        Ext.FETH: 4,
        Ext.CNP: 16,
        Ext.CRETH: 4,
        Ext.METH: 4,
        Ext.TSETH: 4,
        Ext.SETH: 36,
        Ext.NETH: 20,
        Ext.PETH: 16,
        Ext.ERTH: 16,
        Ext.EETH: 36,
    }
)


class Opcode(IntEnum):
    """Byte 0 of the BTH: transport in the top three bits, operation in the low five."""

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_IMM = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_IMM = 0x05
    RC_WRITE_FIRST = 0x06
    RC_WRITE_MIDDLE = 0x07
    RC_WRITE_LAST = 0x08
    RC_WRITE_LAST_IMM = 0x09
    RC_WRITE_ONLY = 0x0A
    RC_WRITE_ONLY_IMM = 0x0B
    RC_READ_REQUEST = 0x0C
    RC_READ_RESPONSE_FIRST = 0x0D
    RC_READ_RESPONSE_MIDDLE = 0x0E
    RC_READ_RESPONSE_LAST = 0x0F
    RC_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_COMPARE_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_INV = 0x16
    RC_SEND_ONLY_INV = 0x17
    RC_FLUSH = 0x1C
    RC_ATOMIC_WRITE = 0x1D

    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_IMM = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_IMM = 0x25
    UC_WRITE_FIRST = 0x26
    UC_WRITE_MIDDLE = 0x27
    UC_WRITE_LAST = 0x28
    UC_WRITE_LAST_IMM = 0x29
    UC_WRITE_ONLY = 0x2A
    UC_WRITE_ONLY_IMM = 0x2B

    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_IMM = 0x65

    CNP = 0x81

    MRC_WRITE_FIRST = 0xC6
    MRC_WRITE_MIDDLE = 0xC7
    MRC_WRITE_LAST = 0xC8
    MRC_WRITE_LAST_IMM = 0xC9
    MRC_WRITE_ONLY = 0xCA
    MRC_WRITE_ONLY_IMM = 0xCB
    MRC_ACKNOWLEDGE = 0xD1
    MRC_ENDPOINT_REQUEST = 0xD8
    MRC_ENDPOINT_RESPONSE = 0xD9
    MRC_SACK = 0xDC
    MRC_NACK = 0xDD
    MRC_PROBE = 0xDE

    CREDIT = 0xE0

    @property
    def is_mrc(self) -> bool:
        """Whether the opcode belongs to MRC rather than to RoCE v2."""
        return 0xC0 <= self < 0xE0

    @property
    def carries_payload(self) -> bool:
        """Whether message bytes may follow the headers (no: requests, acknowledgements, CNP, probes)."""
        return self not in _NO_PAYLOAD


_CONNECTED: Final[dict[int, tuple[Ext, ...]]] = {
    0x03: (Ext.IMMDT,),
    0x05: (Ext.IMMDT,),
    0x06: (Ext.RETH,),
    0x09: (Ext.IMMDT,),
    0x0A: (Ext.RETH,),
    0x0B: (Ext.RETH, Ext.IMMDT),
    0x0C: (Ext.RETH,),
    0x0D: (Ext.AETH,),
    0x0F: (Ext.AETH,),
    0x10: (Ext.AETH,),
    0x11: (Ext.AETH,),
    0x12: (Ext.AETH, Ext.ATOMIC_ACK_ETH),
    0x13: (Ext.ATOMIC_ETH,),
    0x14: (Ext.ATOMIC_ETH,),
    0x16: (Ext.IETH,),
    0x17: (Ext.IETH,),
    0x1C: (Ext.FETH, Ext.RETH),
    0x1D: (Ext.RETH,),
}
_OTHER: Final[dict[int, tuple[Ext, ...]]] = {
    0x64: (Ext.DETH,),
    0x65: (Ext.DETH, Ext.IMMDT),
    0x81: (Ext.CNP,),
    0xC6: (Ext.METH, Ext.RETH),
    0xC7: (Ext.METH, Ext.RETH),
    0xC8: (Ext.METH, Ext.RETH),
    0xC9: (Ext.METH, Ext.RETH, Ext.IMMDT),
    0xCA: (Ext.METH, Ext.RETH),
    0xCB: (Ext.METH, Ext.RETH, Ext.IMMDT),
    0xD1: (Ext.AETH,),
    0xD8: (Ext.ERTH,),
    0xD9: (Ext.EETH,),
    0xDC: (Ext.SETH,),
    0xDD: (Ext.NETH,),
    0xDE: (Ext.PETH,),
    0xE0: (Ext.CRETH,),
}

EXTENSIONS: Final[Mapping[Opcode, tuple[Ext, ...]]] = MappingProxyType(
    {op: _OTHER[op] if op in _OTHER else _CONNECTED.get(op & 0x1F, ()) for op in Opcode}
)
"""Extension headers of each opcode in wire order, without the optional TSETH of MRC."""

_NO_PAYLOAD: Final = frozenset(
    {Opcode.RC_READ_REQUEST, Opcode.RC_ACKNOWLEDGE, Opcode.RC_ATOMIC_ACKNOWLEDGE, Opcode.RC_COMPARE_SWAP}
    | {Opcode.RC_FETCH_ADD, Opcode.RC_FLUSH, Opcode.CNP}
    | {op for op in Opcode if op >= Opcode.MRC_ACKNOWLEDGE}
)


def extensions(opcode: int, *, timestamp: bool = False) -> tuple[Ext, ...]:
    """Extension headers of `opcode` in wire order; `timestamp` adds the TSETH that FLAG_TS announces on MRC writes.

    Raises ValueError for an opcode that is not in the table.
    """
    headers = EXTENSIONS[Opcode(opcode)]
    if timestamp and headers and headers[0] is Ext.METH:
        return (Ext.METH, Ext.TSETH, *headers[1:])
    return headers


def ext_bytes(opcode: int, *, timestamp: bool = False) -> int:
    """Bytes of all extension headers of `opcode`; raises ValueError for an unknown one."""
    return sum(EXT_BYTES[h] for h in extensions(opcode, timestamp=timestamp))


EXT_LEN: Final = tuple(ext_bytes(op) if op in EXTENSIONS else -1 for op in range(256))
"""`ext_bytes` by opcode, -1 for an unknown one."""
EXT_LEN_TS: Final = tuple(ext_bytes(op, timestamp=True) if op in EXTENSIONS else -1 for op in range(256))
"""The same for packets with FLAG_TS."""


def psn_diff(a: int, b: int) -> int:
    """`a - b` on the 24-bit circle, in [-2^23, 2^23): negative when `a` is the older PSN."""
    return ((a - b + 0x800000) & 0xFFFFFF) - 0x800000
