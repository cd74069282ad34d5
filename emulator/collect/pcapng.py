"""Writes pcapng files: sections, interfaces with names, packets with nanosecond times and comments, host names, statistics.

Block layout: IETF draft-ietf-opsawg-pcapng. Why not a library: docs/decisions/captures.md.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from typing import IO, Final

SECTION, INTERFACE, NAMES, STATISTICS, PACKET = 0x0A0D0D0A, 1, 4, 5, 6
ETHERNET: Final = 1
NANOSECONDS: Final = 9
OUTBOUND: Final = 2
_COMMENT, _IF_NAME, _IF_DESCRIPTION, _IF_SPEED, _IF_TSRESOL = 1, 2, 3, 8, 9
_SHB_USERAPPL, _EPB_FLAGS, _ISB_IFRECV, _ISB_IFDROP = 4, 2, 4, 5
_BLOCK = struct.Struct("<II")
_PACKET = struct.Struct("<IIIII")
_FLAGS = struct.pack("<HHI", _EPB_FLAGS, 4, OUTBOUND)
_END = bytes(4)
_PADDING = (b"", bytes(3), bytes(2), bytes(1))


class PcapngWriter:
    """One section in an open file. Times are nanoseconds from 0; interfaces get numbers from 0 in the order they are added."""

    def __init__(self, file: IO[bytes], *, application: str, comment: str = "") -> None:
        self._file = file
        self._interfaces = 0
        options = [(_SHB_USERAPPL, application.encode())]
        if comment:
            options.insert(0, (_COMMENT, comment.encode()))
        self._block(SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _options(options))

    def interface(self, name: str, *, description: str, rate_bps: int, snap_bytes: int) -> int:
        """Add an interface; `snap_bytes` 0 is whole packets. Its number."""
        options = [
            (_IF_NAME, name.encode()),
            (_IF_DESCRIPTION, description.encode()),
            (_IF_SPEED, struct.pack("<Q", rate_bps)),
            (_IF_TSRESOL, bytes([NANOSECONDS])),
        ]
        self._block(INTERFACE, struct.pack("<HHI", ETHERNET, 0, snap_bytes) + _options(options))
        self._interfaces += 1
        return self._interfaces - 1

    def names(self, addresses: Mapping[str, str]) -> None:
        """Say which host has which address, for readers that resolve names from the file."""
        body = b""
        for name, address in addresses.items():
            packed = ipaddress.ip_address(address).packed
            body += _option(1 if len(packed) == 4 else 2, packed + name.encode() + b"\0")
        self._block(NAMES, body + _END)

    def packet(self, interface: int, time_ns: int, data: bytes, wire_bytes: int, comment: str = "") -> None:
        """Add a packet that left by `interface`; `wire_bytes` is its length before it was cut to what is captured."""
        size = len(data)
        body = _PACKET.pack(interface, time_ns >> 32, time_ns & 0xFFFFFFFF, size, wire_bytes)
        options = _FLAGS + _END if not comment else _option(_COMMENT, comment.encode()) + _FLAGS + _END
        self._block(PACKET, body + data + _PADDING[size & 3] + options)

    def statistics(self, interface: int, time_ns: int, *, received: int, dropped: int) -> None:
        """Say how many packets of an interface the capture was offered up to `time_ns`, and how many of them it lost."""
        body = struct.pack("<III", interface, time_ns >> 32, time_ns & 0xFFFFFFFF)
        counts = [(_ISB_IFRECV, struct.pack("<Q", received)), (_ISB_IFDROP, struct.pack("<Q", dropped))]
        self._block(STATISTICS, body + _options(counts))

    def _block(self, kind: int, body: bytes) -> None:
        total = len(body) + 12
        self._file.write(_BLOCK.pack(kind, total) + body + total.to_bytes(4, "little"))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + _PADDING[len(value) & 3]


def _options(pairs: list[tuple[int, bytes]]) -> bytes:
    return b"".join(_option(code, value) for code, value in pairs) + _END
