"""UD, the unreliable datagram: one SEND, one packet, to any queue pair whose Q_Key it names.

A packet with another Q_Key, or one there is no receive buffer for, is dropped without a word (InfiniBand volume 1,
9.8.3; Linux rxe_recv.c, check_keys).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from traffic.congestion.base import CongestionControl
from traffic.packet.codec import Packet
from traffic.packet.headers import pack_deth, pack_immdt, unpack_deth, unpack_immdt
from traffic.packet.opcodes import Opcode
from traffic.transport.base import NEVER, TOS_DATA, Delivery, Memory, Outgoing, QueuePair, Sink, Verb, WorkRequest

_OPCODES: Final = {Verb.SEND: Opcode.UD_SEND_ONLY, Verb.SEND_IMM: Opcode.UD_SEND_ONLY_IMM}


class UdQueuePair(QueuePair):
    """`qkey` is this end's own; a work request is sent with its `rkey` as Q_Key. Only the rate of `cc` binds."""

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
        qkey: int,
        sport: int,
    ) -> None:
        super().__init__(
            qpn=qpn, peer_qpn=peer_qpn, label=label, mtu=mtu, cc=cc, memory=memory, sink=sink, first_psn=first_psn
        )
        self.qkey = qkey
        self.sport = sport
        self.recv_buffers: deque[memoryview] = deque()
        self.pending: deque[WorkRequest] = deque()
        self.nxt = 0

    def post(self, work: WorkRequest, now: int) -> None:
        if work.verb not in _OPCODES:
            self.fail(f"UD has no {work.verb.name}", "use SEND, or RC")
        elif len(work.local) > self.mtu:
            self.fail(f"a datagram of {len(work.local)} bytes on an MTU of {self.mtu}", "send less, or use UC or RC")
        else:
            work.packets, work.posted_ns = 1, now
            self.pending.append(work)

    def ready_at(self, now: int) -> int:
        return self.next_send if self.pending else NEVER

    def emit(self, now: int) -> Outgoing:
        work = self.pending.popleft()
        work.first, work.sent = self.nxt, 1
        self.nxt += 1
        self.sink.completed.append((work, now))
        ext = pack_deth(work.rkey, self.qpn)
        if work.verb is Verb.SEND_IMM:
            ext += pack_immdt(work.imm)
        self.cc.sent(now=now, size=len(work.local))
        self.pace(now, len(work.local) + self.cc.path.wire_mtu_bytes - self.cc.path.mtu_bytes)
        psn = self.psn0 + work.first & 0xFFFFFF
        return Outgoing(_OPCODES[work.verb], self.peer_qpn, psn, ext, work.local, self.sport, False, TOS_DATA)

    def receive(self, packet: Packet, now: int, at: int) -> None:
        size = len(packet.payload)
        if packet.opcode not in _OPCODES.values() or unpack_deth(packet.ext).qkey != self.qkey:
            return
        if not self.recv_buffers or size > len(self.recv_buffers[0]):
            return
        self.recv_buffers.popleft()[:size] = packet.payload
        imm = packet.opcode == Opcode.UD_SEND_ONLY_IMM
        verb, value = (Verb.SEND_IMM, unpack_immdt(packet.ext, 8)) if imm else (Verb.SEND, 0)
        self.sink.delivered.append(Delivery(self.qpn, verb, value, size, at, int(packet.ecn == 3), 0, 0))

    def next_timer(self) -> int:
        timer = self.cc.next_timer()
        return NEVER if timer is None else timer

    def expire(self, now: int) -> None:
        if self.next_timer() <= now:
            self.cc.expired(now=now)

    @property
    def idle(self) -> bool:
        return not self.pending
