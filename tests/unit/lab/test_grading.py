"""Answers, sheet and matching of runs, on folders made by hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from emulator.errors import UsageError
from emulator.lab.answers import NotAnAnswer, parse_number, read_answers
from emulator.lab.catalogue import find_lab, labs
from emulator.lab.runs import NoSuchRun, differences, find_runs
from emulator.lab.sheet import Sheet
from emulator.lab.start import start_lab
from emulator.lab.work import Work
from emulator.topology.problems import FileError
from tests.data.runs import finished


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1,152.3", "us", 1152.3),  # as the summary prints it
        ("1152.3 us", "us", 1152.3),
        ("1.1523 ms", "us", 1152.3),
        ("3.06 MB", "kB", 3060.0),
        ("342.6kB", "MB", 0.3426),
        ("12 %", "%", 12.0),
        (7, "", 7.0),
        ("-1e3", "", -1000.0),
    ],
)
def test_numbers_as_students_write_them(text: object, unit: str, value: float) -> None:
    assert parse_number(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit"), [("many", ""), ("3 MB", "us"), ("1,15", ""), (True, ""), ("", ""), ("nan", "")]
)
def test_what_is_no_number(text: object, unit: str) -> None:
    with pytest.raises(NotAnAnswer):
        parse_number(text, unit)


def test_answers_keep_their_place(tmp_path: Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("# mine\nname: Ada\npeak: 3 MB\nempty:\n", encoding="utf-8")
    answers = read_answers(file)
    assert answers.where("peak") == "answers.yaml:3:7"
    assert [answers.given(key) for key in ("name", "peak", "empty", "absent")] == [True, True, False, False]
    file.write_text("peak: [1, 2]\n", encoding="utf-8")
    with pytest.raises(FileError, match="peak has more than one value"):
        read_answers(file)


class _Work:
    """A folder's answers without a lab."""

    def __init__(self, file: Path) -> None:
        self.answers = read_answers(file)
        self.touched: list[object] = []


def sheet_of(tmp_path: Path, text: str) -> Sheet:
    (tmp_path / "answers.yaml").write_text(text, encoding="utf-8")
    return Sheet(cast(Work, _Work(tmp_path / "answers.yaml")))


def test_a_number_counts_within_its_tolerance(tmp_path: Path) -> None:
    """5 % of 1000 is 50."""
    for given, points in ((1050, 2), (951, 2), (1051, 0), (949, 0)):
        sheet = sheet_of(tmp_path, f"time: {given}\n")
        sheet.number("time", "Time", lambda: 1000.0, unit="us", points=2, look="`completion`")
        assert sheet.items[0].points == points
        assert points or "measured is 1000 us; look at `completion`" in sheet.items[0].said


def test_a_prediction_counts_right_or_wrong_but_not_if_impossible(tmp_path: Path) -> None:
    for given, points in ((1, 1), (9, 1), (500, 0)):
        sheet = sheet_of(tmp_path, f"guess: {given}\n")
        sheet.prediction("guess", "Guess", lambda: 3.0, low=0, high=10)
        assert sheet.items[0].points == points


def test_the_right_choice_is_the_one_that_holds_in_the_runs(tmp_path: Path) -> None:
    for measured, points in ((5.0, 1), (0.5, 0)):
        sheet = sheet_of(tmp_path, "law: Grows\n")  # as a verdict stands in capitals in the summary
        options: dict[str, Callable[[], bool]] = {"grows": lambda: measured > 1, "shrinks": lambda: measured < 1}  # noqa: B023
        sheet.choice("law", "Law", options, because=lambda: f"it is {measured}")  # noqa: B023
        assert sheet.items[0].points == points
        assert f"it is {measured}" in sheet.items[0].said
    sheet.choice("law", "Law", {"grows": lambda: False, "shrinks": lambda: False}, because=lambda: "it is 1")
    assert sheet.items[-1].points == 0
    assert "do not decide between grows, shrinks" in sheet.items[-1].said


def test_a_missing_run_or_answer_is_said_not_raised(tmp_path: Path) -> None:
    def nothing() -> float:
        raise NoSuchRun("there is no run of `fabriclab run x.yaml`")

    sheet = sheet_of(tmp_path, "a: 1\nword: what\n")
    sheet.number("a", "A", nothing)
    sheet.number("b", "B", lambda: 1.0)
    sheet.choice("word", "Word", {"yes": lambda: True, "no": lambda: False}, because=lambda: "so it is")
    assert [item.points for item in sheet.items] == [0, 0, 0]
    assert [item.said for item in sheet.items] == [
        "there is no run of `fabriclab run x.yaml`", "no answer yet to `b` in answers.yaml", '"what" is none of yes, no',
    ]  # fmt: skip


def test_differences_name_what_was_run_instead() -> None:
    wanted: dict[str, Any] = {
        "topology": {"hosts": 8, "name": "a"},
        "workload": {"senders": 7},
        "transport": {"cc": "none"},
    }
    got: dict[str, Any] = {
        "topology": {"hosts": 8, "name": "b"},
        "workload": {"senders": 4},
        "transport": {"cc": "none"},
    }
    assert differences(wanted, got) == ["workload.senders 4 instead of 7"]
    assert differences(wanted, {**got, "workload": {"senders": 7, "new": 1}}) == []
    extra = {**got, "workload": {"senders": 7}, "topology": {"hosts": 8, "overrides": [{"link": "leaf0:host1"}]}}
    assert differences(wanted, extra) == ["topology.overrides are set"]


def test_runs_are_found_in_the_folder_and_broken_ones_passed_over(tmp_path: Path) -> None:
    good = finished(tmp_path / "runs" / "20260101-000000-incast", "incast")
    shutil.copytree(good, tmp_path / "runs" / "20260101-000001-broken")
    (tmp_path / "runs" / "20260101-000001-broken" / "flows.parquet").unlink()
    manifest = json.loads((good / "manifest.json").read_text(encoding="utf-8"))
    (good / "manifest.json").write_text(json.dumps({**manifest, "resolved": {"workload": {}}}), encoding="utf-8")
    shutil.copytree(good, tmp_path / "elsewhere" / "deep" / "20260101-000002-late")
    shutil.copytree(good, good / "spoiled")  # an attempt that the run was made instead of
    assert [run.name for run in find_runs(tmp_path)] == ["20260101-000000-incast", "20260101-000002-late"]


def test_every_lab_has_all_its_parts() -> None:
    assert [lab.number for lab in labs()] == list(range(1, 10))
    for lab in labs():
        for name in ("handout.md", "check.py", "fabric.yaml", "starter/answers.yaml"):
            assert (lab.folder / name).is_file(), f"{lab.name}/{name}"
        assert (lab.solution / "answers.yaml").is_file()
        handout = (lab.folder / "handout.md").read_text(encoding="utf-8")
        for part in (
            "**Question.**",
            "## Predict first",
            "## Steps",
            "## What to look at",
            "## What to explain",
            "## Hand in",
        ):
            assert part in handout, f"{lab.name}: {part}"
    assert sorted(path.parent.name for path in Path(labs()[0].folder.parent).glob("*/notebook.ipynb")) == [
        "03-incast", "04-thresholds", "05-your-own",
    ]  # fmt: skip


def test_start_gives_no_solution_and_no_checker(tmp_path: Path) -> None:
    for lab in labs():
        folder = tmp_path / lab.name
        names = {path.name for path in start_lab(lab, folder)}
        assert {"handout.md", "answers.yaml", "fabric.yaml", "glossary.md"} <= names
        assert not names & {"check.py", "lab.yaml", "starter", "solutions", "solution.md"}
        handout = (folder / "handout.md").read_text(encoding="utf-8")
        assert "../../" not in handout
        assert (
            "lab start " + str(lab.number) not in handout and "```bash\n```" not in handout
        )  # it is done: no folder in a folder
        assert f"lab check {lab.number}" in handout
        glossary = (folder / "glossary.md").read_text(encoding="utf-8").lower()
        for anchor in set(re.findall(r"glossary\.md#([\w-]+)", handout)):
            assert f"### {anchor.replace('-', ' ')}" in glossary.replace("-", " "), anchor
    with pytest.raises(UsageError, match="something there already"):
        start_lab(labs()[0], tmp_path / labs()[0].name)


def test_an_untouched_folder_gets_next_to_nothing(tmp_path: Path) -> None:
    from emulator.lab.grade import grade

    for lab in labs():
        start_lab(lab, tmp_path / lab.name)
        graded = grade(lab, tmp_path / lab.name)
        assert graded.points <= 0.2 * graded.of, graded.text()
        assert graded.of >= 10
        assert len({item.key for item in graded.sheet.items}) == len(graded.sheet.items)


def test_an_unknown_lab_names_the_ones_there_are() -> None:
    assert find_lab("3").name == find_lab("03-incast").name == "03-incast"
    with pytest.raises(UsageError, match='no lab "12"') as caught:
        find_lab("12")
    assert "03-incast" in caught.value.remedy


def test_a_wrong_key_is_noted_and_the_result_file_is_what_platforms_read(tmp_path: Path) -> None:
    start_lab(find_lab("3"), tmp_path / "lab")
    file = tmp_path / "lab" / "answers.yaml"
    file.write_text(file.read_text(encoding="utf-8") + "peek_4: 3\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "emulator.cli.main", "lab", "check", "3", str(tmp_path / "lab")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "lab" / "result.json").read_text(encoding="utf-8"))
    assert [note for note in result["notes"] if 'no item "peek_4"' in note and "peak_4" in note]
    assert result["output"] == ""  # only lab 5 shows a scoreboard
    assert result["score"] == 0 and result["max_score"] == sum(test["max_score"] for test in result["tests"])
    assert all({"name", "score", "max_score", "output"} <= set(test) for test in result["tests"])
