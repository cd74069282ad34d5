"""Raw results become the tables of a run: flows, queues, histogram, rates, events.

Equal raw results give equal tables: rows have a total order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.collect.raw import CLASSES, Raw
from emulator.collect.store import Tables, arrow
from emulator.errors import FabricError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

MISSED = 1.9
"""Samples of a queue further apart than this many periods have a round missing between them."""

FLOW_INTS = (
    "id",
    "flow",
    "step",
    "bytes",
    "start_ns",
    "end_ns",
    "fct_ns",
    "ideal_ns",
    "sent",
    "retransmitted",
    "reordered",
    "ce",
    "trimmed",
    "timeouts",
    "paths",
)
FLOW_COLUMNS = (
    "id",
    "flow",
    "step",
    "src",
    "dst",
    "bytes",
    "start_ns",
    "end_ns",
    "fct_ns",
    "ideal_ns",
    "slowdown",
    "sent",
    "retransmitted",
    "reordered",
    "ce",
    "trimmed",
    "timeouts",
    "paths",
)
QUEUE_COUNTS = ("backlog_bytes", "enqueued", "dropped", "marked", "trimmed")
RATE_FIRST = ("time_ns", "flow", "qp", "rate_bps", "window_bytes", "rtt_ns", "trigger")


def make_tables(raw_dir: Path | Raw, manifest: Mapping[str, Any]) -> Tables:
    """All tables of the raw results in `raw_dir`; FabricError when a file is missing or broken."""
    raw = raw_dir if isinstance(raw_dir, Raw) else Raw(Path(raw_dir))
    frames = {
        "flows": _flows(raw, manifest),
        "queues": _queues(raw),
        "histogram": _histogram(raw),
        "rates": _rates(raw),
    }
    return Tables(**{name: arrow(name, frame).to_pandas() for name, frame in frames.items()}, events=_events(raw))


def write_tables(tables: Tables, run_dir: Path) -> None:
    """Write the tables into the run directory (`Tables.write`)."""
    tables.write(run_dir)


def host_names(raw: Raw) -> list[str]:
    """Host names by rank, as the plan numbers them."""
    return [str(n["name"]) for n in raw.plan["nodes"] if n["kind"] == "host"]


def mtu_of(manifest: Mapping[str, Any]) -> int:
    """Payload bytes of a full packet."""
    experiment = manifest.get("experiment")
    transport = experiment.get("transport") if isinstance(experiment, Mapping) else None
    transport = transport if isinstance(transport, Mapping) else manifest.get("transport", {})
    return int(transport.get("mtu") or 4096)


def _flows(raw: Raw, manifest: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    hosts = host_names(raw)
    ideal = _ideal(raw, mtu_of(manifest))
    used: dict[tuple[int, int], set[str | int]] = {}
    for src, dst, entropy, packets in raw.worker["paths"]:
        if packets:
            used.setdefault((src, dst), set()).add(raw.path_names.get((src, dst, entropy), entropy))
    rows = []
    for move in sorted(raw.worker["moves"], key=lambda m: int(m["id"])):
        src, dst = hosts[move["src"]], hosts[move["dst"]]
        start = move["start_ns"] if move["start_ns"] >= 0 else None
        end = move["delivered_ns"] if move["delivered_ns"] >= 0 else None
        fct = end - start if start is not None and end is not None else None
        best = ideal(move["src"], move["dst"], move["size"])
        rows.append(
            {
                "id": move["id"],
                "flow": move["flow"],
                "step": move["step"],
                "src": src,
                "dst": dst,
                "bytes": move["size"],
                "start_ns": start,
                "end_ns": end,
                "fct_ns": fct,
                "ideal_ns": best,
                "slowdown": fct / best if fct is not None and best else None,
                **{k: move[k] for k in ("sent", "retransmitted", "reordered", "ce", "trimmed", "timeouts")},
                "paths": len(used.get((move["src"], move["dst"]), ())),
            }
        )
    frame = pd.DataFrame(rows, columns=list(FLOW_COLUMNS))
    return frame.astype({**dict.fromkeys(FLOW_INTS, "Int64"), "slowdown": "float64"})


def _ideal(raw: Raw, mtu: int) -> Callable[[int, int, int], int | None]:
    """A function (src rank, dst rank, bytes) -> ns alone in the fabric, None where there is no path."""
    from emulator.judge.theory import Theory
    from emulator.judge.wires import Wires

    theory = Theory(Wires.from_plan(raw.plan), mtu)
    known: dict[tuple[int, int, int], int | None] = {}

    def ideal(src: int, dst: int, size: int) -> int | None:
        if (src, dst, size) not in known:
            try:
                known[src, dst, size] = round(theory.alone_ns(src, dst, size))
            except FabricError:
                known[src, dst, size] = None
        return known[src, dst, size]

    return ideal


def _queues(raw: Raw) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    s = raw.samples
    numbers, names = _ports_by_number(raw)
    gaps = _gap_rows(s)
    time = np.concatenate([s["time_ns"].astype(np.int64), gaps[0]])
    port = np.concatenate([s["port"].astype(np.int64), gaps[1]])
    cls = np.concatenate([s["cls"].astype(np.int64), gaps[2]])
    order = np.argsort(time, kind="stable")  # ties stay in the order of rounds, ports and classes
    empty = np.full(len(gaps[0]), -1, np.int64)
    columns: dict[str, Any] = {
        "time_ns": time[order],
        "port": _category(np.searchsorted(numbers, port[order]), names),
        "class": _category(cls[order], list(CLASSES)),
    }
    for name in QUEUE_COUNTS:
        values = np.concatenate([s[name].astype(np.int64), empty])[order]
        columns[name] = pd.arrays.IntegerArray(np.where(values < 0, 0, values), values < 0)
    return pd.DataFrame(columns)


def _category(codes: NDArray[np.int64], names: list[str]) -> pd.Categorical[str]:
    import pandas as pd

    return pd.Categorical.from_codes(codes, categories=pd.Index(names))


def _ports_by_number(raw: Raw) -> tuple[NDArray[np.int64], list[str]]:
    import numpy as np

    pairs = sorted((int(p["number"]), str(p["name"])) for p in raw.plan["ports"])
    return np.array([n for n, _ in pairs], np.int64), [name for _, name in pairs]


def _gap_rows(s: Mapping[str, NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(time, port, class) of a row of nulls for each series of samples, at the first round missed in each of its gaps.

    Each namespace is read at its own time and may miss a round alone, so gaps are found series by series.
    """
    import numpy as np

    period, kinds = int(s["period_ns"]), len(CLASSES)
    series = s["port"].astype(np.int64) * kinds + s["cls"]
    # rounds follow each other in time, so a stable sort by series leaves each one in order; 16 bits sort fastest
    order = np.argsort(series.astype(np.uint16) if series.max(initial=0) < 2**16 else series, kind="stable")
    series, time = series[order], s["time_ns"][order].astype(np.int64)
    late = (np.diff(time) > MISSED * period) & (np.diff(series) == 0)
    for begin, end in s.get("slept_ns", ()):  # nothing could move: nothing was missed
        late &= ~(
            (time[:-1] <= begin + period) & (time[1:] >= end - period) & (np.diff(time) <= end - begin + 2 * period)
        )
    at = np.flatnonzero(late) if period > 0 else np.empty(0, np.int64)
    return time[at] + period, series[at] // kinds, series[at] % kinds


def _histogram(raw: Raw) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for name, port in raw.ports.items():
        width = port.get("bin_bytes")
        for cls in CLASSES:
            counts = (port.get("histogram") or {}).get(cls)
            if counts is not None and width:
                rows += [(name, cls, i * int(width), (i + 1) * int(width), int(n)) for i, n in enumerate(counts)]
    return pd.DataFrame(rows, columns=["port", "class", "from_bytes", "to_bytes", "packets"])


def _rates(raw: Raw) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    columns = raw.worker.get("rates") or {}
    names = [*RATE_FIRST, *sorted(set(columns) - set(RATE_FIRST))]
    length = max((len(v) for v in columns.values()), default=0)
    frame = pd.DataFrame(
        {n: pd.Series(columns.get(n, [None] * length), dtype=_rate_kind(n, columns.get(n))) for n in names}
    )
    order = np.lexsort(
        (frame["qp"].to_numpy(np.int64), frame["flow"].to_numpy(np.int64), frame["time_ns"].to_numpy(np.int64))
    )
    return frame.iloc[order].reset_index(drop=True)


def _rate_kind(name: str, values: list[Any] | None) -> str:
    if name in ("time_ns", "flow", "qp"):
        return "int64"
    text = name == "trigger" or any(isinstance(v, str) for v in values or ())
    return "object" if text else "float64"


def _events(raw: Raw) -> list[dict[str, Any]]:
    worker = raw.worker
    events = [dict(e) for e in worker.get("events", ())]
    events.sort(key=lambda e: (int(e.get("time_ns", 0)), json.dumps(e, sort_keys=True)))
    end = int(worker["end_ns"])
    if worker.get("problem"):
        events.append({"time_ns": end, "kind": "problem", **worker["problem"]})
    if worker.get("reorder"):
        distance = sorted([int(k), int(v)] for k, v in worker["reorder"].items())
        events.append({"time_ns": end, "kind": "reorder-distance", "packets": distance})
    return events
