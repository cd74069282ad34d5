"""A whole fabric in memory: real queue pairs, connections and jobs over the queues of a topology's own network.

Times are exact, nothing is measured: store and forward at every port, drop-tail or trimming, marks on the backlog, random loss,
control and trimmed packets past the data queue. What takes the place of the kernel here is proved against it elsewhere.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from emulator.experiment.execute import schedule_of
from emulator.experiment.options import crosses
from emulator.experiment.resolve import Resolved, resolve
from emulator.experiment.spec import Experiment
from emulator.topology.model import Topology
from emulator.topology.network import Network, Port
from traffic.agent.connections import Connector
from traffic.agent.job import Job
from traffic.agent.nic import Nic
from traffic.agent.spec import HostSpec, TransportSpec, WorkerSpec
from traffic.packet.codec import FlowTemplate, Packet, wire_bytes
from traffic.packet.dscp import CONTROL, TRIMMED, TRIMMED_LAST_HOP
from traffic.packet.opcodes import FLAG_TS, SPORT_MIN
from traffic.rng import Rng
from traffic.transport.base import NEVER, Memory, Outgoing, QueuePair, Sink
from traffic.transport.paths import by_lot
from traffic.transport.receiving import ReceivingPort

TRIM_BYTES = 134
Fate = Callable[[str, int, Packet], bool]
"""(port, time, packet) -> whether the wire loses it."""


@dataclass
class Outcome:
    """What a run came to; `same` is the part that two runs may be compared by."""

    end_ns: int
    sent: int
    retransmitted: int
    timeouts: int
    completions: tuple[int, ...]
    dropped: int
    trimmed: Counter[str]
    marked: int
    by_port: Counter[str]
    control: Counter[int]
    events: list[dict[str, Any]]
    failures: list[str]
    peak: dict[str, int]

    @property
    def same(self) -> tuple[Any, ...]:
        return self.completions, self.sent, self.retransmitted, tuple(sorted(self.by_port.items())), self.marked


@dataclass
class Host:
    """A network card: control at once, data in turn at line rate."""

    rank: int
    ns_per_byte: float
    pairs: list[QueuePair] = field(default_factory=list)
    peers: dict[int, int] = field(default_factory=dict)
    receiving: ReceivingPort | None = None
    free_at: float = 0.0
    turn: int = 0

    def add(self, qp: QueuePair, template: FlowTemplate, peer_rank: int) -> None:
        self.pairs.append(qp)
        self.peers[qp.qpn] = peer_rank
        if self.receiving is not None:
            self.receiving.add(qp)

    def next_time(self, now: int) -> int:
        due = min((qp.next_timer() for qp in self.pairs), default=NEVER)
        if self.receiving is not None:
            due = min(due, self.receiving.next_timer())
        ready = min((qp.ready_at(now) for qp in self.pairs), default=NEVER)
        return min(due, max(ready, -int(-self.free_at // 1))) if ready < NEVER else due

    def step(self, now: int) -> Iterator[tuple[QueuePair, Outgoing]]:
        if self.receiving is not None:
            self.receiving.expire(now)
        for qp in self.pairs:
            if qp.next_timer() <= now:
                qp.expire(now)
        if self.receiving is not None:
            self.receiving.answer()
        yield from self._control()
        for _ in range(len(self.pairs)):
            qp = self.pairs[self.turn % len(self.pairs)]
            if self.free_at > now:
                break
            self.turn += 1
            if qp.ready_at(now) <= now:
                yield qp, qp.emit(now)
                yield from self._control()
                break

    def _control(self) -> Iterator[tuple[QueuePair, Outgoing]]:
        for qp in self.pairs:
            while qp.control:
                yield qp, qp.control.popleft()


class Net:
    """Runs one resolved experiment over its topology."""

    def __init__(self, resolved: Resolved, network: Network, fate: Fate | None = None) -> None:
        run, self.network, self.fate = resolved, network, fate
        schedule = schedule_of(run.workload)
        self.names = [h.name for h in network.hosts][: schedule.ranks]
        self.routes = {
            (a, b): network.paths(self.names[a], self.names[b])
            for a in range(len(self.names))
            for b in range(len(self.names))
            if a != b
        }
        options = dict(run.transport["options"])
        if run.transport["kind"] == "mrc":
            options |= self._entropy(options, {(m.src, m.dst) for m in schedule.moves})
        t = run.transport
        self.spec = WorkerSpec(
            run_id="net",
            seed=run.seed,
            tdf=1,
            clock="virtual",
            hosts=[
                HostSpec(n, r, "", "", f"02:00:00:00:00:{r:02x}", "", f"10.0.0.{r}", network.ports_of(n)[0].rate_bps)
                for r, n in enumerate(self.names)
            ],
            transport=TransportSpec(t["kind"], t["mtu"], t["cc"], t["cc_params"], options),
            schedule=schedule,
            base_rtt_ns=self._table(lambda a, b: network.base_rtt_ns(a, b, t["mtu"] + 94)),
            hops=self._table(network.hops),
            hold_ns=self._table(lambda a, b: 0),
            hold_ps_per_byte=self._table(lambda a, b: 0),
            limit_fabric_ns=run.time_limit_ns,
            limit_wall_s=1,
            quantum_ns=run.quantum_ns,
        )
        self.sink = Sink()
        self.hosts = [Host(h.rank, 8e9 / h.rate_bps) for h in self.spec.hosts]
        memories = [Memory() for _ in self.hosts]
        self.job = Job(self.spec, memories)
        self.job.connect(Connector(self.spec, cast(list[Nic], self.hosts), memories, self.sink), options["qps"])
        self.owner = {qp.qpn: (h, qp) for h in self.hosts for qp in h.pairs}
        self.busy: dict[str, float] = {p.name: 0.0 for p in network.ports}
        self.rng = Rng(run.seed, "net")
        self.peak: dict[str, int] = {}
        self.dropped = self.marked = 0
        self.trimmed: Counter[str] = Counter()
        self.by_port: Counter[str] = Counter()
        self.control: Counter[int] = Counter()
        self._heap: list[tuple[int, int, Any]] = []
        self._order = 0

    def _table(self, value: Callable[[str, str], int]) -> list[list[int]]:
        return [[0 if a == b else value(a, b) for b in self.names] for a in self.names]

    def route(self, src: int, dst: int, sport: int) -> list[Port]:
        """The path of an entropy value: a hash of nothing but the value, so that a test can tell it."""
        paths = self.routes[src, dst]
        return paths[sport % len(paths)]

    def _entropy(self, options: Mapping[str, Any], pairs: set[tuple[int, int]]) -> dict[str, Any]:
        values, orders = {}, {}
        for src, dst in sorted(pairs):
            evs = [SPORT_MIN + i for i in range(options["entropy"])]
            if options["entropy_set"] == "lot":
                evs = by_lot(Rng(7, src, dst), options["entropy"])
            values[f"{src}-{dst}"] = evs
            orders[f"{src}-{dst}"] = [
                (at, ev, True)
                for via, at, _ in options["deny"]
                for ev in evs
                if crosses([(p.name, p.node, p.peer) for p in self.route(src, dst, ev)], via)
            ]
        return {"entropy_values": values, "path_orders": orders}

    # -- what happens --------------------------------------------------------------------------------------------------

    def run(self, limit_ns: int = 20_000_000) -> Outcome:
        """To the end of the workload, a failure, or the limit."""
        now = 0
        while now <= limit_ns:
            self.job.post_due(now)
            for host in self.hosts:
                for qp, packet in host.step(now):
                    self._send(host, qp, packet, now)
            for delivery in self.sink.delivered:
                self.job.delivered(delivery)
            for work, at in self.sink.completed:
                self.job.completed(work, at)
            self.sink.delivered.clear()
            self.sink.completed.clear()
            if self.sink.failures or not (self.job.undelivered or self.job.unacked):
                break
            starts = self.job.next_start()
            due = min(h.next_time(now) for h in self.hosts)
            due = min(due, self._heap[0][0] if self._heap else NEVER, NEVER if starts is None else starts)
            now = max(now, due) if due > now or self._heap else now
            while self._heap and self._heap[0][0] <= now:
                _, _, (packet, path, step) = heapq.heappop(self._heap)
                self._forward(packet, path, step, now)
        records = self.job.final_records()
        return Outcome(
            end_ns=max(r.delivered_ns for r in records),
            sent=sum(r.sent for r in records),
            retransmitted=sum(r.retransmitted for r in records),
            timeouts=sum(r.timeouts or 0 for r in records),
            completions=tuple(r.delivered_ns for r in records),
            dropped=self.dropped,
            trimmed=self.trimmed,
            marked=self.marked,
            by_port=self.by_port,
            control=self.control,
            events=self.sink.log,
            failures=[f.what for f in self.sink.failures],
            peak=self.peak,
        )

    def _send(self, host: Host, qp: QueuePair, p: Outgoing, now: int) -> None:
        wire = wire_bytes(p.opcode, len(p.payload), timestamp=bool(p.flags8 & FLAG_TS))
        packet = Packet(
            host.rank, host.peers[qp.qpn], p.sport, p.tos >> 2, p.tos & 3, 64, p.opcode, False, 0, 0xFFFF, p.dest_qpn, p.becn,
            p.ack_req, p.flags8, p.psn, memoryview(p.ext), memoryview(p.payload), True, False,
        )  # fmt: skip
        if packet.dscp == CONTROL:
            self.control[p.opcode] += 1
        path = self.route(packet.src_ip, packet.dst_ip, p.sport)
        host.free_at = max(host.free_at, now) + wire * host.ns_per_byte
        self._at(host.free_at + path[0].delay_ns, packet, path, 1)

    def _at(self, when: float, packet: Packet, path: list[Port], step: int) -> None:
        self._order += 1
        heapq.heappush(self._heap, (round(when), self._order, (packet, path, step)))

    def _forward(self, packet: Packet, path: list[Port], step: int, now: int) -> None:
        if step == len(path):
            _, qp = self.owner[packet.dest_qpn]
            qp.receive(packet, now, now)
            return
        port = path[step]
        lost = port.loss and self.rng.uniform() < port.loss
        if lost or (self.fate is not None and self.fate(port.name, now, packet)):
            return
        size = TRIM_BYTES if packet.trimmed else 94 + 24 + len(packet.payload)
        per_byte = 8e9 / port.rate_bps
        if packet.dscp == CONTROL or packet.trimmed:
            self._at(now + size * per_byte + port.delay_ns, packet, path, step + 1)
            return
        self.by_port[port.name] += 1
        backlog = max(0.0, self.busy[port.name] - now) / per_byte
        if backlog + size > port.limit_bytes:
            if not port.trim or not packet.payload:
                self.dropped += 1
                return
            self.trimmed[port.name] += 1
            dscp = TRIMMED_LAST_HOP if port.last_hop else TRIMMED
            cut = packet.but(dscp=dscp, payload=memoryview(b""), icrc_ok=False, trimmed=True)
            self._at(now + TRIM_BYTES * per_byte + port.delay_ns, cut, path, step + 1)
            return
        self.peak[port.name] = max(self.peak.get(port.name, 0), round(backlog) + size)
        if port.ecn and backlog > port.kmin_bytes:
            chance = port.pmax * (backlog - port.kmin_bytes) / (port.kmax_bytes - port.kmin_bytes)
            if backlog > port.kmax_bytes or self.rng.uniform() < chance:
                packet = packet.but(ecn=3)
                self.marked += 1
        self.busy[port.name] = max(self.busy[port.name], now) + size * per_byte
        self._at(self.busy[port.name] + port.delay_ns, packet, path, step + 1)


def fabric(**keys: Any) -> Topology:
    """Two leaves of four hosts, four spines, shallow queues; `keys` change it."""
    base: dict[str, Any] = {
        "shape": "leaf-spine",
        "leaves": 2,
        "spines": 4,
        "hosts_per_leaf": 4,
        "ecn": {"kmin": "40KB", "kmax": "160KB", "pmax": 0.2},
        "queue": {"limit": "400KB"},
    }
    return Topology.model_validate(base | keys)


def transfer(
    topology: Topology | None = None, *, workload: Mapping[str, Any] | None = None, fate: Fate | None = None,
    seed: int = 1, **transport: Any,
) -> Outcome:  # fmt: skip
    """One experiment from its options to its outcome; an incast of the far leaf's four hosts unless told."""
    return net(topology, workload=workload, fate=fate, seed=seed, **transport).run()


def net(
    topology: Topology | None = None, *, workload: Mapping[str, Any] | None = None, fate: Fate | None = None,
    seed: int = 1, **transport: Any,
) -> Net:  # fmt: skip
    """The same, not yet run."""
    topology = topology or fabric()
    work = workload or {"kind": "incast", "bytes": 400_000, "params": {"senders": 4, "receiver": 7}}
    experiment = Experiment.model_validate(
        {"topology": "-", "workload": work, "transport": transport, "clock": "virtual", "seed": seed}
    )
    resolved = resolve(experiment, topology, clock="virtual", tdf=1)
    return Net(resolved, Topology.model_validate(resolved.topology).network(), fate)
