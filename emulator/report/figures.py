"""Figures of a run for notebooks, as plotly figures: `run.figure("queues")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emulator.errors import UsageError
from emulator.report.text import footer, fullest, title

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from emulator.report.api import Run

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b5b95", "#444444")
"""Okabe and Ito's colour-blind-safe set (jfly.uni-koeln.de/color), its yellow and black replaced for contrast."""

DASHES = ("solid", "dash", "dot", "dashdot")
SHOWN = 8
POINTS = 4000


def figure(run: Run, name: str) -> go.Figure:
    """The figure of that name; UsageError for an unknown one. It carries verdict, clock, TDF and seed."""
    makers: dict[str, Callable[[Run], go.Figure]] = {
        "queues": _queues,
        "rates": _rates,
        "fct": _fct,
        "paths": _paths,
        "histogram": _histogram,
        "gantt": _gantt,
    }
    if name not in makers:
        raise UsageError(f"there is no figure {name!r}", where="figure", remedy=f"known: {', '.join(makers)}")
    made = makers[name](run)
    made.add_annotation(
        text=footer(run.summary), xref="paper", yref="paper", x=0, y=-0.24, showarrow=False, font={"size": 10}
    )
    return made


def _empty(run: Run, what: str, x: str, y: str) -> go.Figure:
    import plotly.graph_objects as go

    made = go.Figure()
    made.update_layout(
        title=f"{what} · {title(run.summary)}",
        xaxis_title=x,
        yaxis_title=y,
        template="plotly_white",
        colorway=list(PALETTE),
        margin={"b": 110},
        hovermode="closest",
    )
    return made


def _line(i: int) -> dict[str, str]:
    return {"color": PALETTE[i % len(PALETTE)], "dash": DASHES[i // len(PALETTE) % len(DASHES)]}


def _queues(run: Run) -> go.Figure:
    """Backlog of the fullest ports over time; a missing sample is a gap."""
    from emulator.report.decimate import decimate
    from emulator.report.samples import read_series

    made = _empty(run, "Queue depth", "time (us)", "backlog (bytes)")
    parts = [s for s in read_series(run.path) if s.cls == "data"]
    peaks = {str(q["port"]): q["max_bytes"] or 0 for q in run.summary["queues"]}
    for i, s in enumerate(sorted(parts, key=lambda s: -peaks.get(s.port, 0))[:SHOWN]):
        t, v = decimate(s.time, s.backlog, POINTS)
        made.add_scatter(x=t / 1000, y=v, name=s.port, mode="lines", connectgaps=False, line=_line(i))
    port = fullest(run.summary["queues"])
    if port is not None:
        top = float(port["max_bytes"])
        for key in ("kmin_bytes", "kmax_bytes", "limit_bytes"):
            if port.get(key) and port[key] <= 3 * top:
                made.add_hline(y=port[key], line_dash="dash", line_width=1, annotation_text=key.removesuffix("_bytes"))
    return made


def _rates(run: Run) -> go.Figure:
    """Pace of each flow, or its window where the algorithm has no pace."""
    rate = run.rates["rate_bps"].notna().any()
    column, scale, label = ("rate_bps", 1e9, "rate (Gbit/s)") if rate else ("window_bytes", 1.0, "window (bytes)")
    made = _empty(run, "Congestion control", "time (us)", label)
    for i, (_, part) in enumerate(run.rates.groupby(["flow", "qp"], sort=True)):
        first = part.iloc[0]
        made.add_scatter(
            x=part["time_ns"] / 1000,
            y=part[column] / scale,
            name=f"flow {first['flow']}",
            mode="lines",
            line={**_line(i), "shape": "hv"},
            text=part["trigger"],
            hovertemplate="%{x:.1f} us: %{y:.3g} (%{text})",
        )
    return made


def _fct(run: Run) -> go.Figure:
    """Distribution of completion times."""
    from emulator.report.data import cdf

    made = _empty(run, "Completion times", "completion time (us)", "share of transfers")
    points = cdf(run.flows["fct_ns"].to_numpy(float))
    made.add_scatter(
        x=[v / 1000 for v, _ in points],
        y=[share for _, share in points],
        mode="lines",
        line={"shape": "hv"},
        name="FCT",
    )
    made.update_yaxes(range=[0, 1.02], tickformat=".0%")
    return made


def _paths(run: Run) -> go.Figure:
    """Packets by path for each pair of hosts, as shares."""
    made = _empty(run, "Path use", "share of packets", "")
    names: dict[str, list[dict[str, Any]]] = {}
    for row in run.summary["paths"]:
        names.setdefault(str(row["path"]), []).append(row)
    for i, (path, rows) in enumerate(names.items()):
        made.add_bar(
            x=[r["share"] for r in rows],
            y=[f"{r['src']} to {r['dst']}" for r in rows],
            orientation="h",
            name=path,
            marker_color=PALETTE[i % len(PALETTE)],
            customdata=[r["packets"] for r in rows],
            hovertemplate="%{y}: %{x:.1%} (%{customdata} packets)",
        )
    made.update_layout(barmode="stack")
    made.update_xaxes(tickformat=".0%")
    return made


def _histogram(run: Run) -> go.Figure:
    """Backlog that the packets of the fullest port met."""
    port = fullest(run.summary["queues"])
    name = str(port["port"]) if port is not None else ""
    made = _empty(run, f"Backlog that packets met at {name}", "backlog met (bytes)", "packets")
    table = run.histogram
    part = table[(table["port"] == name) & (table["class"] == "data")]
    made.add_bar(
        x=(part["from_bytes"] + part["to_bytes"]) / 2,
        y=part["packets"],
        width=part["to_bytes"] - part["from_bytes"],
        name=name,
    )
    return made


def _gantt(run: Run) -> go.Figure:
    """One row a sender, one bar a transfer, coloured by step."""
    made = _empty(run, "Transfers", "time (us)", "")
    done = run.flows[run.flows["end_ns"].notna()]
    for i, (step, part) in enumerate(done.groupby("step", sort=True)):
        made.add_bar(
            base=part["start_ns"] / 1000,
            x=part["fct_ns"] / 1000,
            y=part["src"],
            orientation="h",
            name=f"step {step}",
            marker_color=PALETTE[i % len(PALETTE)],
            text=part["dst"],
            hovertemplate="%{y} to %{text}: %{x:.1f} us from %{base:.1f} us",
        )
    made.update_layout(barmode="overlay")
    return made
