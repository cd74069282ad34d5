"""One folder for each wrong input: the files, and the exact message on standard error.

A folder holds `topology.yaml` (or lacks it, if that is the mistake), `expected.txt`, and `command.txt` where the
command is another than `topo check topology.yaml`. Every mistake ends with exit code 2 and no traceback.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from emulator.cli.main import main

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/expected.txt"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message_is_exact(case: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(case)
    command = case / "command.txt"
    arguments = shlex.split(command.read_text()) if command.exists() else ["topo", "check", "topology.yaml"]
    code = main(arguments)
    printed = capsys.readouterr()
    assert printed.err == (case / "expected.txt").read_text()
    assert (code, printed.out) == (2, "")


def test_every_folder_has_an_expected_message() -> None:
    folders = {path for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(CASES)
