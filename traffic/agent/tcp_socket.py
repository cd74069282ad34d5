"""Kernel TCP connections: opened inside the hosts' namespaces, every option set and read back, acknowledgements stamped.

The kernel stamps the acknowledgement of a message's last byte (SOF_TIMESTAMPING_TX_ACK) and the arrival of what is read
(SO_TIMESTAMPNS), so neither time depends on when the agent looks.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence

from traffic.agent.packet_socket import in_namespace
from traffic.errors import TrafficError
from traffic.transport.tcp import INFO_BYTES, TcpInfo, control_info, tcp_info

PORT = 5001
"""Where each receiving host listens."""
TIMESTAMP_OPTION = 12
"""Bytes of the timestamp option, which the kernel takes out of the segment size (RFC 7323; net/ipv4/tcp_output.c)."""
NOT_SENT = 256 << 10
"""Bytes that may wait unsent in the kernel: enough to keep any line busy until the agent is woken at half of it."""
_BUFFER = 32 << 20  # the kernel doubles it; the window is then never what limits a flow
_LOW_WATER = 64 << 10
_CONNECT_S = 30.0

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SO_TIMESTAMPNS, _SO_TIMESTAMPING = 35, 37
_TX_ACK, _SOFTWARE, _OPT_ID, _TS_ONLY = 1 << 9, 1 << 4, 1 << 7, 1 << 11
_TCP_NOTSENT_LOWAT, _TCP_CC_INFO = 25, 26
_STAMP_LAST = [(socket.SOL_SOCKET, _SO_TIMESTAMPING, struct.pack("=I", _TX_ACK))]
_IP_RECVERR = 11
_ACK_STAMP = 2  # SCM_TSTAMP_ACK
_BILLION = 1_000_000_000


def listen(netns: str, ip: str, cc: str, segment: int) -> socket.socket:
    """A listening socket of a host; what it accepts has its options."""

    def make() -> socket.socket:
        sock = _new(cc, segment, ip)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.bind((ip, PORT))
        sock.listen(1024)
        sock.settimeout(_CONNECT_S)
        return sock

    return in_namespace(netns, make)


def connect(
    netns: str, ip: str, port: int, listener: socket.socket, cc: str, segment: int
) -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection from `ip:port` (in `netns`) to a listener; TrafficError if they do not come together."""
    far = listener.getsockname()

    def make() -> socket.socket:
        sock = _new(cc, segment, ip)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((ip, port))
        return sock

    sock = in_namespace(netns, make)
    try:
        sock.settimeout(_CONNECT_S)
        sock.connect(far)
        other, _ = listener.accept()
    except OSError as error:
        sock.close()
        raise TrafficError(
            f"no connection from {ip}:{port} to {far[0]}:{far[1]}: {error.strerror or error}",
            where="tcp",
            remedy="is there a path between the hosts that is up?",
        ) from error
    for end in (sock, other):
        end.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _SOFTWARE | _OPT_ID | _TS_ONLY)
    return sock, other


def _new(cc: str, segment: int, ip: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc.encode())
    except OSError as error:
        sock.close()
        raise TrafficError(
            f"the kernel has no congestion control {cc} for TCP: {error.strerror}",
            where="--cc",
            remedy="see /proc/sys/net/ipv4/tcp_available_congestion_control, or use --clock virtual",
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment + TIMESTAMP_OPTION)
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, NOT_SENT)
    for option, ask in ((socket.SO_SNDBUF, _SO_SNDBUFFORCE), (socket.SO_RCVBUF, _SO_RCVBUFFORCE)):
        sock.setsockopt(socket.SOL_SOCKET, ask, _BUFFER)
        if sock.getsockopt(socket.SOL_SOCKET, option) < _BUFFER:
            sock.close()
            raise TrafficError("the kernel refused the size of a socket's buffer", where=ip, remedy="run as root")
    return sock


def check(sock: socket.socket, label: str, cc: str, segment: int, *, ecn: bool) -> TcpInfo:
    """What the two ends agreed on, as it was asked for; TrafficError where it differs (the kernel falls back silently)."""
    found = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    now = info(sock)
    for what, is_, asked in (
        ("congestion control", found, cc),
        ("ECN", now.ecn, ecn),
        ("payload of a segment", now.mss, segment),
    ):
        if is_ != asked:
            raise TrafficError(f"{what} is {is_}, not {asked}", where=label, remedy="report this: the kernel fell back")
    return now


def info(sock: socket.socket) -> TcpInfo:
    """TCP_INFO."""
    return tcp_info(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES))


def cc_info(sock: socket.socket, cc: str) -> dict[str, float]:
    """The algorithm's own state (TCP_CC_INFO)."""
    if cc not in ("dctcp", "bbr"):
        return {}
    return control_info(cc, sock.getsockopt(socket.IPPROTO_TCP, _TCP_CC_INFO, 32))


def send(sock: socket.socket, buffers: Sequence[bytes | memoryview], *, last: bool) -> int:
    """How many bytes the kernel took; the acknowledgement of the end of a message is stamped. Raises OSError but EAGAIN."""
    try:
        return sock.sendmsg(buffers, _STAMP_LAST if last else (), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0


def receive(sock: socket.socket, target: memoryview) -> tuple[int, int]:
    """(bytes read, when the last of them came on CLOCK_REALTIME in ns or 0); (-1, 0) when none wait. 0 bytes is the end."""
    try:
        count, extra, _, _ = sock.recvmsg_into([target], 64, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return -1, 0
    for _, kind, value in extra:
        if kind == _SO_TIMESTAMPNS:
            seconds, ns = struct.unpack("=qq", value)
            return count, seconds * _BILLION + ns
    return count, 0


def await_bytes(sock: socket.socket, missing: int) -> None:
    """Wake the reader once so much of a message is there, not at every segment (SO_RCVLOWAT)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, min(missing, _LOW_WATER)))


def acknowledge(sock: socket.socket) -> None:
    """Send an acknowledgement that is being delayed: the message is whole, and its sender waits to know."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def ack_stamp(sock: socket.socket) -> tuple[int, int] | None:
    """(position of a byte modulo 2^32, when its acknowledgement came on CLOCK_REALTIME in ns), the oldest that waits.

    Raises OSError with the connection's error if it has failed.
    """
    try:
        _, extra, _, _ = sock.recvmsg(1, 256, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    when = position = 0
    for level, name, value in extra:
        if level == socket.SOL_SOCKET and name == _SO_TIMESTAMPING:
            seconds, ns = struct.unpack_from("=qq", value)
            when = seconds * _BILLION + ns
        elif level == socket.SOL_IP and name == _IP_RECVERR:
            number, _, _, _, _, kind, position = struct.unpack_from("=IBBBBII", value)
            if number != errno.ENOMSG or kind != _ACK_STAMP:
                raise OSError(number, os.strerror(number))
    return position, when


def failure(sock: socket.socket) -> int:
    """The connection's error number, 0 for none; reading clears it."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def reset(sock: socket.socket) -> None:
    """Close at once and for good: no state stays behind that would keep the namespace alive."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
