"""A packet socket whose arrivals lie in memory shared with the kernel (TPACKET_V2): taking them is no system call.

For the guest, where a system call costs more than everything else that is done for a packet. A ring has as many slots as it
has; the socket of the real clock queues in bytes instead, since a stall of that machine has no bound.
"""

from __future__ import annotations

import mmap
import struct

from traffic.agent.packet_socket import SOL_PACKET, PacketSocket

_PACKET_RX_RING = 5
_PACKET_VERSION = 10
_TPACKET_V2 = 1
_STATUS_USER = 1
_BLOCK = 1 << 16
_FRAME_AT = 66
"""Where the frame begins in its slot: the header's 52 bytes and 16 for a link header, aligned to 16, less Ethernet's 14
(net/packet/af_packet.c, tpacket_rcv)."""
_SLOT = 4352
"""Room for 4096 bytes of payload with all headers."""
_FEWEST = 256


class RingSocket(PacketSocket):
    """`slots` frames may wait (at least 256); one more is lost and counted as a drop of this host."""

    def __init__(self, netns: str, ifname: str, *, delayed: bool, slots: int) -> None:
        super().__init__(netns, ifname, delayed=delayed)
        per_block = _BLOCK // _SLOT
        blocks = -(-max(_FEWEST, slots) // per_block)
        self._map = mmap.mmap(self._ring(blocks, blocks * per_block), blocks * _BLOCK)
        view = memoryview(self._map)
        self._words = view.cast("Q")
        self._status = view.cast("I")
        starts = [b * _BLOCK + i * _SLOT for b in range(blocks) for i in range(per_block)]
        self._slots = [(at // 8, at // 4, view[at + _FRAME_AT : at + _SLOT]) for at in starts]
        self._next = 0
        self._taken: list[int] = []

    def _ring(self, blocks: int, slots: int) -> int:
        self.sock.setsockopt(SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        self.sock.setsockopt(SOL_PACKET, _PACKET_RX_RING, struct.pack("IIII", _BLOCK, blocks, _SLOT, slots))
        return self.fd

    def receive(self) -> list[tuple[memoryview, int]]:
        """All frames that wait, with their arrival on CLOCK_REALTIME in ns; views are good until `release`."""
        words, slots, at = self._words, self._slots, self._next
        out: list[tuple[memoryview, int]] = []
        while len(out) < len(slots):
            word, status, frame = slots[at]
            if not words[word] & _STATUS_USER:
                break
            # struct tpacket2_hdr: status and length, snapshot length and offsets, seconds and nanoseconds.
            stamp = words[word + 2]
            out.append((frame[: words[word + 1] & 0xFFFFFFFF], (stamp & 0xFFFFFFFF) * 1_000_000_000 + (stamp >> 32)))
            self._taken.append(status)
            at = at + 1 if at + 1 < len(slots) else 0
        self._next = at
        return out

    def release(self) -> None:
        """Give the slots of the frames last received back to the kernel."""
        for index in self._taken:
            self._status[index] = 0
        self._taken.clear()
