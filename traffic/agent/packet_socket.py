"""One host's packet socket: frames out and in by the batch (sendmmsg, recvmmsg) over slots laid out once.

Opened inside the host's namespace. With `delayed` the kernel's netem holds each frame on an IFB before it arrives, and only
taps bound to ETH_P_IP see it after that; a UDP socket that drops everything then keeps the kernel from answering with ICMP.
Otherwise the tap is bound to ETH_P_ALL, which runs before the ingress program that keeps the frames out of the UDP code.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import TypeVar

from traffic.errors import TrafficError
from traffic.packet.opcodes import ROCE_PORT

T = TypeVar("T")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_ETH_P_ALL = 3
_ETH_P_IP = 0x0800
SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32
_SO_TIMESTAMPNS = 35
_SO_ATTACH_FILTER = 26
_MSG_DONTWAIT = 0x40
_BATCH = 64
_SLOT = 9216
_CONTROL = 64
_RCVBUF = 64 << 20

_FILTER = (
    (0x28, 0, 0, 12),  # ldh ethertype
    (0x15, 0, 5, _ETH_P_IP),
    (0x30, 0, 0, 23),  # ldb protocol
    (0x15, 0, 3, socket.IPPROTO_UDP),
    (0x28, 0, 0, 36),  # ldh UDP destination port (20-byte IPv4 header)
    (0x15, 0, 1, ROCE_PORT),
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)
_DROP_ALL = ((0x06, 0, 0, 0),)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("len", ctypes.c_size_t))


class _Msghdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.c_void_p),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Mmsghdr(ctypes.Structure):
    _fields_ = (("hdr", _Msghdr), ("len", ctypes.c_uint))


class _Slots:
    """A batch of frame buffers with the message headers that point at them."""

    def __init__(self, *, control: bool) -> None:
        self.memory = ctypes.create_string_buffer(_BATCH * _SLOT)
        self.view = memoryview(self.memory).cast("B")
        self.frames = [self.view[i * _SLOT : (i + 1) * _SLOT] for i in range(_BATCH)]
        self.iov = (_Iovec * _BATCH)()
        self.headers = (_Mmsghdr * _BATCH)()
        base = ctypes.addressof(self.memory)
        for i in range(_BATCH):
            self.iov[i].base = base + i * _SLOT
            self.iov[i].len = _SLOT
            self.headers[i].hdr.iov = ctypes.addressof(self.iov) + i * ctypes.sizeof(_Iovec)
            self.headers[i].hdr.iovlen = 1
        # Lengths as flat words: writing them through ctypes attributes costs four times as much.
        self.iov_words = memoryview(self.iov).cast("B").cast("Q")
        self.header_words = memoryview(self.headers).cast("B").cast("Q")
        if control:
            self.control = ctypes.create_string_buffer(_BATCH * _CONTROL)
            self.control_words = memoryview(self.control).cast("B").cast("Q")
            start = ctypes.addressof(self.control)
            for i in range(_BATCH):
                self.headers[i].hdr.control = start + i * _CONTROL


def in_namespace(path: str, make: Callable[[], T]) -> T:
    """Call `make` with the thread inside the network namespace at `path`, and come back."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        target = os.open(path, os.O_RDONLY)
        try:
            _setns(target, path)
            try:
                return make()
            finally:
                _setns(home, "the caller's namespace")
        finally:
            os.close(target)
    finally:
        os.close(home)


def _setns(fd: int, name: str) -> None:
    if _LIBC.setns(fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise TrafficError(f"cannot enter the network namespace: {os.strerror(code)}", where=name, remedy="run as root")


def _attach(sock: socket.socket, program: tuple[tuple[int, int, int, int], ...]) -> None:
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    fprog = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)


class PacketSocket:
    """Raw Ethernet frames of one interface, RoCE (UDP 4791) only."""

    def __init__(self, netns: str, ifname: str, *, delayed: bool) -> None:
        self.ifname = ifname
        self.sock, self.sink = in_namespace(netns, lambda: self._open(ifname, delayed))
        self.fd = self.sock.fileno()
        self._tx = _Slots(control=False)
        self._rx = _Slots(control=True)
        self._rx_headers = ctypes.byref(self._rx.headers)
        self.pending = 0
        self.pending_bytes = 0
        self._filled = _BATCH
        self.kernel_drops = 0

    @staticmethod
    def _open(ifname: str, delayed: bool) -> tuple[socket.socket, socket.socket | None]:
        protocol = _ETH_P_IP if delayed else _ETH_P_ALL
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        _attach(sock, _FILTER)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RCVBUF)
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _RCVBUF)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setsockopt(SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.bind((ifname, protocol))
        sock.setblocking(False)
        sink = None
        if delayed:
            sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            _attach(sink, _DROP_ALL)
            sink.bind(("0.0.0.0", ROCE_PORT))
        return sock, sink

    def slot(self) -> memoryview:
        """Where the next frame goes; only while `pending` is below `batch`."""
        return self._tx.frames[self.pending]

    def queue(self, size: int) -> None:
        """The frame in `slot` is whole, `size` bytes."""
        self._tx.iov_words[2 * self.pending + 1] = size
        self.pending += 1
        self.pending_bytes += size

    def flush(self) -> int:
        """Hand all queued frames to the kernel; how many from the end of the batch its full queue refused (ENOBUFS)."""
        total, done, refused = self.pending, 0, 0
        self.pending = self.pending_bytes = 0
        size = ctypes.sizeof(_Mmsghdr)
        while done < total:
            first = ctypes.byref(self._tx.headers, done * size)
            sent = _LIBC.sendmmsg(self.fd, first, total - done, 0)
            if sent > 0:
                done += sent
                continue
            code = ctypes.get_errno()
            if code in (errno.ENOBUFS, errno.EAGAIN):
                refused += 1
                done += 1
            elif code != errno.EINTR:
                raise TrafficError(
                    f"sending failed: {os.strerror(code)}", where=self.ifname, remedy="is the interface up?"
                )
        return refused

    def receive(self) -> list[tuple[memoryview, int]]:
        """Frames that wait, with their arrival on CLOCK_REALTIME in ns; views are good until `release`."""
        rx = self._rx
        words = rx.header_words
        for i in range(5, 8 * self._filled, 8):
            words[i] = _CONTROL
        count = _LIBC.recvmmsg(self.fd, self._rx_headers, _BATCH, _MSG_DONTWAIT, None)
        self._filled = max(0, count)
        if count <= 0:
            code = ctypes.get_errno()
            if count == 0 or code in (errno.EAGAIN, errno.EINTR):
                return []
            raise TrafficError(
                f"receiving failed: {os.strerror(code)}", where=self.ifname, remedy="is the interface up?"
            )
        stamps = rx.control_words
        frames = rx.frames
        step = _CONTROL // 8
        return [
            (frames[i][: words[8 * i + 7] & 0xFFFFFFFF], stamps[step * i + 2] * 1_000_000_000 + stamps[step * i + 3])
            for i in range(count)
        ]

    def release(self) -> None:
        """The frames last received are dealt with."""

    @property
    def batch(self) -> int:
        """Frames that fit before a `flush`, and that one `receive` can return (after so many there may be more)."""
        return _BATCH

    def read_drops(self) -> int:
        """Frames the socket lost since it was opened (PACKET_STATISTICS; each reading resets the kernel's count)."""
        raw = self.sock.getsockopt(SOL_PACKET, _PACKET_STATISTICS, 8)
        self.kernel_drops += struct.unpack("II", raw)[1]
        return self.kernel_drops

    def close(self) -> None:
        """Give the descriptors back."""
        self.sock.close()
        if self.sink is not None:
            self.sink.close()
