"""For the labs' notebooks: a run of an experiment file in this folder, made only if there is none yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emulator.lab.runs import LabRun, NoSuchRun, Wanted, find_runs

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def run_once(spec: str, *settings: str, code: str = "") -> LabRun:
    """The newest run of `spec` with `settings` over it; runs it where there is none. `code` is a file that must be what ran."""
    here = Path()
    wanted = Wanted(here, spec, settings)
    source = (here / code).read_text(encoding="utf-8") if code else None
    runs = [run for run in find_runs(here) if source is None or run.setup["transport"].get("cc_source") == source]
    try:
        return wanted.of(runs)
    except NoSuchRun:
        import emulator
        from emulator.experiment.load import load_experiment

        return LabRun(emulator.run(load_experiment(here / spec, settings)).path)


def queue_over_time(run: LabRun, port: str) -> pd.DataFrame:
    """Time in microseconds and backlog in kilobytes of a port's data queue, where it was sampled."""
    table = run.queues
    rows = table[(table["port"] == port) & (table["class"] == "data")].dropna(subset=["backlog_bytes"])
    return rows.assign(us=rows["time_ns"] / 1e3, kB=rows["backlog_bytes"] / 1e3)[["us", "kB"]]


def lines(curves: dict[str, pd.DataFrame], *, x: str, y: str, title: str) -> go.Figure:
    """One line a table: column `x` against column `y`."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"title": title, "xaxis_title": x, "yaxis_title": y, "template": "plotly_white"})
    for name, table in curves.items():
        figure.add_scatter(x=table[x], y=table[y], name=name, mode="lines" if len(table) > 20 else "lines+markers")
    return figure
