"""The door between the agent and a program's ranks: one socket a rank for words, shared memory for tensors.

Each rank connects to a Unix socket of the agent (they share a file system, not a network namespace). A message is one JSON
object; what it names of memory is a memfd that came with an earlier one (SCM_RIGHTS) and is mapped by both sides.

    rank → agent   {"hello": rank}
                   {"segment": n, "size": bytes} and the descriptor
                   {"call": n, "group": name, "seq": k, "members": [ranks], "place": i, "segment": n, ...signature}
    agent → rank   {"hello": rank, "algorithms": {...}} · {"done": call} · {"failed": call, what, where, remedy}
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traffic.agent.calls import Calls, Part
from traffic.collective.calls import Signature, memory_bytes
from traffic.errors import TrafficError
from traffic.transport.base import Memory

_LONGEST: Final = 1 << 16
_VA: Final = 0x7F00_0000_0000
_VA_STEP: Final = 1 << 40
_FIRST_KEY: Final = 0x1000


@dataclass(slots=True)
class _Segment:
    memory: NDArray[np.uint8]
    va: int
    rkey: int


@dataclass(slots=True)
class _Peer:
    """One connected rank; `rank` is -1 until it has said who it is."""

    sock: socket.socket
    rank: int = -1
    segments: dict[int, _Segment] = field(default_factory=dict)
    unsent: deque[bytes] = field(default_factory=deque)


class RankServer:
    """Listens at `path`. `fd` becomes readable when `serve` has something to do; it never blocks.

    `more` are further descriptors to watch, each with what to do when it can be read (the launcher's orders).
    """

    def __init__(
        self,
        path: Path,
        calls: Calls,
        memories: list[Memory],
        algorithms: Mapping[str, str],
        more: Mapping[int, Callable[[], None]],
    ) -> None:
        self.calls = calls
        self.memories = memories
        self.algorithms = dict(algorithms)
        self.more = dict(more)
        self._keys = _FIRST_KEY
        self._peers: dict[int, _Peer] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        for number in (self._listener.fileno(), *self.more):
            self._epoll.register(number, select.EPOLLIN)

    def serve(self, now: int) -> None:
        """Take everything that waits, at fabric time `now`."""
        for number, mask in self._epoll.poll(0):
            if number == self._listener.fileno():
                self._accept()
            elif number in self.more:
                self.more[number]()
            else:
                self._peer(self._peers[number], mask, now)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            self._peers[sock.fileno()] = _Peer(sock)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _peer(self, peer: _Peer, mask: int, now: int) -> None:
        if mask & select.EPOLLOUT:
            self._flush(peer)
        while mask & (select.EPOLLIN | select.EPOLLHUP):
            try:
                data, fds, _, _ = socket.recv_fds(peer.sock, _LONGEST, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, fds = b"", []
            if not data:
                self._drop(peer, now)
                return
            self._message(peer, json.loads(data), fds, now)

    def _drop(self, peer: _Peer, now: int) -> None:
        number = peer.sock.fileno()
        self._epoll.unregister(number)
        del self._peers[number]
        peer.sock.close()
        if peer.rank >= 0 and not any(other.rank == peer.rank for other in self._peers.values()):
            self.calls.leave(peer.rank, now)

    def _message(self, peer: _Peer, message: dict[str, Any], fds: list[int], now: int) -> None:
        if "hello" in message:
            peer.rank = int(message["hello"])
            self._say(peer, {"hello": peer.rank, "algorithms": self.algorithms})
        elif "segment" in message and fds:
            self._map(peer, int(message["segment"]), int(message["size"]), fds[0])
        elif "call" in message:
            self._call(peer, message, now)

    def _map(self, peer: _Peer, name: int, size: int, fd: int) -> None:
        """Map a rank's segment and register it with its host's memory, so that the wire can reach it."""
        try:
            memory = np.frombuffer(mmap.mmap(fd, size), dtype=np.uint8)
        finally:
            os.close(fd)
        self._keys += 1
        segment = _Segment(memory, _VA + _VA_STEP * (self._keys - _FIRST_KEY), self._keys)
        peer.segments[name] = segment
        self.memories[self.calls.host_of[peer.rank]].register(segment.rkey, segment.va, memory.data)

    def _call(self, peer: _Peer, message: dict[str, Any], now: int) -> None:
        number = int(message["call"])

        def answer(_at: int, error: TrafficError | None) -> None:
            if error is None:
                self._say(peer, {"done": number})
            else:
                told = {"what": error.what, "where": error.where, "remedy": error.remedy}
                self._say(peer, {"failed": number, **told})

        try:
            signature = Signature(**message["signature"])
            need = memory_bytes(signature)
            segment = peer.segments.get(int(message["segment"]))
            if segment is None or len(segment.memory) < need:
                raise TrafficError(f"no segment of {need} bytes", where=f"rank {peer.rank}", remedy="report this")
            key = (message["group"], message["seq"])
            part = Part(segment.memory[:need], segment.va, segment.rkey, answer, now)
            self.calls.join(key, message["members"], int(message["place"]), signature, part, now)
        except TrafficError as error:
            answer(now, error)

    def _say(self, peer: _Peer, message: Mapping[str, Any]) -> None:
        peer.unsent.append(json.dumps(message).encode())
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        while peer.unsent and peer.sock.fileno() >= 0:
            try:
                peer.sock.send(peer.unsent[0])
            except BlockingIOError:
                self._epoll.modify(peer.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
                return
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                    raise
                peer.unsent.clear()  # it is gone; its end of the socket says so next
                return
            peer.unsent.popleft()
        if peer.sock.fileno() >= 0:
            self._epoll.modify(peer.sock.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """Close all sockets."""
        for peer in self._peers.values():
            peer.sock.close()
        self._listener.close()
        self._epoll.close()
