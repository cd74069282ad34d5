"""One host's network card: which queue pair sends next, and bytes for its packets.

Control packets leave at once. Data packets share the line round robin among queue pairs that may send; the card hands the
kernel no more than what the line has finished by `until`, so packets wait in the queue pairs (where congestion control can
still change its mind) and not in the host's own queue.
"""

from __future__ import annotations

from collections import defaultdict, deque

from traffic.agent.packet_socket import PacketSocket
from traffic.agent.spec import HostRecord
from traffic.packet.codec import WIRE_OVERHEAD_BYTES, FlowTemplate, Packet
from traffic.transport.base import NEVER, Outgoing, QueuePair
from traffic.transport.receiving import ReceivingPort


class _Lane:
    """A queue pair on the card. `ready` and `timer` are its answers of the last time it was asked; `stale` says: ask again."""

    __slots__ = ("number", "peer", "ports", "qp", "ready", "stale", "template", "timer")

    def __init__(self, number: int, qp: QueuePair, template: FlowTemplate, peer: int) -> None:
        self.number = number
        self.qp = qp
        self.template = template
        self.peer = peer
        self.ports: defaultdict[int, int] = defaultdict(int)
        self.ready = NEVER
        self.timer = NEVER
        self.stale = True


class Nic:
    """`rate_bps` is the fabric's line rate of the host.

    A loop that wakes late may make good up to `catch_up_ns` of line time; the host's own shaper spaces what it sends then.
    """

    def __init__(self, *, rank: int, rate_bps: int, socket: PacketSocket, record: HostRecord, catch_up_ns: int) -> None:
        self.rank = rank
        self.socket = socket
        self.record = record
        self.ns_per_byte = 8e9 / rate_bps
        self.lanes: list[_Lane] = []
        self.by_qpn: dict[int, _Lane] = {}
        self.free_at = 0.0
        self.catch_up_ns = catch_up_ns
        self.turn = 0
        self.ready = NEVER
        self.timer = NEVER
        self.receiving: ReceivingPort | None = None

    def add(self, qp: QueuePair, template: FlowTemplate, peer_rank: int) -> None:
        """Serve a queue pair; `template` makes the frames to its peer."""
        lane = _Lane(len(self.lanes), qp, template, peer_rank)
        self.lanes.append(lane)
        self.by_qpn[qp.qpn] = lane
        if self.receiving is not None:
            self.receiving.add(qp)

    @property
    def paths(self) -> dict[tuple[int, int], int]:
        """Data packets sent by (peer rank, UDP source port)."""
        total: defaultdict[tuple[int, int], int] = defaultdict(int)
        for lane in self.lanes:
            for port, count in lane.ports.items():
                total[lane.peer, port] += count
        return total

    def wake(self) -> None:
        """Something may have changed for any queue pair (work was posted, a timer fired): ask all of them."""
        for lane in self.lanes:
            lane.stale = True
        self.ready = 0

    def receive(self, packet: Packet, now: int, at: int) -> QueuePair | None:
        """Give a packet to its queue pair; None if it is nobody's."""
        lane = self.by_qpn.get(packet.dest_qpn)
        if lane is None:
            self.record.rx_foreign += 1
            return None
        lane.qp.receive(packet, now, at)
        lane.stale = True
        self.ready = 0
        return lane.qp

    def expire(self, now: int) -> list[QueuePair]:
        """Run all timers that are due; the queue pairs that had one."""
        if self.receiving is not None:
            self.receiving.expire(now)
        fired = [lane.qp for lane in self.lanes if (lane.qp.next_timer() if lane.stale else lane.timer) <= now]
        for qp in fired:
            qp.expire(now)
        self.wake()
        return fired

    def transmit(self, now: int, until: int) -> None:
        """Send all control packets, and the data packets whose turn on the line comes before `until`."""
        if self.receiving is not None:
            self.receiving.answer()
        for lane in self.lanes:
            if lane.qp.control:
                self._send_control(lane)
            if lane.stale:
                lane.ready = lane.qp.ready_at(now)
        if self.free_at < now - self.catch_up_ns:
            self.free_at = float(now - self.catch_up_ns)
        if self.free_at <= until:
            self._share_line(now, until)
        self._flush()
        self._look_ahead()

    def _share_line(self, now: int, until: int) -> None:
        """Data packets round robin, from the queue pair whose turn it is."""
        turn = self.turn
        waiting = deque(lane for lane in self.lanes[turn:] + self.lanes[:turn] if lane.ready <= until)
        while waiting and self.free_at <= until:
            lane = waiting.popleft()
            self._send_data(lane, now if self.free_at < now else int(self.free_at))
            lane.ready = lane.qp.ready_at(now)
            lane.stale = True
            if lane.ready <= until:
                waiting.append(lane)
            self.turn = (lane.number + 1) % len(self.lanes)

    def _look_ahead(self) -> None:
        """When the card must act again: `ready` to send, `timer` to expire."""
        self.ready = NEVER
        self.timer = NEVER if self.receiving is None else self.receiving.next_timer()
        for lane in self.lanes:
            if lane.stale:
                lane.timer = lane.qp.next_timer()
                lane.stale = False
            if lane.ready < self.ready:
                self.ready = lane.ready
            if lane.timer < self.timer:
                self.timer = lane.timer
        if self.ready < self.free_at:
            self.ready = int(self.free_at) + 1

    def _send_control(self, lane: _Lane) -> None:
        control = lane.qp.control
        while control:
            self._send(lane, control.popleft())
            self.record.tx_control += 1

    def _send_data(self, lane: _Lane, now: int) -> None:
        packet = lane.qp.emit(now)
        self._send(lane, packet)
        self.record.tx_data += 1
        lane.ports[packet.sport] += 1
        if lane.qp.control:
            self._send_control(lane)

    def _send(self, lane: _Lane, p: Outgoing) -> None:
        socket = self.socket
        if socket.pending == socket.batch:
            self._flush()
        size = lane.template.write(
            socket.slot(), p.opcode, p.psn, p.ext, p.payload, p.sport, p.ack_req, p.tos, p.becn, p.flags8
        )
        socket.queue(size)
        self.free_at += (size + WIRE_OVERHEAD_BYTES) * self.ns_per_byte

    def _flush(self) -> None:
        socket = self.socket
        if socket.pending:
            self.record.tx_packets += socket.pending
            self.record.tx_bytes += socket.pending_bytes
            refused = socket.flush()
            self.record.tx_packets -= refused
            self.record.enobufs += refused
