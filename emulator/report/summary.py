"""The result of a run as `summary.json`, schema 1: fabric microseconds, Gbit/s (10^9), bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.collect.raw import Raw
from emulator.collect.store import Tables
from emulator.collect.tables import host_names, mtu_of
from traffic.collective.busbw import bandwidth, factor

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
MOST_PATHS = 16
COLLECTIVES = ("allreduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")


def make_summary(tables: Tables, raw: Raw | Path, manifest: Mapping[str, Any], verdict: object,
                 bound_ns: float | None = None) -> dict[str, Any]:  # fmt: skip
    """The summary of a run, as docs/run-directory.md lists it.

    `verdict` is the judge's (a dataclass, an object with `to_json`, or its JSON form). `bound_ns` is the theory's bound
    of the whole workload; without it the bound knows nothing of moves that wait for others.
    """
    raw = raw if isinstance(raw, Raw) else Raw(Path(raw))
    hosts = host_names(raw)
    workload, transport, clock = part(manifest, "workload"), part(manifest, "transport"), part(manifest, "clock")
    span = _span_ns(tables.flows)
    bound = bound_ns if bound_ns is not None else _cut_bound_ns(raw, mtu_of(manifest))
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": manifest.get("run_id"),
        "experiment": experiment_name(manifest),
        "fabric": _fabric(raw, manifest),
        "clock": {"mode": clock.get("mode"), "tdf": clock.get("tdf"), "wall_s": _round(_wall_s(clock, raw), 3)},
        "seed": manifest.get("seed"),
        "transport": {
            "kind": transport.get("kind"),
            "cc": transport.get("cc"),
            "mtu": transport.get("mtu"),
            "paths": int(tables.flows["paths"].max()) if len(tables.flows) else None,
        },
        "verdict": verdict_json(verdict),
        "packets": _packets(raw),
        "flows": _flows(tables.flows, span),
    }
    collective = _collective(workload, raw, span, len(hosts))
    if collective is not None:
        summary["collective"] = collective
    summary["queues"] = queues(raw)
    summary["paths"] = paths(raw)
    ratio = _round(span / bound, 4) if span and bound else None
    summary["theory"] = {"bound_us": _us(bound), "ratio": ratio, "time_us": _us(span)}
    return summary


def write_summary(run_dir: Path, summary: Mapping[str, Any]) -> None:
    """Write `summary.json` and `summary.txt` into the run directory."""
    from emulator.report.text import summary_text

    (run_dir / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (run_dir / "summary.txt").write_text(summary_text(summary) + "\n", encoding="utf-8")


def part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of the manifest, whether it stands at the top or inside the experiment."""
    experiment = manifest.get("experiment")
    for place in (manifest, experiment):
        if isinstance(place, Mapping) and isinstance(place.get(name), Mapping):
            found: Mapping[str, Any] = place[name]
            return found
    return {}


def experiment_name(manifest: Mapping[str, Any]) -> str | None:
    """The experiment's name."""
    experiment = manifest.get("experiment")
    name = experiment.get("name") if isinstance(experiment, Mapping) else experiment
    return None if name is None else str(name)


def verdict_json(verdict: object) -> dict[str, Any]:
    """The JSON form of a verdict: `{word, reasons[], checks[]}`."""
    if isinstance(verdict, Mapping):
        return dict(verdict)
    convert = getattr(verdict, "to_json", None) or getattr(verdict, "to_dict", None)
    if convert is not None:
        return dict(convert())
    if dataclasses.is_dataclass(verdict) and not isinstance(verdict, type):
        return dataclasses.asdict(verdict)
    raise TypeError(f"no verdict: {verdict!r}")


def _fabric(raw: Raw, manifest: Mapping[str, Any]) -> dict[str, Any]:
    topology = part(manifest, "topology")
    kinds = [str(n["kind"]) for n in raw.plan["nodes"]]
    planes = {n.get("plane") for n in raw.plan["nodes"] if n.get("plane") is not None}
    return {
        "name": topology.get("name"),
        "hosts": kinds.count("host"),
        "leaves": kinds.count("leaf"),
        "spines": kinds.count("spine"),
        "planes": len(planes) or int(topology.get("planes") or 1),
        "links": len(raw.plan["ports"]) // 2,
    }


def _wall_s(clock: Mapping[str, Any], raw: Raw) -> float | None:
    told = clock.get("wall_s", raw.worker.get("loop", {}).get("wall_s"))
    return None if told is None else float(told)


def _packets(raw: Raw) -> dict[str, Any]:
    """`sent` and `delivered` are frames of all kinds at the hosts; the difference is `dropped` plus modelled loss."""
    hosts, moves, ports = raw.worker["hosts"], raw.worker["moves"], raw.ports.values()
    return {
        "sent": _every([h["tx_packets"] for h in hosts]),
        "delivered": _every([h["rx_packets"] for h in hosts]),
        "data": sum(m["sent"] for m in moves),
        "retransmitted": sum(m["retransmitted"] for m in moves),
        "dropped": _total([_dropped(p) for p in ports]),
        "marked": _total([p.get("marked") for p in ports]),
        "trimmed": _total([p.get("trimmed") for p in ports]),
        "lost": _total([p.get("lost") for p in ports]),
        "reordered": _every([m["reordered"] for m in moves]),
        "icrc_errors": _every([h["icrc_errors"] for h in hosts]),
        "refused_at_source": _every([h["enobufs"] for h in hosts]),
        "timeouts": _every([m["timeouts"] for m in moves]),
    }


def _flows(flows: pd.DataFrame, span: float | None) -> dict[str, Any]:
    done = flows[flows["fct_ns"].notna()]
    fct, slowdown = done["fct_ns"].astype(float), done["slowdown"].dropna()
    return {
        "count": len(flows),
        "completed": len(done),
        "goodput_gbps": _round(float(done["bytes"].sum()) * 8 / span, 3) if span else None,
        "fairness": _fairness(done),
        "fct_us": {
            "min": _us(fct.min()),
            "mean": _us(fct.mean()),
            "p50": _us(fct.quantile(0.5).item()),
            "p99": _us(fct.quantile(0.99).item()),
            "max": _us(fct.max()),
        }
        if len(done)
        else None,
        "slowdown": {
            "p50": _round(slowdown.quantile(0.5).item(), 4),
            "p99": _round(slowdown.quantile(0.99).item(), 4),
            "max": _round(slowdown.max(), 4),
        }
        if len(slowdown)
        else None,
    }


def _fairness(done: pd.DataFrame) -> float | None:
    """First over last completion time among the transfers that belong together (one step), averaged over the steps."""
    if not len(done):
        return None
    times = done.groupby("step")["fct_ns"]
    return _round((times.min() / times.max()).mean(), 4)


def _collective(workload: Mapping[str, Any], raw: Raw, span: float | None, hosts: int) -> dict[str, Any] | None:
    """algbw = bytes / time and busbw = algbw * factor as in nccl-tests (doc/PERFORMANCE.md); time is from the first
    start to the last byte over all ranks, never a sum of each rank's own window."""
    name = str(workload.get("kind", "")).replace("-", "_")
    if name not in COLLECTIVES:
        return None
    ranks, size = int(workload.get("ranks") or hosts), int(workload["bytes"])
    algorithm = str(workload.get("algorithm"))
    algbw, by, busbw = bandwidth(name, ranks, size, span) if span else (None, factor(name, ranks), None)
    found: dict[str, Any] = {
        "name": name,
        "algorithm": algorithm,
        "ranks": ranks,
        "bytes": size,
        "time_us": _us(span),
        "algbw_gbps": _round(algbw, 3),
        "factor": _round(by, 4),
        "busbw_gbps": _round(busbw, 3),
        "wrong": raw.worker["wrong"],
    }
    if workload.get("values") and raw.worker.get("values"):
        names = host_names(raw)
        found["sent"] = {names[rank]: value for rank, value in enumerate(workload["values"])}
        found["average"] = {names[rank]: _round(value, 6) for rank, value in raw.worker["values"]}
    return found


def queues(raw: Raw) -> list[dict[str, Any]]:
    """One entry a port, in the order of the plan; mean and p99 are over the backlog that data packets met."""
    result = []
    for name, port in raw.ports.items():
        plan, classes = raw.plan_ports[name], port["classes"].values()
        result.append(
            {
                "port": name,
                "rate_gbps": _round(plan["fabric_rate_bps"] / 1e9, 3),
                "limit_bytes": plan["limit_bytes"],
                "kmin_bytes": plan.get("kmin_bytes") if plan.get("mark", True) else None,
                "kmax_bytes": plan.get("kmax_bytes") if plan.get("mark", True) else None,
                "max_bytes": port.get("max_bytes"),
                "mean_bytes": _round(port.get("mean_bytes"), 1),
                "p99_bytes": _quantile(port, 0.99),
                "tx_packets": _total([c.get("tx_packets") for c in classes]),
                "tx_bytes": _total([c.get("tx_bytes") for c in classes]),
                "marked": port.get("marked"),
                "dropped": _dropped(port),
                "trimmed": port.get("trimmed"),
            }
        )
    return result


def paths(raw: Raw) -> list[dict[str, Any]]:
    """Packets a path carried, by pair of hosts; a path is named by its switches where the run resolved them, else by
    the UDP source port that chose it. The rarest of more than `MOST_PATHS` are one row, `others`."""
    hosts = host_names(raw)
    names = raw.path_names
    counted: dict[tuple[int, int], dict[str, int]] = {}
    for src, dst, entropy, packets in raw.worker["paths"]:
        by_path = counted.setdefault((src, dst), {})
        name = names.get((src, dst, entropy)) or f"udp {entropy}"
        by_path[name] = by_path.get(name, 0) + int(packets)
    rows = []
    for (src, dst), by_path in sorted(counted.items()):
        total = sum(by_path.values())
        ranked = sorted(by_path.items(), key=lambda item: (-item[1], item[0]))
        others = sum(n for _, n in ranked[MOST_PATHS:])
        for name, packets in [*ranked[:MOST_PATHS], *([("others", others)] if others else [])]:
            share = _round(packets / total, 4) if total else None
            rows.append({"src": hosts[src], "dst": hosts[dst], "path": name, "packets": packets, "share": share})
    return rows


def _quantile(port: Mapping[str, Any], q: float) -> int | None:
    """Upper edge of the histogram bin that holds the quantile, not above the high-water mark."""
    counts: Sequence[int] = (port.get("histogram") or {}).get("data") or ()
    total, seen = sum(counts), 0
    if not total or not port.get("bin_bytes"):
        return None
    for i, n in enumerate(counts):
        seen += n
        if seen >= q * total:
            edge = (i + 1) * int(port["bin_bytes"])
            return edge if port.get("max_bytes") is None else min(edge, int(port["max_bytes"]))
    return None


def _span_ns(flows: pd.DataFrame) -> float | None:
    """First start to last byte delivered, or None while something is undelivered."""
    if not len(flows) or flows["end_ns"].isna().any():
        return None
    return float(flows["end_ns"].max() - flows["start_ns"].min())


def _cut_bound_ns(raw: Raw, mtu: int) -> float | None:
    """The bound without what waits for what: the busiest place or the longest single transfer."""
    from emulator.errors import FabricError
    from emulator.judge.theory import Theory
    from emulator.judge.wires import Wires
    from traffic.collective.schedule import Move

    moves = [Move(m["id"], m["src"], m["dst"], 0, 0, m["size"]) for m in raw.worker["moves"]]
    try:
        return Theory(Wires.from_plan(raw.plan), mtu).bound(moves).ns or None
    except FabricError:
        return None


def _dropped(port: Mapping[str, Any]) -> int | None:
    return _total([c.get("dropped") for c in port["classes"].values()])


def _total(values: Sequence[int | None]) -> int | None:
    """The sum of what is known, or None when nothing is."""
    known = [int(v) for v in values if v is not None]
    return sum(known) if known else None


def _every(values: Sequence[int | None]) -> int | None:
    """The sum of counts that are worth something only together: None where one is unknown."""
    return None if None in values else sum(v for v in values if v is not None)


def _us(value: float | None) -> float | None:
    return None if value is None else _round(value / 1000, 3)


def _round(value: float | None, digits: int) -> float | None:
    """A plain float of at most `digits` decimals; NaN is None."""
    if value is None or value != value:
        return None
    return round(float(value), digits)
