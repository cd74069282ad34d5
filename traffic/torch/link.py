"""A rank's way to its agent: a Unix socket for words, shared memory for tensors (see `traffic.agent.rank_server`)."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import mmap
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from traffic.collective.calls import Signature, memory_bytes
from traffic.errors import TrafficError

ADDRESS: Final = "FABRICLAB_AGENT"
"""The environment variable with the agent's socket."""
_SMALLEST: Final = 1 << 16
_LONGEST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that rank and agent share; `memory` is at least as long as was asked for."""

    name: int
    memory: mmap.mmap


Done = Callable[[Segment, TrafficError | None], None]


class AgentLink:
    """One a process. Calls return at once; `done` is called in the link's own thread when the agent has answered.

    Segments are kept and used again: mapping one is dear, copying into it is not.
    """

    def __init__(self, address: str, rank: int) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._sock.connect(address)
        except OSError as error:
            raise TrafficError(
                f"the agent does not answer: {error.strerror}",
                where=address,
                remedy="start the program with `fabriclab exec`",
            ) from error
        self.rank = rank
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._free: dict[int, list[Segment]] = {}
        self._open: dict[int, tuple[Segment, Done]] = {}
        self._error: TrafficError | None = None
        self._sock.send(json.dumps({"hello": rank}).encode())
        self.algorithms: dict[str, str] = json.loads(self._sock.recv(_LONGEST))["algorithms"]
        self._thread = threading.Thread(target=self._listen, name="fabriclab-agent", daemon=True)
        self._thread.start()
        # PyTorch ends the whole process where Python's end finds a thread inside of it.
        atexit.register(self.close)

    def segment(self, size: int) -> Segment:
        """Shared memory of at least `size` bytes, given back by `release`."""
        wanted = max(_SMALLEST, 1 << (size - 1).bit_length())
        with self._lock:
            kept = self._free.get(wanted)
            if kept:
                return kept.pop()
            name = next(self._numbers)
        fd = os.memfd_create(f"fabriclab-{self.rank}-{name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, wanted)
            memory = mmap.mmap(fd, wanted)
            order = json.dumps({"segment": name, "size": wanted}).encode()
            socket.send_fds(self._sock, [order], [fd])
        finally:
            os.close(fd)
        return Segment(name, memory)

    def release(self, segment: Segment) -> None:
        """Give a segment back for later calls."""
        with self._lock:
            self._free.setdefault(len(segment.memory), []).append(segment)

    def call(
        self,
        group: str,
        seq: str,
        members: Sequence[int],
        place: int,
        signature: Signature,
        segment: Segment,
        done: Done,
    ) -> None:
        """Join a collective; the vector lies at the start of the segment, before and after. Raises TrafficError if the link is down."""
        with self._lock:
            if self._error is not None:
                raise self._error
            number = next(self._numbers)
            self._open[number] = (segment, done)
        message = {
            "call": number,
            "group": group,
            "seq": seq,
            "members": list(members),
            "place": place,
            "segment": segment.name,
            "signature": asdict(signature),
        }
        try:
            self._sock.send(json.dumps(message).encode())
        except OSError as error:
            raise TrafficError(
                f"the agent is gone: {error.strerror}", where=f"rank {self.rank}", remedy="see the run's error"
            ) from error

    def bytes_for(self, signature: Signature) -> int:
        """How much memory a call needs: vector and staging."""
        return memory_bytes(signature)

    def _listen(self) -> None:
        """Until the agent closes: answers become results."""
        while True:
            try:
                data = self._sock.recv(_LONGEST)
            except OSError:
                data = b""
            if not data:
                break
            self._take(json.loads(data))
        gone = TrafficError("the agent has closed the link", where=f"rank {self.rank}", remedy="see the run's error")
        with self._lock:
            self._error = gone
            left, self._open = list(self._open.values()), {}
        for segment, done in left:
            done(segment, gone)

    def _take(self, message: dict[str, Any]) -> None:
        number = int(message["done"] if "done" in message else message["failed"])
        with self._lock:
            segment, done = self._open.pop(number)
        error = None
        if "failed" in message:
            error = TrafficError(message["what"], where=message["where"], remedy=message["remedy"])
        done(segment, error)

    def close(self) -> None:
        """Say goodbye and wait for the thread, which ends by itself; again does no harm."""
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):  # the agent may have gone first
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=5.0)
        self._sock.close()
