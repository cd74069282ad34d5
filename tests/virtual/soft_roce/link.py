"""A wire between this process and Soft-RoCE: our network card on one end of a veth pair, rxe0 on the other."""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from traffic.agent.clock import Clock, Poller, set_timer_slack
from traffic.agent.nic import Nic
from traffic.agent.packet_socket import PacketSocket
from traffic.agent.spec import HostRecord
from traffic.packet.codec import Packet, Parser, parse
from traffic.packet.headers import describe_syndrome, unpack_aeth
from traffic.packet.icrc import icrc_ok
from traffic.packet.opcodes import Ext, Opcode, extensions
from traffic.transport.base import NEVER

OUR_IP: Final = "10.9.0.2"
LINUX_IP: Final = "10.9.0.1"
OUR_MAC: Final = "02:00:00:00:09:02"
LINUX_MAC: Final = "02:00:00:00:09:01"
NAMESPACE: Final = "ours"
LINK_MTU: Final = 4200
"""Soft-RoCE takes a path MTU of 4096 on it (rxe_param.h: 80 bytes of headers)."""
RATE_BPS: Final = 10_000_000_000
COUNTERS: Final = Path("/sys/class/infiniband/rxe0/ports/1/hw_counters")
LIMIT_NS: Final = 20_000_000_000

Fates = Mapping[str, Mapping[int, str]]
"""For `out` (ours) and `into`: what becomes of the n-th packet, counted from 0: `lose` it, `spoil` its ICRC, or `mark` it as a
router with a full queue does."""


def lay() -> None:
    """The veth pair. Ours lies in a namespace without the address, so that no kernel answers for it; Linux has a neighbour entry."""
    for command in (
        f"ip netns add {NAMESPACE}",
        f"ip link add linux address {LINUX_MAC} type veth peer name ours address {OUR_MAC} netns {NAMESPACE}",
        f"ip -n {NAMESPACE} link set ours mtu {LINK_MTU} up",
        f"ip link set linux mtu {LINK_MTU} up",
        f"ip address add {LINUX_IP}/24 dev linux",
        f"ip neighbour add {OUR_IP} lladdr {OUR_MAC} dev linux nud permanent",
        "rdma link add rxe0 type rxe netdev linux",
    ):
        subprocess.run(command.split(), check=True)
    # Else they are read anew only every ten milliseconds.
    (COUNTERS / "lifespan").write_text("0")


def counters() -> dict[str, int]:
    """What Soft-RoCE counts. It counts a packet as received once its headers and ICRC were right (rxe_recv.c, rxe_rcv)."""
    return {path.name: int(path.read_text()) for path in COUNTERS.iterdir() if path.name != "lifespan"}


def _mark(frame: memoryview) -> None:
    """Set CE and take one from the TTL; the IPv4 checksum follows."""
    frame[15] |= 3
    frame[22] -= 1
    frame[24:26] = bytes(2)
    total = sum(struct.unpack(">10H", frame[14:34]))
    frame[24:26] = (~(total % 0xFFFF) & 0xFFFF).to_bytes(2)


class LossySocket(PacketSocket):
    """Loses and spoils packets at our end of the wire; `log` has all that came to it."""

    def __init__(self) -> None:
        super().__init__(f"/run/netns/{NAMESPACE}", "ours", delayed=False)
        self.begin({})

    def begin(self, fates: Fates) -> None:
        """Forget the log; from now on these hold."""
        self.fates = fates
        self.log: dict[str, list[Packet]] = {"out": [], "into": []}
        self.harmed = {"out": 0, "into": 0}

    def _lost(self, way: str, frame: memoryview) -> bool:
        data = bytes(frame)
        packet = parse(data)
        assert packet is not None and packet.icrc_ok and icrc_ok(data[14:]), "each side makes right packets"
        fate = self.fates.get(way, {}).get(len(self.log[way]))
        self.log[way].append(packet)
        self.harmed[way] += fate in ("lose", "spoil")
        if fate == "spoil":
            frame[-1] ^= 1
        elif fate == "mark":
            _mark(frame)
        return fate == "lose"

    def queue(self, size: int) -> None:
        if not self._lost("out", self.slot()[:size]):
            super().queue(size)

    def receive(self) -> list[tuple[memoryview, int]]:
        return [(frame, stamp) for frame, stamp in super().receive() if not self._lost("into", frame)]


class Link:
    """Our network card and its loop."""

    def __init__(self) -> None:
        set_timer_slack()
        self.socket = LossySocket()
        self.record = HostRecord(0)
        self.nic = Nic(rank=0, rate_bps=RATE_BPS, socket=self.socket, record=self.record, catch_up_ns=4_000)
        self.clock = Clock(tdf=1, start_ns=time.monotonic_ns())
        self.parser = Parser()

    def begin(self, fates: Fates) -> None:
        """From now on these packets are lost or spoiled, and `told` tells."""
        self.socket.begin(fates)
        self.record.icrc_errors = 0

    def run_for(self, duration_ns: int) -> None:
        """For a while."""
        end = self.clock.now() + duration_ns
        self.run(lambda: self.clock.now() >= end, until=end)

    def run(self, done: Callable[[], bool], *files: IO[str], until: int = NEVER) -> None:
        """Until `done`; a line in one of the `files`, and the time `until`, are reasons to ask again."""
        poller = Poller([self.socket.fd, *(file.fileno() for file in files)])
        limit = self.clock.now() + LIMIT_NS
        self.nic.wake()
        while True:
            now = self.clock.now()
            assert now < limit, f"nothing comes any more: {self.told()}"
            self._receive(now)
            if self.nic.timer <= now:
                self.nic.expire(now)
            if self.nic.ready <= now:
                self.nic.transmit(now, now)
            if done():
                break
            poller.wait(max(0, min(self.nic.ready, self.nic.timer, limit, until) - self.clock.now()))
        poller.close()

    def _receive(self, now: int) -> None:
        for frame, stamp in self.socket.receive():
            packet = self.parser.parse(frame)
            assert packet is not None
            if packet.icrc_ok:
                self.nic.receive(packet, now, self.clock.at(stamp))
            else:
                self.record.icrc_errors += 1
        self.socket.release()

    def told(self) -> dict[str, Any]:
        """Since `begin`: packets of both directions as (opcode, PSN, syndrome), how many were lost or spoiled, how many we
        dropped for their ICRC."""
        packets = {way: [_said(packet) for packet in log] for way, log in self.socket.log.items()}
        return {**packets, "harmed": self.socket.harmed, "icrc_errors": self.record.icrc_errors}


def _said(packet: Packet) -> tuple[str, int, str]:
    opcode = Opcode(packet.opcode)
    kinds = extensions(opcode)
    syndrome = describe_syndrome(unpack_aeth(packet.ext).syndrome) if Ext.AETH in kinds else ""
    return opcode.name, packet.psn, syndrome
