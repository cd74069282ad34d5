"""Comparison: the difference in three lines, significance only with repeats."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from emulator.cli.main import main
from emulator.errors import UsageError
from emulator.report.api import Run
from emulator.report.compare import _labels, compare
from tests.data.runs import finished


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Three seeds of a 7:1 incast with DCQCN and without congestion control."""
    folder = tmp_path_factory.mktemp("compare")
    return {
        cc: [finished(folder / f"{cc}{seed}", "incast", cc=cc, seed=seed, name=f"{cc}-{seed}") for seed in (1, 2, 3)]
        for cc in ("dcqcn", "none")
    }


def test_three_lines_tell_completion_queue_and_losses(runs: dict[str, list[Path]]) -> None:
    first, second, third = compare([runs["dcqcn"][0], runs["none"][0]]).text().splitlines()[:3]
    summaries = {cc: json.loads((r[0] / "summary.json").read_text()) for cc, r in runs.items()}
    for cc, s in summaries.items():
        assert f"{cc} {s['theory']['time_us']:,.1f} us" in first
        assert f"{cc} {s['packets']['dropped']:,} / {s['packets']['marked']:,} / " in third
    assert first.startswith("completion: ") and "times what" in first
    assert second.startswith("peak queue: ")
    assert third.startswith("dropped / marked / sent again: ")


def test_the_first_is_the_base_and_changes_have_the_right_sign(runs: dict[str, list[Path]]) -> None:
    rows = {r["key"]: r["cells"] for r in compare([runs["dcqcn"][0], runs["none"][0]]).to_json()["metrics"]}
    base, other = rows["dropped"]
    assert "change" not in base
    assert other["change"] == pytest.approx((other["value"] - base["value"]) / base["value"])
    assert other["value"] > base["value"] and other["better"] is False
    assert "better" not in rows["marked"][1]  # marks are neither good nor bad


def test_one_run_each_makes_no_statement_on_significance(runs: dict[str, list[Path]]) -> None:
    made = compare([runs["dcqcn"][0], runs["none"][0]])
    assert "no statement on significance" in made.text()
    assert all("p" not in cell for row in made.rows() for cell in row["cells"])


def test_each_run_for_itself_by_the_name_of_its_folder(runs: dict[str, list[Path]]) -> None:
    made = compare([*runs["dcqcn"][:2], runs["none"][0]], each=True)
    assert [(g.label, len(g.runs)) for g in made.groups] == [("dcqcn1", 1), ("dcqcn2", 1), ("none1", 1)]
    assert "no statement on significance" in made.text()


def test_repeats_are_found_by_themselves_and_give_significance(runs: dict[str, list[Path]]) -> None:
    made = compare([*runs["dcqcn"], *runs["none"]])
    assert [(g.label, len(g.runs)) for g in made.groups] == [("dcqcn", 3), ("none", 3)]
    cells = {r["key"]: r["cells"][1] for r in made.rows()}
    assert cells["fairness"]["significant"] and cells["fairness"]["p"] < 0.01
    values = sorted(json.loads((r / "summary.json").read_text())["theory"]["time_us"] for r in runs["dcqcn"])
    row = next(r for r in made.rows() if r["key"] == "completion_us")
    assert row["cells"][0]["value"] == values[1]
    assert (row["cells"][0]["least"], row["cells"][0]["greatest"]) == (values[0], values[2])
    assert made.differing == {"experiment.transport.cc": ["dcqcn", "none"]}


def test_repeats_alone_stand_each_for_itself(runs: dict[str, list[Path]]) -> None:
    assert [g.label for g in compare(runs["none"]).groups] == ["none-1", "none-2", "none-3"]


def test_runs_with_steps_are_compared_by_their_step_times(tmp_path: Path) -> None:
    """What a training program is asked about; its completion counts the start of the program too."""
    folders = []
    for cc, mean in (("dcqcn", 2793.8), ("none", 2299.7)):
        folder = finished(tmp_path / cc, "incast", cc=cc, name=cc)
        summary = json.loads((folder / "summary.json").read_text())
        times = {"min": mean, "mean": mean, "p50": mean, "p99": mean, "max": mean}
        summary["steps"] = {
            "count": 9, "time_us": times, "compute_us": 2000.0, "exposed_us": mean - 2000, "idle_fraction": 1 - 2000 / mean,
        }  # fmt: skip
        (folder / "summary.json").write_text(json.dumps(summary))
        folders.append(folder)
    made = compare(folders)
    first = made.text().splitlines()[0]
    assert first == "step time: none 2,299.7 us < dcqcn 2,793.8 us; dcqcn takes 1.21 times what none does"
    rows = {row["key"]: [cell["text"] for cell in row["cells"]] for row in made.rows()}
    assert rows["step_us"] == ["2,793.8 us", "2,299.7 us"]
    assert rows["idle"] == ["28.4 %", "13 %"]


def test_runs_that_did_different_work_are_said_to(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    other = finished(tmp_path / "other", "ring", cc="dcqcn", seed=1)
    assert "not the same work (experiment.workload.kind" in compare([runs["dcqcn"][0], other]).text()
    assert "not the same work" not in compare([runs["dcqcn"][0], runs["none"][0]]).text()


def test_what_was_set_comes_before_what_follows_and_code_is_not_printed() -> None:
    keys = ["transport.cc_params.gain", "transport.options.mss", "transport.cc_source", "transport.qps"]
    runs = []
    for value in ("1", "2"):
        resolved = {
            "transport": {
                "cc_params": {"gain": value},
                "options": {"mss": value},
                "cc_source": f"a\n{value}\n",
                "qps": value,
            }
        }
        runs.append(SimpleNamespace(manifest={"resolved": resolved}, summary={"run_id": value}))
    _, differing = _labels(cast("list[Run]", runs))
    assert list(differing) == [keys[2], keys[3], keys[0], keys[1]]
    assert all(text.startswith("2 lines, sha256 ") for text in differing["transport.cc_source"])


def test_every_verdict_is_shown(runs: dict[str, list[Path]]) -> None:
    assert "verdict dcqcn: USE WITH CARE" in compare([runs["dcqcn"][0], runs["none"][0]]).text()


def test_one_run_is_refused(runs: dict[str, list[Path]]) -> None:
    with pytest.raises(UsageError, match="nothing to compare with"):
        compare(runs["none"][:1])


def test_the_command_prints_text_json_and_writes_a_page(
    runs: dict[str, list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [str(runs["dcqcn"][0]), str(runs["none"][0])]
    assert main(["compare", *pair]) == 0
    assert capsys.readouterr().out.startswith("completion: ")
    page = tmp_path / "c.html"
    assert main(["compare", *pair, "--json", "-o", str(page)]) == 0
    assert len(json.loads(capsys.readouterr().out)["headline"]) == 3
    assert page.stat().st_size > 50_000
    assert main(["compare", pair[0], str(tmp_path)]) == 2
    assert "it lacks manifest.json" in capsys.readouterr().err
