"""The shapes of docs/results, each with its tolerance, from the same experiment files. scripts/results makes the whole page."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest

from emulator.experiment.load import load_experiment
from emulator.experiment.run import run
from emulator.report.api import Run
from tests.experiments import ROOT, Silent, runs_folder

pytestmark = pytest.mark.virtual
SPECS = ROOT / "docs" / "results" / "specs"
SMALL = ("workload.bytes=1MB",)
HALF = "workload.bytes=8MB"
HALF_OF_D = "workload.bytes=2MB"


@functools.cache
def result(spec: str, *settings: str) -> Run:
    """The run of one line of a table."""
    path = SPECS / f"{spec}.yaml"
    finished = run(
        load_experiment(path, settings), out=runs_folder(), argv=["tests"], watch=Silent(), base=Path(path).parent
    )
    return Run(finished.run_dir)


def results(spec: str, *points: Sequence[str]) -> list[Run]:
    """The runs of several lines, two at a time: a guest uses one core."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda settings: result(spec, *settings), points))


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
    assert incast("roce", "dcqcn", 4).summary["packets"]["dropped"] == 0 < dcqcn.summary["packets"]["dropped"]
    packets = none.summary["packets"]
    assert packets["dropped"] > 0
    assert packets["retransmitted"] > 0.25 * packets["data"]


def at_loss(loss: str, way: str) -> list[str]:
    """Settings of one line of table b; `way` is mrc, selective or gbn, `loss` that of one link, half of a path's."""
    roce = ["transport.kind=roce", "transport.cc=none", f"transport.recovery={way}"]
    return [*(["transport.kind=mrc"] if way == "mrc" else roce), f"host_link.loss={loss}"]


def test_a_loss_in_a_thousand_leaves_mrc_near_line_rate_and_costs_go_back_n_far_more() -> None:
    """arXiv 2605.04333, figure 16: 0.1 % has little effect on large messages of MRC."""
    none, mrc, selective, gbn = results(
        "b-loss",
        at_loss("0%", "mrc"),
        *(at_loss("0.05%", way) for way in ("mrc", "selective", "gbn")),
    )
    whole, sprayed, kept, back = (run.summary["collective"]["busbw_gbps"] for run in (none, mrc, selective, gbn))
    assert whole > 93
    assert sprayed >= 0.97 * whole
    assert sprayed > kept > back
    assert whole - back > 1.5 * (whole - sprayed)
    assert gbn.summary["packets"]["retransmitted"] > 10 * mrc.summary["packets"]["retransmitted"]


def test_on_long_links_mrc_is_near_line_rate_go_back_n_far_below_and_selective_repeat_between() -> None:
    """A round trip is 542 packets: for each loss go-back-N sends so many again, selective repeat waits, MRC waits at the end.

    The bound knows no headers; without loss MRC takes 1.12 times as long.
    """
    mrc, selective, gbn = (
        run.summary["theory"]["ratio"]
        for run in results("b-long", *(at_loss("0.05%", way) for way in ("mrc", "selective", "gbn")))
    )
    assert mrc < 1.2 * 1.12
    assert 1.1 * mrc < selective
    assert 1.2 * selective < gbn and 1.5 * mrc < gbn


def test_one_percent_loss_breaks_go_back_n_and_selective_repeat_stays_between() -> None:
    mrc, selective, gbn = (
        run.summary["collective"]["busbw_gbps"]
        for run in results("b-loss", *([*at_loss("0.5%", way), HALF] for way in ("mrc", "selective", "gbn")))
    )
    assert mrc > 1.05 * selective and selective > 1.5 * gbn
    assert mrc > 2 * gbn


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


def test_ecmp_collides_and_spraying_stays_near_the_bound() -> None:
    """arXiv 2605.04333, figure 20: flows that share a link get a half or a third of it."""
    ways = {
        "ecmp": ["transport.kind=roce", "transport.cc=none", "transport.spray=null"],
        "oblivious": ["transport.spray=oblivious"],
        "reps": ["transport.spray=reps"],
    }
    seeds = (1, 2, 3)
    runs = results("d-permutation", *([*way, *SMALL, f"seed={seed}"] for way in ways.values() for seed in seeds))
    ratios = [run.summary["theory"]["ratio"] for run in runs]
    middle = {way: median(ratios[3 * i : 3 * i + 3]) for i, way in enumerate(ways)}
    assert 1.8 < middle["ecmp"] < 3.6
    assert middle["oblivious"] < 1.2 and middle["reps"] < middle["oblivious"] + 0.02
    assert all(run.summary["packets"]["dropped"] == 0 for run in runs[3:])


def test_where_the_hash_spreads_values_unevenly_feedback_mends_it_and_reps_best() -> None:
    """REPS (EuroSys 2026), figure 15: oblivious spraying over few values falls behind, REPS hardly."""
    oblivious, bitmap, reps = (
        run.summary["theory"]["ratio"]
        for run in results(
            "d-permutation",
            *(
                [f"transport.spray={way}", "transport.entropy_set=lot", "seed=2"]
                for way in ("oblivious", "bitmap", "reps")
            ),
        )
    )
    assert reps < bitmap - 0.03 and bitmap < oblivious - 0.1
    assert reps < 1.1


def test_reps_avoids_a_slow_uplink_that_oblivious_spraying_loads_like_the_others() -> None:
    """In half-size messages: what REPS sends before it has learned weighs on shorter ones."""
    slow = "overrides=[{link: 'leaf0:spine1', rate: 25Gbit}]"
    oblivious, reps = (
        run.summary["theory"]["ratio"]
        for run in results(
            "d-permutation", *([f"transport.spray={way}", slow, HALF_OF_D] for way in ("oblivious", "reps"))
        )
    )
    assert reps < 0.6 * oblivious
