"""Raw results to tables: literal rows, gaps that stay gaps, equal bytes for equal input."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.collect.raw import Raw
from emulator.collect.store import TABLES, Tables
from emulator.collect.tables import make_tables
from emulator.errors import FabricError
from tests.data.make_raw import make

MANIFEST: dict[str, Any] = {"experiment": {"transport": {"mtu": 1000}}}


def port(number: int, node: str, peer: str, rate: int = 8_000_000_000) -> dict[str, Any]:
    return {
        "name": f"{node}:{peer}", "node": node, "peer": peer, "number": number, "fabric_rate_bps": rate,
        "fabric_delay_ns": 100, "limit_bytes": 64_000, "kmin_bytes": 1000, "kmax_bytes": 2000, "mark": True, "up": True,
    }  # fmt: skip


def move(**fields: Any) -> dict[str, Any]:
    base = dict.fromkeys(("sent", "retransmitted", "reordered", "ce", "trimmed", "timeouts"), 0)
    return {
        "id": 0,
        "flow": 0,
        "step": 0,
        "src": 0,
        "dst": 1,
        "size": 4000,
        "start_ns": 0,
        "delivered_ns": -1,
        **base,
        **fields,
    }


def small(folder: Path, samples: dict[str, Any] | None = None, **worker: Any) -> Path:
    """Two hosts on one leaf, at 8 Gbit/s: one byte a nanosecond."""
    raw = folder / "raw"
    raw.mkdir()
    links = [("host0", "leaf0"), ("leaf0", "host0"), ("host1", "leaf0"), ("leaf0", "host1")]
    plan = {
        "nodes": [{"name": n, "kind": n[:-1]} for n in ("host0", "host1", "leaf0")],
        "ports": [port(i, a, b) for i, (a, b) in enumerate(links)],
    }
    counters = {
        f"{a}:{b}": {"number": i, "classes": {}, "histogram": {"data": [5, 1], "control": [0, 0]}, "bin_bytes": 1000}
        for i, (a, b) in enumerate(links)
    }
    told = {"moves": [move()], "hosts": [], "rates": {}, "paths": [], "events": [], "end_ns": 9000, "reorder": {}}
    for name, content in (("plan", plan), ("ports", counters), ("worker", {**told, **worker})):
        (raw / f"{name}.json").write_text(json.dumps(content))
    if samples is not None:
        np.savez(raw / "samples.npz", **samples)
    return raw


def rows(times: list[int], backlog: list[int], period: int) -> dict[str, Any]:
    n = len(times)
    whole = {k: np.zeros(n, np.int64) for k in ("enqueued", "dropped", "marked")}
    return {
        "time_ns": np.array(times), "port": np.full(n, 3, np.int32), "cls": np.ones(n, np.uint8),
        "backlog_bytes": np.array(backlog), "trimmed": np.full(n, -1), "tick_ns": np.array(times),
        "period_ns": np.int64(period), **whole,
    }  # fmt: skip


def test_one_row_a_transfer_with_its_ideal_time(tmp_path: Path) -> None:
    # 4 packets of 1000 B at 1 B/ns: 4000 ns of payload, 2 x 100 ns of cable, one packet stored and forwarded once more.
    raw = small(
        tmp_path,
        moves=[move(start_ns=500, delivered_ns=11_100, sent=5, retransmitted=1), move(id=1, flow=1, src=1, dst=0)],
        paths=[[0, 1, 50000, 4], [0, 1, 50001, 1], [0, 1, 50002, 0]],
    )
    flows = make_tables(raw, MANIFEST).flows
    first = flows.iloc[0]
    assert (first["src"], first["dst"], first["bytes"]) == ("host0", "host1", 4000)
    assert first["fct_ns"] == 10_600
    assert first["ideal_ns"] == 5200
    assert first["slowdown"] == pytest.approx(10_600 / 5200)
    assert first["paths"] == 2  # a source port that carried nothing is no path
    unfinished = flows.iloc[1]
    assert np.isnan(unfinished["end_ns"]) and np.isnan(unfinished["fct_ns"]) and np.isnan(unfinished["slowdown"])


def test_paths_are_counted_by_name_where_the_kernel_was_asked(tmp_path: Path) -> None:
    raw = small(tmp_path, paths=[[0, 1, 50000, 4], [0, 1, 50001, 1]])
    both = {f"0-1-{p}": ["host0:leaf0", "leaf0:host1"] for p in (50000, 50001)}
    (raw / "paths.json").write_text(json.dumps(both))
    assert make_tables(raw, MANIFEST).flows["paths"].tolist() == [1]


def test_a_missing_sample_is_a_row_of_nulls_never_a_zero(tmp_path: Path) -> None:
    # Rounds at 0, 100, 200, then two are missed (300, 400), then 500.
    raw = small(tmp_path, rows([0, 100, 200, 500], [10, 20, 30, 40], 100))
    queues = make_tables(raw, MANIFEST).queues
    assert queues["time_ns"].tolist() == [0, 100, 200, 300, 500]
    assert queues["backlog_bytes"].tolist()[:3] == [10, 20, 30]
    gap = queues.iloc[3]
    assert all(np.isnan(gap[c]) for c in ("backlog_bytes", "enqueued", "dropped", "marked", "trimmed"))
    assert (queues["backlog_bytes"] == 0).sum() == 0


def test_a_sample_that_is_late_but_not_missed_makes_no_gap(tmp_path: Path) -> None:
    raw = small(tmp_path, rows([0, 100, 280, 380], [1, 2, 3, 4], 100))
    assert make_tables(raw, MANIFEST).queues["backlog_bytes"].notna().all()


def test_what_the_kernel_cannot_tell_is_null(tmp_path: Path) -> None:
    queues = make_tables(small(tmp_path, rows([0, 100], [1, 2], 100)), MANIFEST).queues
    assert queues["trimmed"].isna().all()
    assert queues["marked"].tolist() == [0, 0]


def test_histogram_names_the_edges_of_each_bin(tmp_path: Path) -> None:
    table = make_tables(small(tmp_path), MANIFEST).histogram
    part = table[(table["port"] == "leaf0:host1") & (table["class"] == "data")]
    assert part[["from_bytes", "to_bytes", "packets"]].to_numpy().tolist() == [[0, 1000, 5], [1000, 2000, 1]]


def test_events_are_in_order_and_tell_a_problem(tmp_path: Path) -> None:
    raw = small(
        tmp_path,
        events=[{"time_ns": 7, "kind": "timeout"}, {"time_ns": 3, "kind": "path"}],
        problem={"what": "gave up", "where": "host0>host1", "remedy": "none"},
        reorder={"10": 1, "2": 4},
    )
    events = make_tables(raw, MANIFEST).events
    assert [e["kind"] for e in events] == ["path", "timeout", "problem", "reorder-distance"]
    assert events[-1]["packets"] == [[2, 4], [10, 1]]


def digest(folder: Path) -> dict[str, str]:
    names = [*(f"{n}.parquet" for n in TABLES), "events.jsonl"]
    return {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in names}


def test_equal_raw_results_give_equal_bytes_and_others_do_not(tmp_path: Path) -> None:
    seen = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run = make(tmp_path / name, "incast", seed=seed)
        make_tables(run / "raw", json.loads((run / "manifest.json").read_text())).write(run)
        seen.append(digest(run))
    assert seen[0] == seen[1]
    assert all(seen[0][n] != seen[2][n] for n in ("flows.parquet", "queues.parquet", "rates.parquet"))


def test_tables_read_back_as_they_were_written(tmp_path: Path) -> None:
    import pandas as pd

    run = make(tmp_path / "run", "allreduce", transport="mrc")
    tables = make_tables(run / "raw", json.loads((run / "manifest.json").read_text()))
    tables.write(run)
    again = Tables.read(run)
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(tables, name), getattr(again, name))
    assert again.events == tables.events


def test_a_file_cut_short_and_a_missing_one_are_named(tmp_path: Path) -> None:
    raw = small(tmp_path)
    (raw / "worker.json").write_text('{"moves": [')
    with pytest.raises(FabricError, match=r"worker\.json is no JSON"):
        make_tables(raw, MANIFEST)
    (raw / "worker.json").unlink()
    with pytest.raises(FabricError, match=r"the raw results lack worker\.json"):
        make_tables(raw, MANIFEST)


def test_raw_is_a_mapping_of_the_files_that_are_there(tmp_path: Path) -> None:
    raw = Raw(small(tmp_path))
    assert list(raw) == ["worker", "ports", "plan"]
    assert raw.get("applied") is None and raw["worker"]["end_ns"] == 9000
    assert len(raw.samples["time_ns"]) == 0
