"""Makes a raw result (docs/raw-results.md) from a toy packet model, to test tables and pages on any machine.

The model: store-and-forward ports with one byte FIFO, marking between kmin and kmax, senders that cut on a mark and
grow with time, a loss found by time-out. It is no judge of any algorithm; only its files must look like a real run's.
"""

from __future__ import annotations

import heapq
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

MTU = 4096
HEADERS = 14 + 20 + 8 + 12 + 16 + 4  # Ethernet, IPv4, UDP, BTH, RETH, ICRC
WIRE = 24  # preamble, gap, FCS
BINS = 64


@dataclass
class Port:
    """One egress port of the toy."""

    name: str
    number: int
    rate: int
    delay: int
    limit: int
    kmin: int
    kmax: int
    last_hop: bool
    backlog: int = 0
    free_at: int = 0
    seen: dict[str, list[int]] = field(default_factory=lambda: {"control": [0, 0], "data": [0, 0]})
    tx: dict[str, list[int]] = field(default_factory=lambda: {"control": [0, 0], "data": [0, 0]})
    dropped: int = 0
    marked: int = 0
    above: int = 0
    peak: int = 0
    hist: dict[str, list[int]] = field(default_factory=lambda: {"control": [0] * BINS, "data": [0] * BINS})

    @property
    def bin_bytes(self) -> int:
        """Width of a histogram bin."""
        return -(-self.limit // BINS)


@dataclass
class Flow:
    """A sender's state for one (flow, destination)."""

    rate: float
    last_cut: int = -1
    rtt: int = 0


class Toy:
    """The leaf-spine 2x2x4 fabric and what runs on it."""

    def __init__(self, seed: int, *, rate: int = 100_000_000_000, limit: int = 256_000, cc: bool = True) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.cc = cc
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.count = 0
        self.ports: dict[str, Port] = {}
        self.rate = rate
        self.log: list[dict[str, Any]] = []
        self.rates: dict[str, list[Any]] = {
            k: [] for k in ("time_ns", "flow", "qp", "rate_bps", "window_bytes", "rtt_ns", "trigger", "alpha")
        }
        self.paths: dict[tuple[int, int, int], int] = {}
        self.reorder: dict[str, int] = {}
        self.samples: list[tuple[int, ...]] = []
        self.ticks: list[int] = []
        self.hosts = [f"host{i}" for i in range(8)]
        self.sent_frames = dict.fromkeys(self.hosts, 0)
        self.got_frames = dict.fromkeys(self.hosts, 0)
        pairs = [(h, f"leaf{i // 4}") for i, h in enumerate(self.hosts)]
        pairs += [(f"leaf{i}", f"spine{j}") for i in range(2) for j in range(2)]
        for a, b in pairs:
            for x, y in ((a, b), (b, a)):
                self.ports[f"{x}:{y}"] = Port(
                    f"{x}:{y}", len(self.ports), rate, 500, limit, 32_000, 128_000, y.startswith("host")
                )

    def at(self, when: int, fn: Callable[..., None], *args: Any) -> None:
        """Call `fn` at `when`."""
        self.count += 1
        heapq.heappush(self.events, (when, self.count, fn, args))

    def path(self, src: int, dst: int, entropy: int) -> list[str]:
        """The ports a packet crosses."""
        a, b = f"leaf{src // 4}", f"leaf{dst // 4}"
        nodes = (
            [f"host{src}", a, f"host{dst}"]
            if a == b
            else [f"host{src}", a, f"spine{(entropy * 7 + src) % 2}", b, f"host{dst}"]
        )
        return [f"{x}:{y}" for x, y in pairwise(nodes)]

    def send(self, packet: dict[str, Any]) -> None:
        """Hand a packet to its next port."""
        port = self.ports[packet["path"][packet["hop"]]]
        cls, size = packet["cls"], packet["bytes"]
        port.seen[cls][0] += 1
        port.seen[cls][1] += size
        port.hist[cls][min(BINS - 1, port.backlog // port.bin_bytes)] += 1
        if cls == "data" and port.backlog > port.kmin:
            port.above += 1
            if not packet["ce"] and self.rng.random() < min(
                1.0, 0.2 * (port.backlog - port.kmin) / (port.kmax - port.kmin)
            ):
                packet["ce"] = True
                port.marked += 1
        if port.backlog + size > port.limit:
            port.dropped += 1
            packet["lost"](packet)
            return
        port.backlog += size
        port.peak = max(port.peak, port.backlog)
        port.free_at = max(port.free_at, self.now) + (size + WIRE) * 8 * 10**9 // port.rate
        self.at(port.free_at, self.leave, port, packet)

    def leave(self, port: Port, packet: dict[str, Any]) -> None:
        """The last bit left the port."""
        port.backlog -= packet["bytes"]
        port.tx[packet["cls"]][0] += 1
        port.tx[packet["cls"]][1] += packet["bytes"]
        packet["hop"] += 1
        done = packet["hop"] == len(packet["path"])
        self.at(self.now + port.delay, packet["arrive"] if done else self.send, packet)

    def note(self, flow: int, state: Flow, trigger: str) -> None:
        """A row of the rates."""
        row = (self.now, flow, flow, state.rate, None, state.rtt or None, trigger, round(1 - state.rate / self.rate, 4))
        for column, value in zip(self.rates.values(), row, strict=True):
            column.append(value)

    def sample(self, period: int, gap: tuple[int, int]) -> None:
        """One sampling round of every port, unless inside the gap."""
        if not gap[0] <= self.now < gap[1]:
            for p in self.ports.values():
                for c, name in enumerate(("control", "data")):
                    drop = p.dropped if name == "data" else 0
                    self.samples.append(
                        (
                            self.now,
                            p.number,
                            c,
                            p.backlog if c else 0,
                            p.seen[name][0] - drop,
                            drop,
                            p.marked if c else 0,
                            -1,
                        )
                    )
            self.ticks.append(self.now)
        if self.events:
            self.at(self.now + period, self.sample, period, gap)

    def run(self, moves: list[dict[str, Any]], period: int, gap: tuple[int, int], entropies: int) -> None:
        """Everything until nothing is left to do."""
        waiting = {m["id"]: set(m["needs"]) for m in moves}
        flows: dict[int, Flow] = {}

        def start(move: dict[str, Any]) -> None:
            move["start_ns"] = self.now
            flow = flows.setdefault(move["flow"], Flow(float(self.rate)))
            self.note(move["flow"], flow, "start")
            pump(move, flow)

        def pump(move: dict[str, Any], flow: Flow) -> None:
            if move["again"]:
                move["retransmitted"] += 1
                emit(move, flow, move["again"].pop(0))
            elif move["next"] < move["packets"]:
                emit(move, flow, move["next"])
                move["next"] += 1
            if move["got"] >= move["packets"]:
                return
            self.at(self.now + int((MTU + HEADERS + WIRE) * 8e9 / flow.rate), pump, move, flow)

        def emit(move: dict[str, Any], flow: Flow, index: int) -> None:
            entropy = 49152 + ((move["flow"] * 5) % 4096 if entropies == 1 else self.rng.randrange(entropies))
            key = (move["src"], move["dst"], entropy)
            self.paths[key] = self.paths.get(key, 0) + 1
            move["sent"] += 1
            self.sent_frames[f"host{move['src']}"] += 1
            size = min(MTU, move["size"] - index * MTU) + HEADERS
            self.send(
                {
                    "path": self.path(move["src"], move["dst"], entropy),
                    "hop": 0,
                    "cls": "data",
                    "bytes": size,
                    "ce": False,
                    "index": index,
                    "at": self.now,
                    "arrive": lambda p: arrive(move, flow, p),
                    "lost": lambda p: self.at(self.now + 60_000, again, move, flow, index),
                }
            )

        def again(move: dict[str, Any], flow: Flow, index: int) -> None:
            move["again"].append(index)
            if self.now - flow.last_cut > 50_000:
                move["timeouts"] += 1
                flow.rate, flow.last_cut = max(self.rate / 100, flow.rate / 2), self.now
                self.note(move["flow"], flow, "timeout")
                self.log.append({"time_ns": self.now, "kind": "timeout", "flow": move["flow"], "packets": 1})

        def arrive(move: dict[str, Any], flow: Flow, packet: dict[str, Any]) -> None:
            self.got_frames[f"host{move['dst']}"] += 1
            move["got"] += 1
            behind = move["high"] - packet["index"]
            if behind > 0:
                move["reordered"] += 1
                self.reorder[str(behind)] = self.reorder.get(str(behind), 0) + 1
            move["high"] = max(move["high"], packet["index"])
            flow.rtt = 2 * (self.now - packet["at"])
            if packet["ce"]:
                move["ce"] += 1
                if self.cc and self.now - flow.last_cut > 12_000:
                    flow.rate, flow.last_cut = max(self.rate / 100, flow.rate * 0.6), self.now
                    self.note(move["flow"], flow, "cnp")
            if move["got"] % 4 == 0 or move["got"] == move["packets"]:
                ack(move, move["got"] == move["packets"])
            if move["got"] == move["packets"]:
                move["delivered_ns"] = self.now
                for other in moves:
                    if move["id"] in waiting[other["id"]]:
                        waiting[other["id"]].discard(move["id"])
                        if not waiting[other["id"]]:
                            self.at(self.now + 200, start, other)

        def ack(move: dict[str, Any], last: bool) -> None:
            def back(_: dict[str, Any]) -> None:
                self.got_frames[f"host{move['src']}"] += 1
                if last:
                    move["acked_ns"] = self.now

            self.sent_frames[f"host{move['dst']}"] += 1
            self.send(
                {
                    "path": self.path(move["dst"], move["src"], 0),
                    "hop": 0,
                    "cls": "control",
                    "bytes": 62,
                    "ce": False,
                    "arrive": back,
                    "lost": lambda p: None,
                }
            )

        def grow() -> None:
            for number, flow in flows.items():
                if self.now - flow.last_cut > 12_000 and flow.rate < self.rate:
                    flow.rate = min(float(self.rate), flow.rate + self.rate / 40)
                    self.note(number, flow, "increase")
            if any(m["delivered_ns"] < 0 for m in moves):
                self.at(self.now + 12_000, grow)

        for move in moves:
            if not move["needs"]:
                self.at(move.pop("begin", 0), start, move)
        self.at(12_000, grow)
        self.at(0, self.sample, period, gap)
        while self.events:
            self.now, _, fn, args = heapq.heappop(self.events)
            fn(*args)


def _move(number: int, **fields: Any) -> dict[str, Any]:
    base = {
        "id": number,
        "flow": 0,
        "step": 0,
        "needs": [],
        "start_ns": -1,
        "delivered_ns": -1,
        "acked_ns": -1,
        "sent": 0,
        "retransmitted": 0,
        "reordered": 0,
        "ce": 0,
        "trimmed": 0,
        "timeouts": 0,
        "next": 0,
        "got": 0,
        "high": -1,
        "again": [],
    }
    base.update(fields)
    base["packets"] = -(-base["size"] // MTU)
    return base


def incast_moves(senders: int, size: int) -> list[dict[str, Any]]:
    """`senders` hosts to the last one."""
    return [_move(i, src=i, dst=7, size=size, flow=i, begin=i * 300) for i in range(senders)]


def ring_moves(ranks: int, size: int) -> list[dict[str, Any]]:
    """A ring all-reduce: 2(N-1) steps, each rank sends a chunk to the next one."""
    chunk = size // ranks
    return [
        _move(
            step * ranks + r,
            src=r,
            dst=(r + 1) % ranks,
            size=chunk,
            step=step,
            flow=r,
            needs=[(step - 1) * ranks + (r - 1) % ranks] if step else [],
        )
        for step in range(2 * (ranks - 1))
        for r in range(ranks)
    ]


def make(
    run_dir: Path,
    kind: str,
    *,
    seed: int = 1,
    transport: str = "roce",
    cc: str = "dcqcn",
    bytes_: int | None = None,
    gap: tuple[int, int] | None = None,
) -> Path:
    """Write `raw/`, `manifest.json` and `environment.json` of one toy run into `run_dir`; returns it."""
    size = bytes_ or (1_000_000 if kind == "incast" else 4_000_000)
    moves = incast_moves(7, size) if kind == "incast" else ring_moves(8, size)
    toy = Toy(seed, cc=cc != "none", limit=1_000_000 if cc != "none" else 256_000)
    period = 2_000
    toy.run(moves, period, gap or (200_000, 214_000), 64 if transport == "mrc" else 1)
    name = "incast-7to1" if kind == "incast" else "allreduce-ring-8"
    run_id = f"20261129-161200-{name}-{cc}"
    raw = run_dir / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    fields = (
        "id",
        "flow",
        "step",
        "src",
        "dst",
        "size",
        "start_ns",
        "delivered_ns",
        "acked_ns",
        "sent",
        "retransmitted",
        "reordered",
        "ce",
        "trimmed",
        "timeouts",
    )
    records = [{**{k: m[k] for k in fields}, "bytes_acked": m["size"]} for m in moves]
    ranks = 8
    hosts = [
        {
            "rank": r,
            "tx_packets": toy.sent_frames[h],
            "tx_bytes": toy.sent_frames[h] * MTU,
            "tx_data": 0,
            "tx_control": 0,
            "rx_packets": toy.got_frames[h],
            "rx_bytes": toy.got_frames[h] * MTU,
            "rx_ce": 0,
            "rx_trimmed": 0,
            "rx_foreign": 0,
            "icrc_errors": 0,
            "enobufs": 0,
            "kernel_drops": 0,
            "cnp_sent": 0,
            "naks_sent": 0,
        }
        for r, h in enumerate(toy.hosts)
    ]
    for m in moves:
        hosts[m["src"]]["tx_data"] += m["sent"]
        hosts[m["dst"]]["rx_ce"] += m["ce"]
    end = max(m["delivered_ns"] for m in moves)
    worker = {
        "moves": records,
        "hosts": hosts,
        "start_monotonic_ns": 0,
        "end_ns": end,
        "wrong": 0,
        "checked": size // 4 * ranks if kind != "incast" else 7 * size,
        "values": None,
        "rates": toy.rates,
        "paths": [[*k, v] for k, v in sorted(toy.paths.items())],
        "events": toy.log,
        "loop": {"wakeups": 1000.0, "late_p50_ns": 40.0, "late_p99_ns": 310.0, "cpu_s": 0.8, "wall_s": 2.1},
        "reorder": dict(sorted(toy.reorder.items(), key=lambda kv: int(kv[0]))),
        "problem": None,
    }
    ports = {
        p.name: {
            "number": p.number,
            "classes": {
                c: {
                    "tx_packets": p.tx[c][0],
                    "tx_bytes": p.tx[c][1],
                    "dropped": p.dropped if c == "data" else 0,
                    "backlog_bytes": 0,
                }
                for c in ("control", "data")
            },
            "seen_packets": sum(v[0] for v in p.seen.values()),
            "seen_bytes": sum(v[1] for v in p.seen.values()),
            "marked": p.marked,
            "trimmed": None,
            "lost": 0,
            "max_bytes": p.peak,
            "above_kmin": p.above,
            "ect_packets": p.seen["data"][0],
            "histogram": p.hist,
            "bin_bytes": p.bin_bytes,
            "mean_bytes": _mean(p),
        }
        for p in toy.ports.values()
    }
    columns = list(zip(*toy.samples, strict=True))
    names = ("time_ns", "port", "cls", "backlog_bytes", "enqueued", "dropped", "marked", "trimmed")
    kinds = (np.int64, np.int32, np.uint8, np.int64, np.int64, np.int64, np.int64, np.int64)
    arrays = {n: np.array(c, dtype=k) for n, c, k in zip(names, columns, kinds, strict=True)}
    np.savez_compressed(
        raw / "samples.npz", tick_ns=np.array(toy.ticks, dtype=np.int64), period_ns=np.int64(period), **arrays
    )
    plan = {
        "run_id": run_id,
        "seed": seed,
        "tdf": 1,
        "delay_mode": "netem",
        "nodes": [
            {"name": n, "kind": n.rstrip("0123456789")} for n in [*toy.hosts, "leaf0", "leaf1", "spine0", "spine1"]
        ],
        "ports": [
            {
                "name": p.name,
                "node": p.name.split(":")[0],
                "peer": p.name.split(":")[1],
                "number": p.number,
                "rate_bps": p.rate,
                "delay_ns": p.delay,
                "fabric_rate_bps": p.rate,
                "fabric_delay_ns": p.delay,
                "limit_bytes": p.limit,
                "kmin_bytes": p.kmin,
                "kmax_bytes": p.kmax,
                "pmax": 0.2,
                "mark": True,
                "trim": False,
                "loss": 0.0,
                "up": True,
                "last_hop": p.last_hop,
            }
            for p in toy.ports.values()
        ],
    }
    workload = (
        {"kind": "incast", "senders": 7, "receiver": 7, "bytes": size, "rounds": 1}
        if kind == "incast"
        else {"kind": "allreduce", "algorithm": "ring", "ranks": 8, "bytes": size}
    )
    manifest = {
        "format": 1,
        "run_id": run_id,
        "experiment": {"name": name, "workload": workload, "transport": {"kind": transport, "cc": cc, "mtu": MTU}},
        "topology": {"name": "leaf-spine-2x2x4"},
        "clock": {"mode": "virtual", "tdf": 1, "wall_s": 2.1},
        "seed": seed,
        "versions": {},
        "command": ["fabriclab", kind],
    }
    softnet = {"start": {"dropped": 0, "squeezed": 0}, "end": {"dropped": 0, "squeezed": 0}}
    applied = {"start": {}, "end": {}, "differences": {"start": [], "end": []}}
    for folder, file, content in (
        (raw, "worker", worker),
        (raw, "ports", ports),
        (raw, "plan", plan),
        (raw, "softnet", softnet),
        (raw, "applied", applied),
        (run_dir, "manifest", manifest),
        (run_dir, "environment", {}),
    ):
        (folder / f"{file}.json").write_text(json.dumps(content))
    return run_dir


def _mean(port: Port) -> float | None:
    count = sum(port.hist["data"])
    return sum((i + 0.5) * port.bin_bytes * n for i, n in enumerate(port.hist["data"])) / count if count else None


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2])
