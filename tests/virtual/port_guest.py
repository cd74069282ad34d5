"""Runs inside the guest: ports at real link speeds with the delay of the wire, and what the packets say. Prints JSON."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import sys
import time
from dataclasses import replace
from typing import Any

from emulator.port.features import Features, probe
from tests.root.port_lab import ETH_P_ALL, ETH_P_IP, Lab, Plan, Port, drain, ecn_of, frame, lab, ports, sh

SO_TIMESTAMPNS = 35


def stamped(sock: socket.socket, count: int) -> list[tuple[int, int]]:
    """(arrival by the kernel's stamp, mark) of the frames that come; the guest's real time is its monotonic time plus an offset."""
    offset = time.time_ns() - time.monotonic_ns()
    out: list[tuple[int, int]] = []
    while len(out) < count:
        sock.settimeout(1.0)
        data, extra, _, _ = sock.recvmsg(16384, 256)
        (stamp,) = [struct.unpack("qq", value) for _, kind, value in extra if kind == SO_TIMESTAMPNS]
        out.append((stamp[0] * 10**9 + stamp[1] - offset, struct.unpack("!I", data[42:46])[0]))
    return out


def line(made: Lab, features: Features, rate_bps: int, length: int, count: int) -> dict[str, Any]:
    """A train of frames over one line; times from the first send, and what the port counted."""
    port = Port(rate_bps=rate_bps, delay_ns=500, limit_bytes=10_000_000, burst_bytes=9000, mark=False)
    plan = replace(Plan((port,)), delay_mode="netem")
    with (
        ports(made, plan, features) as attached,
        made.sender("a", "p0") as sender,
        made.tap("b", "p1", ETH_P_IP) as tap,
    ):
        tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        # one frame to warm every path, and the one packet a minute of the class's own
        sender.send(frame(length))
        stamped(tap, 1)
        time.sleep(0.001)
        data = [frame(length, mark=nr) for nr in range(count)]
        begun = time.monotonic_ns()
        for one in data:
            sender.send(one)
        sent = time.monotonic_ns()
        arrived = stamped(tap, count)
        counted = attached.counters()[port.name]
        attached.detach()
    return {
        "first_ns": arrived[0][0] - begun,
        "span_ns": arrived[-1][0] - arrived[0][0],
        "send_ns": sent - begun,
        "gaps_ns": sorted({b[0] - a[0] for a, b in itertools.pairwise(arrived)}),
        "in_order": [mark for _, mark in arrived] == list(range(count)),
        "max_bytes": counted.max_bytes,
        "tx_packets": counted.classes["data"].tx_packets,
    }


def taps(made: Lab, features: Features) -> dict[str, Any]:
    """Who sees a frame before the delay, who after."""
    plan = replace(Plan((Port(rate_bps=10**9, delay_ns=50_000_000, mark=False),)), delay_mode="netem")
    with (
        ports(made, plan, features) as attached,
        made.sender("a", "p0") as sender,
        made.tap("b", "p1", ETH_P_ALL) as before,
        made.tap("b", "p1", ETH_P_IP) as after,
    ):
        for nr in range(3):
            sender.send(frame(200, mark=nr))
        early = (len(drain(before)), len(drain(after)))
        time.sleep(0.06)
        late = (len(drain(before)), len(drain(after)))
        name = made.names["b"]
        sh("tc", "-n", name, "qdisc", "del", "dev", "ifb0", "root")
        sh("tc", "-n", name, "filter", "del", "dev", "p1", "ingress")
        said = attached.differences(attached.readback())
        attached.detach()
    return {"early": early, "late": late, "said": said}


def red(made: Lab, features: Features) -> dict[str, Any]:
    """The step by RED, where no BPF program is: marked frames of several bursts, with idle times between."""
    port = Port(rate_bps=10**9, kmin_bytes=20_000, kmax_bytes=20_000, burst_bytes=1)
    plan = replace(Plan((port,)), delay_mode="none")
    bursts = []
    with (
        ports(made, plan, replace(features, marking="red")) as attached,
        made.sender("a", "p0") as sender,
        made.tap("b", "p1") as tap,
    ):
        for _ in range(5):
            for nr in range(40):
                sender.send(frame(976, mark=nr))
            time.sleep(0.01)
            bursts.append([struct.unpack("!I", got[42:46])[0] for got in drain(tap) if ecn_of(got) == 3])
        counted = attached.counters()[port.name]
        attached.detach()
    return {"bursts": bursts, "marked": counted.marked, "seen": counted.seen_packets}


def main() -> int:
    """Everything, as one JSON object on the last line."""
    features = probe()
    out: dict[str, Any] = {"marking": features.marking, "delay": features.delay}
    with lab("a", "b") as made:
        made.link("a", "p0", "b", "p1")
        out["lines"] = {
            f"{gbit}-{length}": line(made, features, gbit * 10**9, length, 200)
            for gbit in (10, 100, 400, 800)
            for length in (86, 4158)
        }
        out["taps"] = taps(made, features)
        out["red"] = red(made, features)
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
