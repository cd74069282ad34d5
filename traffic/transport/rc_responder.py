"""The answering half of an RC queue pair: order, placement, ACK and NAK, READ and atomics, CNPs.

Rules as Linux's Soft-RoCE applies them (rxe_resp.c): a packet ahead of the expected PSN brings one NAK and is dropped
until the expected one shows up; a packet behind it is a duplicate (acknowledged again, or a READ replayed); a first or only
WRITE packet is checked against key and range for the whole message. The CNP interval is DCQCN's (SIGCOMM 2015).
"""

from __future__ import annotations

from collections import OrderedDict, deque

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
    unpack_ieth,
    unpack_immdt,
    unpack_reth,
)
from traffic.packet.opcodes import Opcode, psn_diff
from traffic.transport.base import NEVER, TOS_CONTROL, TOS_DATA, Delivery, Memory, Outgoing, Sink, Verb
from traffic.transport.rc_requester import RcOptions

_FIRST = frozenset((Opcode.RC_SEND_FIRST, Opcode.RC_WRITE_FIRST))
_MIDDLE = {Opcode.RC_SEND_MIDDLE: False, Opcode.RC_WRITE_MIDDLE: True}
_ONLY = frozenset(
    (
        Opcode.RC_SEND_ONLY,
        Opcode.RC_SEND_ONLY_IMM,
        Opcode.RC_SEND_ONLY_INV,
        Opcode.RC_WRITE_ONLY,
        Opcode.RC_WRITE_ONLY_IMM,
    )
)
_LAST = frozenset(
    (
        Opcode.RC_SEND_LAST,
        Opcode.RC_SEND_LAST_IMM,
        Opcode.RC_SEND_LAST_INV,
        Opcode.RC_WRITE_LAST,
        Opcode.RC_WRITE_LAST_IMM,
    )
)
_WRITE = frozenset(range(Opcode.RC_WRITE_FIRST, Opcode.RC_WRITE_ONLY_IMM + 1))
_IMM = frozenset((Opcode.RC_SEND_LAST_IMM, Opcode.RC_SEND_ONLY_IMM, Opcode.RC_WRITE_LAST_IMM, Opcode.RC_WRITE_ONLY_IMM))
_INV = frozenset((Opcode.RC_SEND_LAST_INV, Opcode.RC_SEND_ONLY_INV))
_ATOMIC = frozenset((Opcode.RC_FETCH_ADD, Opcode.RC_COMPARE_SWAP))
_ZEROS = bytes(16)
_SAVED_ATOMICS = 16


class Responder:
    """Receives requests. `mine` is this end's queue pair number, `peer_qpn` the far one, `psn0` the far end's first PSN."""

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
        self.sink = sink
        self.expected = 0
        self.msn = 0
        self.nak_sent = False
        self.nak_at = -(1 << 60)
        self.unacked = 0
        self.ce_seen = False
        self.dead = False
        self.next_cnp = 0
        self.recv_left = options.recv_depth
        self.recv_buffers: deque[memoryview] = deque()
        self.target: memoryview | None = None
        self.offset = 0
        self.in_write: bool | None = None
        self.ce = 0
        self.reordered = 0
        self.held: dict[int, Packet] = {}
        self.saved: OrderedDict[int, int] = OrderedDict()
        self.responses: deque[tuple[int, memoryview, int]] = deque()
        self.response_index = 0
        self.ack_owed = False

    def request(self, p: Packet, now: int, at: int, control: deque[Outgoing]) -> None:
        """A request packet arrived; answers go to `control`, READ data to `responses`."""
        if self.dead:
            return
        if p.ecn == 3:
            self.ce += 1
            self.ce_seen = True
            self._cnp(now, control)
        seq = self.expected + psn_diff(p.psn, self.psn0 + self.expected & 0xFFFFFF)
        if seq != self.expected:
            if seq < self.expected:
                self._duplicate(p, seq, control)
            else:
                self._ahead(p, seq, now, control)
            return
        if self.nak_sent:
            self.nak_sent = False
            if self.opt.recovery == "gbn" and at < self.nak_at:
                self.reordered += 1
        self._accept(p, at, control)
        while self.held and not self.dead and (kept := self.held.pop(self.expected, None)) is not None:
            self._accept(kept, at, control)

    def _ahead(self, p: Packet, seq: int, now: int, control: deque[Outgoing]) -> None:
        selective = self.opt.recovery == "selective"
        if selective and seq not in self.held:
            self.held[seq] = p._replace(payload=memoryview(bytes(p.payload)), ext=memoryview(bytes(p.ext)))
        if self.nak_sent and not selective:
            return
        self.nak_sent = True
        self.nak_at = now
        self.sink.naks_sent += 1
        arrived = self.psn0 + seq & 0xFFFFFF if selective else self.msn
        self._answer(NAK_PSN_SEQUENCE, self.expected, control, arrived)

    def _accept(self, p: Packet, at: int, control: deque[Outgoing]) -> None:
        op = p.opcode
        size = len(p.payload)
        if op == Opcode.RC_READ_REQUEST:
            self._read(p, control)
            return
        if op in _ATOMIC:
            self._atomic(p, control)
            return
        write = op in _WRITE
        starts = op in _FIRST or op in _ONLY
        ends = op in _ONLY or op in _LAST
        if (
            starts != (self.in_write is None)
            or (self.in_write is not None and self.in_write != write)
            or (not ends and size != self.mtu)
        ):
            self._refuse(NAK_INVALID_REQUEST, control)
            return
        if starts and not self._begin(p, write, control):
            return
        consumes = ends and (not write or op in _IMM)
        if consumes and self.recv_left is not None and self.recv_left <= 0:
            if starts:
                self.in_write = None
            self._answer(RNR_NAK | self.opt.rnr_timer, self.expected, control)
            return
        if self.target is None or self.offset + size > len(self.target):
            self._refuse(NAK_INVALID_REQUEST, control)
            return
        self.target[self.offset : self.offset + size] = p.payload
        self.offset += size
        self.expected += 1
        self.unacked += 1
        if ends:
            if write and self.offset != len(self.target):
                self._refuse(NAK_INVALID_REQUEST, control)
                return
            self._finish(p, write, consumes, at)
        if p.ack_req or self.unacked >= self.opt.ack_every:
            self._ack(control)

    def _begin(self, p: Packet, write: bool, control: deque[Outgoing]) -> bool:
        self.offset = 0
        if write:
            reth = unpack_reth(p.ext)
            self.target = self.memory.view(reth.rkey, reth.va, reth.length, write=True)
            if self.target is None:
                self._refuse(NAK_REMOTE_ACCESS, control)
                return False
        elif self.recv_buffers:
            self.target = self.recv_buffers[0]
        else:
            self._answer(RNR_NAK | self.opt.rnr_timer, self.expected, control)
            return False
        self.in_write = write
        return True

    def _finish(self, p: Packet, write: bool, consumes: bool, at: int) -> None:
        self.msn += 1
        self.in_write = None
        imm = 0
        if p.opcode in _IMM:
            imm = unpack_immdt(p.ext, len(p.ext) - 4)
        elif p.opcode in _INV:
            imm = unpack_ieth(p.ext)
            self.memory.invalidate(imm)
        if consumes and self.recv_left is not None:
            self.recv_left -= 1
        if not write:
            self.recv_buffers.popleft()
        verb = (Verb.WRITE_IMM if p.opcode in _IMM else Verb.WRITE) if write else Verb.SEND
        self.sink.delivered.append(Delivery(self.mine, verb, imm, self.offset, at, self.ce, self.reordered, 0))
        self.ce = self.reordered = 0

    def _read(self, p: Packet, control: deque[Outgoing], *, replay_at: int | None = None) -> None:
        reth = unpack_reth(p.ext)
        view = self.memory.view(reth.rkey, reth.va, reth.length, write=False)
        if view is None:
            self._refuse(NAK_REMOTE_ACCESS, control)
            return
        seq = self.expected if replay_at is None else replay_at
        self.responses.append((seq, view, max(1, -(-reth.length // self.mtu))))
        if replay_at is None:
            self.expected += self.responses[-1][2]
            self.msn += 1

    def _atomic(self, p: Packet, control: deque[Outgoing]) -> None:
        eth = unpack_atomic_eth(p.ext)
        view = self.memory.view(eth.rkey, eth.va, 8, write=True)
        if view is None or eth.va % 8:
            self._refuse(NAK_REMOTE_ACCESS if view is None else NAK_INVALID_REQUEST, control)
            return
        old = int.from_bytes(view, "little")
        if p.opcode == Opcode.RC_FETCH_ADD:
            view[:] = (old + eth.swap_add & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
        elif old == eth.compare:
            view[:] = eth.swap_add.to_bytes(8, "little")
        self.msn += 1
        self.saved[self.expected] = old
        if len(self.saved) > _SAVED_ATOMICS:
            self.saved.popitem(last=False)
        self._atomic_answer(self.expected, old, control)
        self.expected += 1

    def _atomic_answer(self, seq: int, old: int, control: deque[Outgoing]) -> None:
        ext = pack_aeth(ACK_NO_CREDITS, self.msn) + pack_atomic_ack_eth(old)
        psn = self.psn0 + seq & 0xFFFFFF
        control.append(
            Outgoing(Opcode.RC_ATOMIC_ACKNOWLEDGE, self.peer_qpn, psn, ext, b"", self.sport, False, TOS_CONTROL)
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
        seq, view, packets = self.responses[0]
        i = self.response_index
        first, last = i == 0, i == packets - 1
        if last:
            self.responses.popleft()
            self.response_index = 0
        else:
            self.response_index = i + 1
        opcode = (
            (Opcode.RC_READ_RESPONSE_ONLY if last else Opcode.RC_READ_RESPONSE_FIRST)
            if first
            else (Opcode.RC_READ_RESPONSE_LAST if last else Opcode.RC_READ_RESPONSE_MIDDLE)
        )
        ext = pack_aeth(ACK_NO_CREDITS, self.msn) if first or last else b""
        payload = view[i * self.mtu : (i + 1) * self.mtu]
        return Outgoing(
            opcode, self.peer_qpn, self.psn0 + seq + i & 0xFFFFFF, ext, payload, self.sport, False, TOS_DATA
        )

    def flush_ack(self, control: deque[Outgoing]) -> None:
        """Send the ACK that waited behind READ responses."""
        if self.ack_owed and not self.responses:
            self._ack(control)

    def _ack(self, control: deque[Outgoing]) -> None:
        if self.responses:
            self.ack_owed = True
            return
        self.ack_owed = False
        self._answer(ACK_NO_CREDITS, self.expected - 1, control)

    def _refuse(self, syndrome: int, control: deque[Outgoing]) -> None:
        self.dead = True
        self._answer(syndrome, self.expected, control)

    def _answer(self, syndrome: int, seq: int, control: deque[Outgoing], msn: int | None = None) -> None:
        self.unacked = 0
        becn = self.opt.echo_ecn and self.ce_seen
        self.ce_seen = False
        ext = pack_aeth(syndrome, self.msn if msn is None else msn)
        psn = self.psn0 + seq & 0xFFFFFF
        control.append(
            Outgoing(Opcode.RC_ACKNOWLEDGE, self.peer_qpn, psn, ext, b"", self.sport, False, TOS_CONTROL, becn)
        )

    def _cnp(self, now: int, control: deque[Outgoing]) -> None:
        if self.opt.cnp_interval_ns <= 0 or now < self.next_cnp:
            return
        self.next_cnp = now + self.opt.cnp_interval_ns
        self.sink.cnp_sent += 1
        control.append(Outgoing(Opcode.CNP, self.peer_qpn, 0, _ZEROS, b"", self.sport, False, TOS_CONTROL, True))

    def next_timer(self) -> int:
        """The responder owns no timer."""
        return NEVER
