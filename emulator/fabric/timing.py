"""How long an empty network takes: hops, propagation and store-and-forward latency between all pairs. Pure.

Says the same as `Network.base_rtt_ns`, but in one walk for all sources of a destination.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from emulator.errors import UsageError
from emulator.fabric.routes import usable_ports
from emulator.topology.limits import MIN_WIRE_BYTES, frame_bytes
from emulator.topology.network import Network, Port


@dataclass(frozen=True, slots=True)
class Reach:
    """The shortest paths (fewest links) from one node to a destination; times in fabric nanoseconds.

    `one_way_ns` is the quickest store-and-forward latency of the packet asked for; the delays are propagation alone.
    """

    hops: int
    one_way_ns: int
    min_delay_ns: int
    max_delay_ns: int


@dataclass
class Timing:
    """Answers for one network, worked out once for each destination and packet size."""

    network: Network
    _usable: dict[str, list[Port]] = field(default_factory=dict)
    _known: dict[tuple[str, int], dict[str, Reach]] = field(default_factory=dict)

    def reach(self, src: str, dst: str, wire_bytes: int = MIN_WIRE_BYTES) -> Reach:
        """From `src` to `dst`; UsageError if there is no way."""
        key = (dst, wire_bytes)
        if key not in self._known:
            self._known[key] = self._walk(dst, wire_bytes)
        found = self._known[key].get(src)
        if found is None:
            raise UsageError(
                f"no path from {src} to {dst}", where=self.network.name, remedy="bring up a link between them"
            )
        return found

    def base_rtt_ns(self, src: str, dst: str, wire_bytes: int | None = None, ack_bytes: int = MIN_WIRE_BYTES) -> int:
        """Round trip on empty queues: a packet out (a full frame unless told), an acknowledgement back."""
        size = frame_bytes(self.network.mtu) if wire_bytes is None else wire_bytes
        return self.reach(src, dst, size).one_way_ns + self.reach(dst, src, ack_bytes).one_way_ns

    def _walk(self, dst: str, wire_bytes: int) -> dict[str, Reach]:
        if not self._usable:
            self._usable = usable_ports(self.network)
        hosts = {node.name for node in self.network.hosts}
        known = {dst: Reach(0, 0, 0, 0)}
        queue = deque([dst])
        while queue:
            node = queue.popleft()
            if node in hosts and node != dst:
                continue  # a host does not forward
            here = known[node]
            for port in self._usable[node]:
                # The packet crosses the link the other way: its rate and delay are those of the port at the far end.
                far = self.network.port(port.reverse_name)
                one_way = here.one_way_ns + far.delay_ns + far.serialization_ns(wire_bytes)
                low, high = here.min_delay_ns + far.delay_ns, here.max_delay_ns + far.delay_ns
                old = known.get(far.node)
                if old is None:
                    known[far.node] = Reach(here.hops + 1, one_way, low, high)
                    queue.append(far.node)
                elif old.hops == here.hops + 1:
                    known[far.node] = Reach(
                        old.hops,
                        min(old.one_way_ns, one_way),
                        min(old.min_delay_ns, low),
                        max(old.max_delay_ns, high),
                    )
        return known
