"""Runs handed in are made again: an honest folder comes out the same, an edited one is named with the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.lab.again import repeat_runs
from emulator.lab.catalogue import find_lab
from emulator.lab.grade import grade
from emulator.lab.start import start_lab
from tests.commands import Command, play

pytestmark = pytest.mark.virtual


def test_an_edited_run_directory_shows_itself(tmp_path: Path) -> None:
    lab, folder = find_lab("2"), tmp_path / "lab"
    start_lab(lab, folder)
    play([Command("lab 2", 1, "fabriclab run capture.yaml")], folder)
    answers = (folder / "answers.yaml").read_text(encoding="utf-8")
    (folder / "answers.yaml").write_text(answers.replace("marked:", "marked: 69 "), encoding="utf-8")
    told: list[str] = []
    assert repeat_runs(grade(lab, folder), told.append) == [
        "made again: 1 of 1 runs on the virtual clock came out the same"
    ]
    (run,) = (folder / "runs").iterdir()
    assert told == [f"making {run.name} again …"]

    capture = bytearray((run / "capture" / "run.pcapng").read_bytes())
    capture[len(capture) // 2] ^= 1
    (run / "capture" / "run.pcapng").write_bytes(capture)
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    summary["theory"]["ratio"] = 1.0
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    none, edited = repeat_runs(grade(lab, folder), told.append)
    assert none == "made again: 0 of 1 runs on the virtual clock came out the same"
    assert edited.startswith(run.name) and edited.endswith("again: summary.json, capture/run.pcapng")
