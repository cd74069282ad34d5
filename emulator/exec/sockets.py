"""The program's TCP connections, as the kernel tells of them: NETLINK_SOCK_DIAG in every host's namespace.

A dump at each sampling round shows those that are open; a multicast group tells of each one that closes, with its last
statistics (struct inet_diag_msg and struct tcp_info, include/uapi/linux/{inet_diag,sock_diag,tcp}.h). Each end of a
connection counts what it sends, so each end is one flow.

A flow begins at the round before the one that first saw it or saw it send, and ends at the one that saw its last byte
acknowledged: its time is never shorter than the true one, and longer by two sampling periods at most.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emulator.errors import FabricError
from emulator.port.netlink import NLMSG_DONE, NLMSG_ERROR, attrs, dump_request, inside
from traffic.transport.tcp import TcpInfo, tcp_info

_SOCK_DIAG: Final = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY: Final = 20  # SOCK_DIAG_BY_FAMILY
_GETSOCK: Final = 18  # TCPDIAG_GETSOCK: the older request, which lists IPv4 and IPv6 sockets together
_DESTROYED: Final = (1, 3)  # SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY
_MAPPED: Final = bytes(10) + b"\xff\xff"  # an IPv4 address on an IPv6 socket (RFC 4291, 2.5.5.2)
_ADD_MEMBERSHIP: Final = 1
_SOL_NETLINK: Final = 270
_INFO: Final = 2  # INET_DIAG_INFO
_CONG: Final = 4  # INET_DIAG_CONG
_LISTEN: Final = 10
_HALF_OPEN: Final = (3, 12)  # SYN_RECV, NEW_SYN_RECV
_STATES: Final = 0xFFF & ~(1 << _LISTEN) & ~(1 << 6) & ~(1 << 3)  # all but LISTEN, TIME_WAIT, SYN_RECV
_NLMSG: Final = struct.Struct("=IHHII")
_MSG: Final = struct.Struct("=BBBB2s2s16s16sIIIIIIII")
_BLOCK: Final = 1 << 16
_BUFFER: Final = 8 << 20


@dataclass(slots=True)
class Flow:
    """What one end of a connection has sent to the other; hosts by number, times in fabric ns.

    `bytes` were sent, each counted once; `acked` of them the other end has acknowledged.
    """

    src: int
    dst: int
    sport: int
    dport: int
    start_ns: int
    end_ns: int
    bytes: int = 0
    acked: int = 0
    cc: str = ""
    info: TcpInfo | None = None
    open: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One end at one round, for the table of rates."""

    time_ns: int
    flow: tuple[int, int]
    info: TcpInfo


class TcpWatch:
    """Watches the connections between the hosts of a fabric; `addresses` are those of the hosts by number.

    `round(now)` reads all namespaces; `flows()` gives what was seen. Close it at the end.
    """

    def __init__(self, namespaces: Iterable[Path], addresses: Mapping[str, int]) -> None:
        self._owner = {socket.inet_aton(address): host for address, host in addresses.items()}
        self._spaces: list[_Space] = []
        self._flows: dict[tuple[int, int], Flow] = {}
        self.samples: list[Sample] = []
        self._before = 0
        self.missed = 0
        """Times the kernel said that it had to drop notices of closing."""
        with contextlib.ExitStack() as stack:
            for host, path in enumerate(namespaces):
                self._spaces.append(stack.enter_context(_Space(host, path)))
            self._stack = stack.pop_all()

    def round(self, now: int) -> None:
        """Read every namespace at fabric time `now`."""
        for space in self._spaces:
            for message in space.dump():
                self._seen(space.host, message, now, is_open=True)
            closed, lost = space.closed()
            self.missed += lost
            for message in closed:
                self._seen(space.host, message, now, is_open=False)
        self._before = now

    def woke(self, now: int) -> None:
        """Nothing was sent since the last round until now."""
        self._before = now

    def _seen(self, host: int, message: memoryview, now: int, *, is_open: bool) -> None:
        if len(message) < _MSG.size:
            return
        family, state, _, _, sport, dport, _src, dst, _, low, high, *_ = _MSG.unpack_from(message)
        if family == socket.AF_INET6:
            dst = dst[12:] if dst.startswith(_MAPPED) else b""
        peer = self._owner.get(dst[:4])
        if peer is None or peer == host or state == _LISTEN or state in _HALF_OPEN:
            return
        found = attrs(message, _MSG.size)
        raw = found.get(_INFO)
        if raw is None or len(raw) < _SENT_END:
            return
        key = (host, high << 32 | low)
        flow = self._flows.get(key)
        if flow is None:
            ports = int.from_bytes(sport, "big"), int.from_bytes(dport, "big")
            flow = self._flows[key] = Flow(host, peer, *ports, start_ns=self._before, end_ns=now)
            flow.cc = found.get(_CONG, b"").rstrip(b"\0").decode(errors="replace")
        sent, again = struct.unpack_from("=QQ", raw, _SENT)
        if sent - again > flow.bytes:
            if not flow.bytes:
                flow.start_ns = self._before
            flow.bytes = sent - again
        info = tcp_info(raw)
        acked = min(info.bytes_acked, flow.bytes)  # the kernel counts SYN and FIN as a byte each
        if acked > flow.acked:
            flow.acked, flow.end_ns = acked, now
        changed = flow.info is None or info.data_segments != flow.info.data_segments or info.cwnd != flow.info.cwnd
        flow.info, flow.open = info, is_open
        if changed and is_open and flow.bytes:
            self.samples.append(Sample(now, key, info))

    def flows(self) -> list[tuple[tuple[int, int], Flow]]:
        """Every end whose bytes arrived, by start, hosts and ports; the key is that of its samples."""
        found = [(key, flow) for key, flow in self._flows.items() if flow.acked]
        return sorted(
            found, key=lambda item: (item[1].start_ns, item[1].src, item[1].dst, item[1].sport, item[1].dport)
        )

    def close(self) -> None:
        """Give the sockets back."""
        self._stack.close()


_SENT: Final = 200  # tcpi_bytes_sent, then tcpi_bytes_retrans (struct tcp_info, since Linux 4.19)
_SENT_END: Final = _SENT + 16


class _Space:
    """One namespace: a socket for dumps and one that hears of closings."""

    def __init__(self, host: int, path: Path) -> None:
        self.host = host
        self._request = dump_request(_GETSOCK, _query())
        with inside(path):
            self._ask = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
            self._hear = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
        try:
            self._ask.bind((0, 0))
            self._ask.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self._hear.bind((0, 0))
            self._hear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            for group in _DESTROYED:
                self._hear.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
            self._hear.setblocking(False)
        except OSError as error:
            self.close()
            raise FabricError(
                f"the kernel does not tell of TCP connections: {error.strerror}",
                where=str(path),
                remedy="it needs CONFIG_INET_DIAG and CONFIG_INET_TCP_DIAG; use --clock virtual, whose kernel has them",
            ) from error

    def __enter__(self) -> _Space:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dump(self) -> list[memoryview]:
        """The connections that are open."""
        self._ask.send(self._request)
        found: list[memoryview] = []
        while True:
            for kind, body in _messages(self._ask.recv(_BLOCK)):
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    raise FabricError(
                        f"the kernel refuses to list TCP connections (error {code})",
                        where=f"host {self.host}",
                        remedy="it needs CONFIG_INET_TCP_DIAG",
                    )
                found.append(body)

    def closed(self) -> tuple[list[memoryview], int]:
        """The connections that closed since the last call, and how often the kernel lost some of them."""
        found: list[memoryview] = []
        lost = 0
        while True:
            try:
                block = self._hear.recv(_BLOCK)
            except BlockingIOError:
                return found, lost
            except OSError:
                lost += 1  # ENOBUFS: the notices came faster than they were read
                continue
            found += [body for kind, body in _messages(block) if kind == _BY_FAMILY]

    def close(self) -> None:
        self._ask.close()
        self._hear.close()


def _query() -> bytes:
    """struct inet_diag_req: any socket in the states wanted, with TCP_INFO and the congestion control's name."""
    want = 1 << (_INFO - 1) | 1 << (_CONG - 1)
    return struct.pack("=BBBB", 0, 0, 0, want) + bytes(48) + struct.pack("=II", _STATES, 0)


def _messages(block: bytes) -> Iterable[tuple[int, memoryview]]:
    view = memoryview(block)
    offset = 0
    while offset + _NLMSG.size <= len(view):
        size, kind, _, _, _ = _NLMSG.unpack_from(view, offset)
        if size < _NLMSG.size:
            return
        yield kind, view[offset + _NLMSG.size : offset + size]
        offset += (size + 3) & ~3
