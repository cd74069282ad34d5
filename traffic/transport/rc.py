"""RC, the reliable connection of RoCE v2: a requester and a responder behind one queue pair number, on one path.

Receiver credits, which no standard carries over RC, travel in small messages of our own (opcode CREDIT,
`packet/headers.py`): the requester asks for a total, the responder's side answers with the total granted.
"""

from __future__ import annotations

from typing import Final

from traffic.congestion.base import CongestionControl, Feedback, ReceiverControl
from traffic.packet.codec import Packet
from traffic.packet.headers import pack_creth, unpack_aeth, unpack_creth
from traffic.packet.opcodes import Opcode
from traffic.transport.base import NEVER, TOS_CONTROL, Memory, Outgoing, QueuePair, Sink, WorkRequest
from traffic.transport.credit import CreditAsker, CreditGiver
from traffic.transport.options import RcOptions
from traffic.transport.rc_requester import Requester
from traffic.transport.rc_responder import Responder

_RESPONSES: Final = frozenset(range(Opcode.RC_READ_RESPONSE_FIRST, Opcode.RC_ATOMIC_ACKNOWLEDGE + 1)) - {
    Opcode.RC_ACKNOWLEDGE
}
_CNP_RESERVED: Final = bytes(16)


class RcQueuePair(QueuePair):
    """`sport` is the queue pair's one UDP source port, so ECMP keeps it on one path.

    Rate, window and credit bind requests; READ responses obey the rate alone.
    """

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
        receiving: ReceiverControl | None = None,
    ) -> None:
        super().__init__(
            qpn=qpn,
            peer_qpn=peer_qpn,
            label=label,
            mtu=mtu,
            cc=cc,
            memory=memory,
            sink=sink,
            first_psn=first_psn,
            receiving=receiving,
        )
        self.sport = sport
        self.overhead = cc.path.wire_mtu_bytes - cc.path.mtu_bytes
        self.requester = Requester(
            peer_qpn=peer_qpn,
            sport=sport,
            mtu=mtu,
            psn0=first_psn,
            cc=cc,
            options=options,
            sink=sink,
            log=self.log,
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
        self.asker: CreditAsker | None = None
        if cc.feedback is Feedback.CREDIT:
            self.asker = CreditAsker(cc, repeat_ns=options.timeout_ns, step_bytes=options.ack_every * mtu)
        self.giver = CreditGiver()

    def post(self, work: WorkRequest, now: int) -> None:
        self.requester.post(work, now)
        self._ask(now)

    def ready_at(self, now: int) -> int:
        if self.failed is not None:
            return NEVER
        if self.responder.responses:
            return self.next_send
        return self.requester.ready_at(self.next_send)

    def emit(self, now: int) -> Outgoing:
        if self.responder.responses:
            packet = self.responder.next_response()
            self.responder.release(self.control)
        else:
            packet = self.requester.emit(now)
        size = len(packet.payload)
        self.cc.sent(now=now, size=size)
        self.pace(now, size + self.overhead)
        self._ask(now)
        return packet

    def receive(self, packet: Packet, now: int, at: int) -> None:
        if packet.trimmed:
            return  # RC knows no trimming: a frame without a good ICRC
        op = packet.opcode
        if op == Opcode.RC_ACKNOWLEDGE:
            self.requester.acknowledge(packet.psn, unpack_aeth(packet.ext), packet.becn, now, at)
        elif op == Opcode.CNP:
            self.cc.marked(now=now)
        elif op == Opcode.CREDIT:
            self._credit(packet, now)
        elif op in _RESPONSES:
            self.requester.response(op, packet.psn, packet.ext, packet.payload, now, at)
        else:
            if self.receiving is not None:
                self.receiving.arrived(
                    now=now,
                    qp=self.qpn,
                    size=len(packet.payload),
                    ce=packet.ecn == 3,
                    credit_target=self.giver.target,
                )
            self.responder.request(packet, now, at, self.control)
            return
        self.last_rtt_ns = self.requester.last_rtt_ns
        self._check()
        self._ask(now)

    def _check(self) -> None:
        if self.requester.error is not None and self.failed is None:
            self.requester.deadline = NEVER
            self.fail(*self.requester.error)

    def notify(self) -> None:
        self.sink.cnp_sent += 1
        self.control.append(
            Outgoing(Opcode.CNP, self.peer_qpn, 0, _CNP_RESERVED, b"", self.sport, False, TOS_CONTROL, True)
        )

    # -- credits -------------------------------------------------------------------------------------------------------

    def grant(self, size: int) -> None:
        self.giver.bytes += size
        self._send_credit(grant=True, total=self.giver.total)

    def _ask(self, now: int) -> None:
        if self.asker is not None:
            total = self.asker.ask(now, self.requester.backlog)
            if total is not None:
                self._send_credit(grant=False, total=total)

    def _credit(self, packet: Packet, now: int) -> None:
        grant, total = unpack_creth(packet.ext)
        if grant:
            if self.asker is not None:
                self.asker.credited(total, now)
        elif self.receiving is not None:
            news = self.giver.asked(total)
            self.receiving.requested(now=now, qp=self.qpn, credit_target=self.giver.target)
            if not news:  # asked again: perhaps a grant was lost
                self._send_credit(grant=True, total=self.giver.total)

    def _send_credit(self, *, grant: bool, total: int) -> None:
        ext = pack_creth(grant=grant, total=total)
        self.control.append(Outgoing(Opcode.CREDIT, self.peer_qpn, 0, ext, b"", self.sport, False, TOS_CONTROL))

    # -- timers --------------------------------------------------------------------------------------------------------

    def next_timer(self) -> int:
        timer = self.cc.next_timer()
        due = self.requester.deadline
        if self.asker is not None and self.asker.repeat_at < due:
            due = self.asker.repeat_at
        return due if timer is None or due < timer else timer

    def expire(self, now: int) -> None:
        timer = self.cc.next_timer()
        if timer is not None and timer <= now:
            self.cc.expired(now=now)
        if self.requester.deadline <= now:
            self.requester.expire(now)
            self._check()
        self._ask(now)

    @property
    def idle(self) -> bool:
        return self.requester.una >= self.requester.end and not self.responder.responses
