"""Writes the numbers of every solution from runs made as the handout says: `python -m tests.labs.solutions [NUMBER...]`.

What a student reads off is filled in from the runs. Predictions, choices that need judgement and code stay what the solution has.
The runs themselves are left in the folder that is printed.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from emulator.lab.catalogue import Lab, labs
from emulator.lab.grade import grade
from emulator.lab.start import start_lab
from tests.commands import commands_of, play


def play_lab(lab: Lab, folder: Path) -> Path:
    """Starts a lab in `folder` and runs its handout there with the solution's files but its answers; the lab's folder."""
    mine = folder / f"lab-{lab.name}"
    start_lab(lab, mine)
    for file in sorted(lab.solution.iterdir()):
        if file.suffix == ".py":
            shutil.copyfile(file, mine / file.name)
    wanted = [c for c in commands_of(lab.folder / "handout.md") if not re.match(r"cd |fabriclab lab ", c.text)]
    play(wanted, mine)
    extra = lab.solution / "solution.md"
    if extra.is_file():
        play(commands_of(extra), mine)
    return mine


def filled(text: str, values: dict[str, float | str]) -> str:
    """An answers file with values put after their keys; comments stay."""
    out = []
    for line in text.splitlines():
        key, colon, rest = line.partition(":")
        if colon and key in values:
            value = values[key]
            word = f"{value:.5g}" if isinstance(value, float) else str(value)
            comment = re.search(r"\s#.*$", rest)
            line = f"{key}: {word}".ljust(24) + (f" {comment[0].strip()}" if comment else "")
        out.append(line.rstrip())
    return "\n".join(out) + "\n"


def solve(lab: Lab, folder: Path) -> None:
    """Plays a lab and writes its solution's answers from what was measured."""
    mine = play_lab(lab, folder)
    target = lab.solution / "answers.yaml"
    source = target if target.is_file() else lab.folder / "starter" / "answers.yaml"
    shutil.copyfile(source, mine / "answers.yaml")
    graded = grade(lab, mine)
    target.write_text(filled(source.read_text(encoding="utf-8"), graded.sheet.measured), encoding="utf-8")
    shutil.copyfile(target, mine / "answers.yaml")
    print(f"{mine}\n{grade(lab, mine).text()}")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fabriclab-solutions-", dir="/var/tmp"))
    wanted = {int(word) for word in sys.argv[1:]}
    for lab in labs():
        if not wanted or lab.number in wanted:
            solve(lab, folder)


if __name__ == "__main__":
    main()
