"""Offloads of an interface, set and read by name through the ethtool ioctl; the caller is inside the namespace.

The old per-feature commands are not enough: ETHTOOL_STSO leaves newer kinds of segmentation on.
"""

from __future__ import annotations

import ctypes
import fcntl
import re
import socket
import struct
from dataclasses import dataclass
from typing import Final

#: linux/sockios.h and linux/ethtool.h
_SIOCETHTOOL: Final = 0x8946
_GSTRINGS: Final = 0x1B
_GSSET_INFO: Final = 0x37
_GFEATURES: Final = 0x3A
_SFEATURES: Final = 0x3B
_SS_FEATURES: Final = 4
_STRING_BYTES: Final = 32

#: What makes one packet of several, or leaves a checksum for later.
UNWANTED: Final = re.compile(r"segmentation|gso|gro\b|gro-|checksum")


def _call(sock: socket.socket, ifname: str, message: bytes) -> bytes:
    data = ctypes.create_string_buffer(message, len(message))
    fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sQ16x", ifname.encode(), ctypes.addressof(data)))
    return data.raw


@dataclass(frozen=True)
class Offloads:
    """The kernel's list of features, read once from any interface."""

    names: tuple[str, ...]

    @classmethod
    def of_kernel(cls, sock: socket.socket, ifname: str) -> Offloads:
        """Raises OSError."""
        answer = _call(sock, ifname, struct.pack("IIQI", _GSSET_INFO, 0, 1 << _SS_FEATURES, 0))
        (count,) = struct.unpack_from("I", answer, 16)
        answer = _call(sock, ifname, struct.pack(f"III{count * _STRING_BYTES}x", _GSTRINGS, _SS_FEATURES, count))
        raw = (answer[12 + i * _STRING_BYTES :][:_STRING_BYTES] for i in range(count))
        return cls(tuple(name.split(b"\0")[0].decode() for name in raw))

    @property
    def _blocks(self) -> int:
        return -(-len(self.names) // 32)

    def active(self, sock: socket.socket, ifname: str) -> list[str]:
        """Names of the unwanted features that are on."""
        answer = _call(sock, ifname, struct.pack(f"II{16 * self._blocks}x", _GFEATURES, self._blocks))
        # Each block: available, requested, active, never changed.
        blocks = struct.unpack_from(f"{4 * self._blocks}I", answer, 8)
        on = (name for i, name in enumerate(self.names) if blocks[4 * (i // 32) + 2] >> (i % 32) & 1)
        return [name for name in on if UNWANTED.search(name)]

    def switch_off(self, sock: socket.socket, ifname: str) -> None:
        """Ask for all unwanted features to be off; which stay on is for `active` to say. Raises OSError."""
        valid = [0] * self._blocks
        for i, name in enumerate(self.names):
            if UNWANTED.search(name):
                valid[i // 32] |= 1 << (i % 32)
        pairs = [value for block in valid for value in (block, 0)]
        _call(sock, ifname, struct.pack(f"II{2 * self._blocks}I", _SFEATURES, self._blocks, *pairs))
