"""What a worker is told and what it answers: plain data that crosses as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from traffic.collective.schedule import Move, Schedule
from traffic.packet.codec import WIRE_OVERHEAD_BYTES


@dataclass(slots=True)
class HostSpec:
    """One host: where its socket opens and who it is. `rate_bps` is the fabric's line rate."""

    name: str
    rank: int
    netns: str
    ifname: str
    mac: str
    gateway_mac: str
    ip: str
    rate_bps: int


@dataclass(slots=True)
class TransportSpec:
    """The transport and its parameters, all resolved (nothing left to a default of the worker).

    `kind` roce | mrc | tcp; `mtu` bytes of payload a packet; `cc` name (or FILE.py:Class) and `cc_params`; `options` the
    transport's own (recovery, qps, spray, acknowledgement interval, time-outs ...), and for mrc by pair of ranks, "src-dst":
    `entropy_values`, and `path_orders` of the controller (when, value, whether denied).
    """

    kind: str
    mtu: int
    cc: str
    cc_params: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class WorkerSpec:
    """Everything one worker needs.

    `base_rtt_ns[src][dst]` and `hops[src][dst]` are the fabric's own figures for an empty network;
    `hold_ns[src][dst]` is the propagation the receiving agent must add, `hold_ps_per_byte` the transmission of each wire
    byte over all links (both zero where netem delays), in fabric time.
    `limit_fabric_ns` and `limit_wall_s` end a run that cannot finish; `quantum_ns` is how long a busy loop may gather
    events before it acts (fabric time); `values` gives each rank's vector one number.
    """

    run_id: str
    seed: int
    tdf: int
    clock: str
    hosts: list[HostSpec]
    transport: TransportSpec
    schedule: Schedule
    base_rtt_ns: list[list[int]]
    hops: list[list[int]]
    hold_ns: list[list[int]]
    hold_ps_per_byte: list[list[int]]
    limit_fabric_ns: int
    limit_wall_s: float
    quantum_ns: int = 0
    values: list[float] | None = None
    rate_sample_ns: int = 10_000

    def held_ns(self, src: int, dst: int, frame_bytes: int) -> int:
        """How long the agent at `dst` keeps a frame from `src`, in fabric time."""
        return self.hold_ns[src][dst] + (frame_bytes + WIRE_OVERHEAD_BYTES) * self.hold_ps_per_byte[src][dst] // 1000

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkerSpec:
        """From plain data as `to_json` makes it."""
        raw = dict(data)
        raw["hosts"] = [HostSpec(**h) for h in raw["hosts"]]
        raw["transport"] = TransportSpec(**raw["transport"])
        schedule = dict(raw["schedule"])
        schedule["moves"] = tuple(Move(**{**m, "needs": tuple(m["needs"])}) for m in schedule["moves"])
        schedule["result"] = tuple(tuple(region) for region in schedule["result"])
        raw["schedule"] = Schedule(**schedule)
        return cls(**raw)


@dataclass(slots=True)
class MoveRecord:
    """What became of one move. Times are fabric nanoseconds after the common start; -1 where it never came.

    `start_ns` when it was handed to the transport, `delivered_ns` when its last byte was in the receiver's memory,
    `acked_ns` when the sender knew. Packets: `sent` (with retransmissions), `retransmitted`, `reordered` (arrived behind
    a later one), `ce` (arrived marked), `trimmed` (arrived as headers), `timeouts` (times the sender's timer fired).
    None is what the transport cannot know (kernel TCP).
    """

    id: int
    flow: int
    step: int
    src: int
    dst: int
    size: int
    start_ns: int = -1
    delivered_ns: int = -1
    acked_ns: int = -1
    sent: int = 0
    retransmitted: int = 0
    reordered: int | None = 0
    ce: int | None = 0
    trimmed: int | None = 0
    timeouts: int | None = 0
    bytes_acked: int = 0


@dataclass(slots=True)
class HostRecord:
    """What one host's agent counted, in packets and bytes of Ethernet frames (without preamble, gap and FCS).

    `tx_*` were accepted by the kernel; `enobufs` were refused by the host's own full queue and sent later or lost;
    `kernel_drops` the receive socket lost (PACKET_STATISTICS).
    """

    rank: int
    tx_packets: int = 0
    tx_bytes: int = 0
    tx_data: int = 0
    tx_control: int = 0
    rx_packets: int = 0
    rx_bytes: int = 0
    rx_ce: int = 0
    rx_trimmed: int = 0
    rx_foreign: int = 0
    icrc_errors: int = 0
    enobufs: int = 0
    kernel_drops: int = 0


@dataclass(slots=True)
class KernelHostRecord:
    """The same of a host whose packets are kernel TCP's, as its kernel counts them; None is what nobody counts.

    `tx_*` were handed to the host's port, also those that it dropped; `kernel_drops` TCP threw away after they had come.
    """

    rank: int
    tx_packets: int | None = None
    tx_bytes: int | None = None
    tx_data: int | None = None
    tx_control: int | None = None
    rx_packets: int | None = None
    rx_bytes: int | None = None
    rx_ce: int | None = None
    rx_trimmed: int | None = None
    rx_foreign: int | None = None
    icrc_errors: int | None = None
    enobufs: int | None = None
    kernel_drops: int | None = None


@dataclass(slots=True)
class WorkerResult:
    """All a worker measured.

    `rates`: columns time_ns, flow, qp, rate_bps, window_bytes, rtt_ns, trigger, and the algorithm's own state.
    `paths`: rows (src rank, dst rank, UDP source port, packets). `events`: dicts with time_ns, kind and their own fields.
    `loop`: how the event loop kept up (wake-ups, lateness percentiles in ns of fabric time, CPU seconds, wall seconds).
    `reorder`: histogram {distance in packets: count}. `arrivals`: by rank, when full packets arrived (fabric ns, kernel
    stamps; negative where a shorter or trimmed one came since the one before). `probes`: idle probes before and after (src
    rank, dst rank, frame bytes, one-way ns, -1 if lost). `values`: with `--values`, the average each rank arrived at.
    `problem`: why the run could not finish, or None.
    """

    moves: list[MoveRecord]
    hosts: list[HostRecord] | list[KernelHostRecord]
    start_monotonic_ns: int
    end_ns: int
    wrong: int
    checked: int
    values: list[tuple[int, float]] | None
    rates: dict[str, list[Any]]
    paths: list[tuple[int, int, int, int]]
    events: list[dict[str, Any]]
    loop: dict[str, float]
    reorder: dict[str, int]
    arrivals: dict[str, list[int]] = field(default_factory=dict)
    probes: list[tuple[int, int, int, int]] = field(default_factory=list)
    problem: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkerResult:
        """From plain data as `to_json` makes it."""
        raw = dict(data)
        raw["moves"] = [MoveRecord(**m) for m in raw["moves"]]
        kernel = any(h["tx_data"] is None for h in raw["hosts"])
        raw["hosts"] = [KernelHostRecord(**h) if kernel else HostRecord(**h) for h in raw["hosts"]]
        raw["paths"] = [tuple(p) for p in raw["paths"]]
        raw["probes"] = [tuple(p) for p in raw["probes"]]
        if raw["values"] is not None:
            raw["values"] = [tuple(v) for v in raw["values"]]
        return cls(**raw)
