"""Writes the numbers and expected figures of every solution from runs made as the handout says.

    python -m tests.labs.solutions [NUMBER...]

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
from emulator.lab.grade import Graded, grade
from emulator.lab.notebook import queue_over_time
from emulator.lab.runs import LabRun
from emulator.lab.start import start_lab
from tests.commands import commands_of, play
from tests.labs.figures import Points, bar_chart, line_chart


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
    graded = grade(lab, mine)
    print(f"{mine}\n{graded.text()}")
    expected(lab, graded)


def expected(lab: Lab, graded: Graded) -> None:
    """The graded sheet without the names of runs, and a figure, beside the solution."""
    sheet = re.sub(r" in \d{8}-\d{6}-[\w-]+(?:, \d{8}-\d{6}-[\w-]+)*", "", graded.text())
    chart = figure(lab.number, graded)
    lines = [
        f"# Lab {lab.number}, what is expected",
        "",
        "Seed 1. Written by `python -m tests.labs.solutions` from runs.",
        "",
    ]
    if chart:
        (lab.solution / "expected.svg").write_text(chart, encoding="utf-8")
        lines += ["![What was measured](expected.svg)", ""]
    text = "\n".join([*lines, "```text", sheet, "```"])
    (lab.solution / "expected.md").write_text(text + "\n", encoding="utf-8")


def figure(number: int, graded: Graded) -> str:
    """The chart that says most about a lab; empty for lab 2, which is about bytes."""
    work = graded.work

    def queue(run: LabRun, port: str) -> Points:
        table = queue_over_time(run, port)
        return list(zip(table["us"].tolist(), table["kB"].tolist(), strict=True))

    if number == 1:
        busbw = {spec: work.run(f"{spec}.yaml").summary["collective"]["busbw_gbps"] for spec in ("ring", "slow")}
        return bar_chart("One slow link slows the whole ring", "bus bandwidth, Gbit/s", busbw)
    if number == 3:
        curves = {cc: queue(work.run(f"{cc}.yaml"), "leaf0:host0") for cc in ("none", "dcqcn", "nscc")}
        return line_chart("Seven senders: the queue of leaf0:host0", "us", "kB", curves)
    if number == 4:
        runs = {k: work.run("dctcp.yaml", f"ecn.kmin={k}KB", f"ecn.kmax={k + 5}KB") for k in (20, 40, 160, 640)}
        mean = [(float(k), run.port("leaf0:host0")["mean_bytes"] / 1e3) for k, run in runs.items()]
        late = [(float(k), (run.ratio - 1) * 1e3) for k, run in runs.items()]
        return line_chart(
            "DCTCP against K", "K, kB", "kB; thousandths", {"mean queue, kB": mean, "over the bound, 1/1000": late}
        )
    if number == 5:
        specs = ("none", "dcqcn", "swift", "nscc", "mine")
        newest = {spec: [r for r in work.used.values() if _named(r, spec)][-1] for spec in specs}
        return line_chart(
            "The arena: the queue of leaf0:host0", "us", "kB", {s: queue(r, "leaf0:host0") for s, r in newest.items()}
        )
    if number == 6:
        ratios = {
            "one path": work.run("one.yaml").ratio,
            "8 queue pairs": work.run("one.yaml", "transport.qps=8").ratio,
            "sprayed": work.run("spray.yaml").ratio,
            "one, slow link": work.run("one-slow.yaml").ratio,
            "sprayed, slow": work.run("spray-slow.yaml").ratio,
        }
        return bar_chart("Four flows on four paths", "completion over bound", ratios)
    if number == 7:
        times = {
            "go-back-N": work.run("wire.yaml").time_us,
            "selective": work.run("wire.yaml", "transport.recovery=selective").time_us,
            "burst, dropped": work.run("burst.yaml").time_us,
            "burst, trimmed": work.run("burst.yaml", "transport.trim=on").time_us,
        }
        return bar_chart("What a loss costs", "completion, us", times)
    if number == 8:
        slow = {
            cc: float(work.run(f"{cc}.yaml").flows.iloc[-1]["slowdown"]) for cc in ("none", "dcqcn", "nscc", "rccc")
        }
        return bar_chart("The victim", "slowdown", slow)
    if number == 9:
        took = {f"given/{name}": work.named(name).time_us for name in "abc"}
        return bar_chart(
            "One experiment, four numbers",
            "completion, us",
            {"exact": work.run("exact.yaml", clock="virtual").time_us, **took},
        )
    return ""


def _named(run: LabRun, spec: str) -> bool:
    name = str(run.setup["transport"]["cc"]).partition(".")[0]
    return name == spec and run.setup["workload"]["kind"] == "incast"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fabriclab-solutions-", dir="/var/tmp"))
    wanted = {int(word) for word in sys.argv[1:]}
    for lab in labs():
        if not wanted or lab.number in wanted:
            solve(lab, folder)


if __name__ == "__main__":
    main()
