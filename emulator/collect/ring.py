"""What leaves one interface, copied by the kernel into memory that this process reads without a system call.

A packet socket with a ring (packet(7), Documentation/networking/packet_mmap.rst, TPACKET_V2): reading it costs no virtual
time and holds no reference to a packet on its way, so a capture does not change what it shows. The tap sees a packet when it
leaves the queue: marked or trimmed as it goes on, and never one that the queue dropped.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from traffic.agent.packet_socket import in_namespace

Array = np.ndarray[Any, Any]

BLOCK: Final = 1 << 16
HEAD: Final = 66
"""Bytes before the Ethernet header in a slot: tpacket2_hdr and sockaddr_ll, so aligned that the IP header falls on 16."""

_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 263, 5, 6, 10
_SO_ATTACH_FILTER = 26
_TPACKET_V2 = 1
_TP_STATUS_USER = 1
_WINDOW = 64
_PKTTYPE, _PACKET_OUTGOING = 0xFFFFF004, 4  # SKF_AD_OFF + SKF_AD_PKTTYPE, linux/filter.h
_WORD_LEN, _WORD_SNAPLEN, _WORD_MAC, _WORD_SEC, _WORD_NSEC = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Geometry:
    """Slots of `slot` bytes, `per_block` in each of `blocks` blocks of 64 KiB."""

    slot: int
    per_block: int
    blocks: int

    @classmethod
    def of(cls, frame_bytes: int, room_bytes: int) -> Geometry:
        """Slots for frames up to `frame_bytes`, in about `room_bytes` of memory (two blocks at least)."""
        slot = (HEAD + frame_bytes + 15) & ~15
        return cls(slot, max(1, BLOCK // slot), max(2, room_bytes // BLOCK))


class PortRing:
    """The ring of one interface in the namespace at `netns`; packets longer than `snap_bytes` are cut to that."""

    def __init__(self, netns: str, ifname: str, *, snap_bytes: int, geometry: Geometry) -> None:
        self.packets = self.drops = 0
        g = geometry
        self._socket = in_namespace(netns, lambda: _open(ifname, snap_bytes, g))
        self._memory = mmap.mmap(self._socket.fileno(), g.blocks * BLOCK)
        words = np.frombuffer(self._memory, np.uint32)
        blocks, slots = np.divmod(np.arange(g.blocks * g.per_block), g.per_block)
        self._words: Array = words
        self._halves: Array = words.view(np.uint16)
        flat: Array = words.view(np.uint8)
        self._slots: Array = np.lib.stride_tricks.as_strided(flat, (g.blocks, g.per_block, g.slot), (BLOCK, g.slot, 1))
        self._at: Array = (blocks * BLOCK + slots * g.slot) // 4
        self._per_block = g.per_block
        self._next = 0

    def copy(self, out: Array) -> tuple[int, int]:
        """Lay the oldest filled slots into `out`, which has room for a block, and give them back to the kernel.

        Their number (0: there are none now) and the bytes a slot takes in `out`. Makes no system call.
        """
        words, first = self._words, self._next
        if not words[self._at[first]] & _TP_STATUS_USER:
            return 0, 0
        block, slot = divmod(first, self._per_block)
        at = self._at[first : first + min(_WINDOW, self._per_block - slot)]
        ready = words[at] & _TP_STATUS_USER
        if not ready.all():
            at = at[: int(ready.argmin())]
        count, width = len(at), int((self._halves[2 * (at + _WORD_MAC)] + words[at + _WORD_SNAPLEN]).max())
        out[: count * width].reshape(count, width)[:] = self._slots[block, slot : slot + count, :width]
        words[at] = 0
        self._next = (first + count) % len(self._at)
        return count, width

    def count(self) -> None:
        """Add up what the kernel offered (`packets`) and could not place (`drops`); each reading resets the kernel's counts."""
        offered, lost = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self.packets += offered
        self.drops += lost

    def close(self) -> None:
        """Give memory and socket back."""
        self._words = self._halves = self._slots = np.empty(0, np.uint8)  # the memory cannot go while they show it
        self._memory.close()
        self._socket.close()


def _open(ifname: str, snap_bytes: int, geometry: Geometry) -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    outgoing = (
        (0x20, 0, 0, _PKTTYPE),  # ld the packet's type
        (0x15, 0, 1, _PACKET_OUTGOING),
        (0x06, 0, 0, snap_bytes),
        (0x06, 0, 0, 0),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in outgoing))
    tap.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(outgoing), ctypes.addressof(code)))
    tap.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
    slots = geometry.per_block * geometry.blocks
    tap.setsockopt(_SOL_PACKET, _PACKET_RX_RING, struct.pack("IIII", BLOCK, geometry.blocks, geometry.slot, slots))
    tap.bind((ifname, _ETH_P_ALL))
    return tap


def unpack(rows: Array) -> list[tuple[int, int, bytes]]:
    """(CLOCK_REALTIME in ns, bytes on the wire, captured bytes) of each row that `copy` laid out."""
    words = np.ascontiguousarray(rows[:, :24]).view(np.uint32)
    mac = np.ascontiguousarray(rows[:, 12:14]).view(np.uint16)[:, 0].tolist()
    times = words[:, _WORD_SEC].astype(np.int64) * 1_000_000_000 + words[:, _WORD_NSEC]
    lengths, kept = words[:, _WORD_LEN].tolist(), words[:, _WORD_SNAPLEN].tolist()
    data = [row[a : a + n].tobytes() for row, a, n in zip(rows, mac, kept, strict=True)]
    return list(zip(times.tolist(), lengths, data, strict=True))
