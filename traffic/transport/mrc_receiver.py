"""The receiving half of an MRC queue pair: every packet says where it belongs, so order does not matter.

Bit i of `seen` says that `expected + i` arrived. A SACK answers every few packets, and at once a marked or a last one; a
trimmed packet is answered by a NACK that names it.
"""

from __future__ import annotations

from collections import deque

from traffic.packet.codec import Packet
from traffic.packet.dscp import TRIMMED_LAST_HOP
from traffic.packet.headers import unpack_immdt, unpack_reth
from traffic.packet.mrc_headers import (
    RCVD_UNIT,
    Nack,
    NackReason,
    PathMark,
    Sack,
    pack_nack,
    pack_sack,
    unpack_meth,
    unpack_probe,
)
from traffic.packet.opcodes import FLAG_RTX, Opcode, psn_diff
from traffic.transport.base import TOS_CONTROL, Delivery, Memory, Outgoing, Sink, Verb
from traffic.transport.mrc_sender import MrcOptions

_IMM = frozenset((Opcode.MRC_WRITE_LAST_IMM, Opcode.MRC_WRITE_ONLY_IMM))
_LAST = _IMM | {Opcode.MRC_WRITE_LAST, Opcode.MRC_WRITE_ONLY}
_BITMAP = 64
_MASK = (1 << _BITMAP) - 1


class _Message:
    """How far one message has come."""

    __slots__ = ("ce", "imm", "left", "reordered", "size", "trimmed", "verb")

    def __init__(self) -> None:
        self.left: int | None = None
        self.size = 0
        self.verb = Verb.WRITE
        self.imm = 0
        self.ce = self.reordered = self.trimmed = 0


class MrcReceiver:
    """Places packets, remembers which came, and tells the sender."""

    def __init__(
        self, *, mine: int, peer_qpn: int, mtu: int, psn0: int, memory: Memory, options: MrcOptions, sink: Sink
    ) -> None:
        self.mine = mine
        self.peer_qpn = peer_qpn
        self.mtu = mtu
        self.psn0 = psn0
        self.memory = memory
        self.opt = options
        self.sink = sink
        self.expected = 0
        self.seen = 0
        self.newest = -1
        self.unacked = 0
        self.received_bytes = 0
        self.penalty = 0
        self.messages: dict[int, _Message] = {}
        self.answered = 0
        self.reverse_ev = 0
        self.error: tuple[str, str] | None = None

    def data(self, p: Packet, at: int, control: deque[Outgoing]) -> None:
        """A data packet arrived, whole or trimmed, first time or again."""
        seq = self.expected + psn_diff(p.psn, self.psn0 + self.expected & 0xFFFFFF)
        offset = seq - self.expected
        if offset < 0 or self.seen >> offset & 1:
            self._sack(seq, p, control)
            return
        if offset >= self.opt.max_psn_range:
            self._nack(p, NackReason.PSN_OOR_WINDOW, control)
            return
        msn = unpack_meth(p.ext).msn
        message = self.messages.get(msn)
        if message is None:
            message = self.messages[msn] = _Message()
        if p.trimmed:
            message.trimmed += 1
            last_hop = p.dscp == TRIMMED_LAST_HOP
            self._nack(p, NackReason.TRIMMED_LAST_HOP if last_hop else NackReason.TRIMMED, control)
            return
        reth = unpack_reth(p.ext, 4)
        size = len(p.payload)
        view = self.memory.view(reth.rkey, reth.va, size, write=True)
        if view is None:
            self._nack(p, NackReason.UNEXP_EVENT, control)
            self.error = ("a packet names memory that is not registered", "this is a defect of the sender")
            return
        view[:] = p.payload
        self._count(p, seq, message)
        self.seen |= 1 << offset
        ones = (~self.seen & self.seen + 1).bit_length() - 1
        self.seen >>= ones
        self.expected += ones
        self.received_bytes += size
        if message.left is None:
            message.size = reth.length
            message.left = max(1, -(-reth.length // self.mtu))
        message.left -= 1
        if p.opcode in _IMM:
            message.verb = Verb.WRITE_IMM
            message.imm = unpack_immdt(p.ext, 20)
        done = message.left == 0
        if done:
            del self.messages[msn]
            self.sink.delivered.append(
                Delivery(
                    self.mine,
                    message.verb,
                    message.imm,
                    message.size,
                    at,
                    message.ce,
                    message.reordered,
                    message.trimmed,
                )
            )
        self.unacked += 1
        if done or p.ack_req or p.ecn == 3 or self.unacked >= self.opt.ack_every or p.opcode in _LAST:
            self._sack(seq, p, control)

    def _count(self, p: Packet, seq: int, message: _Message) -> None:
        message.ce += p.ecn == 3
        if seq > self.newest:
            self.newest = seq
        elif not p.flags8 & FLAG_RTX:
            message.reordered += 1
            distance = self.newest - seq
            self.sink.reorder[distance] = self.sink.reorder.get(distance, 0) + 1

    def _sack(self, seq: int, p: Packet, control: deque[Outgoing]) -> None:
        """The acknowledgement that `p` (sequence number `seq`) caused; it goes back on `p`'s entropy value."""
        self.unacked = 0
        base = self.expected if seq < self.expected + _BITMAP else seq - _BITMAP + 1
        cack = self.expected - 1
        sack = Sack(
            cack_psn=self.psn0 + cack & 0xFFFFFF,
            ack_psn_offset=max(-32768, min(32767, seq - cack)),
            sack_offset=min(32767, base - cack),
            bitmap=self.seen >> base - self.expected & _MASK,
            entropy=p.sport,
            m=PathMark.SKIP_ONCE if p.ecn == 3 else PathMark.NONE,
            ooo_count=min(0x7FFF, self.seen.bit_count()),
            rcv_cwnd_pen=self.penalty,
            rcvd_bytes=self.received_bytes // RCVD_UNIT,
        )
        psn = self.psn0 + cack & 0xFFFFFF
        control.append(Outgoing(Opcode.MRC_SACK, self.peer_qpn, psn, pack_sack(sack), b"", p.sport, False, TOS_CONTROL))

    def _nack(self, p: Packet, reason: NackReason, control: deque[Outgoing]) -> None:
        self.sink.naks_sent += 1
        ext = pack_nack(Nack(p.psn, reason, p.sport))
        control.append(Outgoing(Opcode.MRC_NACK, self.peer_qpn, p.psn, ext, b"", p.sport, False, TOS_CONTROL))

    def probe(self, p: Packet, control: deque[Outgoing]) -> None:
        """A reliability probe is answered by a SACK with the probe bit, its number in the spdcid field."""
        cack = self.expected - 1
        sack = Sack(
            cack_psn=self.psn0 + cack & 0xFFFFFF,
            sack_offset=1,
            bitmap=self.seen & _MASK,
            entropy=p.sport,
            probe=True,
            spdcid=unpack_probe(p.ext).probe_id,
        )
        psn = self.psn0 + cack & 0xFFFFFF
        control.append(Outgoing(Opcode.MRC_SACK, self.peer_qpn, psn, pack_sack(sack), b"", p.sport, False, TOS_CONTROL))
