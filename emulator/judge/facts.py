"""From what a run left behind (docs/raw-results.md, the manifest) to the plain numbers that the invariants take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.judge.conservation import HostCount, PortCount
from emulator.judge.invariants import Cpu, Probe, Timing
from emulator.judge.marking import PortMarks, marking_note, reached
from emulator.judge.program import ProgramEnd
from emulator.judge.rate import PortSeries
from emulator.judge.remedy import MADE_AGAIN
from emulator.judge.series import last_port_gaps, port_series
from emulator.judge.theory import Bound, Theory
from emulator.judge.wires import Wires
from traffic.collective.schedule import Move, Schedule

_ACK_BYTES = 60


@dataclass
class Facts:
    """Everything the judge looks at. None and empty mean "not known", and lead to `not-modelled`."""

    clock: str
    tdf: int
    transport: str
    differences: Mapping[str, Sequence[str]] | None = None
    series: list[PortSeries] = field(default_factory=list)
    gaps: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    probes: list[Probe] | None = None
    unmodelled_ns: int = 0
    tx_packets: int | None = None
    enobufs: int | None = None
    late_p99_ns: float | None = None
    base_rtt_ns: float | None = None
    ports: list[PortCount] = field(default_factory=list)
    hosts: list[HostCount] = field(default_factory=list)
    hidden: dict[str, int | None] = field(default_factory=dict)
    cpu: Cpu | None = None
    ticks_ns: NDArray[np.int64] | None = None
    period_ns: int = 0
    end_ns: int = 0
    watched_ns: int = 0
    marking: list[PortMarks] = field(default_factory=list)
    ce_seen: int | None = None
    single_path: bool | None = None
    reordered: int = 0
    retransmitted: int = 0
    packets: int = 0
    gaps_told: int = 0
    lost: int | None = None
    transfers: int = 0
    unfinished: int = 0
    wrong: int = 0
    checked: int = 0
    problem: str | None = None
    program: ProgramEnd | None = None
    repeats: Sequence[float] = ()
    whole: Timing | None = None
    each: list[Timing] = field(default_factory=list)
    clock_step_ns: float | None = None
    bound: Bound | None = None
    notes: list[str] = field(default_factory=list)


def facts_from_raw(
    raw: Mapping[str, Any],
    manifest: Mapping[str, Any],
    *,
    schedule: Schedule | None = None,
    repeats: Sequence[float] = (),
) -> Facts:
    """The facts of a run.

    `raw` holds `worker`, `ports`, `plan`, and where the run has them `applied`, `softnet`, `samples`, `probes`, by the names
    of their files. Of the manifest: `clock` {mode, tdf} and `transport` {kind, mtu, options {spray}}, at the top or in the
    experiment. `schedule` sharpens the bound of F14, for the records of moves do not say what each waited for; `repeats` are
    the headline numbers of runs with one seed, this one included.
    """
    clock, transport = _part(manifest, "clock"), _part(manifest, "transport")
    worker, plan = raw.get("worker") or {}, raw["plan"]
    facts = Facts(
        clock=str(clock.get("mode") or "real"),
        tdf=int(clock.get("tdf") or plan.get("tdf") or 1),
        transport=str(transport.get("kind") or "unknown"),
        differences=(raw.get("applied") or {}).get("differences"),
        probes=[Probe(**p) for p in raw["probes"]] if raw.get("probes") else None,
        unmodelled_ns=int(plan.get("unmodelled_delay_ns") or 0),
        end_ns=int(worker.get("end_ns", 0)),
        repeats=tuple(repeats),
        notes=[*_made_again(clock), *plan.get("notes", ()), *(transport.get("notes") or ())],
    )
    names = [str(n["name"]) for n in plan["nodes"] if n["kind"] == "host"]
    mtu = int(transport.get("mtu") or 4096)
    theory = Theory(Wires.from_plan(plan), mtu)
    _agents(facts, worker, names)
    _moves(facts, worker, str((transport.get("options") or {}).get("spray") or ""))
    _ports(facts, raw.get("ports") or {}, plan)
    _losses(facts, worker)
    if facts.transport == "tcp":
        _kernel_hosts(facts, worker, names)
    _samples(facts, raw, mtu, names)
    _machine(facts, raw.get("softnet") or {})
    _theory(facts, worker, theory, schedule)
    if raw.get("program"):
        _program(facts, raw["program"], manifest)
    facts.notes += [marking_note(facts.marking), reached("PFC", False, None, 0, "")]
    return facts


def _made_again(clock: Mapping[str, Any]) -> list[str]:
    why = str(clock.get("why") or "")
    return [f"{why}; the first attempt is in the folder spoiled"] if why.startswith(MADE_AGAIN) else []


def _program(facts: Facts, told: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    facts.program = ProgramEnd.of(told, manifest["resolved"]["workload"])
    if facts.transport != "tcp":
        # Beside the agents the program's own TCP sends, at least to bring its ranks together.
        facts.hosts = [HostCount(host.name, None, None) for host in facts.hosts]
        if told.get("tcp_bytes"):
            facts.notes.append(f"beside the agents the program sent {told['tcp_bytes']} bytes by TCP of its own")
    for name, ends in sorted((told.get("other_congestion_control") or {}).items()):
        facts.notes.append(f"{ends} ends of connections used {name}, which the program itself chose")
    if facts.tdf > 1:
        facts.notes.append(
            f"the program saw wall time: at TDF {facts.tdf} a rate it prints is 1/{facts.tdf} of the fabric's; "
            "all numbers here are fabric time"
        )


def _part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    experiment = manifest.get("experiment")
    for place in (manifest, experiment):
        if isinstance(place, Mapping) and isinstance(place.get(name), Mapping):
            found: Mapping[str, Any] = place[name]
            return found
    return {}


def _agents(facts: Facts, worker: Mapping[str, Any], names: Sequence[str]) -> None:
    """What the agents counted at their sockets. Kernel TCP has no agents that count packets."""
    hosts = worker.get("hosts") or []
    loop = worker.get("loop") or {}
    facts.late_p99_ns = loop.get("late_p99_ns")
    facts.clock_step_ns = loop.get("clock_step_ns")
    if facts.transport == "tcp" or not hosts:
        facts.hosts = [HostCount(name, None, None) for name in names]
        return
    facts.hosts = [
        HostCount(names[h["rank"]], h["tx_packets"], h["rx_packets"] + h["rx_foreign"], h["kernel_drops"])
        for h in hosts
    ]
    facts.tx_packets = sum(h["tx_packets"] for h in hosts)
    facts.enobufs = sum(h["enobufs"] for h in hosts)
    facts.ce_seen = sum(h["rx_ce"] for h in hosts)
    facts.hidden["packet sockets"] = sum(h["kernel_drops"] for h in hosts)


def _kernel_hosts(facts: Facts, worker: Mapping[str, Any], names: Sequence[str]) -> None:
    """What the hosts' kernels counted of their TCP packets. They count what they hand to a port also where it drops it."""
    known = {names[h["rank"]]: h for h in worker.get("hosts") or []}
    if not known:
        return
    refused: dict[str, int] = {}
    for port in facts.ports:
        refused[port.node] = refused.get(port.node, 0) + port.dropped
    facts.hosts = [
        HostCount(
            name,
            None if (sent := known[name]["tx_packets"]) is None else sent - refused.get(name, 0),
            known[name]["rx_packets"],
        )
        if name in known
        else HostCount(name, 0, 0)
        for name in names
    ]
    marks = [h["rx_ce"] for h in known.values()]
    facts.ce_seen = None if None in marks else sum(marks)
    drops = [h["kernel_drops"] for h in known.values() if h["kernel_drops"] is not None]
    facts.hidden["TCP receive queues"] = sum(drops) if drops else None


def _moves(facts: Facts, worker: Mapping[str, Any], spray: str) -> None:
    moves = worker.get("moves") or []
    facts.transfers = len(moves)
    facts.unfinished = sum(m["delivered_ns"] < 0 for m in moves)
    facts.wrong, facts.checked = int(worker.get("wrong") or 0), int(worker.get("checked") or 0)
    problem = worker.get("problem")
    facts.problem = str(problem["what"]) if problem else None
    if facts.transport in ("roce", "mrc") and moves:
        facts.single_path = facts.transport == "roce" or spray == "ecmp"
        facts.reordered = sum(m["reordered"] for m in moves)
        facts.retransmitted = sum(m["retransmitted"] for m in moves)
        facts.packets = sum(m["sent"] for m in moves)


def _ports(facts: Facts, ports: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    made = sum(p.get("marked") or 0 for p in ports.values())
    for planned in plan["ports"]:
        port = ports.get(planned["name"])
        if port is None:
            continue
        classes = port["classes"].values()
        sent = [c["tx_packets"] for c in classes]
        dropped, lost = sum(c["dropped"] or 0 for c in classes), port.get("lost") or 0
        if None not in sent:
            facts.ports.append(
                PortCount(
                    name=planned["name"],
                    node=planned["node"],
                    peer=planned["peer"],
                    seen=port.get("seen_packets"),
                    sent=sum(sent),
                    dropped=dropped,
                    lost=lost,
                    backlog_bytes=sum(c["backlog_bytes"] or 0 for c in classes),
                    unforeseen=_unforeseen(port),
                )
            )
        histogram = (port.get("histogram") or {}).get("data")
        unable = max(0, sum(histogram) - (port.get("ect_packets") or 0)) if histogram else 0
        others = made - (port.get("marked") or 0)
        facts.marking.append(
            PortMarks(
                name=planned["name"],
                marks=bool(planned["mark"]),
                kmin_bytes=planned["kmin_bytes"],
                kmax_bytes=planned["kmax_bytes"],
                pmax=planned["pmax"],
                marked=port.get("marked"),
                max_bytes=port.get("max_bytes"),
                dropped=dropped + lost,
                ce_dropped=port.get("ce_dropped"),
                above_kmin=port.get("above_kmin"),
                histogram=tuple(histogram) if histogram else None,
                bin_bytes=port.get("bin_bytes") or 0,
                uncertain=unable + dropped + lost + (port.get("trimmed") or 0) + others,
                ect=port.get("ect_packets"),
            )
        )


def _losses(facts: Facts, worker: Mapping[str, Any]) -> None:
    """Gaps that roce's receivers complained of, and all that ports, hosts and damage lost."""
    hosts = worker.get("hosts") or []
    if facts.transport != "roce" or not facts.ports or not hosts:
        return
    facts.gaps_told = int((worker.get("loop") or {}).get("naks_sent") or 0)
    at_hosts = sum(h["kernel_drops"] + h["enobufs"] + h.get("icrc_errors", 0) for h in hosts)
    facts.lost = sum(p.dropped + p.lost for p in facts.ports) + at_hosts


def _unforeseen(port: Mapping[str, Any]) -> int:
    """Drops of the data queue that its program did not see coming; 0 where no program looks."""
    if port.get("overflow") is None:
        return 0
    return int((port["classes"]["data"]["dropped"] or 0) - port["overflow"])


def _samples(facts: Facts, raw: Mapping[str, Any], mtu: int, names: Sequence[str]) -> None:
    samples = raw.get("samples")
    if not samples or not int(samples["period_ns"]):
        return
    facts.period_ns = int(samples["period_ns"])
    slept = samples.get("slept_ns", ())
    facts.ticks_ns = awake(np.asarray(samples["tick_ns"], dtype=np.int64), slept)
    facts.watched_ns = int(awake(np.array([facts.end_ns], dtype=np.int64), slept)[0])
    facts.series = port_series(samples, raw.get("ports") or {}, raw["plan"]["ports"], mtu)
    arrivals = (raw.get("worker") or {}).get("arrivals") or {}
    facts.gaps = last_port_gaps(arrivals, facts.series, raw["plan"], names, mtu)


def awake(times: NDArray[np.int64], slept: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Times counted without those in which nothing could move, so that no sample is missed there."""
    out = times.copy()
    for begin, end in slept:
        out -= np.clip(times - begin, 0, end - begin)
    return out


def _machine(facts: Facts, softnet: Mapping[str, Any]) -> None:
    """Differences of the machine's own counters over the run."""
    start, end = softnet.get("start") or {}, softnet.get("end") or {}

    def grown(key: str) -> int | None:
        return end[key] - start[key] if start.get(key) is not None and end.get(key) is not None else None

    facts.hidden["softnet backlog"] = grown("dropped")
    facts.hidden["UDP receive buffers"] = grown("udp_rcvbuf_errors")
    facts.hidden["captures"] = softnet.get("capture_drops")
    if not start.get("cpu_ticks") or not end.get("cpu_ticks"):
        return
    ticks = np.asarray(end["cpu_ticks"], dtype=np.float64) - np.asarray(start["cpu_ticks"], dtype=np.float64)
    total = ticks[:, :8].sum(axis=1)
    busy = total - ticks[:, 3] - ticks[:, 4] - ticks[:, 7]  # less idle, iowait, steal (/proc/stat, proc(5))
    if not total.sum():
        return
    wall, pressure, waited = grown("monotonic_ns"), grown("pressure_us"), grown("run_wait_ns")
    facts.cpu = Cpu(
        busiest_core=float((busy / np.maximum(total, 1)).max()),
        steal=float(ticks[:, 7].sum() / total.sum()),
        pressure=1000 * pressure / wall if wall and pressure is not None else None,
        waiting=waited / wall if wall and waited is not None else None,
    )


def _theory(facts: Facts, worker: Mapping[str, Any], theory: Theory, schedule: Schedule | None) -> None:
    """Bounds of the workload and of each transfer; records of moves stand in for a missing schedule (no needs)."""
    records = worker.get("moves") or []
    if not records:
        return
    floor = Theory(theory.wires, theory.mtu, floor=True)
    moves = schedule.moves if schedule is not None else tuple(
        Move(m["id"], m["src"], m["dst"], 0, 0, m["size"], step=m["step"], flow=m["flow"]) for m in records
    )  # fmt: skip
    pairs = {(m.src, m.dst) for m in moves}
    facts.base_rtt_ns = min(theory.latency_ns(a, b, theory.mtu) + theory.latency_ns(b, a, _ACK_BYTES) for a, b in pairs)
    facts.bound = theory.bound(moves)
    if facts.unfinished:
        return
    begin = min(m.start_ns for m in moves)
    ended = max(m["delivered_ns"] for m in records)
    facts.whole = Timing("the workload", ended - begin, facts.bound.ns - begin, floor.bound(moves).ns - begin)
    hosts = theory.wires.hosts
    for m in records:
        took = m["delivered_ns"] - m["start_ns"]
        least = floor.alone_ns(m["src"], m["dst"], m["size"])
        if took < least:
            what = f"{hosts[m['src']]}>{hosts[m['dst']]} (transfer {m['id']})"
            facts.each.append(Timing(what, took, theory.alone_ns(m["src"], m["dst"], m["size"]), least))
