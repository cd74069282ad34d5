"""A pure wire between two queue pairs: real bytes through the codec, a delay, and a say in what is lost."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from traffic.packet.codec import FlowTemplate, Packet, parse
from traffic.packet.dscp import CONTROL, DATA, ECT0, tos
from traffic.transport.base import NEVER, Outgoing, QueuePair
from traffic.transport.receiving import ReceivingPort

DELAY_NS = 1_000
PACKET_NS = 330
Fate = Callable[[int, Packet], "Packet | None"]


class Wire:
    """`fate(n, packet)` sees every packet in order of sending and returns what arrives, or None to lose it.

    With `in_order` packets of one entropy value and class arrive as they were sent, whatever `jitter(n)` adds: real paths.
    """

    def __init__(
        self,
        a: QueuePair,
        b: QueuePair,
        fate: Fate = lambda n, p: p,
        jitter: Callable[[int], int] = lambda n: 0,
        *,
        in_order: bool = False,
    ):
        self.ends = (a, b)
        self.ports: list[ReceivingPort] = []
        for qp in self.ends:
            if qp.receiving is not None:
                self.ports.append(ReceivingPort(qp.receiving))
                self.ports[-1].add(qp)
        self.fate = fate
        self.jitter = jitter
        self.in_order = in_order
        self.last: dict[tuple[int, int, int], int] = {}
        self.now = 0
        self.count = 0
        self.log: list[Packet] = []
        self.queue: list[tuple[int, int, int, bytes]] = []
        macs = ("02:00:00:00:00:01", "02:00:00:00:00:02")
        ips = ("10.0.0.0", "10.0.0.1")
        self.templates = [
            FlowTemplate(
                src_mac=macs[i],
                dst_mac=macs[1 - i],
                src_ip=ips[i],
                dst_ip=ips[1 - i],
                dest_qpn=self.ends[1 - i].qpn,
                tos=106,
            )
            for i in (0, 1)
        ]

    def _send(self, end: int, p: Outgoing) -> None:
        header, trailer = self.templates[end].build(
            p.opcode, p.psn, p.ext, p.payload, sport=p.sport, ack_req=p.ack_req, tos=p.tos, becn=p.becn, flags8=p.flags8
        )
        frame = header + bytes(p.payload) + trailer
        packet = parse(frame)
        assert packet is not None and packet.icrc_ok
        assert p.tos == tos(DATA, ECT0) or p.tos == tos(CONTROL)
        self.log.append(packet)
        arrives = self.fate(self.count, packet)
        if arrives is not None:
            at = self.now + DELAY_NS + self.jitter(self.count)
            if self.in_order:
                at = self.last[end, p.sport, p.tos] = max(at, self.last.get((end, p.sport, p.tos), 0))
            heapq.heappush(self.queue, (at, self.count, 1 - end, arrives))  # type: ignore[misc]
        self.count += 1

    def run(self, limit_ns: int = 1_000_000_000) -> int:
        """Until both ends are idle and nothing is on the wire; the time it took."""
        while self.now < limit_ns:
            for port in self.ports:
                port.expire(self.now)
                port.answer()
            for i, qp in enumerate(self.ends):
                if qp.next_timer() <= self.now:
                    qp.expire(self.now)
                while qp.control:
                    self._send(i, qp.control.popleft())
                if qp.ready_at(self.now) <= self.now:
                    self._send(i, qp.emit(self.now))
                while qp.control:
                    self._send(i, qp.control.popleft())
            if any(qp.failed for qp in self.ends):
                return self.now
            if all(qp.idle for qp in self.ends) and not self.queue:
                return self.now
            busy = any(qp.ready_at(self.now) <= self.now + PACKET_NS for qp in self.ends)
            timers = [q.next_timer() for q in self.ends] + [p.next_timer() for p in self.ports]
            if not busy:
                timers += [q.ready_at(self.now) for q in self.ends]
            due = min(*timers, self.queue[0][0] if self.queue else NEVER)
            self.now = min(max(due, self.now), self.now + PACKET_NS) if busy else max(self.now, due)
            if not busy and due >= NEVER:
                return self.now
            if busy and due <= self.now and not self.queue:
                self.now += PACKET_NS
            while self.queue and self.queue[0][0] <= self.now:
                _, _, end, packet = heapq.heappop(self.queue)
                self.ends[end].receive(packet, self.now, self.now)  # type: ignore[arg-type]
                for port in self.ports:
                    port.answer()
        raise AssertionError("the wire did not come to rest")
