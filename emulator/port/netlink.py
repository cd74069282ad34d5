"""Route netlink in any network namespace, without a process: one socket a namespace, requests with their answers.

A socket belongs to the namespace its thread was in when it was made, so a thread enters, opens and comes back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from emulator.errors import FabricError, MissingCapability

CLONE_NEWNET = 0x40000000

NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL, NLM_F_CREATE = 1, 4, 0x200, 0x400
NLM_F_DUMP = 0x300
NLM_F_DUMP_INTR = 0x10
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLA_F_NESTED = 0x8000
NLA_TYPE_MASK = 0x3FFF
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
NLMSGERR_ATTR_MSG = 1

HEADER = struct.Struct("=IHHII")
ATTR = struct.Struct("=HH")


def libc() -> ctypes.CDLL:
    """The C library, with errno kept."""
    return ctypes.CDLL(None, use_errno=True)


def enter(fd: int) -> None:
    """Moves the calling thread into the network namespace behind `fd`."""
    if libc().setns(fd, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        if code == errno.EPERM:
            raise MissingCapability(
                "entering a network namespace needs CAP_SYS_ADMIN",
                remedy="run as root, or use --clock virtual",
            )
        raise FabricError(f"setns: {os.strerror(code)}", remedy="check that the namespace still exists")


@contextlib.contextmanager
def inside(netns: Path | None) -> Iterator[None]:
    """Runs the body in a network namespace (this thread only); `None` stays where it is."""
    if netns is None:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            there = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise FabricError(
                f"cannot open the namespace: {exc.strerror}", where=str(netns), remedy="build the fabric first"
            ) from exc
        try:
            enter(there)
            try:
                yield
            finally:
                enter(home)
        finally:
            os.close(there)
    finally:
        os.close(home)


def attr(kind: int, payload: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return ATTR.pack(4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def nest(kind: int, *children: bytes) -> bytes:
    """An attribute made of attributes."""
    return attr(kind | NLA_F_NESTED, b"".join(children))


def attrs(data: bytes | memoryview, offset: int = 0, end: int | None = None) -> dict[int, bytes]:
    """The attributes of a message by type; of a type that comes twice, the last."""
    view = memoryview(data)
    end = len(view) if end is None else end
    out: dict[int, bytes] = {}
    while offset + 4 <= end:
        size, kind = ATTR.unpack_from(view, offset)
        if size < 4:
            break
        out[kind & NLA_TYPE_MASK] = bytes(view[offset + 4 : offset + size])
        offset += (size + 3) & ~3
    return out


class NetlinkError(FabricError):
    """The kernel refused a request; `code` is its errno."""

    def __init__(self, code: int, text: str, *, where: str) -> None:
        said = f" ({text})" if text else ""
        super().__init__(
            f"the kernel refused: {os.strerror(code)}{said}",
            where=where,
            remedy="`fabriclab doctor` lists what this kernel lacks"
            if code in (errno.EOPNOTSUPP, errno.ENOENT)
            else "",
        )
        self.code = code


def dump_request(kind: int, body: bytes) -> bytearray:
    """A dump request to be sent again and again by `Netlink.dump_raw`."""
    return bytearray(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, 0, 0) + body)


class Netlink:
    """A route netlink socket that lives in one namespace."""

    def __init__(self, netns: Path | None = None) -> None:
        with inside(netns):
            self._sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._sock.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._sock.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._sock.bind((0, 0))
        self._seq = 0
        self.netns = netns

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives the socket back."""
        self._sock.close()

    def fileno(self) -> int:
        """The descriptor."""
        return self._sock.fileno()

    def request(self, kind: int, flags: int, body: bytes, what: str = "") -> None:
        """One request, acknowledged; raises `NetlinkError` with the kernel's own sentence."""
        self.batch([(kind, flags, body, what)])

    def batch(self, requests: Iterable[tuple[int, int, bytes, str]]) -> None:
        """Several requests (type, flags, body, what it is for) in one system call, all acknowledged; the first error counts."""
        packed, names = bytearray(), {}
        for kind, flags, body, what in requests:
            self._seq += 1
            names[self._seq] = what
            packed += HEADER.pack(HEADER.size + len(body), kind, flags | NLM_F_REQUEST | NLM_F_ACK, self._seq, 0) + body
        if not names:
            return
        self._sock.send(packed)
        problem: NetlinkError | None = None
        while names:
            for kind, _flags, seq, data in self._messages():
                if kind != NLMSG_ERROR or seq not in names:
                    continue
                what = names.pop(seq)
                code = -struct.unpack_from("=i", data)[0]
                if code and problem is None:
                    where = what if self.netns is None else f"{what} in {self.netns.name}"
                    problem = NetlinkError(code, _extended(data), where=where)
        if problem is not None:
            raise problem

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """All answers to a dump request, without their headers. A dump the kernel calls inconsistent is asked again."""
        for _ in range(5):
            self._seq += 1
            self._sock.send(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, self._seq, 0) + body)
            out, whole, more = [], True, True
            while more:
                for answer, flags, seq, data in self._messages():
                    if seq != self._seq:
                        continue
                    whole = whole and not flags & NLM_F_DUMP_INTR
                    if answer == NLMSG_DONE:
                        more = False
                    elif answer == NLMSG_ERROR:
                        raise NetlinkError(-struct.unpack_from("=i", data)[0], _extended(data), where=f"dump {kind}")
                    else:
                        out.append(data)
            if whole:
                return out
        raise FabricError(
            "the kernel's answer kept changing while it was read",
            where=f"dump {kind}",
            remedy="try again on an idle machine",
        )

    def dump_raw(self, request: bytearray) -> list[bytes] | None:
        """The unparsed answer to a prepared dump request (whose sequence number is set here); `None` if it was inconsistent.

        The last message of a dump is NLMSG_DONE with one integer: 20 bytes at the end of the last block.
        """
        self._seq += 1
        struct.pack_into("=I", request, 8, self._seq)
        self._sock.send(request)
        blocks: list[bytes] = []
        while True:
            block = self._sock.recv(1 << 16)
            _, kind, flags, seq, _ = HEADER.unpack_from(block, 0)
            if seq != self._seq:
                continue
            if kind == NLMSG_ERROR:
                raise NetlinkError(-struct.unpack_from("=i", block, HEADER.size)[0], "", where="statistics")
            blocks.append(block)
            size, kind, flags, seq, _ = HEADER.unpack_from(block, len(block) - 20)
            if kind == NLMSG_DONE and size == 20 and seq == self._seq:
                return None if flags & NLM_F_DUMP_INTR else blocks

    def _messages(self) -> Iterator[tuple[int, int, int, bytes]]:
        data = self._sock.recv(1 << 18)
        offset = 0
        while offset + HEADER.size <= len(data):
            size, kind, flags, seq, _ = HEADER.unpack_from(data, offset)
            yield kind, flags, seq, data[offset + HEADER.size : offset + size]
            offset += (size + 3) & ~3


def _extended(data: bytes) -> str:
    """The kernel's sentence in an extended acknowledgement (errno, echoed header, attributes)."""
    found = attrs(data, 4 + HEADER.size) if len(data) > 4 + HEADER.size else {}
    return found.get(NLMSGERR_ATTR_MSG, b"").rstrip(b"\0").decode(errors="replace")
