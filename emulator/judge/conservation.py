"""F6: every packet is somewhere: delivered, dropped by a queue, lost by the model, or still in flight.

Per link and per node, from counters of different makers: agents count what they hand to and get from the kernel, the port's
program counts what comes before the queue, the queue counts what leaves it and what it dropped.

    at a port    seen = lost by the model + dropped + sent + still queued; dropped = what the program saw would not fit
    at a host    sent by the agent = seen at its ports - dropped there (a refused packet is the agent's ENOBUFS)
    at a switch  sent by the ports that face it = seen at its own ports
    at a host    sent by the ports that face it = received by the agent + lost in its socket
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.judge.check import FAIL, NOT_MODELLED, PASS, Check, some

LIMIT = "0 packets unaccounted for"
_SMALLEST = 60


@dataclass(frozen=True, slots=True)
class PortCount:
    """Packets of one port over the run. `seen` is None where no program counts before the queue; what is seen is then what
    was sent or dropped. `backlog_bytes` is what still waited at the end. `unforeseen` are drops of the data queue beyond those
    that the program saw would not fit the limit (negative: fewer)."""

    name: str
    node: str
    peer: str
    seen: int | None
    sent: int
    dropped: int
    lost: int = 0
    backlog_bytes: int = 0
    unforeseen: int = 0


@dataclass(frozen=True, slots=True)
class HostCount:
    """Packets of one host's agent; None where no agent counts (kernel TCP, a program of the user)."""

    name: str
    sent: int | None
    received: int | None
    socket_drops: int = 0


def _off(where: str, had: int, found: int, waiting: int = 0) -> str | None:
    """A sentence when `found` packets are not the `had` ones, up to `waiting` more of which may be in flight."""
    missing = had - found
    if 0 <= missing <= waiting:
        return None
    word = "missing" if missing > 0 else "too many"
    return f"{where}: {abs(missing)} packets {word} ({had} went in, {found} are known)"


def unknown_packets(ports: Sequence[PortCount], hosts: Sequence[HostCount]) -> list[tuple[int, str]]:
    """(packets, sentence) of every place where the counters disagree."""
    seen = {p.name: p.sent + p.dropped + p.lost if p.seen is None else p.seen for p in ports}
    into: dict[str, int] = {}
    out: dict[str, int] = {}
    accepted: dict[str, int] = {}
    flying: dict[str, int] = {}
    found: list[tuple[int, str]] = []

    def note(sentence: str | None, packets: int) -> None:
        if sentence is not None:
            found.append((abs(packets), sentence))

    for p in ports:
        waiting = -(-p.backlog_bytes // _SMALLEST)
        into[p.peer] = into.get(p.peer, 0) + p.sent
        out[p.node] = out.get(p.node, 0) + seen[p.name]
        accepted[p.node] = accepted.get(p.node, 0) + seen[p.name] - p.dropped
        flying[p.peer] = flying.get(p.peer, 0) + waiting
        known = p.sent + p.dropped + p.lost
        note(_off(f"port {p.name}", seen[p.name], known, waiting), seen[p.name] - known)
        if p.unforeseen:
            word = "dropped that would have fitted" if p.unforeseen > 0 else "kept that would not have fitted"
            found.append((abs(p.unforeseen), f"port {p.name}: {abs(p.unforeseen)} packets {word} its limit"))
    agents = {h.name: h for h in hosts}
    for node in sorted(set(into) | set(out)):
        host = agents.get(node)
        arrived, left = into.get(node, 0), out.get(node, 0)
        if host is None:
            note(_off(f"through {node}", arrived, left), arrived - left)
            continue
        if host.sent is not None:
            note(_off(f"from {node}", host.sent, accepted.get(node, 0)), host.sent - accepted.get(node, 0))
        if host.received is not None:
            got = host.received + host.socket_drops
            note(_off(f"to {node}", arrived, got), arrived - got)
    return found


def check_conservation(ports: Sequence[PortCount], hosts: Sequence[HostCount]) -> Check:
    """F6; `value` is the number of packets unaccounted for, over all places."""
    if not ports:
        return Check("F6", "conservation", NOT_MODELLED, None, LIMIT, "the run left no port counters")
    if not any(p.seen or p.sent or p.dropped or p.lost for p in ports) and not any(h.sent or h.received for h in hosts):
        return Check("F6", "conservation", NOT_MODELLED, None, LIMIT, "no packet was sent")
    found = sorted(unknown_packets(ports, hosts), key=lambda f: -f[0])
    if found:
        reason = some([sentence for _, sentence in found])
        return Check("F6", "conservation", FAIL, float(sum(n for n, _ in found)), LIMIT, reason)
    by_agents = [h.sent for h in hosts if h.sent is not None]
    dropped, lost = sum(p.dropped for p in ports), sum(p.lost for p in ports)
    through = (
        f"{sum(p.sent for p in ports)} packets sent by {len(ports)} ports, {dropped} dropped, {lost} lost by the model"
    )
    if len(by_agents) < len(hosts) or not hosts:
        reason = f"inside the fabric only, for no agent counts at the hosts: {through}"
    else:
        reason = f"{sum(by_agents)} packets sent by agents; {through}"
    return Check("F6", "conservation", PASS, 0.0, LIMIT, reason)
