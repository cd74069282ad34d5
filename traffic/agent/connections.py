"""Queue pairs for every pair of hosts that exchange moves: numbers, first PSNs, entropy, congestion control."""

from __future__ import annotations

from dataclasses import dataclass

from traffic.agent.nic import Nic
from traffic.agent.spec import HostSpec, WorkerSpec
from traffic.congestion.base import PathInfo, ReceiverControl
from traffic.congestion.registry import algorithm
from traffic.packet.codec import FlowTemplate
from traffic.packet.dscp import DATA, ECT0, tos
from traffic.rng import Rng
from traffic.transport.base import Memory, QueuePair, Sink
from traffic.transport.make import QueuePairs, path_info
from traffic.transport.receiving import ReceivingPort

_FIRST_QPN = 0x100


@dataclass(slots=True)
class Connection:
    """Both ends of one connection; `index` counts the queue pairs of the same two hosts."""

    src: int
    dst: int
    index: int
    sender: QueuePair
    receiver: QueuePair


class Connector:
    """Makes connections from the worker's specification; everything random comes from its seed."""

    def __init__(self, spec: WorkerSpec, nics: list[Nic], memories: list[Memory], sink: Sink) -> None:
        self.spec = spec
        self.nics = nics
        self.memories = memories
        t = spec.transport
        self._cls = algorithm(t.cc)
        pairs = {(m.src, m.dst) for m in spec.schedule.moves}
        self._longest = max((self._path(a, b) for a, b in sorted(pairs)), key=_rtt)
        self._make = QueuePairs(
            kind=t.kind,
            mtu=t.mtu,
            cls=self._cls,
            cc_params=t.cc_params,
            options=t.options,
            longest=self._longest,
            sink=sink,
        )
        self._receiving: dict[int, ReceiverControl | None] = {}
        self._qpn = _FIRST_QPN

    def connect(self, src: int, dst: int, index: int) -> Connection:
        """A queue pair on each of the two hosts, `src` sending to `dst`."""
        near, far = self._qpn, self._qpn + 1
        self._qpn += 2
        rng = Rng(self.spec.seed, "connection", src, dst, index)
        psns = rng.below(1 << 24), rng.below(1 << 24)
        label = f"{self.spec.hosts[src].name}>{self.spec.hosts[dst].name}" + (f"#{index}" if index else "")
        sender = self._queue_pair(src, dst, near, far, psns, label, rng)
        receiver = self._queue_pair(dst, src, far, near, psns[::-1], label, rng)
        self.nics[src].add(sender, self._template(src, dst, far), dst)
        self.nics[dst].add(receiver, self._template(dst, src, near), src)
        return Connection(src, dst, index, sender, receiver)

    def _template(self, src: int, dst: int, qpn: int) -> FlowTemplate:
        a, b = self.spec.hosts[src], self.spec.hosts[dst]
        return FlowTemplate(
            src_mac=a.mac, dst_mac=_next_mac(a, b), src_ip=a.ip, dst_ip=b.ip, dest_qpn=qpn, tos=tos(DATA, ECT0)
        )

    def _path(self, mine: int, other: int) -> PathInfo:
        spec, t = self.spec, self.spec.transport
        return path_info(
            self._cls,
            kind=t.kind,
            mtu=t.mtu,
            rate_bps=spec.hosts[mine].rate_bps,
            base_rtt_ns=spec.base_rtt_ns[mine][other],
            hops=spec.hops[mine][other],
            ack_every=t.options["ack_every"],
            quantum_ns=spec.quantum_ns,
            trimming=t.options["trimming"],
        )

    def _receiver_half(self, rank: int) -> ReceiverControl | None:
        """The one of that host, made at its first use with the host's own line rate."""
        if rank not in self._receiving:
            path = max((self._path(rank, b) for b in range(len(self.spec.hosts)) if b != rank), key=_rtt)
            made = self._receiving[rank] = self._make.receiving(path)
            if made is not None:
                self.nics[rank].receiving = ReceivingPort(made)
        return self._receiving[rank]

    def _queue_pair(
        self, mine: int, other: int, qpn: int, peer: int, psns: tuple[int, int], label: str, rng: Rng
    ) -> QueuePair:
        options = self.spec.transport.options
        key = f"{mine}-{other}"
        return self._make.make(
            qpn=qpn,
            peer_qpn=peer,
            label=label,
            path=self._path(mine, other),
            memory=self.memories[mine],
            first_psn=psns[0],
            peer_first_psn=psns[1],
            rng=rng,
            receiving=self._receiver_half(mine),
            evs=options.get("entropy_values", {}).get(key),
            orders=[(int(at), int(ev), bool(no)) for at, ev, no in options.get("path_orders", {}).get(key, ())],
        )


def _rtt(path: PathInfo) -> int:
    return path.base_rtt_ns


def _next_mac(a: HostSpec, b: HostSpec) -> str:
    """The MAC address of the next hop: the gateway's (a host of the same link is behind it too)."""
    return a.gateway_mac if a.gateway_mac else b.mac
