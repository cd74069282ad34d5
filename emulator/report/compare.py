"""Several runs side by side: the difference in three lines, then in numbers with their significance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from emulator.errors import UsageError
from emulator.judge.statistics import significance, spread
from emulator.report.api import Run
from emulator.report.metrics import METRICS, Metric, count, share
from emulator.report.text import WORDS

MOST_KEYS = 8
ALPHA = 0.05
"""A difference is called significant when chance alone gives it less often than this."""


@dataclass
class Group:
    """Runs of one configuration; they differ in nothing but the seed and chance."""

    label: str
    runs: list[Run]
    values: dict[str, list[float]] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The verdicts of its runs."""
        return [str(r.verdict["word"]) for r in self.runs]

    def middle(self, key: str) -> float | None:
        """The median over the repeats, None where no run has the number."""
        values = self.values.get(key)
        return spread(values).median if values else None

    def middle_run(self) -> Run:
        """The run nearest to the group's median completion time."""
        middle = self.middle("completion_us")
        if middle is None:
            return self.runs[0]
        times = [
            (abs((r.summary["theory"].get("time_us") or float("inf")) - middle), i) for i, r in enumerate(self.runs)
        ]
        return self.runs[min(times)[1]]


def compare(run_dirs: Sequence[str | Path | Run], *, each: bool = False) -> Comparison:
    """Compare two or more runs; runs of one configuration are repeats of each other, unless `each` stands for itself, by the
    name of its folder. The first is the base."""
    runs = [r if isinstance(r, Run) else Run(r) for r in run_dirs]
    if len(runs) < 2:
        raise UsageError(
            "one run has nothing to compare with", where="compare", remedy="name two or more run directories"
        )
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_configuration(run), []).append(run)
    if len(groups) == 1 or each:  # repeats only: then each run stands for itself
        groups = {str(i): [run] for i, run in enumerate(runs)}
    labels, differing = _labels([g[0] for g in groups.values()])
    names = [run.path.name for run in runs]
    if each and len(set(names)) == len(names):
        labels = names
    made = [Group(label, members) for label, members in zip(labels, groups.values(), strict=True)]
    for group in made:
        for metric in METRICS:
            known = [v for v in (metric.get(r.summary) for r in group.runs) if v is not None]
            if known:
                group.values[metric.key] = known
    return Comparison(made, differing)


@dataclass
class Comparison:
    """Groups of runs and what they differ in."""

    groups: list[Group]
    differing: dict[str, list[str]]

    def rows(self) -> list[dict[str, Any]]:
        """One row a metric that any run has: median by group, change against the first one, p-value where there are repeats."""
        rows = []
        for metric in METRICS:
            middles = [g.middle(metric.key) for g in self.groups]
            if all(m is None for m in middles):
                continue
            base = self.groups[0].values.get(metric.key, [])
            cells = [self._cell(metric, group, middles[0], base) for group in self.groups]
            rows.append({"key": metric.key, "name": metric.name, "better": metric.better, "cells": cells})
        return rows

    def _cell(self, metric: Metric, group: Group, first: float | None, base: list[float]) -> dict[str, Any]:
        middle, values = group.middle(metric.key), group.values.get(metric.key, [])
        cell: dict[str, Any] = {"value": middle, "text": metric.show(middle), "n": len(values)}
        if len(values) > 1:
            cell["least"], cell["greatest"] = min(values), max(values)
        if group is self.groups[0] or middle is None or first is None:
            return cell
        cell["change"] = (middle - first) / first if first else None
        p = significance(base, values)
        if p is not None:
            cell["p"], cell["significant"] = round(p, 6), p < ALPHA
        if metric.better and middle != first:
            cell["better"] = (middle < first) == (metric.better == "low")
        return cell

    def headline(self) -> list[str]:
        """The difference in three lines: time, queue, losses. Where all runs have steps, the time is that of a step.

        A program's completion counts its start too, which says nothing about the network.
        """
        steps = all(g.middle("step_us") is not None for g in self.groups)
        time = self._ranking("step_us", "step time") if steps else self._ranking("completion_us", "completion")
        return [time, self._ranking("peak_bytes", "peak queue", "fills"), self._losses()]

    def _ranking(self, key: str, what: str, verb: str = "takes") -> str:
        metric = next(m for m in METRICS if m.key == key)
        known = [(g.middle(key), g) for g in self.groups]
        ranked = sorted(((m, g) for m, g in known if m is not None), key=lambda item: item[0])
        missing = "".join(f"; {g.label}: unknown" for m, g in known if m is None)
        if not ranked:
            return f"{what}: unknown in every run"
        text = f"{what}: " + " < ".join(f"{g.label} {metric.show(m)}" for m, g in ranked)
        if len(ranked) > 1:
            (low, best), (high, worst) = ranked[0], ranked[-1]
            if low == high:
                text = f"{what}: the same in all, {metric.show(low)}"
            elif low:
                text += f"; {worst.label} {verb} {high / low:.3g} times what {best.label} does"
            text += _sure(best.values[key], worst.values[key])
        return text + missing

    def _losses(self) -> str:
        parts = []
        for g in self.groups:
            dropped, marked, again = (g.middle(k) for k in ("dropped", "marked", "again_share"))
            parts.append(f"{g.label} {count(dropped)} / {count(marked)} / {share(again)}")
        return "dropped / marked / sent again: " + "; ".join(parts)

    def text(self) -> str:
        """The comparison for a terminal: three lines, verdicts, what differs, a table."""
        lines = self.headline()
        for g in self.groups:
            words = ", ".join(
                f"{WORDS.get(w, w)}" + (f" x{g.words.count(w)}" if len(g.runs) > 1 else "")
                for w in dict.fromkeys(g.words)
            )
            lines.append(f"verdict {g.label}: {words}")
        work = [k for k in self.differing if "workload" in k.split(".")[:-1] and not k.endswith(".command")]
        if work:
            lines.append(f"not the same work ({', '.join(work)}): times tell of the work as well as of the network")
        shown = list(self.differing.items())[:MOST_KEYS]
        lines += [f"differs in {key}: {' | '.join(values)}" for key, values in shown]
        if len(shown) < len(self.differing):
            lines.append(f"differs in {len(self.differing) - len(shown)} more keys (--json lists them)")
        lines.append("")
        heads = ["", *(g.label + (f" (n={len(g.runs)})" if len(g.runs) > 1 else "") for g in self.groups)]
        table = [heads]
        for row in self.rows():
            table.append([row["name"], *(_cell_text(cell) for cell in row["cells"])])
        widths = [max(len(r[i]) for r in table) for i in range(len(heads))]
        lines += [
            "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))]).rstrip()
            for r in table
        ]
        if all(len(g.runs) < 2 for g in self.groups):
            lines += ["", "one run each: no statement on significance; repeat with other seeds to get one"]
        else:
            lines += [
                "",
                f"medians; * differs from {self.groups[0].label} with p < {ALPHA:g} (Welch's test on the means)",
            ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "schema": 1,
            "headline": self.headline(),
            "differing": self.differing,
            "groups": [
                {"label": g.label, "runs": [r.summary["run_id"] for r in g.runs], "verdicts": g.words}
                for g in self.groups
            ],
            "metrics": self.rows(),
        }

    def page(self, path: str | Path) -> Path:
        """Write the comparison as one self-contained HTML file; the middle run of each group is drawn."""
        from emulator.report.data import page_data
        from emulator.report.page import write_page

        part = 1 / len(self.groups)
        data = {**self.to_json(), "title": "Comparison: " + ", ".join(g.label for g in self.groups)}
        data["runs"] = [page_data(g.middle_run(), part) for g in self.groups]
        return write_page(Path(path), data["title"], data, "compare.js")


def _cell_text(cell: Mapping[str, Any]) -> str:
    text = str(cell["text"])
    if cell.get("change"):
        change = 100 * cell["change"]
        text += f" ({change:+{',.0f' if abs(change) >= 1000 else '.3g'}} %{'*' if cell.get('significant') else ''})"
    return text


def _sure(a: Sequence[float], b: Sequence[float]) -> str:
    p = significance(a, b)
    if p is None:
        return ""
    return f" (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}{'' if p < ALPHA else ', not significant'})"


def _resolved(run: Run) -> dict[str, Any]:
    resolved = run.manifest.get("resolved")
    if isinstance(resolved, Mapping):
        return dict(resolved)
    return {k: run.manifest.get(k) for k in ("experiment", "topology", "clock", "transport")}


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        out: dict[str, str] = {}
        for key, inner in value.items():
            out.update(_flat(inner, f"{prefix}.{key}" if prefix else str(key)))
        return out
    return {prefix: json.dumps(value, sort_keys=True) if not isinstance(value, str) else value}


IGNORED = ("seed", "name", "wall_s", "wall_limit_s", "why")


DERIVED = ("cc_params", "cc_path", "options")
"""Parts of a transport that mostly follow from what else was set."""


def _keys(run: Run) -> dict[str, str]:
    flat = {k: v for k, v in _flat(_resolved(run)).items() if k.split(".")[-1] not in IGNORED}
    for key in flat:
        if key.endswith("cc_source") and flat[key] != "null":
            flat[key] = f"{flat[key].count(chr(10))} lines, sha256 {sha256(flat[key].encode()).hexdigest()[:8]}"
    return flat


def _configuration(run: Run) -> str:
    return json.dumps(_keys(run), sort_keys=True)


def _labels(firsts: Sequence[Run]) -> tuple[list[str], dict[str, list[str]]]:
    """A short name for each group from what differs, and what differs by key."""
    flat = [_keys(run) for run in firsts]
    keys = sorted(
        dict.fromkeys(k for f in flat for k in f), key=lambda k: any(part in DERIVED for part in k.split("."))
    )
    differing = {k: [f.get(k, "-") for f in flat] for k in keys if len({f.get(k) for f in flat}) > 1}
    main = [
        k for k in differing if k.split(".")[-1] in ("kind", "cc", "algorithm", "recovery", "spray", "mode", "clock")
    ]
    chosen = main[:3] or list(differing)[:2]
    labels = [" ".join(_short(k, differing[k][i]) for k in chosen if differing[k][i] != "-") for i in range(len(flat))]
    if len(set(labels)) < len(labels) or not all(labels):
        ids = [str(run.summary["run_id"]) for run in firsts]
        labels = ids if len(set(ids)) == len(ids) else [f"{name} #{i + 1}" for i, name in enumerate(ids)]
    return labels, differing


def _short(key: str, value: str) -> str:
    last = key.split(".")[-1]
    return value if last in ("kind", "cc", "algorithm", "spray", "recovery", "clock", "mode") else f"{last}={value}"
