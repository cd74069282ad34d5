"""What no run can beat: payload bytes at the rate of the busiest place (no headers) plus the latency nothing avoids.

Three arguments, and the largest wins:

* every transfer alone: S·8/C of the narrowest place between the two hosts (all paths together), plus propagation, plus one
  packet's transmission at each hop but that one (store and forward; of the smallest packet of the transfer);
* the chain: a move cannot start before what it needs was delivered, so a path through the needs takes the sum;
* the cuts: what must cross a host's link, a leaf's uplinks, or the paths between two leaves takes X·8/C there, plus the
  least time before the first byte can be there and after the last one has left.

Ring all-reduce on equal links: the chain gives 2(N-1)/N·S/B + 2(N-1)·latency. N:1 incast: the receiver's link gives
N·S/B + latency, once per round (a barrier adds up). The bound assumes ideal spraying, so it holds for one path too.

`floor=True` gives what even this emulator cannot beat. Its ports are token buckets: an idle one passes `burst` bytes at
once, so a packet's own transmission may vanish at each hop and each cut may run ahead by its bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from emulator.judge.wires import Edge, Wires
from traffic.collective.schedule import Move


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time of a workload from its common start in fabric ns, and which argument gives it."""

    ns: float
    because: str

    @property
    def us(self) -> float:
        """In microseconds, as `summary.json` gives it."""
        return self.ns / 1000


@dataclass(slots=True)
class _Cut:
    capacity_bps: float
    links: int
    size: int = 0
    earliest: float = float("inf")
    least_after: float = float("inf")


@dataclass(slots=True)
class _Phase:
    """Moves between two barriers, with the times at which each may start and be done."""

    moves: list[Move]
    start: dict[int, float] = field(default_factory=dict)
    end: dict[int, float] = field(default_factory=dict)
    after: dict[int, float] = field(default_factory=dict)


def smallest_packet(size: int, mtu: int) -> int:
    """Payload bytes of the smallest packet of a transfer."""
    return size if size <= mtu else size % mtu or mtu


class Theory:
    """Bounds on one fabric for packets of up to `mtu` bytes of payload."""

    def __init__(self, wires: Wires, mtu: int, *, floor: bool = False) -> None:
        self.wires = wires
        self.mtu = mtu
        self.floor = floor
        self.burst = max((e.burst_bytes for e in wires.edges), default=0) if floor else 0
        self.slowest_inner = wires.slowest_inner_bps()

    def alone_ns(self, src: int, dst: int, size: int) -> float:
        """Least time of `size` bytes between two hosts on an empty fabric: the `ideal_ns` of slowdowns.

        Raises FabricError where the fabric has no path.
        """
        first, last = self.wires.pair(src, dst)
        a, b = self.wires.groups[src], self.wires.groups[dst]
        packet = self._packet(size)
        inner, links = self.wires.between(a, b)
        out, into = _rate(first), _rate(last)
        narrow = max(
            self._drain(size, out, len(first)), self._drain(size, inner, links), self._drain(size, into, len(last))
        )
        hop = [e.rate_bps for e in (*first, *last)] + ([] if a & b else [self.slowest_inner])
        return narrow + self.latency_ns(src, dst, packet) - packet * 8e9 / min(hop)

    def latency_ns(self, src: int, dst: int, packet: int) -> float:
        """Least one-way time of one packet of `packet` bytes: propagation and transmission at every hop."""
        first, last = self.wires.pair(src, dst)
        a, b = self.wires.groups[src], self.wires.groups[dst]
        middle = 0.0 if a & b else self.wires.mid_ns(a, b, packet)
        return _least(first, packet) + middle + _least(last, packet)

    def bound(self, moves: Sequence[Move]) -> Bound:
        """The bound of a whole workload; 0 for none. Times count from the common start."""
        at, because = 0.0, "nothing to send"
        for phase in _phases(moves):
            at, because = self._phase(phase, at)
        return Bound(at, because)

    def _packet(self, size: int) -> int:
        return 0 if self.floor else smallest_packet(size, self.mtu)

    def _drain(self, size: int, rate_bps: float, links: int) -> float:
        return max(0, size - self.burst * max(1, links)) * 8e9 / rate_bps

    def _phase(self, phase: _Phase, begin: float) -> tuple[float, str]:
        by_id = {m.id: m for m in phase.moves}
        alone = {m.id: self.alone_ns(m.src, m.dst, m.size) for m in phase.moves}
        order = _in_order(phase.moves, by_id)
        longest: dict[int, int] = {}
        for move in order:
            needs = [n for n in move.needs if n in by_id]
            phase.start[move.id] = max([begin, float(move.start_ns), *(phase.end[n] for n in needs)])
            phase.end[move.id] = phase.start[move.id] + alone[move.id]
            longest[move.id] = 1 + max((longest[n] for n in needs), default=0)
        phase.after = dict.fromkeys(by_id, 0.0)
        for move in reversed(order):
            for need in move.needs:
                if need in by_id:
                    phase.after[need] = max(phase.after[need], phase.after[move.id] + alone[move.id])
        last = max(phase.end, key=phase.end.__getitem__)
        most = by_id[last]
        because = (
            f"the {most.size} bytes from {self.wires.hosts[most.src]} to {self.wires.hosts[most.dst]}"
            if longest[last] == 1
            else f"a chain of {longest[last]} transfers"
        )
        best = (phase.end[last], because)
        for name, cut in self._cuts(phase).items():
            time = cut.earliest + self._drain(cut.size, cut.capacity_bps, cut.links) + cut.least_after
            if time > best[0]:
                best = (time, f"{cut.size} bytes {name}")
        return best

    def _cuts(self, phase: _Phase) -> dict[str, _Cut]:
        wires, cuts = self.wires, dict[str, _Cut]()

        def cross(name: str, capacity: tuple[float, int], move: Move, before: float, behind: float) -> None:
            cut = cuts.setdefault(name, _Cut(*capacity))
            cut.size += move.size
            cut.earliest = min(cut.earliest, phase.start[move.id] + before)
            cut.least_after = min(cut.least_after, behind + phase.after[move.id])

        for move in phase.moves:
            first, last = wires.pair(move.src, move.dst)
            a, b = wires.groups[move.src], wires.groups[move.dst]
            packet = self._packet(move.size)
            whole = self.latency_ns(move.src, move.dst, packet)
            delay = min(e.delay_ns for e in last)
            one = whole - max(e.tx_ns(packet) for e in first)
            cross(f"leave {wires.hosts[move.src]}", (_rate(first), len(first)), move, 0.0, one)
            head = whole - max(e.tx_ns(packet) + e.delay_ns for e in last)
            cross(f"enter {wires.hosts[move.dst]}", (_rate(last), len(last)), move, head, float(delay))
            if not a & b:
                before, behind = _least(first, packet), _least(last, packet)
                cross(f"leave {_named(a)}", wires.leaving(a), move, before, behind)
                cross(f"enter {_named(b)}", wires.entering(b), move, before, behind)
                cross(f"from {_named(a)} to {_named(b)}", wires.between(a, b), move, before, behind)
        return cuts


def _rate(edges: Sequence[Edge]) -> float:
    return float(sum(e.rate_bps for e in edges))


def _least(edges: Sequence[Edge], packet: int) -> float:
    return min(e.delay_ns + e.tx_ns(packet) for e in edges)


def _named(group: frozenset[str]) -> str:
    return "+".join(sorted(group))


def _phases(moves: Sequence[Move]) -> list[_Phase]:
    """The moves cut at barriers: steps whose every move needs every move since the barrier before."""
    steps: dict[int, list[Move]] = {}
    for move in moves:
        steps.setdefault(move.step, []).append(move)
    out: list[_Phase] = []
    before: set[int] = set()
    for _, group in sorted(steps.items()):
        if not out or all(before <= set(m.needs) for m in group):
            out.append(_Phase([]))
            before = set()
        out[-1].moves.extend(group)
        before |= {m.id for m in group}
    return out


def _in_order(moves: Sequence[Move], by_id: dict[int, Move]) -> list[Move]:
    """Moves after what they need; needs outside the phase are behind a barrier."""
    waits = {m.id: sum(n in by_id for n in m.needs) for m in moves}
    wakes: dict[int, list[int]] = {}
    for move in moves:
        for need in move.needs:
            if need in by_id:
                wakes.setdefault(need, []).append(move.id)
    ready = [m.id for m in moves if not waits[m.id]]
    for number in ready:
        for woken in wakes.get(number, ()):
            waits[woken] -= 1
            if not waits[woken]:
                ready.append(woken)
    return [by_id[number] for number in ready]
