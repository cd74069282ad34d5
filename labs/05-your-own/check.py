"""Lab 5: the student's congestion control against goals and against the built-in ones."""

from __future__ import annotations

from collections.abc import Callable

from emulator.lab.runs import LabRun, NoSuchRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work
from traffic.congestion.checker import check as play_traces
from traffic.congestion.registry import algorithm

PORT = "leaf0:host0"
BUILT_IN = ("none", "dcqcn", "swift", "nscc")
BOUND, ALONE, MEAN_BYTES, FAIR = 1.10, 1.05, 150_000, 0.5


def check(work: Work, sheet: Sheet) -> str:
    def built_in(cc: str) -> LabRun:
        return work.run(f"{cc}.yaml")

    def source() -> str:
        return work.file("mine.py").read_text(encoding="utf-8")

    def mine(kind: str) -> LabRun:
        """The newest run of the code that is handed in, in the incast or alone."""
        wanted = {"incast": "mine.yaml", "pairs": "alone.yaml"}[kind]
        like = built_in("nscc").setup["topology"]
        run = work.pick(
            f"your mine.py in {wanted}",
            f"`fabriclab run {wanted}`",
            lambda r: (
                r.setup["workload"]["kind"] == kind
                and r.setup["transport"].get("cc_source") is not None
                and {**r.setup["topology"], "name": ""} == {**like, "name": ""}
                and r.setup["workload"]["bytes"] == {"incast": 1_000_000, "pairs": 4_000_000}[kind]
                and (kind != "incast" or r.setup["workload"]["senders"] == 7)
            ),
        )
        if run.setup["transport"]["cc_source"] != source():
            raise NoSuchRun(f"mine.py is not what ran in {run.name}, the newest run: `fabriclab run {wanted}` again")
        return run

    def mean(run: LabRun) -> float:
        return float(run.port(PORT)["mean_bytes"])

    def place() -> float:
        return 1 + float(sum(built_in(cc).time_us < mine("incast").time_us for cc in BUILT_IN))

    def rules() -> tuple[bool, str]:
        file = work.file("mine.py")
        report = play_traces(algorithm(f"{file}:Mine"), file=file)
        wrong = [str(f) for f in report.findings if not f.warning]
        return report.ok, "; ".join(wrong) or f"no violation in {len(report.traces)} traces"

    def goal(text: str, value: Callable[[], float], good: Callable[[float], bool]) -> Callable[[], tuple[bool, str]]:
        def grade() -> tuple[bool, str]:
            found = value()
            return good(found), f"{text} {found:.4g} in {work.touched[-1].name}"

        return grade

    sheet.prediction("predict_place", "Predicted: the place of the first version", place, low=1, high=5)
    sheet.number(
        "resent_none",
        "Sent again without control",
        lambda: float(built_in("none").packets("retransmitted")),
        look="`sent`",
    )
    sheet.number(
        "bound_dcqcn", "Completion over bound with dcqcn", lambda: built_in("dcqcn").ratio, look="`completion`"
    )
    sheet.number(
        "mean_swift",
        "Mean queue with swift",
        lambda: mean(built_in("swift")) / 1e3,
        unit="kB",
        look="`fullest port`: mean",
    )
    sheet.number(
        "mean_nscc",
        "Mean queue with nscc",
        lambda: mean(built_in("nscc")) / 1e3,
        unit="kB",
        look="`fullest port`: mean",
    )
    sheet.fact("rules", "The checker finds no broken rule in mine.py", rules, points=2)
    sheet.fact(
        "no_loss", "Nothing is sent again",
        goal("packets sent again:", lambda: float(mine("incast").packets("retransmitted")), lambda n: n == 0), points=2,
    )  # fmt: skip
    sheet.fact(
        "fast", f"Completion within {BOUND:g} times the bound",
        goal(f"times the bound (at most {BOUND:g}):", lambda: mine("incast").ratio, lambda n: n <= BOUND), points=2,
    )  # fmt: skip
    sheet.fact(
        "short", f"Mean queue within {MEAN_BYTES // 1000} kB",
        goal(f"mean queue in kB (at most {MEAN_BYTES // 1000}):", lambda: mean(mine("incast")) / 1e3, lambda n: n <= MEAN_BYTES / 1e3),
        points=2,
    )  # fmt: skip
    sheet.fact(
        "fair",
        "All seven alike",
        goal(f"fairness (at least {FAIR:g}):", lambda: mine("incast").fairness, lambda n: n >= FAIR),
    )
    sheet.fact(
        "alone", f"A flow alone within {ALONE:g} times the bound",
        goal(f"times the bound (at most {ALONE:g}):", lambda: mine("pairs").ratio, lambda n: n <= ALONE), points=2,
    )  # fmt: skip
    return scoreboard(work, [*BUILT_IN, "mine"], lambda cc: mine("incast") if cc == "mine" else built_in(cc))


def scoreboard(work: Work, names: list[str], find: Callable[[str], LabRun]) -> str:
    """The runs of the incast, fastest first."""
    rows = []
    for name in names:
        try:
            run = find(name)
        except NoSuchRun:
            continue
        port = run.port(PORT)
        rows.append(
            (run.time_us, name, run.ratio, port["mean_bytes"] / 1e3, port["max_bytes"] / 1e3, run.fairness, run)
        )
    lines = ["scoreboard  times bound  mean queue  peak queue  fairness  sent again"]
    for place, (_, name, ratio, mean, peak, fair, run) in enumerate(sorted(rows, key=lambda row: row[0]), start=1):
        lines.append(
            f"{place}. {name:10} {ratio:10.3f} {mean:8.1f} kB {peak:8.1f} kB {fair:9.3f} {run.packets('retransmitted'):11}"
        )
    return "\n".join(lines)
