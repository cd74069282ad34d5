"""The way behind a port: propagation and the packet's own transmission time, by netem on an IFB at the receiving side.

HTB lets a packet go when its transmission begins; netem with the same rate holds it until its last bit would have arrived
(start + length / rate + delay), so that a hop stores and forwards, and a burst that HTB let through at once leaves in line.
One interface never both limits a rate and delays.

Frames that an IFB hands back skip packet sockets bound to ETH_P_ALL and the ingress hook; sockets bound to ETH_P_IP get
them, after the delay (net/core/dev.c, tc_skip_classify).
"""

from __future__ import annotations

from typing import Any

from emulator.port import tc
from emulator.port.model import PortLike
from emulator.port.shaper import rate_bytes
from traffic.rng import Rng

NETEM_HANDLE = 0x10000
SMALLEST_ON_WIRE = 84
MTU = 65535


def ifb_name(port: PortLike) -> str:
    """Name of the IFB that delays what `port` sends, in the receiver's namespace."""
    return f"ifb{port.number}"


def line_rate(port: PortLike) -> int:
    """netem's rate in bytes/s: a millionth above the port's, so that rounding never makes a second queue here."""
    rate = rate_bytes(port.rate_bps)
    return rate + rate // 10**6 + 1


def netem_limit(port: PortLike) -> int:
    """Packets netem must be able to hold: twice what the line, the burst and one data queue can be in the smallest frames."""
    in_flight = rate_bytes(port.rate_bps) * port.delay_ns // 10**9 + port.burst_bytes + port.limit_bytes
    return 1000 + 2 * in_flight // SMALLEST_ON_WIRE


def plan_netem(port: PortLike) -> dict[str, Any]:
    """What should sit on the IFB."""
    return {
        "kind": "netem",
        "parent": tc.ROOT,
        "limit": netem_limit(port),
        "delay_ns": port.delay_ns,
        "rate": line_rate(port),
        "overhead": tc.WIRE_OVERHEAD + tc.half_tick_bytes(rate_bytes(port.rate_bps)),
    }


def netem_request(ifindex: int, port: PortLike, seed: int, *, seeded: bool) -> tc.Request:
    """The message that makes it; `seeded` where this kernel takes a seed."""
    want = plan_netem(port)
    return tc.netem(
        ifindex,
        NETEM_HANDLE,
        delay_ns=want["delay_ns"],
        limit_packets=want["limit"],
        rate_bytes=want["rate"],
        overhead=want["overhead"],
        seed=Rng(seed, "netem", port.number).next64() if seeded else None,
    )
