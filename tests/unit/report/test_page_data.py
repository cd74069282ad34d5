"""What goes into the page: gaps, extremes, size and time at ten million packets' worth of samples, one file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from emulator.errors import UsageError
from emulator.report.api import NEEDED, Run
from emulator.report.data import page_data
from emulator.report.page import make_page


def unpacked(series: dict[str, list[int | None]]) -> dict[int, int | None]:
    return dict(zip(np.cumsum(series["t"]).tolist(), series["v"], strict=True))


def test_a_missing_sample_is_null_in_lines_and_frames_never_zero(incast: Path) -> None:
    data = page_data(Run(incast))
    # the toy's sampler pauses from 200 to 214 us (period 2 us)
    assert data["gaps"] == [[198_000, 214_000]]
    line = unpacked(data["queues"]["leaf1:host7"])
    assert line[200_000] is None and line[198_000] and line[214_000]
    edges, deep = data["frames"]["t"], data["frames"]["queue"]["leaf1:host7"]
    inside = [deep[i] for i in range(len(deep)) if edges[i] > 200_000 and edges[i + 1] < 214_000]
    assert inside and all(v is None for v in inside)
    assert all(data["frames"]["use"]["leaf1:host7"][i] is None for i, v in enumerate(deep) if v is None)


def test_the_peak_of_the_samples_is_in_the_line_and_in_a_frame(incast: Path) -> None:
    run = Run(incast)
    queues = run.queues[(run.queues["port"] == "leaf1:host7") & (run.queues["class"] == "data")]
    peak, data = int(queues["backlog_bytes"].max()), page_data(run)
    assert max(v for v in data["queues"]["leaf1:host7"]["v"] if v is not None) == peak
    assert max(v for v in data["frames"]["queue"]["leaf1:host7"] if v is not None) == peak


def test_a_saturated_link_is_used_fully_and_an_idle_one_not_at_all(incast: Path) -> None:
    use = page_data(Run(incast))["frames"]["use"]
    busy = [u for u in use["leaf1:host7"][5:60] if u is not None]
    assert np.median(busy) >= 97
    assert max(u for u in use["spine1:leaf0"] if u is not None) <= 1


def test_cuts_and_timeouts_are_marked_growth_is_not(incast: Path) -> None:
    marks = [m for r in page_data(Run(incast))["rates"] for m in r["marks"]]
    assert marks and {m[1] for m in marks} <= {"cnp", "timeout"}


def test_the_page_is_one_file_that_asks_for_nothing(incast: Path, tmp_path: Path) -> None:
    page = make_page(incast, tmp_path / "p.html").read_text()
    assert not re.search(r"""(?:src|href)\s*=|url\(\s*['"]?http|@import|fetch\(|XMLHttpRequest""", page)
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}


def test_text_of_a_run_cannot_end_the_data_or_become_markup(incast: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(incast, run)
    summary = json.loads((run / "summary.json").read_text())
    summary["experiment"] = "</script><script>alert(1)</script>/*data*/"
    (run / "summary.json").write_text(json.dumps(summary))
    page = make_page(run).read_text()
    assert "<script>alert" not in page
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert text is not None and json.loads(text.group(1))["summary"]["experiment"] == summary["experiment"]


def test_ten_million_packets_worth_of_samples(incast: Path, tmp_path: Path) -> None:
    """96 ports sampled 26,000 times, each round four packets further: under 6 MB and 5 s (the issue's limits)."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = tmp_path / "run"
    shutil.copytree(incast, run, ignore=shutil.ignore_patterns("raw"))
    ticks, ports = 26_000, [f"leaf{i}:host{j}" for i in range(8) for j in range(12)]
    summary = json.loads((run / "summary.json").read_text())
    summary["queues"] = [{**summary["queues"][0], "port": p} for p in ports]
    (run / "summary.json").write_text(json.dumps(summary))
    rng, n = np.random.default_rng(1), ticks * len(ports)
    backlog = rng.integers(0, 100_000, n)
    backlog[7 * len(ports) + 3] = 999_999
    frame = pd.DataFrame({
        "time_ns": np.repeat(np.arange(ticks) * 25, len(ports)),
        "port": pd.Categorical.from_codes(np.tile(np.arange(len(ports)), ticks), categories=pd.Index(ports)),
        "class": pd.Categorical.from_codes(np.zeros(n, int), categories=pd.Index(["data"])),
        "backlog_bytes": backlog, "enqueued": np.repeat(np.arange(ticks) * 4, len(ports)),
        "dropped": 0, "marked": 0, "trimmed": 0,
    })  # fmt: skip
    pq.write_table(pa.Table.from_pandas(frame), run / "queues.parquet")
    page = make_page(run)
    assert page.stat().st_size < 6e6
    assert "999999" in page.read_text()


def test_a_folder_that_is_no_run_says_which_files_are_missing(tmp_path: Path, incast: Path) -> None:
    with pytest.raises(UsageError, match="it lacks " + ", ".join(NEEDED)):
        Run(tmp_path)
    with pytest.raises(UsageError, match="there is no such folder"):
        Run(tmp_path / "nowhere")
    part = tmp_path / "part"
    shutil.copytree(incast, part)
    (part / "rates.parquet").unlink()
    with pytest.raises(UsageError, match=r"it lacks rates\.parquet;"):
        make_page(part)
