"""Kernel TCP connections for every pair of hosts that exchange moves; ports come from the seed, so that paths repeat."""

from __future__ import annotations

import socket

from traffic.agent import tcp_socket
from traffic.agent.spec import WorkerSpec
from traffic.errors import TrafficError
from traffic.packet.opcodes import SPORT_MIN
from traffic.rng import Rng
from traffic.transport.base import Memory, WorkRequest
from traffic.transport.tcp import Inbox, Outbox, TcpInfo

_PORTS = 0x4000


class TcpConnection:
    """Both ends of one connection. `sock` sends, `peer` receives; bytes go one way only, acknowledgements the other."""

    def __init__(
        self, *, number: int, src: int, dst: int, label: str, sport: int, sock: socket.socket, peer: socket.socket,
        memory: Memory, first: TcpInfo, dirty: list[TcpConnection],
    ) -> None:  # fmt: skip
        self.number = number
        self.src = src
        self.dst = dst
        self.label = label
        self.sport = sport
        self.sock = sock
        self.peer = peer
        self.outbox = Outbox()
        self.inbox = Inbox(memory, label)
        self.flow = -1
        self.first = first
        """The sender's state before the first byte."""
        self.counted = first
        """The state whose counts have been given to moves."""
        self.last_work: WorkRequest | None = None
        self.room = tcp_socket.NOT_SENT
        """Bytes that the kernel surely takes."""
        self.blocked = False
        """Whether epoll is asked to tell when there is room again."""
        self._dirty = dirty

    @property
    def sender(self) -> TcpConnection:
        """The end that sends, for the job."""
        return self

    @property
    def idle(self) -> bool:
        """Whether everything posted was acknowledged."""
        return not self.outbox.waiting and not self.outbox.flying

    def post(self, work: WorkRequest, now: int) -> None:
        """Queue a message; the event loop hands it over."""
        self.outbox.post(work)
        self._dirty.append(self)


class TcpConnector:
    """Opens listeners at every host that receives, and connections to them."""

    def __init__(self, spec: WorkerSpec, memories: list[Memory]) -> None:
        self.spec = spec
        self.memories = memories
        self.connections: list[TcpConnection] = []
        self.dirty: list[TcpConnection] = []
        """Connections that got something to send."""
        self._listeners: dict[int, socket.socket] = {}
        self._ports: dict[int, set[int]] = {}

    def connect(self, src: int, dst: int, index: int) -> TcpConnection:
        """One connection from `src` to `dst`, made and checked."""
        spec, t = self.spec, self.spec.transport
        a, b = spec.hosts[src], spec.hosts[dst]
        label = f"{a.name}>{b.name}" + (f"#{index}" if index else "")
        if dst not in self._listeners:
            self._listeners[dst] = tcp_socket.listen(b.netns, b.ip, t.cc, t.mtu)
        sport = self._port(src, dst, index)
        sock, peer = tcp_socket.connect(a.netns, a.ip, sport, self._listeners[dst], t.cc, t.mtu)
        try:
            first = tcp_socket.check(sock, label, t.cc, t.mtu, ecn=t.options["ecn"])
        except TrafficError:
            sock.close()
            peer.close()
            raise
        made = TcpConnection(
            number=len(self.connections), src=src, dst=dst, label=label, sport=sport, sock=sock, peer=peer,
            memory=self.memories[dst], first=first, dirty=self.dirty,
        )  # fmt: skip
        self.connections.append(made)
        return made

    def _port(self, src: int, dst: int, index: int) -> int:
        """A source port of the host that no other connection of it has."""
        taken = self._ports.setdefault(src, set())
        rng = Rng(self.spec.seed, "tcp port", src, dst, index)
        while (port := SPORT_MIN + rng.below(_PORTS)) in taken:
            pass
        taken.add(port)
        return port

    def close_listeners(self) -> None:
        """All connections are made."""
        for sock in self._listeners.values():
            sock.close()
        self._listeners.clear()

    def close(self) -> None:
        """Close everything that is still open."""
        self.close_listeners()
        for c in self.connections:
            for sock in (c.sock, c.peer):
                if sock.fileno() >= 0:
                    tcp_socket.reset(sock)
