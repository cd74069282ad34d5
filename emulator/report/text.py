"""The summary in about twenty lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WORDS = {"trusted": "TRUSTED", "care": "USE WITH CARE", "untrusted": "DO NOT TRUST"}
LABEL = 13


def summary_text(summary: Mapping[str, Any]) -> str:
    """The summary as a person reads it; nothing is in it that `summary.json` does not hold."""
    lines = [*_head(summary), "", *verdict_lines(summary["verdict"]), ""]
    for label, text in _facts(summary):
        lines.append(f"{label:<{LABEL}}{text}")
    lines += note_lines(summary["verdict"])
    return "\n".join(line.rstrip() for line in lines)


def verdict_lines(verdict: Mapping[str, Any]) -> list[str]:
    """The verdict with its reasons and what to do about them, framed so that nobody misses it."""
    text = f"=====  VERDICT: {WORDS.get(str(verdict['word']), str(verdict['word']).upper())}  ====="
    reasons = [f"  - {reason}" for reason in verdict.get("reasons", ())]
    return [text, *reasons, *(f"  what to do: {remedy}" for remedy in verdict.get("remedies", ()))]


def note_lines(verdict: Mapping[str, Any]) -> list[str]:
    """What changes nothing in the verdict but belongs beside it."""
    return [f"{'note':<{LABEL}}{note}" for note in verdict.get("notes", ()) if not note.startswith("marking")]


def title(summary: Mapping[str, Any]) -> str:
    """What was run, on what."""
    return f"{summary.get('experiment') or 'run'} on {summary['fabric'].get('name') or 'a fabric'}"


def footer(summary: Mapping[str, Any]) -> str:
    """What every figure carries: verdict, clock, TDF, seed."""
    word = WORDS.get(str(summary["verdict"]["word"]), str(summary["verdict"]["word"])).lower()
    clock = summary["clock"]
    return f"{word} · {clock.get('mode')} clock · TDF {clock.get('tdf')} · seed {summary.get('seed')}"


def size(value: float | None) -> str:
    """Bytes with SI prefixes: `508.7 kB`."""
    if value is None:
        return "unknown"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value:.0f} B"


def time_us(value: float | None) -> str:
    """A duration given in microseconds."""
    if value is None:
        return "unknown"
    if value >= 1e6:
        return f"{value / 1e6:.4g} s"
    return f"{value / 1e3:.4g} ms" if value >= 1e4 else f"{value:,.1f} us"


def number(value: float | None) -> str:
    """A count, or `unknown`."""
    return "unknown" if value is None else f"{value:,}"


def fullest(queues: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The port whose queue came nearest to its limit."""
    known = [q for q in queues if q.get("max_bytes") is not None and q.get("limit_bytes")]
    return max(known, key=lambda q: (q["max_bytes"] / q["limit_bytes"], q["max_bytes"]), default=None)


def at_host(port: Mapping[str, Any]) -> bool:
    """Whether a port is a host's own."""
    return str(port["port"]).startswith("host")


def delay_us(backlog: float, rate_gbps: float) -> float:
    """How long `backlog` bytes take to leave."""
    return backlog * 8 / rate_gbps / 1e3


def _head(s: Mapping[str, Any]) -> Iterator[str]:
    fabric, transport, clock = s["fabric"], s["transport"], s["clock"]
    yield (
        f"{title(s)} ({fabric['hosts']} hosts, {fabric['leaves']} leaves, {fabric['spines']} spines, "
        f"{fabric['links']} links)"
    )
    wall = f", {clock['wall_s']:g} s of wall time" if clock.get("wall_s") is not None else ""
    yield (
        f"{transport.get('kind')}, congestion control {transport.get('cc')}, MTU {transport.get('mtu')} B; "
        f"{clock.get('mode')} clock, TDF {clock.get('tdf')}, seed {s.get('seed')}{wall}; run {s.get('run_id')}"
    )


def _facts(s: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _program(s)
    yield from _completion(s)
    yield from _queue(s)
    yield from _losses(s)
    yield from _paths(s)
    yield from _collective(s)


def _program(s: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    program = s.get("program")
    if not program:
        return
    took = [p["time_us"] for p in program["processes"] if p["time_us"] is not None]
    waited = [p["waiting_us"] for p in program["processes"] if p["waiting_us"] is not None]
    text = f"{' '.join(program['command'])[:80]}: {program['ranks']} ranks on {program['hosts']} hosts"
    if took:
        text += f", {time_us(max(took))}, of it waiting {time_us(min(waited))} to {time_us(max(waited))} a process"
    yield "program", text
    steps = s.get("steps")
    if steps:
        times = steps["time_us"]
        yield (
            "steps",
            f"{steps['count']}: mean {time_us(times['mean'])}  p50 {time_us(times['p50'])}  max {time_us(times['max'])}; "
            + (
                f"computing {time_us(steps['compute_us'])}, idle {100 * steps['idle_fraction']:.1f} %"
                if steps["idle_fraction"] is not None
                else "how much of it was computing is not known"
            ),
        )
    narrow = s.get("bottleneck")
    if narrow:
        yield (
            "bottleneck",
            f"{narrow['port']}: carried {100 * narrow['share']:.1f} % of {narrow['rate_gbps']:g} Gbit/s over "
            f"{time_us(narrow['over_us'])}, queue peak {size(narrow['max_bytes'])}",
        )


def _impossible(s: Mapping[str, Any]) -> bool:
    """Whether the judge found something faster than even this emulator can be (a burst of an idle port is not)."""
    return any(c["id"] == "F14" and c["status"] == "fail" for c in s["verdict"]["checks"])


def _completion(s: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    flows, theory = s["flows"], s["theory"]
    bound, ratio, took = theory.get("bound_us"), theory.get("ratio"), theory.get("time_us")
    unfinished = flows["count"] - flows["completed"]
    if ratio is not None:
        yield (
            "completion",
            f"all {flows['count']} transfers in {time_us(took)}; bound {time_us(bound)}, "
            + (f"{ratio:.3f} times the bound" + (" - faster than possible" if _impossible(s) else "")),
        )
    elif unfinished:
        yield "completion", f"{unfinished} OF {flows['count']} TRANSFERS DID NOT FINISH; bound {time_us(bound)}"
    fct, slow = flows.get("fct_us"), flows.get("slowdown")
    if fct:
        spread = "  ".join(f"{k} {time_us(fct[k])}" for k in ("min", "mean", "p50", "p99", "max"))
        yield "FCT", spread + (f"; slowdown p50 {slow['p50']:.2f}, p99 {slow['p99']:.2f}" if slow else "")
        yield "fairness", f"{flows['fairness']:.3f} (first over last FCT of a step; 1 is even)"
    if flows.get("goodput_gbps") is not None:
        yield "goodput", f"{flows['goodput_gbps']:.1f} Gbit/s of payload, first start to last byte, all hosts together"


def _queue(s: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    port = fullest(s["queues"])
    if port is None:
        yield "fullest port", "unknown: no port told its high-water mark"
        return
    if not port["max_bytes"]:
        yield "fullest port", "none: no packet met another one waiting"
        yield "marking", _marking(s)
        return
    peak, limit, rate = port["max_bytes"], port["limit_bytes"], port["rate_gbps"]
    text = (
        f"{port['port']}: peak {size(peak)} of {size(limit)} ({100 * peak / limit:.0f} %), "
        f"{time_us(delay_us(peak, rate))} at {rate:g} Gbit/s"
    )
    if port.get("mean_bytes") is not None:
        text += f"; met by packets: mean {size(port['mean_bytes'])}, p99 {size(port['p99_bytes'])}"
    yield "fullest port", text
    yield "marking", _marking(s)


def _marking(s: Mapping[str, Any]) -> str:
    marking = [q for q in s["queues"] if q.get("kmin_bytes") is not None]
    if not marking:
        return "no port marks"
    marked = [q for q in marking if q.get("marked")]
    if marked:
        where = ", ".join(f"{q['port']} {q['marked']:,}" for q in sorted(marked, key=lambda q: -q["marked"])[:3])
        kmin, kmax = marked[0]["kmin_bytes"], marked[0]["kmax_bytes"]
        more = f" and {len(marked) - 3} more" if len(marked) > 3 else ""
        return (
            f"{number(s['packets']['marked'])} packets marked CE: {where}{more} (kmin {size(kmin)}, kmax {size(kmax)})"
        )
    nearest = max(marking, key=lambda q: (q.get("max_bytes") or 0) / max(1, q["kmin_bytes"]))
    peak, kmin = nearest.get("max_bytes"), nearest["kmin_bytes"]
    if peak is not None and peak <= kmin:
        return f"never reached: peak {size(peak)} of kmin {size(kmin)} ({nearest['port']})"
    return f"no packet marked although {nearest['port']} peaked at {size(peak)}, above kmin {size(kmin)}"


def _losses(s: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    packets, queues = s["packets"], s["queues"]
    network = sum(q["dropped"] or 0 for q in queues if not at_host(q))
    source = sum(q["dropped"] or 0 for q in queues if at_host(q)) + (packets.get("refused_at_source") or 0)
    worst = max((q for q in queues if not at_host(q)), key=lambda q: q["dropped"] or 0, default=None)
    where = f" (most at {worst['port']}: {worst['dropped']:,})" if worst is not None and worst["dropped"] else ""
    lost = f", lost by the link model {packets['lost']:,}" if packets.get("lost") else ""
    yield "drops", f"in the network {network:,}{where}{lost}; trimmed {number(packets['trimmed'])}"
    share = f" ({100 * packets['retransmitted'] / packets['data']:.2f} %)" if packets.get("data") else ""
    yield (
        "sent",
        (
            f"{number(packets.get('data'))} data packets, {packets['retransmitted']:,} retransmitted{share}, "
            f"reordered {number(packets['reordered'])}, time-outs {number(packets.get('timeouts'))}, "
            f"ICRC errors {number(packets['icrc_errors'])}"
        ),
    )
    yield "source", _source(queues, source, network)


def _source(queues: Sequence[Mapping[str, Any]], refused: int, network: int) -> str:
    own = fullest([q for q in queues if at_host(q)])
    switch = fullest([q for q in queues if not at_host(q)])
    tail = f"{refused:,} packets refused there" if refused else "none refused there"
    if own is None:
        return f"hosts' own queues unknown; {tail}"
    fill = own["max_bytes"] / own["limit_bytes"]
    if refused or (fill > 0.5 and (switch is None or fill > switch["max_bytes"] / switch["limit_bytes"])):
        instead = "" if network else "; the network dropped nothing because the senders were slowed at their own ports"
        return f"BACK-PRESSURE: host port {own['port']} filled to {100 * fill:.0f} %, {tail}{instead}"
    return f"no back-pressure: hosts' own ports peaked at {100 * fill:.0f} % of their limit ({own['port']}), {tail}"


def _paths(s: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    uplinks: dict[str, dict[str, int]] = {}
    for q in s["queues"]:
        node, peer = str(q["port"]).split(":")
        if node.startswith("leaf") and not peer.startswith("host") and q.get("tx_bytes"):
            uplinks.setdefault(node, {})[peer] = q["tx_bytes"]
    known = s["transport"].get("paths")
    pairs = len({(p["src"], p["dst"]) for p in s["paths"]})
    text = f"{pairs} pairs of hosts, {_count(known, 'path')} a pair" if known else "unknown"
    total = {n: sum(v.values()) for n, v in uplinks.items()}
    for node, by_peer in list(uplinks.items())[:2]:
        text += f"; {node} up: " + ", ".join(f"{peer} {100 * b / total[node]:.1f} %" for peer, b in by_peer.items())
    if len(uplinks) > 2:
        text += f"; {len(uplinks) - 2} more leaves"
    yield "paths", text


def _count(n: int, name: str) -> str:
    return f"one {name}" if n == 1 else f"up to {n} {name}s"


def _collective(s: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    c = s.get("collective")
    if not c:
        return
    yield (
        "collective",
        f"{c['algorithm']} {c['name']} of {size(c['bytes'])} over {c['ranks']} ranks in {time_us(c['time_us'])}",
    )
    if c["busbw_gbps"] is not None:
        line = max((q["rate_gbps"] for q in s["queues"] if at_host(q)), default=None)
        flag = " - ABOVE THE LINE RATE, do not use" if line is not None and c["busbw_gbps"] > line else ""
        yield (
            "bandwidth",
            (
                f"algbw {c['algbw_gbps']:.2f} x factor {c['factor']:g} = busbw {c['busbw_gbps']:.2f} Gbit/s"
                f"{f' of {line:g} line rate' if line is not None else ''}{flag} (bits, 10^9; algbw = bytes / time)"
            ),
        )
    if "average" in c:
        yield "sent", ", ".join(f"{host} {value:g}" for host, value in c["sent"].items())
        agreed = set(c["average"].values())
        if len(agreed) == 1:
            yield "agreed", f"all {len(c['average'])} ranks agree on the average {agreed.pop():g}"
        else:
            yield "agreed", "NO: " + ", ".join(f"{host} has {value:g}" for host, value in c["average"].items())
    yield (
        "wrong",
        f"{c['wrong']:,} wrong elements in the result" + ("" if c["wrong"] == 0 else " - THE RESULT IS WRONG"),
    )
