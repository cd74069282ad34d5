"""From an experiment to a run that leaves nothing open: every default becomes a number. Pure but for reading the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import UsageError
from emulator.experiment.options import find_cc, packet_transport, refuse_foreign
from emulator.experiment.spec import Experiment
from emulator.experiment.tcp import tcp_options
from emulator.experiment.trimming import with_trimming
from traffic.collective.registry import make_schedule, parameters
from traffic.collective.schedule import Schedule
from traffic.congestion.base import Feedback
from traffic.errors import TrafficError
from traffic.packet.codec import WIRE_OVERHEAD_BYTES, wire_bytes
from traffic.packet.opcodes import Opcode

if TYPE_CHECKING:
    from emulator.topology.model import Topology
    from emulator.topology.network import Network

DEFAULT_CC = {"roce": "dcqcn", "mrc": "nscc", "tcp": "cubic"}
_TCP_HEADERS = 66  # Ethernet 14, IPv4 20, TCP 20, time stamps 12
_LEAST_SNAP = 64
_LARGEST = (2 - 2**-23) * 2.0**127  # of float32
SNAP_BYTES = {"real": 256, "virtual": 0}
"""Kept of a captured packet: all where copying takes no time, all headers where it does."""
_WIRE_EXTRA = 122  # Ethernet 14, IPv4 20, UDP 8, BTH 12, METH 4, RETH 16, ImmDt 4, ICRC 4, and 24 of preamble, FCS and gap, 16 spare


def full_packet_wire_bytes(kind: str, mtu: int) -> int:
    """Bytes on the wire of a packet with `mtu` bytes of payload: headers, ICRC, FCS, preamble and gap."""
    if kind == "tcp":
        return mtu + _TCP_HEADERS + WIRE_OVERHEAD_BYTES
    return wire_bytes(Opcode.MRC_WRITE_MIDDLE if kind == "mrc" else Opcode.RC_WRITE_MIDDLE, mtu)


@dataclass(frozen=True)
class Resolved:
    """A run without open ends, as the manifest keeps it. `tdf` is 1 on the virtual clock; `sample_ns` 0 means no samples.

    `pcap` names the captured ports, `pcap_snap` the bytes kept of a packet (0: all).
    """

    name: str
    topology: dict[str, Any]
    workload: dict[str, Any]
    transport: dict[str, Any]
    clock: str
    tdf: int
    seed: int
    sample_ns: int
    quantum_ns: int
    time_limit_ns: int
    wall_limit_s: float
    pcap: list[str] = field(default_factory=list)
    pcap_snap: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def make_workload(experiment: Experiment, network: Network) -> tuple[Schedule, dict[str, Any]]:
    """The schedule, and the workload with all its parameters spelled out. Ranks are hosts in order.

    Raises UsageError for a workload that does not exist or does not fit.
    """
    try:
        return _workload(experiment, network)
    except TrafficError as error:
        raise UsageError(error.what, where=error.where, remedy=error.remedy) from error


def _workload(experiment: Experiment, network: Network) -> tuple[Schedule, dict[str, Any]]:
    w = experiment.workload
    hosts = len(network.hosts)
    params = dict(w.params)
    wanted = parameters(w.kind, w.algorithm)
    if w.values is not None:
        if w.kind != "allreduce":
            raise UsageError("only an all-reduce takes values", where="values", remedy="leave them out")
        for value in w.values:
            if not abs(value) <= _LARGEST:
                raise UsageError(f"{value} is no finite float32", where="--values", remedy="use ordinary numbers")
        given = params.setdefault("ranks", len(w.values))
        if given != len(w.values):
            raise UsageError(
                f"{len(w.values)} values for {given} ranks", where="--values", remedy="give each rank one number"
            )
    if "ranks" in wanted:
        params.setdefault("ranks", hosts)
        if isinstance(params["ranks"], int) and params["ranks"] > hosts:
            raise UsageError(
                f"{params['ranks']} ranks on {hosts} hosts",
                where="ranks",
                remedy=f"use at most {hosts}, or a larger topology",
            )
    if "seed" in wanted:
        params.setdefault("seed", experiment.seed)
    if "receiver" in wanted:
        params.setdefault("receiver", 0)
    schedule = make_schedule(w.kind, algorithm=w.algorithm, size=w.bytes, **params)
    shown = {"kind": w.kind, "algorithm": schedule.algorithm, "bytes": w.bytes, **params}
    if w.values is not None:
        shown["values"] = list(w.values)
    return schedule, shown


def resolve(experiment: Experiment, topology: Topology, *, clock: str, tdf: int, base: Path | None = None) -> Resolved:
    """Every open end closed, for a clock and time dilation factor that the planner chose.

    `base` is the folder that paths in the experiment are relative to.
    """
    network = topology.network()
    schedule, workload = make_workload(experiment, network)
    used = sorted({r for m in schedule.moves for r in (m.src, m.dst)})
    names = [h.name for h in network.hosts]
    t = experiment.transport
    _fits(t.mtu, topology.mtu)
    pairs = {(m.src, m.dst) for m in schedule.moves}
    refuse_foreign(t)
    cls, about = (
        (None, {"cc": t.cc or DEFAULT_CC[t.kind]}) if t.kind == "tcp" else find_cc(t.cc or DEFAULT_CC[t.kind], base)
    )
    credit = cls is not None and cls.feedback is Feedback.CREDIT
    topology, notes = with_trimming(topology, kind=t.kind, choice=t.trim, credit=credit)
    network = topology.network()
    wire = full_packet_wire_bytes(t.kind, t.mtu)
    rtt = max(network.base_rtt_ns(names[a], names[b], wire) for a, b in pairs)
    quantum = max(0, rtt // 16)
    transport: dict[str, Any] = {"kind": t.kind, **about, "cc_preset": t.cc_preset, "mtu": t.mtu, "notes": notes}
    if cls is None:
        transport |= {"cc_params": {}, "options": tcp_options(t)}
    else:
        named = [(names[a], names[b]) for a, b in pairs]
        transport |= packet_transport(t, cls, network, named, wire_bytes=wire, quantum_ns=quantum)
    sample = experiment.sample
    if sample is None:
        sample = max(1_000, rtt) if clock == "virtual" else max(1_000, 5_000_000 // tdf)
    return Resolved(
        name=experiment.name or _name(experiment, workload, len(used)),
        topology=topology.model_dump(mode="json", exclude_none=True),
        workload=workload,
        transport=transport,
        clock=clock,
        tdf=tdf,
        seed=experiment.seed,
        sample_ns=sample,
        quantum_ns=quantum,
        time_limit_ns=experiment.time_limit,
        wall_limit_s=experiment.wall_limit_s,
        pcap=captured_ports(experiment.pcap, network),
        pcap_snap=_snap(experiment, clock),
    )


def _snap(experiment: Experiment, clock: str) -> int:
    """Bytes kept of a captured packet, 0 for all; no less than the headers up to the BTH."""
    given = experiment.pcap_snap
    if given is not None and not experiment.pcap:
        raise UsageError("nothing is captured", where="--pcap-snap", remedy="add --pcap and a port, or leave it out")
    snap = SNAP_BYTES[clock] if given is None else given
    if 0 < snap < _LEAST_SNAP:
        raise UsageError(
            f"{snap} bytes of a packet do not hold its headers",
            where="--pcap-snap",
            remedy=f"keep {_LEAST_SNAP} bytes or more, or 0 for all",
        )
    return snap


def captured_ports(wanted: Sequence[str], network: Network) -> list[str]:
    """The ports that names and patterns (`leaf0:*`, `all`) mean, in the order of the fabric; UsageError for what means none."""
    chosen: set[str] = set()
    for word in (part for item in wanted for part in item.split(",") if part):
        if word == "all" or any(sign in word for sign in "*?["):
            found = {p.name for p in network.ports if word == "all" or fnmatchcase(p.name, word)}
            if not found:
                raise UsageError(
                    f'no port is like "{word}"', where="--pcap", remedy=f"ports are named like {network.ports[0].name}"
                )
            chosen |= found
        else:
            chosen.add(network.port(word).name)
    return [p.name for p in network.ports if p.name in chosen]


def _fits(mtu: int, interface_mtu: int) -> None:
    if mtu + _WIRE_EXTRA - 38 > interface_mtu:
        raise UsageError(
            f"packets of {mtu} bytes of payload do not fit an interface MTU of {interface_mtu}",
            where="--mtu",
            remedy=f"use a smaller --mtu, or a topology with `mtu: {mtu + 200}` or more",
        )


def _name(experiment: Experiment, workload: dict[str, Any], ranks: int) -> str:
    kind = str(workload["kind"]).replace("_", "-")
    if kind == "incast":
        return f"incast-{workload['senders']}to1"
    return f"{kind}-{ranks}"
