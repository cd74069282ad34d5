"""The shapes of docs/results, each with its tolerance, from the same experiment files. scripts/results makes the whole page."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from emulator.experiment.load import load_experiment
from emulator.experiment.run import run
from emulator.report.api import Run
from tests.experiments import ROOT, Silent, runs_folder

pytestmark = pytest.mark.virtual
SPECS = ROOT / "docs" / "results" / "specs"


@functools.cache
def result(spec: str, *settings: str) -> Run:
    """The run of one line of a table."""
    path = SPECS / f"{spec}.yaml"
    finished = run(
        load_experiment(path, settings), out=runs_folder(), argv=["tests"], watch=Silent(), base=Path(path).parent
    )
    return Run(finished.run_dir)


def incast(kind: str, cc: str, senders: int) -> Run:
    return result("a-incast", f"transport.kind={kind}", f"transport.cc={cc}", f"workload.params.senders={senders}")


@pytest.mark.parametrize("cc", ["nscc", "rccc"])
def test_window_and_credit_schemes_stay_within_five_percent_of_the_bound_and_lose_nothing(cc: str) -> None:
    run = incast("mrc", cc, 16)
    assert run.summary["theory"]["ratio"] <= 1.05
    assert run.summary["packets"]["dropped"] == run.summary["packets"]["retransmitted"] == 0


def test_dcqcn_loses_control_above_ten_flows_and_none_collapses() -> None:
    """arXiv 2605.04333, figure 22: the default profile loses control above about ten flows."""
    nscc, dcqcn, none = incast("mrc", "nscc", 16), incast("roce", "dcqcn", 16), incast("roce", "none", 16)
    assert dcqcn.summary["theory"]["ratio"] > 1.5 * nscc.summary["theory"]["ratio"]
    assert dcqcn.summary["packets"]["dropped"] > 0
    packets = none.summary["packets"]
    assert packets["dropped"] > 0
    assert packets["retransmitted"] > 0.25 * packets["data"]


def test_one_percent_loss_breaks_go_back_n_and_leaves_the_others_three_times_its_bandwidth() -> None:
    roce = ("transport.kind=roce", "transport.cc=none", "host_link.loss=0.5%")
    sprayed, selective, gbn = (
        run.summary["collective"]["busbw_gbps"]
        for run in (
            result("b-loss", "transport.kind=mrc", "host_link.loss=0.5%"),
            result("b-loss", *roce, "transport.recovery=selective"),
            result("b-loss", *roce, "transport.recovery=gbn"),
        )
    )
    assert sprayed > 2 * gbn and selective > 2 * gbn


def test_a_victim_of_a_sprayed_incast_is_untouched() -> None:
    flows = result("c-victim", "transport.kind=mrc", "transport.cc=nscc").flows
    victim = flows[flows["flow"] == flows["flow"].max()].iloc[0]
    assert victim["slowdown"] < 1.1


def test_a_losing_path_leaves_at_once_and_comes_back_after_probes() -> None:
    run = result("e-bad-path")
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    bad = [e for e in events if e["kind"] == "path" and e["state"] == "assumed_bad"]
    back = [e for e in events if e["kind"] == "path" and e["state"] == "good"]
    assert bad and back and bad[0]["time_ns"] < 100_000
    assert run.summary["flows"]["goodput_gbps"] > 50
