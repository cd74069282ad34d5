"""The answering half of an RC queue pair: order, placement, ACK and NAK, READ and atomics.

Rules as Linux's Soft-RoCE applies them (rxe_resp.c): a packet ahead of the expected PSN brings one NAK and is dropped
until the expected one shows up; a packet behind it is a duplicate (acknowledged again, a READ answered again, an
atomic answered from what was saved); any error but a lack of buffers ends the connection. Answers leave in the order of
what they answer: what comes after a READ waits for its responses.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from traffic.packet.codec import Packet
from traffic.packet.headers import (
    ACK_NO_CREDITS,
    NAK_INVALID_REQUEST,
    NAK_PSN_SEQUENCE,
    NAK_REMOTE_ACCESS,
    RNR_NAK,
    pack_aeth,
    pack_atomic_ack_eth,
    unpack_atomic_eth,
    unpack_reth,
)
from traffic.packet.opcodes import Opcode, psn_diff
from traffic.transport.base import TOS_CONTROL, TOS_DATA, Delivery, Memory, Outgoing, Sink
from traffic.transport.message import Assembly, Step, packets_of
from traffic.transport.options import RcOptions

_ATOMIC: Final = frozenset((Opcode.RC_FETCH_ADD, Opcode.RC_COMPARE_SWAP))
_MASK_64: Final = (1 << 64) - 1


class _ReadAnswer:
    """What a READ asked for: its first sequence number, the bytes, and in how many packets."""

    __slots__ = ("packets", "seq", "view")

    def __init__(self, seq: int, view: memoryview, packets: int) -> None:
        self.seq = seq
        self.view = view
        self.packets = packets


class Responder:
    """Receives requests. `mine` is this end's queue pair number, `peer_qpn` and `psn0` are the far end's."""

    def __init__(
        self,
        *,
        mine: int,
        peer_qpn: int,
        sport: int,
        mtu: int,
        psn0: int,
        memory: Memory,
        options: RcOptions,
        sink: Sink,
    ) -> None:
        self.mine = mine
        self.peer_qpn = peer_qpn
        self.sport = sport
        self.mtu = mtu
        self.psn0 = psn0
        self.memory = memory
        self.opt = options
        self.selective = options.recovery == "selective"
        self.sink = sink
        self.assembly = Assembly(memory, mtu, options.recv_depth)
        self.expected = 0
        self.plain = -1  # the last SEND or WRITE packet
        self.msn = 0
        self.nak_sent = False
        self.nak_at = -(1 << 60)
        self.unacked = 0
        self.ce_seen = False
        self.dead = False
        self.ce = 0
        self.reordered = 0
        self.held: dict[int, Packet] = {}
        self.saved: OrderedDict[int, int] = OrderedDict()
        self.responses: deque[_ReadAnswer | Outgoing] = deque()  # the first is a READ's
        self.response_index = 0
        self.ack_owed = False

    @property
    def recv_buffers(self) -> deque[memoryview]:
        """Receive buffers for SENDs, the oldest first."""
        return self.assembly.buffers

    def request(self, p: Packet, now: int, at: int, control: deque[Outgoing]) -> None:
        """A request packet arrived; answers go to `control`, READ data to `responses`."""
        if self.dead:
            return
        if p.ecn == 3:
            self.ce += 1
            self.ce_seen = True
        seq = self.expected + psn_diff(p.psn, self.psn0 + self.expected & 0xFFFFFF)
        if seq < self.expected:
            self._duplicate(p, seq, control)
            return
        if seq > self.expected:
            self._ahead(p, seq, now, control)
            return
        if self.nak_sent:
            self.nak_sent = False
            if not self.selective and at < self.nak_at:
                self.reordered += 1
        self._accept(p, at, control)
        while self.held and not self.dead and (kept := self.held.pop(self.expected, None)) is not None:
            self._accept(kept, at, control)

    def _ahead(self, p: Packet, seq: int, now: int, control: deque[Outgoing]) -> None:
        if self.selective and seq not in self.held:
            self.held[seq] = p.but(payload=memoryview(bytes(p.payload)), ext=memoryview(bytes(p.ext)))
        if self.nak_sent and not self.selective:
            return
        self.nak_sent = True
        self.nak_at = now
        self.sink.naks_sent += 1
        arrived = self.psn0 + seq & 0xFFFFFF if self.selective else self.msn
        self._answer(NAK_PSN_SEQUENCE, self.expected, control, arrived)

    def _accept(self, p: Packet, at: int, control: deque[Outgoing]) -> None:
        op = p.opcode
        if op == Opcode.RC_READ_REQUEST or op in _ATOMIC:
            if self.assembly.writing is not None:
                self._refuse(NAK_INVALID_REQUEST, control)
            elif op == Opcode.RC_READ_REQUEST:
                self._read(p, control)
            else:
                self._atomic(p, control)
            return
        step = self.assembly.take(op, p)
        if step is Step.NOT_READY:
            self._answer(RNR_NAK | self.opt.rnr_timer, self.expected, control)
        elif step is Step.ACCESS:
            self._refuse(NAK_REMOTE_ACCESS, control)
        elif step is Step.INVALID:
            self._refuse(NAK_INVALID_REQUEST, control)
        else:
            self.plain = self.expected
            self.expected += 1
            self.unacked += 1
            if step is Step.DONE:
                self.msn += 1
                done = self.assembly
                self.sink.delivered.append(
                    Delivery(self.mine, done.verb, done.imm, done.offset, at, self.ce, self.reordered, 0)
                )
                self.ce = self.reordered = 0
            if p.ack_req or self.unacked >= self.opt.ack_every:
                self._ack(control)

    def _read(self, p: Packet, control: deque[Outgoing], *, replay_at: int | None = None) -> None:
        reth = unpack_reth(p.ext)
        view = self.memory.view(reth.rkey, reth.va, reth.length, write=False)
        if view is None:
            self._refuse(NAK_REMOTE_ACCESS, control)
            return
        seq = self.expected if replay_at is None else replay_at
        packets = packets_of(reth.length, self.mtu)
        self.responses.append(_ReadAnswer(seq, view, packets))
        if replay_at is None:
            self.expected += packets
            self.msn += 1

    def _atomic(self, p: Packet, control: deque[Outgoing]) -> None:
        eth = unpack_atomic_eth(p.ext)
        view = self.memory.view(eth.rkey, eth.va, 8, write=True)
        if view is None or eth.va % 8:
            self._refuse(NAK_REMOTE_ACCESS if view is None else NAK_INVALID_REQUEST, control)
            return
        old = int.from_bytes(view, "little")
        if p.opcode == Opcode.RC_FETCH_ADD:
            view[:] = (old + eth.swap_add & _MASK_64).to_bytes(8, "little")
        elif old == eth.compare:
            view[:] = eth.swap_add.to_bytes(8, "little")
        self.msn += 1
        self.saved[self.expected] = old
        if len(self.saved) > self.opt.max_rd_atomic:
            self.saved.popitem(last=False)
        self._atomic_answer(self.expected, old, control)
        self.expected += 1

    def _atomic_answer(self, seq: int, old: int, control: deque[Outgoing]) -> None:
        ext = pack_aeth(ACK_NO_CREDITS, self.msn) + pack_atomic_ack_eth(old)
        psn = self.psn0 + seq & 0xFFFFFF
        self._in_turn(
            Outgoing(Opcode.RC_ATOMIC_ACKNOWLEDGE, self.peer_qpn, psn, ext, b"", self.sport, False, TOS_CONTROL),
            control,
        )

    def _duplicate(self, p: Packet, seq: int, control: deque[Outgoing]) -> None:
        if p.opcode == Opcode.RC_READ_REQUEST:
            self._read(p, control, replay_at=seq)
        elif p.opcode in _ATOMIC:
            if seq in self.saved:
                self._atomic_answer(seq, self.saved[seq], control)
        else:
            self._ack(control)

    def next_response(self) -> Outgoing:
        """The next READ response packet; only while `responses` is not empty."""
        answer = self.responses[0]
        assert isinstance(answer, _ReadAnswer)
        i = self.response_index
        first, last = i == 0, i == answer.packets - 1
        if last:
            self.responses.popleft()
            self.response_index = 0
        else:
            self.response_index = i + 1
        if first:
            opcode = Opcode.RC_READ_RESPONSE_ONLY if last else Opcode.RC_READ_RESPONSE_FIRST
        else:
            opcode = Opcode.RC_READ_RESPONSE_LAST if last else Opcode.RC_READ_RESPONSE_MIDDLE
        ext = pack_aeth(ACK_NO_CREDITS, self.msn) if first or last else b""
        payload = answer.view[i * self.mtu : (i + 1) * self.mtu]
        psn = self.psn0 + answer.seq + i & 0xFFFFFF
        return Outgoing(opcode, self.peer_qpn, psn, ext, payload, self.sport, False, TOS_DATA)

    def release(self, control: deque[Outgoing]) -> None:
        """Send what waited behind the READ responses that are done."""
        while self.responses:
            waiting = self.responses[0]
            if isinstance(waiting, _ReadAnswer):
                return
            control.append(waiting)
            self.responses.popleft()
        if self.ack_owed:
            self._ack(control)

    def _in_turn(self, packet: Outgoing, control: deque[Outgoing]) -> None:
        if self.responses:
            self.responses.append(packet)
        else:
            control.append(packet)

    def _ack(self, control: deque[Outgoing]) -> None:
        if self.responses:
            self.ack_owed = True
            return
        self.ack_owed = False
        # Never with the PSN of a READ or atomic: that would stand for its answer (rxe_comp.c completes it without data).
        self._answer(ACK_NO_CREDITS, self.plain, control)

    def _refuse(self, syndrome: int, control: deque[Outgoing]) -> None:
        self.dead = True
        self.assembly.drop()
        self._answer(syndrome, self.expected, control)

    def _answer(self, syndrome: int, seq: int, control: deque[Outgoing], msn: int | None = None) -> None:
        self.unacked = 0
        becn = self.opt.echo_ecn and self.ce_seen
        self.ce_seen = False
        ext = pack_aeth(syndrome, self.msn if msn is None else msn)
        psn = self.psn0 + seq & 0xFFFFFF
        self._in_turn(
            Outgoing(Opcode.RC_ACKNOWLEDGE, self.peer_qpn, psn, ext, b"", self.sport, False, TOS_CONTROL, becn), control
        )
