"""Nothing to sample while no host sends: taps that wake the sampler at the first packet.

A program may wait for seconds (a timer, a long computation). When the queues are empty and no counter moves, the sampler
stops and the taps are opened: packet sockets in the hosts' namespaces that let one packet through to say "now".
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from emulator.port.netlink import inside

_ETH_P_ALL: Final = 3
_SO_ATTACH_FILTER: Final = 26
_NOTHING: Final = (0x06, 0, 0, 0)
_ONE_BYTE: Final = (0x06, 0, 0, 1)


class Taps:
    """`fds` become readable when a host sends or gets a packet while the taps are open."""

    def __init__(self, hosts: Iterable[tuple[Path, str]]) -> None:
        self._sockets = [_tap(netns, ifname) for netns, ifname in hosts]
        self.fds = [sock.fileno() for sock in self._sockets]
        self.is_open = False

    def open(self) -> None:
        """Wait for a packet."""
        for sock in self._sockets:
            _filter(sock, _ONE_BYTE)
        self.is_open = True

    def shut(self) -> None:
        """Cost nothing again."""
        for sock in self._sockets:
            _filter(sock, _NOTHING)
            while True:
                try:
                    sock.recv(1)
                except BlockingIOError:
                    break
        self.is_open = False

    def close(self) -> None:
        """Give the sockets back."""
        for sock in self._sockets:
            sock.close()


def _tap(netns: Path, ifname: str) -> socket.socket:
    with inside(netns):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    _filter(sock, _NOTHING)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel's least: one packet says enough
    sock.bind((ifname, _ETH_P_ALL))
    sock.setblocking(False)
    return sock


def _filter(sock: socket.socket, instruction: tuple[int, int, int, int]) -> None:
    code = ctypes.create_string_buffer(struct.pack("HBBI", *instruction))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))
