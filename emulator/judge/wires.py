"""The fabric as the bounds see it: rates and delays of links, and what a group of hosts can get out of its switches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.errors import FabricError

Group = frozenset[str]
"""The switches a host hangs on: one leaf, or one a plane."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One direction of a link; times and rates of the fabric. `burst_bytes` is what its shaper may send at once."""

    src: str
    dst: str
    rate_bps: int
    delay_ns: int
    burst_bytes: int = 0

    def tx_ns(self, size: int) -> float:
        """Nanoseconds that `size` bytes take at this rate."""
        return size * 8e9 / self.rate_bps


class Wires:
    """Links that are up between hosts (by rank) and switches; traffic takes shortest paths, all of them if it likes."""

    def __init__(self, hosts: Sequence[str], edges: Iterable[Edge]) -> None:
        self.hosts = tuple(hosts)
        self.edges = tuple(edges)
        rank = {name: i for i, name in enumerate(self.hosts)}
        self.first: list[list[Edge]] = [[] for _ in hosts]
        self.last: list[list[Edge]] = [[] for _ in hosts]
        self.inner: dict[str, list[Edge]] = {}
        for edge in self.edges:
            if edge.src in rank:
                self.first[rank[edge.src]].append(edge)
            elif edge.dst in rank:
                self.last[rank[edge.dst]].append(edge)
            else:
                self.inner.setdefault(edge.src, []).append(edge)
        self.groups: list[Group] = [frozenset(e.dst for e in edges) for edges in self.first]
        self._hops_from: dict[Group, dict[str, int]] = {}
        self._mid: dict[tuple[Group, Group, int], float] = {}
        self._flow: dict[tuple[Group, Group], tuple[float, int]] = {}

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any]) -> Wires:
        """From `FabricPlan.to_dict()` (raw/plan.json): its nodes and ports, in fabric rates and delays."""
        hosts = [str(n["name"]) for n in plan["nodes"] if n["kind"] == "host"]
        return cls(
            hosts,
            (
                Edge(
                    src=str(p["node"]),
                    dst=str(p["peer"]),
                    rate_bps=int(p["fabric_rate_bps"]),
                    delay_ns=int(p["fabric_delay_ns"]),
                    burst_bytes=int(p.get("burst_bytes") or 0),
                )
                for p in plan["ports"]
                if p.get("carrier", p.get("up", True))
            ),
        )

    def pair(self, src: int, dst: int) -> tuple[list[Edge], list[Edge]]:
        """The first and the last links of a transfer; FabricError where there is no way."""
        if src == dst or not self.first[src] or not self.last[dst]:
            raise FabricError(
                f"no path from {self.hosts[src]} to {self.hosts[dst]}",
                where="theory",
                remedy="bring up a link between them",
            )
        return self.first[src], self.last[dst]

    def mid_ns(self, a: Group, b: Group, size: int) -> float:
        """Least latency of a packet of `size` bytes from any switch of `a` to any of `b`: propagation and transmission."""
        key = (a, b, size)
        if key not in self._mid:
            at = dict.fromkeys(a, 0.0)
            hops = self._hops(a)
            for node in sorted(hops, key=hops.__getitem__):
                for edge in self.inner.get(node, ()):
                    if hops[edge.dst] == hops[node] + 1:
                        time = at[node] + edge.delay_ns + edge.tx_ns(size)
                        at[edge.dst] = min(at.get(edge.dst, time), time)
            self._mid[key] = self._nearest(a, b, at)
        return self._mid[key]

    def slowest_inner_bps(self) -> float:
        """The slowest link between switches (infinite where there is none)."""
        return min((float(e.rate_bps) for edges in self.inner.values() for e in edges), default=float("inf"))

    def between(self, a: Group, b: Group) -> tuple[float, int]:
        """(bit/s, links out of `a`) over all shortest paths from `a` to `b`: the maximum flow. Infinite inside a group."""
        if a & b:
            return float("inf"), 0
        key = (a, b)
        if key not in self._flow:
            self._flow[key] = self._max_flow(a, b)
        return self._flow[key]

    def leaving(self, a: Group) -> tuple[float, int]:
        """(bit/s, links) from the switches of a group up into the fabric."""
        edges = [e for node in a for e in self.inner.get(node, ())]
        return float(sum(e.rate_bps for e in edges)), len(edges)

    def entering(self, b: Group) -> tuple[float, int]:
        """(bit/s, links) from the fabric down to the switches of a group."""
        edges = [e for out in self.inner.values() for e in out if e.dst in b]
        return float(sum(e.rate_bps for e in edges)), len(edges)

    def _hops(self, a: Group) -> dict[str, int]:
        if a not in self._hops_from:
            hops = dict.fromkeys(sorted(a), 0)
            queue = deque(hops)
            while queue:
                node = queue.popleft()
                for edge in self.inner.get(node, ()):
                    if edge.dst not in hops:
                        hops[edge.dst] = hops[node] + 1
                        queue.append(edge.dst)
            self._hops_from[a] = hops
        return self._hops_from[a]

    def _nearest(self, a: Group, b: Group, at: Mapping[str, float]) -> float:
        hops = self._hops(a)
        reached = [node for node in b if node in hops]
        if not reached:
            raise FabricError(
                f"no path from {', '.join(sorted(a))} to {', '.join(sorted(b))}", where="theory",
                remedy="bring up a link between them",
            )  # fmt: skip
        fewest = min(hops[node] for node in reached)
        return min(at[node] for node in reached if hops[node] == fewest)

    def _max_flow(self, a: Group, b: Group) -> tuple[float, int]:
        """Edmonds and Karp (1972) on the links that lie on shortest paths from `a` to `b`."""
        hops = self._hops(a)
        self._nearest(a, b, dict.fromkeys(hops, 0.0))
        left: dict[str, dict[str, int]] = {}
        links = 0
        for node, edges in self.inner.items():
            for edge in edges:
                if node in hops and hops[edge.dst] == hops[node] + 1 and node not in b:
                    way = left.setdefault(node, {})
                    way[edge.dst] = way.get(edge.dst, 0) + edge.rate_bps
                    left.setdefault(edge.dst, {}).setdefault(node, 0)
                    links += node in a
        total = 0
        while path := self._augmenting(left, a, b):
            room = min(left[u][v] for u, v in path)
            for u, v in path:
                left[u][v] -= room
                left[v][u] += room
            total += room
        return float(total), links

    @staticmethod
    def _augmenting(left: Mapping[str, Mapping[str, int]], a: Group, b: Group) -> list[tuple[str, str]]:
        came: dict[str, str] = {}
        queue = deque(sorted(a))
        while queue:
            node = queue.popleft()
            for peer, room in left.get(node, {}).items():
                if room > 0 and peer not in came and peer not in a:
                    came[peer] = node
                    if peer in b:
                        path = [(node, peer)]
                        while path[-1][0] not in a:
                            path.append((came[path[-1][0]], path[-1][0]))
                        return path
                    queue.append(peer)
        return []
