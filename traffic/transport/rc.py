"""RC, the reliable connection of RoCE v2: a requester and a responder behind one queue pair number, on one path."""

from __future__ import annotations

from traffic.congestion.base import CongestionControl
from traffic.packet.codec import Packet
from traffic.packet.headers import unpack_aeth
from traffic.packet.opcodes import Opcode
from traffic.transport.base import NEVER, Memory, Outgoing, QueuePair, Sink, WorkRequest
from traffic.transport.rc_requester import RcOptions, Requester
from traffic.transport.rc_responder import Responder

_RESPONSES = frozenset(range(Opcode.RC_READ_RESPONSE_FIRST, Opcode.RC_ATOMIC_ACKNOWLEDGE + 1)) - {Opcode.RC_ACKNOWLEDGE}


class RcQueuePair(QueuePair):
    """`sport` is the queue pair's one UDP source port, so ECMP keeps it on one path."""

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
        options: RcOptions,
    ) -> None:
        super().__init__(
            qpn=qpn, peer_qpn=peer_qpn, label=label, mtu=mtu, cc=cc, memory=memory, sink=sink, first_psn=first_psn
        )
        self.sport = sport
        self.requester = Requester(
            peer_qpn=peer_qpn, sport=sport, mtu=mtu, psn0=first_psn, cc=cc, options=options, sink=sink
        )
        self.responder = Responder(
            mine=qpn,
            peer_qpn=peer_qpn,
            sport=sport,
            mtu=mtu,
            psn0=peer_first_psn,
            memory=memory,
            options=options,
            sink=sink,
        )

    def post(self, work: WorkRequest, now: int) -> None:
        self.requester.post(work, now)

    def ready_at(self, now: int) -> int:
        if self.failed is not None:
            return NEVER
        if self.responder.responses:
            return self.next_send
        return self.requester.ready_at(self.next_send)

    def emit(self, now: int) -> Outgoing:
        if self.responder.responses:
            packet = self.responder.next_response()
            self.responder.flush_ack(self.control)
        else:
            packet = self.requester.emit(now)
        size = len(packet.payload)
        self.cc.sent(now=now, size=size)
        self.pace(now, size + self.path_overhead)
        return packet

    @property
    def path_overhead(self) -> int:
        """Wire bytes of a full packet beside its payload."""
        return self.cc.path.wire_mtu_bytes - self.cc.path.mtu_bytes

    def receive(self, packet: Packet, now: int, at: int) -> None:
        op = packet.opcode
        if op == Opcode.RC_ACKNOWLEDGE:
            self.requester.acknowledge(packet.psn, unpack_aeth(packet.ext), packet.becn, now, at)
        elif op == Opcode.CNP:
            self.cc.marked(now=now)
        elif op in _RESPONSES:
            self.requester.response(op, packet.psn, packet.ext, packet.payload, now, at)
        else:
            self.responder.request(packet, now, at, self.control)
            return
        self.last_rtt_ns = self.requester.last_rtt_ns
        self._check()

    def _check(self) -> None:
        if self.requester.error is not None and self.failed is None:
            self.fail(*self.requester.error)

    def next_timer(self) -> int:
        timer = self.cc.next_timer()
        deadline = self.requester.deadline
        return deadline if timer is None or deadline < timer else timer

    def expire(self, now: int) -> None:
        timer = self.cc.next_timer()
        if timer is not None and timer <= now:
            self.cc.expired(now=now)
        if self.requester.deadline <= now:
            self.note(now, "timeout", una=self.requester.una, sent=self.requester.high)
            self.requester.expire(now)
            self._check()

    @property
    def idle(self) -> bool:
        return self.requester.una >= self.requester.end and not self.responder.responses
