"""Lab 8: sender windows, receiver credits, a victim."""

from __future__ import annotations

from emulator.lab.runs import LabRun, NoSuchRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work

CORE, LAST = "leaf0:spine0", "leaf1:host11"
VICTIM = ("host5", "host10")


def check(work: Work, sheet: Sheet) -> None:
    def run(cc: str) -> LabRun:
        return work.run(f"{cc}.yaml")

    def victim(cc: str) -> float:
        flows = run(cc).flows
        mine = flows[(flows["src"] == VICTIM[0]) & (flows["dst"] == VICTIM[1])]
        return float(mine["slowdown"].iloc[0])

    def peak(cc: str, port: str) -> float:
        return float(run(cc).port(port)["max_bytes"])

    def halves() -> tuple[float, float]:
        """Mean backlog of the receiver's port with rccc in the third and in the last quarter of the incast, in bytes."""
        table = run("rccc").queues
        rows = table[(table["port"] == LAST) & (table["class"] == "data")]
        end = float(run("rccc").flows["end_ns"].max())
        third = rows[(rows["time_ns"] > end / 2) & (rows["time_ns"] <= 0.7 * end)]["backlog_bytes"].mean()
        late = rows[(rows["time_ns"] > 0.7 * end) & (rows["time_ns"] <= 0.9 * end)]["backlog_bytes"].mean()
        if third != third or late != late:
            raise NoSuchRun(f"{run('rccc').name} has no samples of {LAST} in its second half")
        return float(third), float(late)

    def asked() -> str:
        """Whose word moved the senders' pace: the trigger that the rate table has most, after the start."""
        rates = run("rccc").rates
        triggers = rates[rates["trigger"] != "start"]["trigger"].value_counts()
        return str(triggers.index[0]) if len(triggers) else "none"

    sheet.prediction("predict_victim", "Predicted: the victim's slowdown", lambda: victim("none"), low=1, high=100)
    for cc in ("none", "dcqcn", "nscc", "rccc"):
        sheet.number(
            f"victim_{cc}", f"The victim's slowdown with {cc}", lambda cc=cc: victim(cc), tolerance=0.03,  # type: ignore[misc]
            look="the row host5 to host10 of the flows",
        )  # fmt: skip
    sheet.number(
        "core_none",
        f"Peak of {CORE} without control",
        lambda: peak("none", CORE) / 1e6,
        unit="MB",
        look="`fullest port`",
    )
    sheet.number(
        "core_nscc", f"Peak of {CORE} with nscc", lambda: peak("nscc", CORE) / 1e3, unit="kB", look="the page's queues"
    )
    sheet.number(
        "bound_nscc", "Completion over bound, nscc", lambda: run("nscc").ratio, tolerance=0.01, look="`completion`"
    )
    sheet.number(
        "bound_rccc", "Completion over bound, rccc", lambda: run("rccc").ratio, tolerance=0.01, look="`completion`"
    )
    sheet.choice(
        "where_hurt",
        "Where the victim waits",
        {
            "core": lambda: run("none").port(CORE)["mean_bytes"] > 100_000,
            "last_hop": lambda: run("none").port(CORE)["mean_bytes"] <= 100_000,
        },
        because=lambda: (
            f"its packets cross {CORE}, where they met {run('none').port(CORE)['mean_bytes'] / 1e6:.2f} MB on average, and leaf1:host10, "
            f"which never held more than {(run('none').port('leaf1:host10')['max_bytes'] or 0) / 1e3:.0f} kB; they never see {LAST}"
        ),
        points=2,
    )
    sheet.choice(
        "steady_queue",
        "The receiver's queue with rccc",
        {
            "growing": lambda: halves()[1] > 1.25 * halves()[0],
            "steady": lambda: halves()[1] <= 1.25 * halves()[0] and halves()[1] > 20_000,
            "empty": lambda: halves()[1] <= 1.25 * halves()[0] and halves()[1] <= 20_000,
        },
        because=lambda: (
            f"after half of the run {LAST} held {halves()[0] / 1e3:.0f} kB, towards the end {halves()[1] / 1e3:.0f} kB: credit comes "
            "at the rate of the link, so what the first windows brought hardly grows or shrinks"
        ),
    )
    sheet.choice(
        "speaks_first",
        "Who decides the pace with rccc",
        {
            "sender": lambda: asked() in ("sent", "timer", "none"),
            "switch": lambda: asked() in ("mark", "cnp", "trim"),
            "receiver": lambda: asked() in ("credit", "grant"),
        },
        because=lambda: f'the trigger that moved the senders most often is "{asked()}"',
    )
