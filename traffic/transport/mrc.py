"""MRC, the multipath reliable connection: a sender and a receiver behind one queue pair number, on all paths at once.

Receiver credits (Ultra Ethernet's RCCC and its kin) travel in fields of our own, see `packet/mrc_headers.py`.
"""

from __future__ import annotations

from traffic.congestion.base import CongestionControl, Feedback, ReceiverControl
from traffic.packet.codec import Packet
from traffic.packet.mrc_headers import unpack_nack, unpack_sack
from traffic.packet.opcodes import Opcode
from traffic.transport.base import NEVER, Memory, Outgoing, QueuePair, Sink, WorkRequest
from traffic.transport.mrc_receiver import MrcReceiver
from traffic.transport.mrc_sender import MrcSender
from traffic.transport.options import MrcOptions
from traffic.transport.paths import PathSet


class MrcQueuePair(QueuePair):
    """`paths` picks the entropy value of every packet."""

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
        paths: PathSet,
        options: MrcOptions,
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
        self.overhead = cc.path.wire_mtu_bytes - cc.path.mtu_bytes
        self.sender = MrcSender(
            peer_qpn=peer_qpn, mtu=mtu, psn0=first_psn, cc=cc, paths=paths, options=options, sink=sink, log=self.log
        )
        self.receiver = MrcReceiver(
            mine=qpn,
            peer_qpn=peer_qpn,
            mtu=mtu,
            psn0=peer_first_psn,
            memory=memory,
            options=options,
            sink=sink,
            control=self.control,
            receiving=receiving,
            credit=cc.feedback is Feedback.CREDIT,
        )

    def post(self, work: WorkRequest, now: int) -> None:
        self.sender.post(work, now)
        self._check()
        self._ask(now)

    def ready_at(self, now: int) -> int:
        return NEVER if self.failed is not None else self.sender.ready_at(self.next_send)

    def emit(self, now: int) -> Outgoing:
        packet = self.sender.emit(now)
        self.pace(now, len(packet.payload) + self.overhead)
        self._ask(now)
        return packet

    def receive(self, packet: Packet, now: int, at: int) -> None:
        op = packet.opcode
        if op == Opcode.MRC_SACK:
            self.sender.sacked(unpack_sack(packet.ext), now, at)
            self.last_rtt_ns = self.sender.last_rtt_ns
            self.control.extend(self.sender.doubts(now))
        elif op == Opcode.MRC_NACK:
            self.sender.nacked(unpack_nack(packet.ext), now)
        elif op == Opcode.MRC_PROBE:
            self.receiver.probe(packet, now)
            return
        else:
            self.receiver.data(packet, now, at)
            self._check()
            return
        self._check()
        self._ask(now)

    def _check(self) -> None:
        error = self.sender.error or self.receiver.error
        if error is not None:
            self.fail(*error)

    def grant(self, size: int) -> None:
        self.receiver.grant(size)

    def _ask(self, now: int) -> None:
        if self.sender.asker is not None and (request := self.sender.ask(now)) is not None:
            self.control.append(request)

    def next_timer(self) -> int:
        timer = self.cc.next_timer()
        sender = self.sender
        due = min(
            sender.deadline, sender.doubt_at, sender.prober.quiet_at, sender.paths.next_probe, sender.paths.next_order
        )
        if sender.asker is not None and sender.asker.repeat_at < due:
            due = sender.asker.repeat_at
        return due if timer is None or due < timer else timer

    def expire(self, now: int) -> None:
        timer = self.cc.next_timer()
        if timer is not None and timer <= now:
            self.cc.expired(now=now)
        self.sender.paths.obey(now)
        if self.sender.deadline <= now:
            self.sender.expire(now)
            self._check()
        if self.sender.doubt_at <= now:
            self.control.extend(self.sender.doubts(now))
        if self.sender.prober.quiet_at <= now and self.failed is None:
            self.control.extend(self.sender.silence(now))
        if self.sender.paths.next_probe <= now:
            probe = self.sender.prober.bad_path(now) if not self.idle else None
            if probe is not None:
                self.control.append(probe)
            elif self.idle:
                self.sender.paths.next_probe = NEVER
        self._ask(now)

    @property
    def idle(self) -> bool:
        return self.sender.una >= self.sender.end
