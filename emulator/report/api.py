"""A run directory from Python: `Run(run_dir).flows`, `.queues`, `.figure("queues")`."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.collect.store import DAMAGED
from emulator.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

NEEDED = ("manifest.json", "summary.json", "flows.parquet", "queues.parquet", "histogram.parquet", "rates.parquet")

KEYS = {
    "summary.json": (
        "run_id",
        "fabric",
        "transport",
        "clock",
        "verdict",
        "packets",
        "flows",
        "queues",
        "paths",
        "theory",
    ),
    "raw/plan.json": ("nodes", "ports"),
}
"""What the files of a run cannot be read without."""


class Run:
    """One finished run. Tables are read when first asked for; UsageError when the folder is no run directory."""

    def __init__(self, run_dir: str | Path) -> None:
        self.path = Path(run_dir)
        if not self.path.is_dir():
            raise UsageError(
                "there is no such folder", where=str(run_dir), remedy="name a run directory, e.g. runs/2026..."
            )
        missing = [n for n in NEEDED if not (self.path / n).is_file()]
        if missing:
            raise UsageError(f"this is no finished run directory: it lacks {', '.join(missing)}", where=str(run_dir),
                             remedy="name a folder that a run made, or run again if that run was interrupted")  # fmt: skip

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json`."""
        return self._json("summary.json")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """`manifest.json`."""
        return self._json("manifest.json")

    @property
    def verdict(self) -> dict[str, Any]:
        """The judge's verdict: word, reasons, checks."""
        verdict: dict[str, Any] = self.summary["verdict"]
        return verdict

    @cached_property
    def flows(self) -> pd.DataFrame:
        """One row a transfer."""
        return self._table("flows")

    @cached_property
    def queues(self) -> pd.DataFrame:
        """Queue samples; NaN where missing."""
        return self._table("queues")

    @cached_property
    def histogram(self) -> pd.DataFrame:
        """Packets by the backlog they met."""
        return self._table("histogram")

    @cached_property
    def rates(self) -> pd.DataFrame:
        """What congestion control did."""
        return self._table("rates")

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Failures, steps, warnings in order of time."""
        from emulator.collect.store import read_events

        return read_events(self.path)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The plan of the fabric, or an empty dict when `raw/` was not kept."""
        return self.raw("plan")

    def raw(self, name: str) -> dict[str, Any]:
        """`raw/NAME.json`, or an empty dict when `raw/` was not kept."""
        file = f"raw/{name}.json"
        return self._json(file) if (self.path / file).is_file() else {}

    def figure(self, name: str) -> go.Figure:
        """A plotly figure: queues, rates, fct, paths, histogram or gantt."""
        from emulator.report.figures import figure

        return figure(self, name)

    def report(self) -> Path:
        """Write `report.html` into the run directory; returns its path."""
        from emulator.report.page import make_page

        return make_page(self.path)

    @property
    def capture(self) -> Path | None:
        """The packet capture, or None if the run made none."""
        path = self.path / "capture" / "run.pcapng"
        return path if path.is_file() else None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, verdict={self.verdict['word']!r})"

    def _repr_html_(self) -> str:
        from html import escape

        from emulator.report.text import footer, summary_text

        page = self.path / "report.html"
        link = f' · <a href="{escape(page.as_posix())}" target="_blank">page</a>' if page.is_file() else ""
        text = escape(summary_text(self.summary))
        return f"<pre>{text}</pre><p><small>{escape(footer(self.summary))}{link}</small></p>"

    def _repr_markdown_(self) -> str:
        from emulator.report.text import summary_text

        return f"```\n{summary_text(self.summary)}\n```"

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(f"{name} is no JSON: {error}", where=str(path), remedy=DAMAGED) from error
        missing = [key for key in KEYS.get(name, ()) if not isinstance(content, dict) or key not in content]
        if missing or not isinstance(content, dict):
            lacks = f"it lacks {', '.join(missing)}" if isinstance(content, dict) else "it holds no object"
            raise UsageError(f"{name} is not what a run writes: {lacks}", where=str(path), remedy=DAMAGED)
        return content

    def _table(self, name: str) -> pd.DataFrame:
        from emulator.collect.store import read_table

        return read_table(self.path, name)
