"""The full loop of the data path: build, send, four links through three routers, receive, verify, transport, acknowledge.

Two hosts behind two leaves and one spine, links far faster than the processor, one flow with a fixed window, both ends in this
process. Beside it, in the same namespaces: Scapy building and sending such packets, and a bare sendmmsg of ready frames.
CPU time of the process counts; forwarding happens in the sender's context and is in it.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from emulator.experiment.execute import monotonic_start, worker_spec
from emulator.experiment.resolve import resolve
from emulator.experiment.spec import Experiment
from emulator.fabric.fabric import Fabric
from emulator.fabric.plan import make_plan
from emulator.fabric.registry import new_run_id
from emulator.port.features import probe
from emulator.port.netlink import inside
from emulator.topology.model import Topology
from traffic import native
from traffic.agent.packet_socket import PacketSocket
from traffic.agent.worker import Worker
from traffic.packet.codec import FlowTemplate
from traffic.packet.dscp import DATA, ECT0, tos
from traffic.packet.headers import pack_reth
from traffic.packet.mrc_headers import pack_meth
from traffic.packet.opcodes import SPORT_MIN, Opcode

_TDF = 100
_WINDOW = 128
_QUANTUM_NS = 250
"""Fabric time a turn of the loop may cover: a full batch at this line rate, as when a loop is behind."""
_HOPS = 4
_READY_FRAMES = 20_000
_SCAPY_PACKETS = 400


@dataclass(frozen=True)
class Datapath:
    """Packets a second of CPU time for each way; `loop_ratio` is the full loop over Scapy. `cpu_us` is the loop's per packet.

    `compiled` says whether the packet loop ran as machine code; `batch` is packets a turn of the loop.
    """

    transport: str
    mtu: int
    packets: int
    loop_pps: float
    loop_wall_pps: float
    cpu_us: float
    sendmmsg_pps: float
    scapy_pps: float
    loop_ratio: float
    batch: float
    compiled: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def topology(
    *, rate: str = "10Tbit", delay: str = "0ns", limit: str = "16MB", kmin: str = "8MB", kmax: str = "15MB"
) -> Topology:
    """Two hosts, four links and three routers apart."""
    link = {"rate": rate, "delay": delay}
    return Topology.model_validate(
        {
            "name": "bench",
            "shape": "leaf-spine",
            "leaves": 2,
            "spines": 1,
            "hosts_per_leaf": 1,
            "host_link": link,
            "uplink": link,
            "queue": {"limit": limit},
            "ecn": {"kmin": kmin, "kmax": kmax},
        }
    )


def measure(*, transport: str = "roce", mtu: int = 4096, packets: int = 20_000, baselines: bool = True) -> Datapath:
    """Run the loop (and the baselines) once. Needs root; about two seconds."""
    features = probe()
    fabric_topology = topology()
    experiment = Experiment.model_validate(
        {
            "topology": "bench",
            "workload": {"kind": "pairs", "bytes": packets * mtu, "params": {"pairs": [[0, 1]], "ranks": 2}},
            "transport": {
                "kind": transport,
                "cc": "fixed",
                "cc_params": {"window_bytes": _WINDOW * mtu},
                "mtu": mtu,
                "timeout": "100ms",
                **({"reorder_window": "50ms"} if transport == "mrc" else {}),
            },
            "time_limit": "1s",
        }
    )
    resolved = resolve(experiment, fabric_topology, clock="real", tdf=_TDF)
    run_id = new_run_id("bench")
    plan = make_plan(fabric_topology, run_id=run_id, seed=1, tdf=_TDF, features=features)
    manifest = {"run_id": run_id, "resolved": resolved.to_dict()}
    with Fabric(plan, features) as fabric:
        spec = worker_spec(manifest, plan, fabric.netns)
        spec.quantum_ns = _QUANTUM_NS
        worker = Worker(spec, delayed=plan.delay_mode == "netem")
        try:
            result = worker.run(monotonic_start(0.0, 1))
        finally:
            worker.close()
        sent = sum(h.tx_data or 0 for h in result.hosts)
        if baselines:
            host = spec.hosts[0]
            frame = ready_frame(spec.hosts[0], spec.hosts[1], mtu)
            ready = _sendmmsg(host.netns, host.ifname, frame)
            scapy = _scapy(host, spec.hosts[1], fabric, mtu)
        else:
            ready = scapy = float("nan")
    loop = sent / result.loop["cpu_s"]
    wall, batch = sent / result.loop["wall_s"], sent / result.loop["wakeups"]
    return Datapath(transport, mtu, sent, loop, wall, 1e6 / loop, ready, scapy, loop / scapy, batch, native.in_use())


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def ready_frame(src: Any, dst: Any, mtu: int) -> bytes:
    """A whole data packet of `mtu` bytes of payload from one host to another."""
    template = FlowTemplate(
        src_mac=src.mac, dst_mac=src.gateway_mac, src_ip=src.ip, dst_ip=dst.ip, dest_qpn=1, tos=tos(DATA, ECT0)
    )
    ext = pack_meth(0, 0) + pack_reth(0, 0, mtu)
    payload = bytes(mtu)
    header, trailer = template.build(Opcode.MRC_WRITE_MIDDLE, 0, ext, payload, sport=SPORT_MIN)
    return header + payload + trailer


def _sendmmsg(netns: str, ifname: str, frame: bytes) -> float:
    """Ready frames through the same three routers, nothing built and nothing received."""
    socket = PacketSocket(netns, ifname, delayed=False)
    try:
        before = _cpu()
        for _ in range(_READY_FRAMES // socket.batch):
            for _ in range(socket.batch):
                socket.slot()[: len(frame)] = frame
                socket.queue(len(frame))
            socket.flush()
        return _READY_FRAMES // socket.batch * socket.batch / (_cpu() - before)
    finally:
        socket.close()


def _scapy(src: Any, dst: Any, fabric: Fabric, mtu: int) -> float:
    """Scapy building (with ICRC) and sending one WRITE after another."""
    from scapy.arch.linux import L2Socket

    from traffic.packet.roce import roce_frame

    with inside(fabric.netns(src.name)):
        socket = L2Socket(iface=src.ifname)
    payload = bytes(mtu)
    try:
        before = _cpu()
        for psn in range(_SCAPY_PACKETS):
            packet = roce_frame(
                Opcode.RC_WRITE_MIDDLE,
                src_ip=src.ip,
                dst_ip=dst.ip,
                src_mac=src.mac,
                dst_mac=src.gateway_mac,
                dest_qpn=1,
                psn=psn,
                payload=payload,
                sport=SPORT_MIN + psn % 1000,
            )
            socket.send(packet)
        return _SCAPY_PACKETS / (_cpu() - before)
    finally:
        socket.close()


def profile(call: Callable[[], object], lines: int = 25) -> str:
    """Where the time of a call goes, by function."""
    import cProfile
    import io
    import pstats

    profiler = cProfile.Profile()
    profiler.runcall(call)
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(lines)
    return text.getvalue()
