"""Summary: schema 1, literal numbers, what the text must say in each situation."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from emulator.report.summary import verdict_json
from emulator.report.text import summary_text
from tests.data.runs import CARE, finished

KEYS = {
    "": "schema run_id experiment fabric clock seed transport verdict packets flows queues paths theory",
    "fabric": "name hosts leaves spines planes links",
    "clock": "mode tdf wall_s",
    "transport": "kind cc mtu paths",
    "packets": "sent delivered retransmitted dropped marked trimmed reordered icrc_errors",
    "flows": "count completed goodput_gbps fairness fct_us slowdown",
    "collective": "name algorithm ranks bytes time_us algbw_gbps factor busbw_gbps wrong",
    "theory": "bound_us ratio",
}
QUEUE = "port rate_gbps limit_bytes max_bytes mean_bytes p99_bytes tx_packets tx_bytes marked dropped trimmed"


def load(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return content


def test_the_summary_has_every_key_of_schema_1(allreduce: Path) -> None:
    summary = load(allreduce)
    assert summary["schema"] == 1
    for part, keys in KEYS.items():
        assert set(keys.split()) <= set(summary[part] if part else summary), part
    assert set(QUEUE.split()) <= set(summary["queues"][0])
    assert set(summary["flows"]["fct_us"]) == {"min", "mean", "p50", "p99", "max"}
    assert set(summary["paths"][0]) == {"src", "dst", "path", "packets", "share"}
    assert summary["verdict"] == CARE


def test_bandwidth_as_nccl_tests_reports_it(allreduce: Path) -> None:
    c = load(allreduce)["collective"]
    assert c["factor"] == 1.75  # 2 (8-1) / 8
    assert c["algbw_gbps"] == pytest.approx(4_000_000 * 8 / (c["time_us"] * 1000), abs=0.001)
    assert c["busbw_gbps"] == pytest.approx(c["algbw_gbps"] * 1.75, abs=0.002)
    text = summary_text(load(allreduce))
    assert f"algbw {c['algbw_gbps']:.2f} x factor 1.75 = busbw {c['busbw_gbps']:.2f} Gbit/s of 100 line rate" in text
    assert "0 wrong elements" in text


def test_incast_bound_is_what_the_receivers_link_must_carry(incast: Path) -> None:
    theory = load(incast)["theory"]
    # 7 x 1 MB at 100 Gbit/s is 560 us; latency adds about a microsecond of cables and stored packets.
    assert 560 < theory["bound_us"] < 562
    assert theory["ratio"] == pytest.approx(theory["time_us"] / theory["bound_us"], abs=1e-4)


def test_a_bound_from_the_theory_is_taken_as_it_is(tmp_path: Path) -> None:
    from emulator.collect.raw import Raw
    from emulator.collect.tables import make_tables
    from emulator.report.summary import make_summary

    run = finished(tmp_path / "run", "incast")
    manifest, raw = json.loads((run / "manifest.json").read_text()), Raw(run / "raw")
    summary = make_summary(make_tables(raw, manifest), raw, manifest, CARE, bound_ns=600_000)
    assert summary["theory"]["bound_us"] == 600.0


def test_equal_runs_have_equal_summaries(tmp_path: Path, incast: Path) -> None:
    again = finished(tmp_path / "again", "incast")
    assert (again / "summary.json").read_bytes() == (incast / "summary.json").read_bytes()


def test_the_text_is_about_twenty_lines_and_shouts_the_verdict(incast: Path) -> None:
    text = summary_text(load(incast))
    assert 14 <= text.count("\n") <= 24
    assert "=====  VERDICT: USE WITH CARE  =====\n  - F9 sampler: one gap of 14 us" in text
    summary = load(incast)
    fullest = max(summary["queues"], key=lambda q: q["max_bytes"])
    assert f"fullest port {fullest['port']}: peak" in text
    assert f"in the network {summary['packets']['dropped']:,} (most at" in text
    assert "(kmin 32 kB, kmax 128 kB)" in text
    assert "no back-pressure" in text


def test_marking_never_reached_is_told_with_peak_and_threshold(allreduce: Path) -> None:
    summary = load(allreduce)
    assert summary["packets"]["marked"] == 0
    peak = max(q["max_bytes"] for q in summary["queues"])
    assert f"never reached: peak {peak / 1000:.4g} kB of kmin 32 kB" in summary_text(summary)


def test_source_back_pressure_is_told_from_drops_in_the_network(incast: Path) -> None:
    summary = copy.deepcopy(load(incast))
    for q in summary["queues"]:
        q["dropped"] = 0
        q["max_bytes"] = 900_000 if q["port"] == "host0:leaf0" else 1000
    summary["packets"]["refused_at_source"] = 12
    text = summary_text(summary)
    assert "in the network 0;" in text
    assert "BACK-PRESSURE: host port host0:leaf0 filled to 90 %, 12 packets refused there" in text
    assert "the network dropped nothing because the senders were slowed at their own ports" in text


def test_bus_bandwidth_above_the_line_rate_is_flagged(allreduce: Path) -> None:
    summary = copy.deepcopy(load(allreduce))
    summary["collective"]["busbw_gbps"] = 125.0
    assert "ABOVE THE LINE RATE, do not use" in summary_text(summary)


def test_transfers_that_never_finished_are_not_averaged_away(tmp_path: Path) -> None:
    from tests.data.make_raw import make

    run = make(tmp_path / "run", "incast")
    worker = json.loads((run / "raw" / "worker.json").read_text())
    worker["moves"][2]["delivered_ns"] = -1
    (run / "raw" / "worker.json").write_text(json.dumps(worker))
    from emulator.collect.raw import Raw
    from emulator.collect.tables import make_tables
    from emulator.report.summary import make_summary

    manifest, raw = json.loads((run / "manifest.json").read_text()), Raw(run / "raw")
    summary = make_summary(make_tables(raw, manifest), raw, manifest, CARE)
    assert (summary["flows"]["count"], summary["flows"]["completed"]) == (7, 6)
    assert summary["theory"]["ratio"] is None and summary["flows"]["goodput_gbps"] is None
    assert "1 OF 7 TRANSFERS DID NOT FINISH" in summary_text(summary)


def test_what_is_unknown_is_called_unknown(incast: Path) -> None:
    summary = copy.deepcopy(load(incast))
    summary["packets"]["trimmed"] = None
    for q in summary["queues"]:
        q["max_bytes"] = None
    text = summary_text(summary)
    assert "trimmed unknown" in text and "fullest port unknown" in text


def test_a_verdict_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="no verdict"):
        verdict_json("trusted")
