"""The experiment file: what `run SPEC.yaml` reads, `--save-spec` writes and every run command makes from its flags."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from emulator.topology.fields import Delay, Size, Span, Strict

ClockName = Literal["real", "virtual", "auto"]
TransportKind = Literal["roce", "mrc", "tcp"]


class Workload(Strict):
    """What crosses the fabric. `params` are those of the workload's kind (`senders`, `receiver`, `rounds`, `ranks` …)."""

    kind: str = Field(description="Workload: incast, allreduce, all_to_all, permutation, pairs, victim, staggered …")
    algorithm: str | None = Field(
        default=None, description="Algorithm of a collective; the kind's first one if left out."
    )
    bytes: Size = Field(default=1_000_000, description="Bytes of one flow, or of the vector of a collective.")
    params: dict[str, Any] = Field(default_factory=dict, description="Further parameters of the kind.")
    values: tuple[float, ...] | None = Field(
        None, description="One number a rank: an all-reduce of these (as --values)."
    )


class Deny(Strict):
    """A path controller's order: entropy values whose path crosses a switch or a port are not used for a time."""

    via: str = Field(description="A switch (spine1) or a port (leaf0:spine1).")
    at: Delay = Field(default=0, description="From when on, counted from the start of the traffic.")
    until: Delay | None = Field(default=None, description="When they are allowed again; never if left out.")


class Transport(Strict):
    """The transport on every host and how it behaves; a time left out is derived from the fabric and shown in the manifest."""

    kind: TransportKind = Field(
        default="roce", description="roce (one path, RC), mrc (sprayed), tcp (the kernel's own)."
    )
    cc: str | None = Field(default=None, description="Congestion control: see `fabriclab cc list`; or FILE.py:Class.")
    cc_preset: str | None = Field(default=None, description="A published set of parameters of that algorithm.")
    cc_params: dict[str, Any] = Field(default_factory=dict, description="Single parameters of the algorithm.")
    ecn: bool | None = Field(
        default=None,
        strict=True,
        description="tcp: negotiate ECN; with dctcp alone if left out. Others always have it.",
    )
    mtu: Literal[256, 512, 1024, 2048, 4096] = Field(
        default=4096, description="Payload bytes of a full packet (path MTU)."
    )
    recovery: Literal["gbn", "selective"] | None = Field(
        default=None, description="roce: go-back-N (gbn, the default) or selective repeat (IRN)."
    )
    bdp_cap: bool | None = Field(
        default=None,
        strict=True,
        description="roce, selective: at most one BDP in flight, as IRN has it; true if left out.",
    )
    qps: int = Field(
        default=1, strict=True, ge=1, le=64, description="Queue pairs between two hosts; messages are striped."
    )
    spray: Literal["oblivious", "bitmap", "reps", "flowlet", "ecmp"] | None = Field(
        default=None,
        description="mrc: how entropy values are picked; bitmap, MRC's own skipping of marked ones, if left out.",
    )
    entropy: int | None = Field(
        default=None, strict=True, ge=1, le=4096, description="mrc: entropy values of a queue pair; 64 if left out."
    )
    entropy_set: Literal["even", "lot"] | None = Field(
        default=None,
        description="mrc: as many entropy values on each path (even, the default), or any that the hash spreads as it will.",
    )
    deny: tuple[Deny, ...] = Field(default=(), description="mrc: paths that the controller forbids, and when.")
    trim: Literal["on", "off", "topology"] = Field(
        default="topology",
        description="mrc: switches trim packets that do not fit: all, none, or as the topology says.",
    )
    ack_every: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=64,
        description="Packets an acknowledgement, at most; left out 4, or 1 with roce where the algorithm lives by them.",
    )
    timeout: Delay | None = Field(
        default=None, ge=1, description="Retransmission timer; derived from path and queues if left out."
    )
    timeout_low: Delay | None = Field(
        default=None,
        ge=1,
        description="roce, selective: the timer while three packets or fewer are in flight (IRN's RTO_low).",
    )
    adaptive_timeout: bool | None = Field(
        default=None,
        strict=True,
        description="Double the timer at fruitless retries (mrc: from the fourth); true if left out.",
    )
    retry_count: int | None = Field(
        default=None,
        strict=True,
        ge=0,
        le=25,
        description="Fruitless retries before the connection fails; 7 if left out.",
    )
    reorder_window: Delay | None = Field(
        default=None, description="mrc: how much later a packet may come before it is lost."
    )
    probe_interval: Delay | None = Field(
        default=None, ge=1, description="mrc: how often each path assumed bad is probed; 100us if left out."
    )
    probes_needed: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=100,
        description="mrc: answered probes that bring a path back; 3 if left out.",
    )


class Experiment(Strict):
    """One experiment. The topology is a file's path, relative to the experiment file."""

    name: str = Field(default="", description="Names the run directory; derived from the workload if left out.")
    topology: str = Field(description="Path of the topology file.")
    topology_set: tuple[str, ...] = Field(
        default=(), description="Settings put over the topology file (`uplink.rate=25Gbit`)."
    )
    workload: Workload
    transport: Transport = Field(default_factory=Transport)
    clock: ClockName = Field(default="auto", description="real, virtual, or auto (doctor's choice, explained).")
    tdf: Literal["auto"] | int = Field(default="auto", description="Time dilation factor on the real clock.")
    seed: int = Field(default=1, ge=0, description="Seed of everything random; 0 is a seed like any other.")
    sample: Delay | None = Field(
        default=None, ge=1, description="Queue sampling period; derived from the clock if left out."
    )
    pcap: tuple[str, ...] = Field(
        default=(), description="Ports to capture: names, patterns (`leaf0:*`) or `all`; what leaves each of them."
    )
    pcap_snap: Size | None = Field(
        default=None,
        description="Bytes kept of a captured packet; if left out 256 on the real clock, all on the virtual one.",
    )
    time_limit: Span = Field(default=1_000_000_000, ge=1, description="Longest fabric time the traffic may take.")
    wall_limit_s: float = Field(
        default=300.0, gt=0, allow_inf_nan=False, description="Longest wall time the run may take, in seconds."
    )
