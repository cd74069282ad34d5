"""Namespaces, links and frames for tests of ports: own names, removed at the end."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.port.features import Features
from emulator.port.netlink import inside
from emulator.port.portset import PortSet
from traffic.packet import dscp

ETH_P_ALL, ETH_P_IP = 3, 0x0800
MAC_A, MAC_B = bytes.fromhex("02000000000a"), bytes.fromhex("02000000000b")
WIRE = 24


@dataclass(frozen=True)
class Port:
    """A port as the plan would have it."""

    name: str = "a:b"
    node: str = "a"
    peer: str = "b"
    number: int = 0
    ifname: str = "p0"
    peer_ifname: str = "p1"
    rate_bps: int = 20_000_000
    delay_ns: int = 0
    limit_bytes: int = 300_000
    burst_bytes: int = 2000
    kmin_bytes: int = 20_000
    kmax_bytes: int = 120_000
    pmax: float = 1.0
    mark: bool = True
    trim: bool = False
    loss: float = 0.0
    last_hop: bool = False


@dataclass(frozen=True)
class Node:
    name: str
    kind: str = "leaf"


@dataclass(frozen=True)
class Plan:
    ports: tuple[Port, ...]
    nodes: tuple[Node, ...] = (Node("a"), Node("b"))
    run_id: str = "porttest"
    seed: int = 7
    delay_mode: str = "none"


def sh(*argv: str) -> str:
    """Runs one command; fails loudly."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass
class Lab:
    """Namespaces by node name, each link a veth pair with fixed interface names."""

    names: dict[str, str] = field(default_factory=dict)

    def netns(self, node: str) -> Path:
        return Path("/run/netns", self.names[node])

    def add(self, node: str) -> None:
        name = f"flport{os.getpid()}{node}"
        sh("ip", "netns", "add", name)
        self.names[node] = name

    def link(self, a: str, a_if: str, b: str, b_if: str, *, index: int | None = None) -> None:
        fixed = ("index", str(index)) if index else ()
        far = ("index", str(index)) if index else ()
        sh(
            "ip", "-n", self.names[a], "link", "add", a_if, *fixed, "mtu", "9000", "type", "veth",
            "peer", "name", b_if, *far, "mtu", "9000", "netns", self.names[b],
        )  # fmt: skip
        for node, ifname in ((a, a_if), (b, b_if)):
            with inside(self.netns(node)):
                for scope in ("all", ifname):
                    Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
            sh("ip", "-n", self.names[node], "link", "set", ifname, "up")

    def tap(self, node: str, ifname: str, protocol: int = ETH_P_ALL) -> socket.socket:
        """A packet socket that sees what arrives (not what leaves)."""
        with inside(self.netns(node)):
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
        sock.setsockopt(263, 23, 1)  # PACKET_IGNORE_OUTGOING
        sock.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        sock.bind((ifname, protocol))
        return sock

    def sender(self, node: str, ifname: str) -> socket.socket:
        with inside(self.netns(node)):
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(socket.SOL_SOCKET, 32, 64 << 20)  # SO_SNDBUFFORCE
        sock.bind((ifname, 0))
        return sock


@contextlib.contextmanager
def lab(*nodes: str) -> Iterator[Lab]:
    made = Lab()
    try:
        for node in nodes:
            made.add(node)
        yield made
    finally:
        for name in made.names.values():
            sh("ip", "netns", "del", name)


@contextlib.contextmanager
def ports(made: Lab, plan: Plan, features: Features, **options: Any) -> Iterator[PortSet]:
    """Attached ports that read back as planned."""
    made_ports = PortSet(plan, features, **options)
    try:
        made_ports.attach(made.netns)
        assert made_ports.differences(made_ports.readback()) == []
        yield made_ports
    finally:
        made_ports.close()


def checksum(data: bytes | bytearray) -> int:
    """RFC 1071; 0 over a header with a right checksum."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(length: int, code: int = dscp.DATA, ecn: int = dscp.ECT0, mark: int = 0) -> bytes:
    """An Ethernet frame (without FCS) of UDP to port 4791; `mark` goes to the first payload bytes."""
    header = bytearray(
        struct.pack("!BBHHHBBHII", 0x45, dscp.tos(code, ecn), length - 14, 0, 0x4000, 64, 17, 0, 0x0A000001, 0x0A000002)
    )
    struct.pack_into("!H", header, 10, checksum(header))
    udp = struct.pack("!HHHH", 0xC000, 4791, length - 34, 0)
    return MAC_B + MAC_A + b"\x08\x00" + bytes(header) + udp + struct.pack("!I", mark) + bytes(length - 46)


def frame6(length: int, code: int = dscp.DATA, ecn: int = dscp.ECT0) -> bytes:
    """The same over IPv6."""
    first = 6 << 28 | dscp.tos(code, ecn) << 20 | 0xABCDE
    header = struct.pack("!IHBB", first, length - 54, 17, 64) + bytes(15) + b"\1" + bytes(15) + b"\2"
    return (
        MAC_B + MAC_A + b"\x86\xdd" + header + struct.pack("!HHHH", 0xC000, 4791, length - 54, 0) + bytes(length - 62)
    )


def drain(sock: socket.socket, until: int | None = None, seconds: float = 5.0) -> list[bytes]:
    """What has arrived; waits for `until` frames if told, at most `seconds`."""
    out: list[bytes] = []
    limit = time.monotonic() + seconds
    while True:
        try:
            out.append(sock.recv(16384, socket.MSG_DONTWAIT))
        except BlockingIOError:
            if until is None or len(out) >= until or time.monotonic() > limit:
                return out
            select.select([sock], [], [], 0.05)


def ecn_of(data: bytes) -> int:
    return data[15] & 3


def dscp_of(data: bytes) -> int:
    return data[15] >> 2
