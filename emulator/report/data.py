"""What the page draws, as plain data: small enough for a file, exact where it matters.

Times are fabric nanoseconds, series are delta-coded in time (`t[0]`, then steps), null is a missing sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emulator.report.api import Run
from emulator.report.decimate import decimate
from emulator.report.samples import Series, read_series
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
    samples = read_series(run.path)
    waiting = [s for s in samples if s.cls == "data"]
    end = end_ns(run, samples)
    return {
        "title": title(summary),
        "footer": footer(summary),
        "summary": plain,
        "ports": summary["queues"],
        "nodes": nodes(run),
        "end": end,
        "queues": queue_series(waiting, int(QUEUE_POINTS * share)),
        "gaps": gaps(waiting),
        "frames": frames(run, samples, end),
        "histogram": histograms(run.histogram),
        "rates": rate_series(run.rates, int(RATE_POINTS * share)),
        "flows": flow_columns(run.flows, int(MOST_FLOWS * share)),
        "cdf": {name: cdf(run.flows[name].to_numpy(float)) for name in ("fct_ns", "slowdown")},
        "paths": summary["paths"],
        "reorder": next((e["packets"] for e in run.events if e["kind"] == "reorder-distance"), []),
        "events": events(run.events),
    }


def end_ns(run: Run, samples: list[Series]) -> int:
    """When the last thing happened that the page shows."""
    last = run.flows["end_ns"].dropna()
    if len(last):
        return int(last.max())
    return int(max((s.time[-1] for s in samples), default=1))


def nodes(run: Run) -> list[dict[str, str]]:
    """Names and kinds, from the plan or else from the names of the ports."""
    if run.plan:
        return [{"name": str(n["name"]), "kind": str(n["kind"])} for n in run.plan["nodes"]]
    names = dict.fromkeys(str(q["port"]).split(":")[0] for q in run.summary["queues"])
    return [{"name": n, "kind": n.rstrip("0123456789")} for n in names]


def queue_series(samples: list[Series], points: int) -> dict[str, dict[str, list[int | None]]]:
    """Backlog by port; ports that were never sampled are absent."""
    import numpy as np

    budget = max(200, min(3000, points // max(1, len(samples))))
    series = {}
    for s in samples:
        keep = np.ones(len(s.time), dtype=bool)
        keep[1:-1] = (s.backlog[1:-1] != s.backlog[:-2]) | (s.backlog[1:-1] != s.backlog[2:])
        series[s.port] = coded(*decimate(s.time[keep], s.backlog[keep], budget))
    return series


def gaps(samples: list[Series]) -> list[list[int]]:
    """[from, to] of the spans in which no port was sampled; a gap of some ports only is a break in their lines."""
    import numpy as np

    spans: list[tuple[int, int, int]] = []
    for number, s in enumerate(samples):
        last = len(s.time) - 1
        for i in np.flatnonzero(np.isnan(s.backlog)).tolist():
            spans.append((int(s.time[max(0, i - 1)]), int(s.time[min(last, i + 1)]), number))
    merged: list[tuple[int, int, set[int]]] = []
    for start, stop, number in sorted(spans):
        if merged and start < merged[-1][1]:
            first, most, who = merged.pop()
            merged.append((first, max(most, stop), who | {number}))
        else:
            merged.append((start, stop, {number}))
    return [[start, stop] for start, stop, who in merged if len(who) == len(samples)]


def frames(run: Run, samples: list[Series], end: int) -> dict[str, Any]:
    """The run as moving pictures: per frame and port the highest backlog and the share of the link's rate used.

    Bytes that left are packets queued times the port's mean frame, less what still waits; so the use of a link is an
    estimate where frames differ in size.
    """
    import numpy as np

    data = [s for s in samples if s.cls == "data"]
    count = max(1, min(FRAMES, max((len(s.time) for s in data), default=0)))
    edges = np.linspace(0, end, count + 1)
    used = _use(run, samples, edges)
    result: dict[str, Any] = {"t": [int(e) for e in edges], "queue": {}, "use": {}}
    for s in data:
        which = np.clip(np.searchsorted(edges, s.time, side="right") - 1, 0, count - 1)
        known = ~np.isnan(s.backlog)
        high = np.full(count, np.nan)
        np.fmax.at(high, which[known], s.backlog[known])
        result["queue"][s.port] = whole(high)
        result["use"][s.port] = whole(np.where(np.isnan(high), np.nan, used.get(s.port, np.full(count, np.nan))))
    return result


def _use(run: Run, samples: list[Series], edges: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Per port: percent of the rate used in each frame."""
    import numpy as np

    rates = {str(q["port"]): float(q["rate_gbps"]) for q in run.summary["queues"]}
    frame = _class_bytes(run)
    total: dict[str, NDArray[np.float64]] = {}
    for s in samples:
        known = ~np.isnan(s.enqueued)
        if s.port in rates and known.any():
            sent = s.enqueued[known] * frame(s.port, s.cls) - s.backlog[known]
            total[s.port] = total.get(s.port, np.zeros(len(edges))) + np.interp(edges, s.time[known], sent, left=0.0)
    width = np.maximum(np.diff(edges), 1)
    return {port: np.clip(100 * 8 * np.diff(sent) / (rates[port] * width), 0, 100) for port, sent in total.items()}


def _class_bytes(run: Run) -> Any:
    """A function (port, class) -> mean frame in bytes, from the port's own counters, the raw ones where kept."""
    raw = run.raw("ports")
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
