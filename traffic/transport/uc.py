"""UC, the unreliable connection: SEND and WRITE in order, no acknowledgement, a broken message is dropped whole.

Rules as Linux's Soft-RoCE applies them (rxe_resp.c, check_psn): a packet out of sequence, or one there is no room
for, drops the rest of its message; the next first or only packet begins anew.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from traffic.congestion.base import CongestionControl
from traffic.packet.codec import Packet
from traffic.packet.opcodes import Opcode
from traffic.transport.base import NEVER, TOS_DATA, Delivery, Memory, Outgoing, QueuePair, Sink, Verb, WorkRequest
from traffic.transport.message import STARTS, Assembly, Step, packets_of, segment

_UC: Final = Opcode.UC_SEND_FIRST - Opcode.RC_SEND_FIRST


class UcQueuePair(QueuePair):
    """Both halves; a work request is complete when its last packet has left. Only the rate of `cc` binds."""

    def __init__(
        self,
        *,
        qpn: int,
        peer_qpn: int,
        label: str,
        mtu: int,
        cc: CongestionControl,
        memory: Memory,
        sink: Sink,
        first_psn: int,
        peer_first_psn: int,
        sport: int,
    ) -> None:
        super().__init__(
            qpn=qpn, peer_qpn=peer_qpn, label=label, mtu=mtu, cc=cc, memory=memory, sink=sink, first_psn=first_psn
        )
        self.sport = sport
        self.work: list[WorkRequest] = []
        self.firsts: list[int] = []
        self.nxt = self.end = 0
        self.assembly = Assembly(memory, mtu, None)
        self.expected = peer_first_psn
        self.dropping = False
        self.ce = 0

    def post(self, work: WorkRequest, now: int) -> None:
        if work.verb not in (Verb.SEND, Verb.SEND_IMM, Verb.WRITE, Verb.WRITE_IMM):
            self.fail(f"UC has no {work.verb.name}", "use SEND or WRITE, or RC")
            return
        work.first, work.posted_ns = self.end, now
        work.packets = packets_of(len(work.local), self.mtu)
        self.end += work.packets
        self.work.append(work)
        self.firsts.append(work.first)

    def ready_at(self, now: int) -> int:
        return self.next_send if self.nxt < self.end else NEVER

    def emit(self, now: int) -> Outgoing:
        seq = self.nxt
        self.nxt += 1
        work = self.work[bisect_right(self.firsts, seq) - 1]
        opcode, ext, payload = segment(work, seq - work.first, self.mtu)
        work.sent += 1
        if work.sent == work.packets:
            self.sink.completed.append((work, now))
        self.cc.sent(now=now, size=len(payload))
        self.pace(now, len(payload) + self.cc.path.wire_mtu_bytes - self.cc.path.mtu_bytes)
        psn = self.psn0 + seq & 0xFFFFFF
        return Outgoing(opcode + _UC, self.peer_qpn, psn, ext, payload, self.sport, False, TOS_DATA)

    def receive(self, packet: Packet, now: int, at: int) -> None:
        opcode = packet.opcode - _UC
        self.ce += packet.ecn == 3
        if (self.dropping or packet.psn != self.expected) and opcode not in STARTS:
            self.dropping = True
            return
        if opcode in STARTS:  # also where the message before it was left unfinished
            self.dropping = False
            self.assembly.drop()
        self.expected = packet.psn + 1 & 0xFFFFFF
        step = self.assembly.take(opcode, packet)
        if step is Step.DONE:
            done = self.assembly
            self.sink.delivered.append(Delivery(self.qpn, done.verb, done.imm, done.offset, at, self.ce, 0, 0))
            self.ce = 0
        elif step is not Step.PLACED:
            self.assembly.drop()
            self.dropping = True
            self.log.note(now, "dropped message", why=step.value)

    def next_timer(self) -> int:
        timer = self.cc.next_timer()
        return NEVER if timer is None else timer

    def expire(self, now: int) -> None:
        if self.next_timer() <= now:
            self.cc.expired(now=now)

    @property
    def idle(self) -> bool:
        return self.nxt >= self.end
