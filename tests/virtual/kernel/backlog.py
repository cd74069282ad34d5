"""Runs in the guest: 50 frames of 1,014 bytes into a slow queue, watched by the BPF program argv[1]. Prints JSON."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys


def main() -> None:
    """What the program saw, and what the queue says itself."""
    for command in (
        "ip link add b0 type veth peer name b1",
        "ip link set b0 up",
        "ip link set b1 up",
        "tc qdisc add dev b0 root handle 1: htb default 1",
        "tc class add dev b0 parent 1: classid 1:1 htb rate 1mbit burst 2100 cburst 2100 quantum 1500",
        "tc qdisc add dev b0 clsact",
        f"tc filter add dev b0 egress bpf da obj {sys.argv[1]} sec tc",
    ):
        subprocess.run(command.split(), check=True)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind(("b0", 0x88B5))
        for _ in range(50):
            sender.send(b"\xff" * 6 + b"\x02" * 6 + struct.pack("!H", 0x88B5) + bytes(1000))
    shown = json.loads(
        subprocess.run(["bpftool", "-j", "map", "dump", "name", "seen"], capture_output=True, check=True).stdout
    )
    value = bytes(int(byte, 16) for byte in shown[0]["value"])
    packets, last, most, through_null = struct.unpack("4Q", value)
    queue = json.loads(
        subprocess.run(["tc", "-j", "-s", "qdisc", "show", "dev", "b0", "root"], capture_output=True, check=True).stdout
    )
    print(
        json.dumps({"packets": packets, "last": last, "most": most, "null": through_null, "queue": queue[0]["backlog"]})
    )


if __name__ == "__main__":
    main()
