"""Runs in the guest: the tools that the product uses all work in there. Prints JSON."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

CLONE_NEWNET = 0x40000000


def _square(value: int) -> int:
    return value * value


def _socket_of(host: Any) -> socket.socket:
    """A TCP socket in the namespace of a Mininet host; this process is there afterwards."""
    setns = ctypes.CDLL(None).setns
    place = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY)
    if setns(place, CLONE_NEWNET) != 0:
        raise OSError(f"setns {host}")
    os.close(place)
    return socket.socket()


def mininet() -> str:
    """Two hosts and a router of Mininet, with veth links; what one host says to the other over TCP."""
    from mininet.link import Link
    from mininet.net import Mininet
    from mininet.node import Node

    net = Mininet(controller=None, switch=Node, build=False)
    one, router, two = (net.addHost(name, cls=Node, inNamespace=True) for name in ("h1", "r", "h2"))
    Link(one, router, intfName1="h1-r", intfName2="r-h1")
    Link(two, router, intfName1="h2-r", intfName2="r-h2")
    for node, interface, address in (
        (one, "h1-r", "10.1.0.1/24"),
        (router, "r-h1", "10.1.0.2/24"),
        (router, "r-h2", "10.2.0.2/24"),
        (two, "h2-r", "10.2.0.1/24"),
    ):
        node.setIP(address, intf=interface)
    router.cmd("sysctl -w net.ipv4.ip_forward=1")
    one.cmd("ip route add default via 10.1.0.2")
    two.cmd("ip route add default via 10.2.0.2")
    with _socket_of(two) as listener, _socket_of(one) as caller:
        listener.bind(("10.2.0.1", 7))
        listener.listen()
        caller.settimeout(1)
        caller.connect(("10.2.0.1", 7))
        caller.sendall(b"through the router")
        with listener.accept()[0] as call:
            heard = call.recv(100).decode()
    net.stop()
    return heard


def netlink() -> list[str]:
    """pyroute2 makes a namespace with a link in it; the interfaces it then sees."""
    from pyroute2 import NetNS

    with NetNS("made") as space:
        space.link("add", ifname="d0", kind="dummy")
        space.link("set", index=space.link_lookup(ifname="d0")[0], state="up")
        return [link.get("ifname") for link in space.get_links()]


def main() -> None:
    """One JSON object with what each part said."""
    mounts = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    entered = subprocess.run(
        ["mnexec", "-n", "readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=True
    )
    with multiprocessing.Pool(2) as pool:
        squares = pool.map(_square, range(5))
    print(
        json.dumps(
            {
                "other_namespace": entered.stdout.strip() != str(Path("/proc/self/ns/net").readlink()),
                "squares": squares,
                "mounts": mounts,
                "softnet_columns": len(Path("/proc/net/softnet_stat").read_text().split()),
                "congestion": Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split(),
                "interfaces": sorted(path.name for path in Path("/sys/class/net").iterdir()),
                "environment": dict(os.environ),
                "user": os.getuid(),
                "netlink": netlink(),
                "mininet": mininet(),
            }
        )
    )


if __name__ == "__main__":
    main()
