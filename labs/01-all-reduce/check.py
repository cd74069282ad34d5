"""Lab 1: what the runs of an all-reduce measured, against the student's answers."""

from __future__ import annotations

from emulator.lab.runs import LabRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work

LINE_GBPS = 100.0


def check(work: Work, sheet: Sheet) -> None:
    def values() -> LabRun:
        return work.run("values.yaml")

    def doubling() -> LabRun:
        return work.run("values.yaml", "workload.algorithm=halving_doubling")

    def ring() -> LabRun:
        return work.run("ring.yaml")

    def slow() -> LabRun:
        return work.run("slow.yaml")

    def sent_mb() -> float:
        return float(ring().flows.groupby("src")["bytes"].sum().max()) / 1e6

    def collective(run: LabRun, key: str) -> float:
        return float(run.summary["collective"][key])

    def ends(run: LabRun) -> dict[str, float]:
        return dict(run.flows.groupby("dst")["end_ns"].max())

    def late() -> int:
        """Hosts that hold their result at least twice as late as in the healthy fabric."""
        before, after = ends(ring()), ends(slow())
        return sum(after[host] > 2 * before[host] for host in before)

    sheet.prediction("predict_sent", "Predicted: MB each GPU sends", sent_mb, low=0.1, high=100, unit="MB")
    sheet.number(
        "average", "The agreed average", lambda: next(iter(values().summary["collective"]["average"].values())),
        tolerance=0.001, look="the line `agreed`",
    )  # fmt: skip
    sheet.number(
        "steps", "Steps of the ring", lambda: float(values().flows["step"].nunique()), tolerance=0,
        look="the column `step` of flows.parquet, or the bars of the page: a ring has N-1 steps to add and N-1 to copy",
    )  # fmt: skip
    sheet.number(
        "transfers", "Messages for the four numbers", lambda: float(len(values().flows)), tolerance=0,
        look="`completion`: all … transfers",
    )  # fmt: skip
    sheet.number(
        "sent", "MB each GPU sent", sent_mb, unit="MB", tolerance=0.02,
        look="the transfers of one host in the page, each with its bytes: chunks of S/N, one a step",
    )  # fmt: skip
    sheet.number(
        "time", "Time of the all-reduce", lambda: collective(ring(), "time_us"), unit="us", look="`collective`"
    )
    sheet.number("busbw", "Bus bandwidth", lambda: collective(ring(), "busbw_gbps"), unit="Gbit/s", look="`bandwidth`")
    sheet.number(
        "slow_factor", "One slow link: how many times longer",
        lambda: collective(slow(), "time_us") / collective(ring(), "time_us"), look="`collective` of both runs",
    )  # fmt: skip
    sheet.choice(
        "busy_links",
        "Which bandwidth tells how busy the links were",
        {
            "algbw": lambda: collective(ring(), "algbw_gbps") > 0.85 * LINE_GBPS,
            "busbw": lambda: collective(ring(), "busbw_gbps") > 0.85 * LINE_GBPS,
        },
        because=lambda: (
            f"of {LINE_GBPS:g} Gbit/s of line rate algbw shows {collective(ring(), 'algbw_gbps'):.1f}, "
            f"busbw {collective(ring(), 'busbw_gbps'):.1f}; the links were never idle"
        ),
    )
    sheet.choice(
        "small_vector",
        "Four numbers: the faster algorithm",
        {
            "ring": lambda: values().time_us < doubling().time_us,
            "halving_doubling": lambda: doubling().time_us < values().time_us,
        },
        because=lambda: (
            f"ring {values().time_us:.2f} us in {values().flows['step'].nunique()} steps, "
            f"halving_doubling {doubling().time_us:.2f} us in {doubling().flows['step'].nunique()}: "
            "with few bytes each step costs a latency"
        ),
    )
    sheet.choice(
        "who_waits",
        "One slow link: who got the result late",
        {"slow_host": lambda: late() == 1, "neighbours": lambda: late() in (2, 3), "everyone": lambda: late() == 4},
        because=lambda: f"{late()} of 4 hosts held the result more than twice as late as in the healthy fabric",
        points=2,
    )
