"""Does every host reach every other? Real ICMP echoes between all pairs, from sockets opened inside the namespaces."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emulator.fabric.plan import FabricPlan
from emulator.port.netlink import inside

_ECHO_REQUEST: Final = 8
_ECHO_REPLY: Final = 0
_HEADER: Final = struct.Struct("!BBHHHQ")
_PATIENCE_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class PathCheck:
    """One ordered pair of hosts; `rtt_ns` is wall time on this machine's clock, None if no answer came."""

    src: str
    dst: str
    rtt_ns: int | None

    @property
    def ok(self) -> bool:
        return self.rtt_ns is not None


def check_paths(
    plan: FabricPlan, netns: Callable[[str], Path], *, tries: int = 3, limit_s: float = 10.0
) -> list[PathCheck]:
    """Echo between all ordered pairs, every host to its k-th follower at once; ends after `limit_s` whatever happens.

    A pair that does not answer is asked again, up to `tries` times: a link may be lossy by intent.
    """
    hosts = [host.name for host in plan.hosts]
    deadline = time.monotonic() + limit_s
    found: dict[tuple[int, int], int] = {}
    with ExitStack() as stack:
        sockets = []
        for host in hosts:
            with inside(netns(host)):
                sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
            sock.setblocking(False)
            sockets.append(sock)
        addresses = [plan.address(host) for host in hosts]
        for step in range(1, len(hosts)):
            waiting = {(src, (src + step) % len(hosts)) for src in range(len(hosts))}
            slowest = max(plan.base_rtt_ns(hosts[src], hosts[dst]) for src, dst in waiting)
            patience = _PATIENCE_S + 2e-9 * slowest * plan.tdf
            for _ in range(tries):
                if waiting and time.monotonic() < deadline:
                    answers = _round(sockets, addresses, waiting, min(deadline, time.monotonic() + patience))
                    found.update(answers)
                    waiting -= answers.keys()
    pairs = [(src, dst) for src in range(len(hosts)) for dst in range(len(hosts)) if src != dst]
    return [PathCheck(hosts[src], hosts[dst], found.get((src, dst))) for src, dst in pairs]


def _round(
    sockets: list[socket.socket], addresses: list[str], pairs: set[tuple[int, int]], deadline: float
) -> dict[tuple[int, int], int]:
    """One echo for each pair; who answered, and how soon."""
    for src, dst in sorted(pairs):
        sockets[src].sendto(_echo(src, dst), (addresses[dst], 0))
    poller = select.poll()
    by_fd: Mapping[int, int] = {sock.fileno(): rank for rank, sock in enumerate(sockets)}
    for fd in by_fd:
        poller.register(fd, select.POLLIN)
    answers: dict[tuple[int, int], int] = {}
    while len(answers) < len(pairs) and (left := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(left * 1000):
            src = by_fd[fd]
            packet, (address, _) = sockets[src].recvfrom(2048)
            now = time.monotonic_ns()
            kind, _, _, ident, dst, sent = _HEADER.unpack_from(packet, 4 * (packet[0] & 15))
            if kind == _ECHO_REPLY and ident == src and (src, dst) in pairs and address == addresses[dst]:
                answers.setdefault((src, dst), now - sent)
    return answers


def _echo(src: int, dst: int) -> bytes:
    """An echo request that carries both ranks and the time it left (RFC 792; checksum RFC 1071)."""
    packet = _HEADER.pack(_ECHO_REQUEST, 0, 0, src, dst, time.monotonic_ns())
    total = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return packet[:2] + struct.pack("!H", ~total & 0xFFFF) + packet[4:]
