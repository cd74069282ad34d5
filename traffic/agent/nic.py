"""One host's network card: which queue pair sends next, and bytes for its packets.

Control packets leave at once. Data packets share the line round robin among queue pairs that may send; the card hands the
kernel no more than what the line has finished by `until`, so packets wait in the queue pairs (where congestion control can
still change its mind) and not in the host's own queue.
"""

from __future__ import annotations

from traffic.agent.packet_socket import PacketSocket
from traffic.agent.spec import HostRecord
from traffic.packet.codec import WIRE_OVERHEAD_BYTES, FlowTemplate, Packet
from traffic.transport.base import NEVER, Outgoing, QueuePair
from traffic.transport.receiving import ReceivingPort


class Nic:
    """`rate_bps` is the fabric's line rate of the host; `paths` counts packets by (peer rank, UDP source port).

    A loop that wakes late may make good up to `catch_up_ns` of line time; the host's own shaper spaces what it sends then.
    """

    def __init__(self, *, rank: int, rate_bps: int, socket: PacketSocket, record: HostRecord, catch_up_ns: int) -> None:
        self.rank = rank
        self.socket = socket
        self.record = record
        self.ns_per_byte = 8e9 / rate_bps
        self.queue_pairs: list[QueuePair] = []
        self.by_qpn: dict[int, QueuePair] = {}
        self.templates: dict[int, FlowTemplate] = {}
        self.peers: dict[int, int] = {}
        self.free_at = 0.0
        self.catch_up_ns = catch_up_ns
        self.turn = 0
        self.ready = NEVER
        self.timer = NEVER
        self.paths: dict[tuple[int, int], int] = {}
        self.receiving: ReceivingPort | None = None

    def add(self, qp: QueuePair, template: FlowTemplate, peer_rank: int) -> None:
        """Serve a queue pair; `template` makes the frames to its peer."""
        self.queue_pairs.append(qp)
        self.by_qpn[qp.qpn] = qp
        self.templates[qp.qpn] = template
        self.peers[qp.qpn] = peer_rank
        if self.receiving is not None:
            self.receiving.add(qp)

    def receive(self, packet: Packet, now: int, at: int) -> QueuePair | None:
        """Give a packet to its queue pair; None if it is nobody's."""
        qp = self.by_qpn.get(packet.dest_qpn)
        if qp is None:
            self.record.rx_foreign += 1
            return None
        qp.receive(packet, now, at)
        return qp

    def expire(self, now: int) -> list[QueuePair]:
        """Run all timers that are due; the queue pairs that had one."""
        if self.receiving is not None:
            self.receiving.expire(now)
        fired = [qp for qp in self.queue_pairs if qp.next_timer() <= now]
        for qp in fired:
            qp.expire(now)
        return fired

    def transmit(self, now: int, until: int) -> None:
        """Send all control packets, and the data packets whose turn on the line comes before `until`."""
        if self.receiving is not None:
            self.receiving.answer()
        for qp in self.queue_pairs:
            while qp.control:
                self._send(qp, qp.control.popleft(), control=True)
        if self.free_at < now - self.catch_up_ns:
            self.free_at = float(now - self.catch_up_ns)
        pairs = self.queue_pairs
        count = len(pairs)
        while self.free_at <= until:
            for step in range(count):
                qp = pairs[(self.turn + step) % count]
                if qp.ready_at(now) <= until:
                    self.turn = (self.turn + step + 1) % count
                    break
            else:
                break
            packet = qp.emit(now if self.free_at < now else int(self.free_at))
            self._send(qp, packet, control=False)
            while qp.control:
                self._send(qp, qp.control.popleft(), control=True)
        if self.socket.room < self.socket.batch:
            self._flush()
        self.ready = NEVER
        self.timer = NEVER if self.receiving is None else self.receiving.next_timer()
        for qp in pairs:
            ready = qp.ready_at(now)
            if ready < self.ready:
                self.ready = ready
            timer = qp.next_timer()
            if timer < self.timer:
                self.timer = timer
        if self.ready < self.free_at:
            self.ready = int(self.free_at) + 1

    def _send(self, qp: QueuePair, p: Outgoing, *, control: bool) -> None:
        header, trailer = self.templates[qp.qpn].build(
            p.opcode, p.psn, p.ext, p.payload, sport=p.sport, ack_req=p.ack_req, tos=p.tos, becn=p.becn, flags8=p.flags8
        )
        size = self.socket.queue(header, p.payload, trailer)
        self.free_at += (size + WIRE_OVERHEAD_BYTES) * self.ns_per_byte
        record = self.record
        record.tx_packets += 1
        record.tx_bytes += size
        if control:
            record.tx_control += 1
        else:
            record.tx_data += 1
            key = (self.peers[qp.qpn], p.sport)
            self.paths[key] = self.paths.get(key, 0) + 1
        if not self.socket.room:
            self._flush()

    def _flush(self) -> None:
        refused = self.socket.flush()
        self.record.tx_packets -= refused
        self.record.enobufs += refused
