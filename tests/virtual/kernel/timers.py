"""Runs in the guest: how long short sleeps take, and how long the third packet of a shaped link waits. Prints JSON."""

from __future__ import annotations

import ctypes
import itertools
import json
import socket
import struct
import subprocess
import time

SO_TIMESTAMPNS = 35


class _Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]


def sleeps(wanted_ns: int, count: int) -> list[int]:
    """Durations of nanosleep(2), between two readings of the clock."""
    nanosleep = ctypes.CDLL(None).nanosleep
    span = ctypes.byref(_Timespec(0, wanted_ns))
    taken = []
    for _ in range(count):
        begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        nanosleep(span, None)
        taken.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begun)
    return taken


def arrivals(qdisc: str, count: int) -> list[int]:
    """Nanoseconds between the arrivals of a burst of 1,000-byte frames behind a shaper of 1 Gbit/s, burst 1,500 bytes."""
    for command in (
        "ip link add a0 type veth peer name a1",
        "ip link set a0 up",
        "ip link set a1 up",
        *qdisc.splitlines(),
    ):
        subprocess.run(command.split(), check=True)
    protocol = 0x88B5
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol)) as receiver,
    ):
        sender.bind(("a0", protocol))
        receiver.bind(("a1", protocol))
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        frame = b"\xff" * 6 + b"\x02" * 6 + struct.pack("!H", protocol) + bytes(986)
        for _ in range(count):
            sender.send(frame)
        times = []
        for _ in range(count):
            _, extra, _, _ = receiver.recvmsg(2048, 64)
            seconds, rest = struct.unpack("qq", extra[0][2])
            times.append(seconds * 10**9 + rest)
    subprocess.run(["ip", "link", "del", "a0"], check=True)
    return [after - before for before, after in itertools.pairwise(times)]


HTB = """tc qdisc add dev a0 root handle 1: htb default 1
tc class add dev a0 parent 1: classid 1:1 htb rate 1gbit burst 1500 cburst 1500 quantum 1500"""
TBF = "tc qdisc add dev a0 root tbf rate 1gbit burst 1500 limit 1000000"


def main() -> None:
    """Sleeps first: the boot is barely over."""
    short = sleeps(100, 20)
    print(json.dumps({"sleeps": short, "htb": arrivals(HTB, 20), "tbf": arrivals(TBF, 20)}))


if __name__ == "__main__":
    main()
