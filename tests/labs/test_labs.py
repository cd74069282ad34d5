"""Every lab as a student meets it: started, its handout's commands run as written, then graded.

The starter gets less than full marks, before and after the runs; the solution gets all; each wrong answer loses exactly the points
of what is wrong. Nothing is stored: each grade comes from runs that this test has just made.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from emulator.lab.catalogue import Lab, labs
from emulator.lab.grade import Graded, grade
from tests.commands import ROOT, commands_of, environment, play

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Wrong:
    """A wrong hand-in: answers to replace, or a change of the folder; and the items that must lose their points."""

    lost: set[str]
    answers: dict[str, str] = field(default_factory=dict)
    change: Callable[[Path], None] | None = None


def answer(key: str, value: str) -> Wrong:
    return Wrong({key}, {key: value})


def _starter_code(folder: Path) -> None:
    shutil.copyfile(ROOT / "labs" / "05-your-own" / "starter" / "mine.py", folder / "mine.py")


def _broken_code(folder: Path) -> None:
    text = (folder / "mine.py").read_text(encoding="utf-8")
    (folder / "mine.py").write_text(text.replace("min(max(self.window_bytes, least), most)", "-1.0"), encoding="utf-8")


_NOT_THE_RUN = {"no_loss", "fast", "short", "fair", "alone"}

WRONG: dict[int, list[Wrong]] = {
    1: [answer("average", "0.7"), answer("slow_factor", "1.25"), answer("who_waits", "slow_host")],
    2: [
        answer("headers_first", "54"),
        answer("marked", "62"),
        answer("icrc_survives", "sport"),
        answer("reth_in", "every"),
    ],
    3: [answer("law", "all"), answer("peak_4", "4 MB"), answer("why_slow_7", "port")],
    4: [answer("rule_k", "259"), answer("too_high", "throughput"), answer("my_k", "40")],
    5: [
        answer("bound_dcqcn", "1.0"),
        Wrong(_NOT_THE_RUN, change=_starter_code),
        Wrong({"rules", *_NOT_THE_RUN}, change=_broken_code),
    ],
    6: [
        answer("busiest_one", "25"),
        answer("slow_share", "18"),
        answer("why_slow", "too_few_links"),
        answer("slow_link", "equal_shares"),
    ],
    7: [
        answer("each_gbn", "1"),
        answer("why_gbn", "lost_twice"),
        answer("probes_drop", "0"),
        answer("what_trim_saves", "packets"),
    ],
    8: [answer("victim_nscc", "1.0"), answer("where_hurt", "last_hop"), answer("speaks_first", "sender")],
    9: [answer("quote", "b"), answer("cause_c", "slowed_too_little"), answer("same_bytes", "no")],
}


def lost(graded: Graded) -> set[str]:
    return {item.key for item in graded.sheet.items if not item.full}


def hand_in(lab: Lab, folder: Path) -> None:
    """The solution's files over those of the folder."""
    for file in lab.solution.iterdir():
        if file.suffix in (".yaml", ".py"):
            shutil.copyfile(file, folder / file.name)


def replaced(text: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        text, count = re.subn(rf"^{key}:[^#\n]*", f"{key}: {value} ", text, flags=re.MULTILINE)
        assert count == 1, key
    return text


def played(lab: Lab, parent: Path) -> Path:
    """The handout from top to bottom, as a student runs it (lab 5 with the solution's code in place before it first runs)."""
    commands = commands_of(lab.folder / "handout.md")
    begin = next(n for n, command in enumerate(commands) if command.text.startswith("cd "))
    play(commands[: begin + 1], parent)
    folder = parent / f"lab-{lab.name}"
    untouched = grade(lab, folder)
    assert untouched.points < 0.3 * untouched.of
    for code in lab.solution.glob("*.py"):
        shutil.copyfile(code, folder / code.name)
    play(commands[begin + 1 :], folder)
    return folder


@pytest.mark.parametrize("lab", labs(), ids=lambda lab: lab.name)
def test_lab(lab: Lab, tmp_path: Path) -> None:
    folder = played(lab, tmp_path)
    without_answers = grade(lab, folder)
    assert without_answers.points < without_answers.of

    if (lab.solution / "solution.md").is_file():
        play(commands_of(lab.solution / "solution.md"), folder)
    hand_in(lab, folder)
    full = grade(lab, folder)
    assert lost(full) == set(), full.text()
    assert full.notes == []

    done = subprocess.run(
        ["fabriclab", "lab", "check", str(lab.number), str(folder)],
        env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert result["score"] == result["max_score"] == full.of
    assert ("scoreboard" in result["output"]) == (lab.number == 5)
    assert {run["clock"] for run in result["runs"]} <= {"virtual", "real"} and result["runs"]

    right = (folder / "answers.yaml").read_text(encoding="utf-8")
    assert len(WRONG[lab.number]) >= 3
    for wrong in WRONG[lab.number]:
        (folder / "answers.yaml").write_text(replaced(right, wrong.answers), encoding="utf-8")
        if wrong.change is not None:
            wrong.change(folder)
        graded = grade(lab, folder)
        assert lost(graded) == wrong.lost, graded.text()
        assert all(len(item.said) > 20 for item in graded.sheet.items if not item.full)
        hand_in(lab, folder)

    if (folder / "notebook.ipynb").is_file():
        _run_notebook(folder)


def _run_notebook(folder: Path) -> None:
    """Every cell runs, with the runs that are there; the committed file has no outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(  # type: ignore[no-untyped-call]
        folder / "notebook.ipynb", as_version=4
    )
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)
    before = {path.name for path in (folder / "runs").iterdir()}
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    figures = [
        o
        for cell in notebook.cells
        for o in cell.get("outputs", [])
        if "application/vnd.plotly.v1+json" in o.get("data", {})
    ]
    assert len(figures) >= 2
    assert {path.name for path in (folder / "runs").iterdir()} == before
