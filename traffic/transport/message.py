"""How a SEND or WRITE becomes packets, and packets in order a message again: what RC and UC share.

Checks as Linux's Soft-RoCE makes them (drivers/infiniband/sw/rxe/rxe_resp.c, check_op_seq, check_rkey): the opcode
must fit the place in the message, a first or only WRITE packet is checked against key and range for the whole
message, all packets but the last are full, and the last byte of a WRITE is the last one announced.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from traffic.packet.codec import Packet
from traffic.packet.headers import pack_ieth, pack_immdt, pack_reth, unpack_ieth, unpack_immdt, unpack_reth
from traffic.packet.opcodes import Opcode
from traffic.transport.base import Memory, Verb, WorkRequest

WRITES: Final = (Verb.WRITE, Verb.WRITE_IMM)
_ENDS: Final = {
    Verb.WRITE: (Opcode.RC_WRITE_LAST, Opcode.RC_WRITE_ONLY),
    Verb.WRITE_IMM: (Opcode.RC_WRITE_LAST_IMM, Opcode.RC_WRITE_ONLY_IMM),
    Verb.SEND: (Opcode.RC_SEND_LAST, Opcode.RC_SEND_ONLY),
    Verb.SEND_IMM: (Opcode.RC_SEND_LAST_IMM, Opcode.RC_SEND_ONLY_IMM),
    Verb.SEND_INV: (Opcode.RC_SEND_LAST_INV, Opcode.RC_SEND_ONLY_INV),
}
_FIRST: Final = frozenset((Opcode.RC_SEND_FIRST, Opcode.RC_WRITE_FIRST))
_MIDDLE: Final = frozenset((Opcode.RC_SEND_MIDDLE, Opcode.RC_WRITE_MIDDLE))
_ONLY: Final = frozenset(only for _, only in _ENDS.values())
_LAST: Final = frozenset(last for last, _ in _ENDS.values())
_WRITE: Final = frozenset(range(Opcode.RC_WRITE_FIRST, Opcode.RC_WRITE_ONLY_IMM + 1))
_IMM: Final = frozenset(
    (Opcode.RC_SEND_LAST_IMM, Opcode.RC_SEND_ONLY_IMM, Opcode.RC_WRITE_LAST_IMM, Opcode.RC_WRITE_ONLY_IMM)
)
_INV: Final = frozenset((Opcode.RC_SEND_LAST_INV, Opcode.RC_SEND_ONLY_INV))
_KNOWN: Final = _FIRST | _MIDDLE | _ONLY | _LAST
STARTS: Final = _FIRST | _ONLY
"""Opcodes that begin a message."""


def packets_of(size: int, mtu: int) -> int:
    """Packets of a message of `size` bytes; an empty one has one."""
    return max(1, -(-size // mtu))


def segment(work: WorkRequest, index: int, mtu: int) -> tuple[int, bytes, memoryview]:
    """RC opcode, extension headers and payload of packet `index` of a SEND or WRITE."""
    verb = work.verb
    write = verb in WRITES
    ext = pack_reth(work.remote_va, work.rkey, len(work.local)) if write and not index else b""
    payload = work.local[index * mtu : (index + 1) * mtu]
    if index == work.packets - 1:
        opcode = _ENDS[verb][not index]
        if verb in (Verb.WRITE_IMM, Verb.SEND_IMM):
            ext += pack_immdt(work.imm)
        elif verb is Verb.SEND_INV:
            ext += pack_ieth(work.imm)
    elif index:
        opcode = Opcode.RC_WRITE_MIDDLE if write else Opcode.RC_SEND_MIDDLE
    else:
        opcode = Opcode.RC_WRITE_FIRST if write else Opcode.RC_SEND_FIRST
    return opcode, ext, payload


class Step(Enum):
    """What became of a packet."""

    PLACED = "placed"
    DONE = "done"
    INVALID = "invalid request"
    ACCESS = "access error"
    NOT_READY = "no receive buffer"


class Assembly:
    """The message that is coming in. `buffers` are posted for SENDs; `depth` counts what WRITEs with immediate consume.

    After DONE, `verb`, `imm` and `offset` (bytes) describe the message; the next first packet begins another.
    """

    def __init__(self, memory: Memory, mtu: int, depth: int | None) -> None:
        self.memory = memory
        self.mtu = mtu
        self.depth = depth
        self.buffers: deque[memoryview] = deque()
        self.writing: bool | None = None
        self.target = memoryview(b"")
        self.offset = 0
        self.verb = Verb.WRITE
        self.imm = 0

    def take(self, opcode: int, p: Packet) -> Step:
        """Check and place the next packet; `opcode` is that of RC. Unless PLACED or DONE nothing is written."""
        if opcode not in _KNOWN:
            return Step.INVALID
        write, starts = opcode in _WRITE, opcode in STARTS
        ends = opcode in _ONLY or opcode in _LAST
        size = len(p.payload)
        if (
            starts != (self.writing is None)
            or (not starts and self.writing != write)
            or (not ends and size != self.mtu)
        ):
            return Step.INVALID
        target, offset = self.target, self.offset
        if starts:
            offset = 0
            if write:
                reth = unpack_reth(p.ext)
                view = self.memory.view(reth.rkey, reth.va, reth.length, write=True)
                if view is None:
                    return Step.ACCESS
                target = view
            elif self.buffers:
                target = self.buffers[0]
            else:
                return Step.NOT_READY
        if write and ends and opcode in _IMM and self.depth is not None and self.depth <= 0:
            return Step.NOT_READY
        end = offset + size
        if end > len(target) or (write and ends and end != len(target)):
            return Step.INVALID
        if opcode in _INV and not self.memory.invalidate(unpack_ieth(p.ext)):
            return Step.ACCESS
        target[offset:end] = p.payload
        self.target, self.offset, self.writing = target, end, write
        if not ends:
            return Step.PLACED
        self._finish(opcode, p, write)
        return Step.DONE

    def drop(self) -> None:
        """Forget the message that is coming in."""
        self.writing = None

    def _finish(self, opcode: int, p: Packet, write: bool) -> None:
        self.writing = None
        imm = opcode in _IMM
        if imm:
            self.imm = unpack_immdt(p.ext, len(p.ext) - 4)
        else:
            self.imm = unpack_ieth(p.ext) if opcode in _INV else 0
        if write:
            self.verb = Verb.WRITE_IMM if imm else Verb.WRITE
            if imm and self.depth is not None:
                self.depth -= 1
        else:
            self.buffers.popleft()
            self.verb = Verb.SEND_IMM if imm else Verb.SEND_INV if opcode in _INV else Verb.SEND
