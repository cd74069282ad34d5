"""The receiving half of an MRC queue pair: every packet says where it belongs, so order does not matter.

Bit i of `seen` says that `expected + i` arrived. A SACK answers every few packets, and at once a marked, a last or a
repeated one; its 64 bits end at the packet that caused it where that lies more than 64 ahead. A trimmed packet, or
one there is no room for, is answered by a NACK that names it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from traffic.congestion.base import Loss, ReceiverControl
from traffic.packet.codec import Packet
from traffic.packet.dscp import TRIMMED_LAST_HOP
from traffic.packet.headers import unpack_immdt, unpack_reth
from traffic.packet.mrc_headers import (
    CC_CREDIT,
    CC_NSCC,
    MPR_UNIT,
    RCVD_UNIT,
    Nack,
    NackReason,
    PathMark,
    Sack,
    pack_nack,
    pack_sack,
    unpack_credit_target,
    unpack_meth,
    unpack_probe,
)
from traffic.packet.opcodes import FLAG_RTX, FLAG_TS, SPORT_MIN, Opcode, psn_diff
from traffic.transport.base import TOS_CONTROL, Delivery, Memory, Outgoing, Sink, Verb
from traffic.transport.credit import CreditGiver
from traffic.transport.message import packets_of
from traffic.transport.options import MrcOptions

_IMM: Final = frozenset((Opcode.MRC_WRITE_LAST_IMM, Opcode.MRC_WRITE_ONLY_IMM))
_LAST: Final = _IMM | {Opcode.MRC_WRITE_LAST, Opcode.MRC_WRITE_ONLY}
_BITMAP: Final = 64
_MASK: Final = (1 << _BITMAP) - 1


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
        self,
        *,
        mine: int,
        peer_qpn: int,
        mtu: int,
        psn0: int,
        memory: Memory,
        options: MrcOptions,
        sink: Sink,
        control: deque[Outgoing],
        receiving: ReceiverControl | None,
        credit: bool,
    ) -> None:
        self.mine = mine
        self.peer_qpn = peer_qpn
        self.mtu = mtu
        self.psn0 = psn0
        self.memory = memory
        self.opt = options
        self.sink = sink
        self.control = control
        self.receiving = receiving
        self.giver = CreditGiver() if credit else None
        self.expected = 0
        self.seen = 0
        self.newest = -1
        self.unacked = 0
        self.received_bytes = 0
        self.last_ev = SPORT_MIN
        self.messages: dict[int, _Message] = {}
        self.error: tuple[str, str] | None = None

    def data(self, p: Packet, now: int, at: int) -> None:
        """A data packet arrived, whole or trimmed, first time or again."""
        reth_at = 8 if p.flags8 & FLAG_TS else 4
        reth = unpack_reth(p.ext, reth_at)
        self.last_ev = p.sport
        if self.receiving is not None:
            self._report(p, reth.length, now)
        seq = self.expected + psn_diff(p.psn, self.psn0 + self.expected & 0xFFFFFF)
        offset = seq - self.expected
        if offset < 0 or self.seen >> offset & 1:
            self._sack(seq, p)
            return
        if offset >= self.opt.max_psn_range:
            self._nack(p, NackReason.PSN_OOR_WINDOW)
            return
        msn = unpack_meth(p.ext).msn
        message = self.messages.get(msn)
        if message is None:
            message = self.messages[msn] = _Message()
        if p.trimmed:
            message.trimmed += 1
            self._nack(p, NackReason.TRIMMED_LAST_HOP if p.dscp == TRIMMED_LAST_HOP else NackReason.TRIMMED)
            return
        size = len(p.payload)
        view = self.memory.view(reth.rkey, reth.va, size, write=True)
        if view is None:
            self._nack(p, NackReason.UNEXP_EVENT)
            self.error = ("a packet names memory that is not registered", "check remote address, length and R_Key")
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
            message.left = packets_of(reth.length, self.mtu)
        message.left -= 1
        if p.opcode in _IMM:
            message.verb = Verb.WRITE_IMM
            message.imm = unpack_immdt(p.ext, reth_at + 16)
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
        at_once = done or p.ack_req or p.ecn == 3 or p.opcode in _LAST or p.flags8 & FLAG_RTX
        if at_once or self.unacked >= self.opt.ack_every:
            self._sack(seq, p)

    def _report(self, p: Packet, length: int, now: int) -> None:
        """Tell the receiver's half of congestion control; a trimmed packet counts with the bytes it was sent with."""
        assert self.receiving is not None
        size, trimmed = len(p.payload), None
        if p.trimmed:
            size = (length - 1) % self.mtu + 1 if p.opcode in _LAST and length else min(length, self.mtu)
            trimmed = Loss.TRIM_LAST_HOP if p.dscp == TRIMMED_LAST_HOP else Loss.TRIM
        target = 0
        if self.giver is not None:
            self._asked(p, 4)
            target = self.giver.target
        self.receiving.arrived(now=now, qp=self.mine, size=size, ce=p.ecn == 3, credit_target=target, trimmed=trimmed)

    def _asked(self, p: Packet, at: int) -> None:
        total = unpack_credit_target(p.ext, at)
        if total is not None and self.giver is not None:
            self.giver.asked(total)

    def _count(self, p: Packet, seq: int, message: _Message) -> None:
        message.ce += p.ecn == 3
        if seq > self.newest:
            self.newest = seq
        elif not p.flags8 & FLAG_RTX:
            message.reordered += 1
            distance = self.newest - seq
            self.sink.reorder[distance] = self.sink.reorder.get(distance, 0) + 1

    def _sack(self, seq: int, p: Packet) -> None:
        """The acknowledgement that `p` (sequence number `seq`) caused."""
        self.unacked = 0
        base = self.expected if seq < self.expected + _BITMAP else seq - _BITMAP + 1
        cack = self.expected - 1
        self._send(
            p.sport,
            Sack(
                cack_psn=0,
                ack_psn_offset=max(-32768, min(32767, seq - cack)),
                sack_offset=min(32767, base - cack),
                bitmap=self.seen >> base - self.expected & _MASK,
                entropy=p.sport,
                m=PathMark.SKIP_ONCE if p.ecn == 3 else PathMark.NONE,
            ),
        )

    def _send(self, ev: int, sack: Sack) -> None:
        """A SACK on `ev`, with what every one says: all that is acknowledged, and the state of congestion control."""
        psn = self.psn0 + self.expected - 1 & 0xFFFFFF
        if self.giver is not None:
            cc, pen, total = CC_CREDIT, 0, self.giver.total
        else:
            pen = 0 if self.receiving is None else self.receiving.penalty(qp=self.mine)
            cc, total = CC_NSCC, self.received_bytes // RCVD_UNIT
        ext = pack_sack(
            sack._replace(
                cack_psn=psn,
                ooo_count=min(0x7FFF, self.seen.bit_count()),
                mpr=min(255, self.opt.max_psn_range // MPR_UNIT),
                cc_type=cc,
                rcv_cwnd_pen=pen,
                rcvd_bytes=total,
            )
        )
        self.control.append(Outgoing(Opcode.MRC_SACK, self.peer_qpn, psn, ext, b"", ev, False, TOS_CONTROL))

    def _nack(self, p: Packet, reason: NackReason) -> None:
        self.sink.naks_sent += 1
        ext = pack_nack(Nack(p.psn, reason, p.sport))
        self.control.append(Outgoing(Opcode.MRC_NACK, self.peer_qpn, p.psn, ext, b"", p.sport, False, TOS_CONTROL))

    def grant(self, size: int) -> None:
        """Send `size` bytes of credit more: a SACK that no packet caused."""
        if self.giver is not None:
            self.giver.bytes += size
            self._send(self.last_ev, Sack(cack_psn=0, sack_offset=1, bitmap=self.seen & _MASK))

    def probe(self, p: Packet, now: int) -> None:
        """A probe is answered by a SACK with the probe bit, its number in the spdcid field; it may ask for credit."""
        if self.giver is not None and self.receiving is not None:
            self._asked(p, 12)
            self.receiving.requested(now=now, qp=self.mine, credit_target=self.giver.target)
        number = unpack_probe(p.ext).probe_id
        probed = Sack(cack_psn=0, sack_offset=1, bitmap=self.seen & _MASK, entropy=p.sport, probe=True, spdcid=number)
        self._send(p.sport, probed)
