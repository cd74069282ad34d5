"""How fast one transfer could be, alone in the fabric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx as nx


class Ideal:
    """Completion time of a transfer in an otherwise empty fabric, as `interface` states the bound: payload bytes at the
    rate of the narrowest place (no headers) plus the latency that nothing avoids.

    The rate is the maximum flow between the two hosts, so that a sprayed transfer is not held to one path. The latency
    is the least over the paths: propagation, and at every hop but one the last packet's payload once more (store and
    forward).
    """

    def __init__(self, ports: Iterable[Mapping[str, Any]], mtu: int) -> None:
        import networkx as nx

        self.mtu = mtu
        self.graph: nx.DiGraph[str] = nx.DiGraph()
        for port in ports:
            if port.get("up", True):
                self.graph.add_edge(
                    str(port["node"]),
                    str(port["peer"]),
                    capacity=int(port["fabric_rate_bps"]),
                    delay=int(port["fabric_delay_ns"]),
                )
        self._pairs: dict[tuple[str, str], tuple[int, int, float] | None] = {}

    def ns(self, src: str, dst: str, size: int) -> int | None:
        """Nanoseconds for `size` bytes from host to host, or None where the plan has no path."""
        pair = self._pair(src, dst)
        if pair is None:
            return None
        rate, delay, seconds_per_bit = pair
        last = size - (max(1, -(-size // self.mtu)) - 1) * self.mtu
        return int(size * 8e9 / rate + delay + last * 8e9 * seconds_per_bit)

    def latency_ns(self, src: str, dst: str, size: int) -> int:
        """The part of `ns` that is no transmission of payload at the narrowest place; 0 where there is no path."""
        pair, total = self._pair(src, dst), self.ns(src, dst, size)
        return 0 if pair is None or total is None else int(total - size * 8e9 / pair[0])

    def _pair(self, src: str, dst: str) -> tuple[int, int, float] | None:
        key = (src, dst)
        if key not in self._pairs:
            self._pairs[key] = self._measure(src, dst)
        return self._pairs[key]

    def _measure(self, src: str, dst: str) -> tuple[int, int, float] | None:
        import networkx as nx

        graph = self.graph
        if src not in graph or dst not in graph or not nx.has_path(graph, src, dst):
            return None
        packet = self.mtu * 8e9

        def cost(_: str, __: str, edge: Mapping[str, Any]) -> float:
            return float(edge["delay"]) + packet / float(edge["capacity"])

        path = nx.dijkstra_path(graph, src, dst, weight=cost)
        edges = [graph.edges[a, b] for a, b in pairwise(path)]
        rate = int(nx.maximum_flow_value(graph, src, dst))
        delay = sum(int(e["delay"]) for e in edges)
        slowest = min(int(e["capacity"]) for e in edges)
        store = sum(1 / int(e["capacity"]) for e in edges) - 1 / slowest
        return rate, delay, store
