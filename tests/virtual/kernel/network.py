"""Runs in the guest: a burst of UDP through HTB and netem between two namespaces; prints every time in nanoseconds."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import time

from emulator.clock.guest import align

SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
CLONE_NEWNET = 0x40000000

LINK = "link add p0 netns left type veth peer name p1 netns right"
BATCH = "addr add {address}/24 dev {interface}\nlink set {interface} up\nlink set lo up\n"
SHAPERS = (
    "tc -n left qdisc add dev p0 root handle 1: htb default 1",
    "tc -n left class add dev p0 parent 1: classid 1:1 htb rate 10gbit burst 3000 cburst 3000 quantum 1500",
    "tc -n left qdisc add dev p0 parent 1:1 handle 10: netem delay 5us 1us loss 2%",
)


def main() -> None:
    """Sends, receives, prints; also what the kernel's own random numbers decide."""
    align(10**9)
    for name in ("left", "right"):
        subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", *LINK.split()], check=True)
    for name, interface, address in (("left", "p0", "10.0.0.1"), ("right", "p1", "10.0.0.2")):
        commands = BATCH.format(address=address, interface=interface)
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=commands, text=True, check=True)
    for command in SHAPERS:
        subprocess.run(command.split(), check=True)
    sockets = {}
    for name in ("left", "right"):
        place = os.open(f"/run/netns/{name}", os.O_RDONLY)
        if ctypes.CDLL(None).setns(place, CLONE_NEWNET) != 0:
            raise OSError(f"setns {name}")
        sockets[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    left, right = sockets["left"], sockets["right"]
    right.bind(("10.0.0.2", 5000))
    right.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    right.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    left.sendto(b"arp", ("10.0.0.2", 5000))
    right.settimeout(0.01)
    right.recv(100)
    print("begin", time.monotonic_ns(), time.time_ns())
    for number in range(300):
        left.sendto(struct.pack("I", number) + bytes(1200), ("10.0.0.2", 5000))
        if number % 50 == 49:
            time.sleep(0.0001)
    try:
        while True:
            data, extra, _, source = right.recvmsg(2048, 64)
            seconds, rest = struct.unpack("qq", extra[0][2])
            print(struct.unpack("I", data[:4])[0], seconds * 10**9 + rest, source[1])
    except TimeoutError:
        print("end", time.monotonic_ns(), os.urandom(8).hex(), id(object()))
    print(subprocess.run(["ip", "-n", "left", "link"], capture_output=True, text=True, check=True).stdout)
    print(subprocess.run(["tc", "-n", "left", "-s", "qdisc"], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
