"""What the page draws, as plain data: small enough for a file, exact where it matters.

Times are fabric nanoseconds, series are delta-coded in time (`t[0]`, then steps), null is a missing sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emulator.report.api import Run
from emulator.report.decimate import decimate
from emulator.report.text import footer, title

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

QUEUE_POINTS = 120_000
RATE_POINTS = 80_000
FRAMES = 240
MOST_FLOWS = 4_000
MOST_EVENTS = 400
CDF_POINTS = 400
MOST_MARKS = 200


def page_data(run: Run, share: float = 1.0) -> dict[str, Any]:
    """Everything one run's page needs; `share` is the part of a page's points that this run may use."""
    summary = run.summary
    plain = {k: v for k, v in summary.items() if k not in ("queues", "paths")}
    end = end_ns(run)
    data_queues = run.queues[run.queues["class"] == "data"]
    return {
        "title": title(summary),
        "footer": footer(summary),
        "summary": plain,
        "ports": summary["queues"],
        "nodes": nodes(run),
        "end": end,
        "queues": queue_series(data_queues, [q["port"] for q in summary["queues"]], int(QUEUE_POINTS * share)),
        "gaps": gaps(data_queues),
        "frames": frames(run, end),
        "histogram": histograms(run.histogram),
        "rates": rate_series(run.rates, int(RATE_POINTS * share)),
        "flows": flow_columns(run.flows, int(MOST_FLOWS * share)),
        "cdf": {name: cdf(run.flows[name].to_numpy(float)) for name in ("fct_ns", "slowdown")},
        "paths": summary["paths"],
        "reorder": next((e["packets"] for e in run.events if e["kind"] == "reorder-distance"), []),
        "events": events(run.events),
    }


def end_ns(run: Run) -> int:
    """When the last thing happened that the page shows."""
    last = run.flows["end_ns"].dropna()
    if len(last):
        return int(last.max())
    return int(run.queues["time_ns"].max()) if len(run.queues) else 1


def nodes(run: Run) -> list[dict[str, str]]:
    """Names and kinds, from the plan or else from the names of the ports."""
    if run.plan:
        return [{"name": str(n["name"]), "kind": str(n["kind"])} for n in run.plan["nodes"]]
    names = dict.fromkeys(str(q["port"]).split(":")[0] for q in run.summary["queues"])
    return [{"name": n, "kind": n.rstrip("0123456789")} for n in names]


def queue_series(queues: pd.DataFrame, ports: list[str], points: int) -> dict[str, dict[str, list[int | None]]]:
    """Backlog of the data class by port; ports that were never sampled are absent."""
    import numpy as np

    budget = max(200, min(3000, points // max(1, len(ports))))
    series = {}
    for name, time, value in by_port(queues, "backlog_bytes"):
        keep = np.ones(len(value), dtype=bool)
        same = (value[1:-1] == value[:-2]) & (value[1:-1] == value[2:])
        keep[1:-1] = ~same
        series[name] = coded(*decimate(time[keep], value[keep], budget))
    return series


def by_port(queues: pd.DataFrame, column: str) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """(port, times, values) of each port of one class, in order of time."""
    import numpy as np

    if not len(queues):
        return []
    codes = queues["port"].cat.codes.to_numpy(np.int64)
    names = list(queues["port"].cat.categories)
    order = np.argsort(codes, kind="stable")
    ports = codes[order]
    time = queues["time_ns"].to_numpy(np.float64)[order]
    value = queues[column].to_numpy(np.float64)[order]
    cuts = np.flatnonzero(np.diff(ports)) + 1
    firsts = ports[np.append(0, cuts)]
    return [
        (str(names[code]), t, v) for code, t, v in zip(firsts, np.split(time, cuts), np.split(value, cuts), strict=True)
    ]


def gaps(queues: pd.DataFrame) -> list[list[int]]:
    """[from, to] of the spans without samples: from the sample before a row of nulls to the one after it."""
    import numpy as np

    parts = by_port(queues, "backlog_bytes")
    if not parts:
        return []
    _, time, value = parts[0]
    at = np.flatnonzero(np.isnan(value))
    return [[int(time[max(0, i - 1)]), int(time[min(len(time) - 1, i + 1)])] for i in at.tolist()]


def frames(run: Run, end: int) -> dict[str, Any]:
    """The run as moving pictures: per frame and port the highest backlog and the share of the link's rate used.

    Bytes that left are packets queued times the port's mean frame, less what still waits; so the use of a link is an
    estimate where frames differ in size.
    """
    import numpy as np

    queues = run.queues
    data = queues[queues["class"] == "data"]
    ticks = data["time_ns"].nunique() if len(data) else 0
    count = int(max(1, min(FRAMES, ticks)))
    edges = np.linspace(0, end, count + 1)
    left = _bytes_left(run, edges)
    result: dict[str, Any] = {"t": [int(e) for e in edges], "queue": {}, "use": {}}
    for name, time, value in by_port(data, "backlog_bytes"):
        which = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, count - 1)
        known = ~np.isnan(value)
        high = np.full(count, np.nan)
        np.fmax.at(high, which[known], value[known])
        result["queue"][name] = whole(high)
        result["use"][name] = whole(np.where(np.isnan(high), np.nan, left.get(name, np.full(count, np.nan))))
    return result


def _bytes_left(run: Run, edges: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Per port: percent of the rate used in each frame."""
    import numpy as np

    ports = {str(q["port"]): q for q in run.summary["queues"]}
    frame = _class_bytes(run)
    total: dict[str, NDArray[np.float64]] = {}
    for cls in ("control", "data", "trimmed"):
        part = run.queues[run.queues["class"] == cls]
        for (name, time, packets), (_, _, backlog) in zip(
            by_port(part, "enqueued"), by_port(part, "backlog_bytes"), strict=True
        ):
            known = ~np.isnan(packets)
            if not known.any():
                continue
            sent = packets[known] * frame(name, cls) - backlog[known]
            total[name] = total.get(name, np.zeros(len(edges))) + np.interp(edges, time[known], sent, left=0.0)
    width = np.diff(edges)
    return {
        name: np.clip(100 * 8 * np.diff(sent) / (ports[name]["rate_gbps"] * np.maximum(width, 1)), 0, 100)
        for name, sent in total.items()
        if name in ports
    }


def _class_bytes(run: Run) -> Any:
    """A function (port, class) -> mean frame in bytes, from the port's own counters, the raw ones where kept."""
    import json

    path = run.path / "raw" / "ports.json"
    raw = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    overall = {str(q["port"]): (q["tx_bytes"] or 0) / max(1, q["tx_packets"] or 0) for q in run.summary["queues"]}

    def mean(port: str, cls: str) -> float:
        counts = raw.get(port, {}).get("classes", {}).get(cls) or {}
        if counts.get("tx_packets") and counts.get("tx_bytes") is not None:
            return float(counts["tx_bytes"]) / float(counts["tx_packets"])
        return float(overall.get(port, 0.0))

    return mean


def histograms(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Packets of the data class by backlog met, for ports that saw any."""
    result = {}
    data = table[table["class"] == "data"]
    for port, part in data.groupby("port", sort=False, observed=True):
        counts = [int(n) for n in part["packets"]]
        if sum(counts):
            while counts[-1] == 0:
                counts.pop()
            result[str(port)] = {"bin": int(part["to_bytes"].iloc[0]), "counts": counts}
    return result


def rate_series(rates: pd.DataFrame, points: int) -> list[dict[str, Any]]:
    """Rate and window of each flow and QP, and what made it change (`marks`: index into `triggers`)."""
    import numpy as np

    if not len(rates):
        return []
    groups = list(rates.groupby(["flow", "qp"], sort=True))
    budget = max(60, min(1500, points // len(groups)))
    result = []
    for _, part in groups:
        time = part["time_ns"].to_numpy(np.float64)
        entry: dict[str, Any] = {"flow": int(part["flow"].iloc[0]), "qp": int(part["qp"].iloc[0])}
        for name, column, scale in (("rate", "rate_bps", 1e-6), ("window", "window_bytes", 1.0)):
            value = part[column].to_numpy(np.float64) * scale
            if not np.isnan(value).all():
                entry[name] = coded(*decimate(time, value, budget))
        entry["marks"] = _marks(part, time)
        result.append(entry)
    return result


def _marks(part: pd.DataFrame, time: NDArray[np.float64]) -> list[list[Any]]:
    """[time, trigger, rate in Mbit/s, window] where a sender was slowed, or where the reason became a loss or a timer."""
    import numpy as np

    trigger = part["trigger"].fillna("").astype(str).to_numpy()
    rate, window = (part[c].to_numpy(np.float64) for c in ("rate_bps", "window_bytes"))
    slower = np.zeros(len(time), dtype=bool)
    for value in (rate, window):
        slower[1:] |= value[1:] < value[:-1]
    lossy = np.array([any(word in t for word in ("time", "loss", "lost", "nack", "trim")) for t in trigger], dtype=bool)
    lossy[1:] &= trigger[1:] != trigger[:-1]
    at = np.flatnonzero(slower | lossy)
    if len(at) > MOST_MARKS:
        at = at[np.linspace(0, len(at) - 1, MOST_MARKS).astype(int)]
    return [[int(time[i]), str(trigger[i]), *whole(np.array([rate[i] / 1e6, window[i]]))] for i in at]


def flow_columns(flows: pd.DataFrame, most: int) -> dict[str, Any]:
    """The transfers by column; of very many the slowest and an even choice of the others."""
    import numpy as np

    total = len(flows)
    if total > most:
        slow = flows["slowdown"].fillna(np.inf).to_numpy().argsort()[-most // 4 :]
        even = np.linspace(0, total - 1, most - len(slow)).astype(int)
        flows = flows.iloc[np.union1d(slow, even)]
    columns: dict[str, Any] = {"total": total}
    for name in flows.columns:
        if name in ("src", "dst"):
            columns[name] = [str(v) for v in flows[name]]
        elif name == "slowdown":
            columns[name] = [None if v != v else round(float(v), 4) for v in flows[name]]
        else:
            columns[name] = whole(flows[name].to_numpy(np.float64))
    return columns


def cdf(values: NDArray[np.float64]) -> list[list[float]]:
    """[value, share of values not above it], at most about 400 points, least and greatest kept."""
    import numpy as np

    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return []
    at = np.unique(np.linspace(0, len(known) - 1, CDF_POINTS).astype(int))
    return [[round(float(known[i]), 4), round((i + 1) / len(known), 5)] for i in at]


def events(all_events: list[dict[str, Any]]) -> dict[str, Any]:
    """The first events, and how many there were."""
    shown = [e for e in all_events if e["kind"] != "reorder-distance"]
    return {"total": len(shown), "rows": shown[:MOST_EVENTS]}


def coded(time: NDArray[np.float64], value: NDArray[np.float64]) -> dict[str, list[int | None]]:
    """A series with delta-coded times and whole values."""
    import numpy as np

    whole_time = time.astype(np.int64)
    return {"t": np.diff(whole_time, prepend=0).tolist(), "v": whole(value)}


def whole(value: NDArray[np.float64]) -> list[int | None]:
    """Rounded to integers, NaN as None."""
    return [None if v != v else round(v) for v in value.tolist()]
