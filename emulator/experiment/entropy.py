"""Which path an entropy value takes, asked of the kernel's own routing, and sets that cover all paths evenly.

`RTM_GETROUTE` with an input interface hashes addresses and ports as forwarding does (fib_multipath_hash_policy 1), so the
answer at each router is where such a packet goes. MRC keeps equally many entropy values on each path (arXiv 2605.04333, 4.2).
"""

from __future__ import annotations

import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from emulator.errors import FabricError
from emulator.fabric.plan import FabricPlan
from emulator.port.netlink import attr, attrs, inside
from traffic.agent.spec import WorkerSpec
from traffic.packet.opcodes import ROCE_PORT, SPORT_MIN
from traffic.rng import Rng
from traffic.transport.paths import by_lot

_PORTS = 0x4000
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_NLM_F_REQUEST = 1
_RTA_DST, _RTA_SRC, _RTA_IIF, _RTA_OIF = 1, 2, 3, 4
_RTA_IP_PROTO, _RTA_SPORT, _RTA_DPORT = 27, 28, 29


class Tracer:
    """Follows packets of one protocol and destination port through the routers without sending any; answers are remembered."""

    def __init__(
        self, plan: FabricPlan, netns: Callable[[str], Path], stack: ExitStack, protocol: int, dport: int
    ) -> None:
        self.plan = plan
        self._protocol = attr(_RTA_IP_PROTO, bytes([protocol])) + attr(_RTA_DPORT, struct.pack("!H", dport))
        self._sockets: dict[str, socket.socket] = {}
        self._index: dict[str, int] = {}
        self._port_by_index: dict[str, dict[int, str]] = {}
        for node in plan.nodes:
            if node.kind != "host":
                with inside(netns(node.name)):
                    self._sockets[node.name] = stack.enter_context(
                        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
                    )
                    index = {p.name: socket.if_nametoindex(p.ifname) for p in plan.ports_of(node.name)}
                self._index.update(index)
                self._port_by_index[node.name] = {number: name for name, number in index.items()}
        self._known: dict[tuple[str, str, str, int], str] = {}

    def path(self, src: str, dst: str, sport: int) -> tuple[str, ...]:
        """The ports a packet from `src` to `dst` with that source port crosses, the host's own first."""
        port = self.plan.ports_of(src)[0]
        ports = [port.name]
        while port.peer != dst:
            name = self._next(port.peer, port.peer_name, src, dst, sport)
            port = self.plan.port(name)
            ports.append(name)
        return tuple(ports)

    def _next(self, router: str, entered: str, src: str, dst: str, sport: int) -> str:
        key = (entered, src, dst, sport)
        if key not in self._known:
            plan = self.plan
            body = (
                _RTMSG.pack(socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
                + attr(_RTA_DST, socket.inet_aton(plan.address(dst)))
                + attr(_RTA_SRC, socket.inet_aton(plan.address(src)))
                + attr(_RTA_IIF, struct.pack("=I", self._index[entered]))
                + attr(_RTA_SPORT, struct.pack("!H", sport))
                + self._protocol
            )
            header = struct.pack("=IHHII", 16 + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0)
            sock = self._sockets[router]
            sock.send(header + body)
            answer = sock.recv(4096)
            (kind,) = struct.unpack_from("=H", answer, 4)
            if kind != _RTM_NEWROUTE:
                (code,) = struct.unpack_from("=i", answer, 16)
                raise FabricError(
                    f"the kernel knows no route from {src} to {dst}: {os.strerror(-code)}",
                    where=router,
                    remedy="look at `fabriclab topo plan` for links that are down",
                )
            (oif,) = struct.unpack("=I", attrs(answer, 16 + _RTMSG.size)[_RTA_OIF])
            self._known[key] = self._port_by_index[router][oif]
        return self._known[key]


@contextmanager
def tracing(
    plan: FabricPlan, netns: Callable[[str], Path], protocol: int = socket.IPPROTO_UDP, dport: int = ROCE_PORT
) -> Iterator[Tracer]:
    """A tracer whose sockets are closed at the end."""
    with ExitStack() as stack:
        yield Tracer(plan, netns, stack, protocol, dport)


def entropy_sets(plan: FabricPlan, netns: Callable[[str], Path], spec: WorkerSpec) -> dict[str, list[int]]:
    """Entropy values for each ordered pair that sends, "src-dst" → UDP source ports, equally many on each path or by lot.

    An even set has the size asked for, rounded down to a multiple of the number of paths found (never below one a path),
    the paths taking turns.
    """
    names = [h.name for h in spec.hosts]
    size = spec.transport.options["entropy"]
    pairs = sorted({(m.src, m.dst) for m in spec.schedule.moves})
    if spec.transport.options["entropy_set"] == "lot":
        return {f"{src}-{dst}": by_lot(Rng(spec.seed, "entropy", src, dst), size) for src, dst in pairs}
    out = {}
    with tracing(plan, netns) as tracer:
        for src, dst in pairs:
            rng = Rng(spec.seed, "entropy", src, dst)
            paths = max(1, len(plan.network.paths(names[src], names[dst])))
            path_of = partial(tracer.path, names[src], names[dst])
            out[f"{src}-{dst}"] = _pick(path_of, rng, paths, size)
    return out


def _pick(path_of: Callable[[int], tuple[str, ...]], rng: Rng, paths: int, size: int) -> list[int]:
    each = max(1, size // paths)
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for offset in rng.shuffled(range(_PORTS))[: 64 * paths * each]:
        sport = SPORT_MIN + offset
        mine = found[path_of(sport)]
        if len(mine) < each:
            mine.append(sport)
        if len(found) == paths and all(len(ports) == each for ports in found.values()):
            break
    return _turns([found[key] for key in sorted(found)])


def _turns(groups: Sequence[list[int]]) -> list[int]:
    longest = max(len(g) for g in groups)
    return [g[i] for i in range(longest) for g in groups if i < len(g)]


def label_paths(
    plan: FabricPlan,
    netns: Callable[[str], Path],
    rows: Sequence[tuple[int, int, int, int]],
    names: Sequence[str],
    protocol: int = socket.IPPROTO_UDP,
    dport: int = ROCE_PORT,
) -> dict[str, list[str]]:
    """The ports behind each (src, dst, source port) that a run used: "src-dst-port" → port names."""
    with tracing(plan, netns, protocol, dport) as tracer:
        return {f"{s}-{d}-{port}": list(tracer.path(names[s], names[d], port)) for s, d, port, _ in rows}
