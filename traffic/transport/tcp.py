"""Messages on a byte stream, for kernel TCP: how moves are framed, and what a sender's TCP_INFO says. Sockets are the agent's.

Each message is a header (move, R_Key, address, length) and its bytes. The far memory is checked as RDMA does it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from traffic.errors import TrafficError
from traffic.transport.base import Memory, WorkRequest

HEADER: Final = struct.Struct("!IIQI")
"""Move, R_Key, virtual address, bytes that follow."""

CA_STATES: Final = ("open", "disorder", "cwr", "recovery", "loss")
"""tcpi_ca_state (include/uapi/linux/tcp.h, enum tcp_ca_state)."""

_NO_SSTHRESH: Final = 0x7FFF_FFFF
_NO_RATE: Final = (1 << 64) - 1
_WRAP: Final = 1 << 32


@dataclass(slots=True)
class _Message:
    work: WorkRequest
    header: bytes
    end: int = 0
    """Stream position behind its last byte."""


class Outbox:
    """What a sender still has to hand to its socket, and what it handed over but nobody acknowledged."""

    def __init__(self) -> None:
        self.waiting: deque[_Message] = deque()
        self.flying: deque[_Message] = deque()
        self.position = 0
        """Bytes handed over since the connection was made."""
        self._done = 0  # bytes of the first waiting message that were handed over

    def post(self, work: WorkRequest) -> None:
        """Queue a message. Raises TrafficError for one of 4 GiB or more."""
        size = work.local.nbytes
        if size >= _WRAP:
            raise TrafficError(f"a message of {size} bytes", where="tcp", remedy="use more than one connection (--qps)")
        self.waiting.append(_Message(work, HEADER.pack(work.id, work.rkey, work.remote_va, size)))

    def gather(self, most: int) -> tuple[Sequence[bytes | memoryview], bool]:
        """Bytes to hand over next (`most` of one message), and whether they end it. Only while something waits.

        Pieces of a multiple of the segment size leave no short segment between them.
        """
        message = self.waiting[0]
        at = self._done - HEADER.size
        if at >= 0:
            part = message.work.local[at : at + most]
            return (part,), at + part.nbytes == message.work.local.nbytes
        part = message.work.local[: most - HEADER.size + self._done]
        return (message.header[self._done :], part), part.nbytes == message.work.local.nbytes

    def handed(self, count: int) -> None:
        """The socket took `count` of the bytes that `gather` named."""
        self.position += count
        self._done += count
        message = self.waiting[0]
        if self._done == HEADER.size + message.work.local.nbytes:
            self._done = 0
            message.end = self.position
            self.flying.append(self.waiting.popleft())

    def acknowledged(self, last: int) -> list[WorkRequest]:
        """Messages that end at or before the byte whose position, modulo 2^32, is `last` (SOF_TIMESTAMPING_OPT_ID)."""
        done = []
        while self.flying and (last + 1 - self.flying[0].end) % _WRAP < _WRAP // 2:
            done.append(self.flying.popleft().work)
        return done

    def oldest(self, acknowledged: int) -> tuple[WorkRequest, int] | None:
        """The oldest message that is not whole at the receiver, and how many of its bytes are, of so many in the stream."""
        if self.flying:
            message = self.flying[0]
            begin = message.end - message.work.local.nbytes
        elif self.waiting:
            message = self.waiting[0]
            begin = self.position - self._done + HEADER.size
        else:
            return None
        return message.work, min(max(0, acknowledged - begin), message.work.local.nbytes)


class Arrived(NamedTuple):
    """A message whose last byte is in memory."""

    move: int
    size: int


class Inbox:
    """Where a receiver's bytes go: header by header, and each message to the place it names."""

    def __init__(self, memory: Memory, label: str) -> None:
        self.memory = memory
        self.label = label
        self._header = bytearray(HEADER.size)
        self._target: memoryview | None = None
        self._filled = 0
        self._move = 0

    def want(self) -> memoryview:
        """Where the next bytes belong."""
        if self._target is None:
            return memoryview(self._header)[self._filled :]
        return self._target[self._filled :]

    def took(self, count: int) -> Arrived | None:
        """`count` bytes were put there; the message they complete, if any. TrafficError where a header names memory it may not."""
        self._filled += count
        if self._target is None:
            if self._filled < HEADER.size:
                return None
            self._move, rkey, va, size = HEADER.unpack(self._header)
            self._target = self.memory.view(rkey, va, size, write=True)
            self._filled = 0
            if self._target is None:
                raise TrafficError(
                    f"move {self._move} asks for {size} bytes at {va:#x} with R_Key {rkey:#x}: no such memory",
                    where=self.label,
                    remedy="the stream is out of step, or the schedule is wrong: run again with -vv and report it",
                )
        if self._filled < self._target.nbytes:
            return None
        done = Arrived(self._move, self._target.nbytes)
        self._target, self._filled = None, 0
        return done


class TcpInfo(NamedTuple):
    """A sender's state as the kernel tells it (struct tcp_info, include/uapi/linux/tcp.h); None where this kernel does not.

    Times are the kernel's own microseconds, rates its bytes a second.
    """

    state: str
    mss: int
    cwnd: int
    ssthresh: int | None
    rtt_us: int
    min_rtt_us: int
    rto_us: int
    unacked: int
    retransmits: int
    data_segments: int
    bytes_acked: int
    delivered: int
    delivered_ce: int
    pacing_rate: int | None
    delivery_rate: int
    timeouts: int | None
    ecn: bool


INFO_BYTES: Final = 248
_ECN: Final = 8  # TCPI_OPT_ECN


def tcp_info(raw: bytes) -> TcpInfo:
    """What getsockopt(TCP_INFO) answered, read. TrafficError from a kernel before Linux 4.18, which counts no deliveries."""
    if len(raw) < 200:
        raise TrafficError("this kernel's TCP_INFO is too short", where="tcp", remedy="use Linux 4.18 or later")

    def u32(offset: int) -> int:
        return int.from_bytes(raw[offset : offset + 4], "little")

    def u64(offset: int) -> int:
        return int.from_bytes(raw[offset : offset + 8], "little")

    ssthresh, pacing = u32(76), u64(104)
    return TcpInfo(
        state=CA_STATES[raw[1]] if raw[1] < len(CA_STATES) else str(raw[1]),
        mss=u32(16),
        cwnd=u32(80),
        ssthresh=None if ssthresh >= _NO_SSTHRESH else ssthresh,
        rtt_us=u32(68),
        min_rtt_us=u32(148),
        rto_us=u32(8),
        unacked=u32(24),
        retransmits=u32(100),
        data_segments=u32(156),
        bytes_acked=u64(120),
        delivered=u32(192),
        delivered_ce=u32(196),
        pacing_rate=None if pacing == _NO_RATE else pacing,
        delivery_rate=u64(160),
        timeouts=int.from_bytes(raw[240:242], "little") if len(raw) >= 242 else None,
        ecn=bool(raw[5] & _ECN),
    )


def control_info(cc: str, raw: bytes) -> dict[str, float]:
    """What getsockopt(TCP_CC_INFO) answered for `dctcp` (alpha) or `bbr` (bandwidth in bit/s, gains); else nothing."""
    if cc == "dctcp" and len(raw) >= 8:
        enabled, _, alpha = struct.unpack_from("=HHI", raw)
        return {"alpha": alpha / 1024} if enabled else {}
    if cc == "bbr" and len(raw) >= 20:
        low, high, _, pacing, window = struct.unpack_from("=IIIII", raw)
        return {"bandwidth": (high << 32 | low) * 8.0, "pacing_gain": pacing / 256, "cwnd_gain": window / 256}
    return {}
