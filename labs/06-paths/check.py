"""Lab 6: ECMP collisions and spraying."""

from __future__ import annotations

from emulator.lab.runs import LabRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work


def check(work: Work, sheet: Sheet) -> None:
    def one() -> LabRun:
        return work.run("one.yaml")

    def qps() -> LabRun:
        return work.run("one.yaml", "transport.qps=8")

    def spray() -> LabRun:
        return work.run("spray.yaml")

    def one_slow() -> LabRun:
        return work.run("one-slow.yaml")

    def spray_slow() -> LabRun:
        return work.run("spray-slow.yaml")

    def shares(run: LabRun) -> dict[str, float]:
        """Share of leaf0's bytes on each of its uplinks, in percent, as `paths` prints it."""
        sent = {q["port"]: q["tx_bytes"] for q in run.summary["queues"] if q["port"].startswith("leaf0:spine")}
        total = sum(sent.values())
        return {port: 100 * count / total for port, count in sent.items()}

    def busiest(run: LabRun) -> float:
        return max(shares(run).values())

    def slow_share() -> float:
        return shares(spray_slow())["leaf0:spine1"]

    sheet.prediction(
        "predict_bound", "Predicted: completion over bound, one path a flow", lambda: one().ratio, low=1, high=8
    )
    sheet.number("bound_one", "Completion over bound, one path a flow", lambda: one().ratio, look="`completion`")
    sheet.number(
        "busiest_one", "Share of the busiest uplink", lambda: busiest(one()), unit="%", slack=2, look="`paths`"
    )
    sheet.number("bound_qps", "Completion over bound, 8 queue pairs", lambda: qps().ratio, look="`completion`")
    sheet.number(
        "bound_spray", "Completion over bound, sprayed", lambda: spray().ratio, tolerance=0.02, look="`completion`"
    )
    sheet.number(
        "busiest_spray",
        "Share of the busiest uplink, sprayed",
        lambda: busiest(spray()),
        unit="%",
        slack=2,
        look="`paths`",
    )
    sheet.number(
        "reordered_one",
        "Out of order on one path",
        lambda: float(one().packets("reordered")),
        tolerance=0,
        look="`sent`: reordered",
    )
    sheet.number(
        "reordered_spray",
        "Out of order, sprayed",
        lambda: float(spray().packets("reordered")),
        look="`sent`: reordered",
    )
    sheet.number("bound_one_slow", "Slow link, one path a flow", lambda: one_slow().ratio, look="`completion`")
    sheet.number("bound_spray_slow", "Slow link, sprayed", lambda: spray_slow().ratio, look="`completion`")
    sheet.number(
        "slow_share", "Share of the slow link, sprayed", slow_share, unit="%", tolerance=0.1, slack=0.5, look="`paths`"
    )
    sheet.choice(
        "why_slow",
        "Why one path a flow takes so long",
        {
            "collision": lambda: busiest(one()) > 40 and one().packets("dropped") == 0,
            "too_few_links": lambda: busiest(one()) <= 40 and one().packets("dropped") == 0,
            "loss": lambda: one().packets("dropped") > 0,
        },
        because=lambda: (
            f"no link lacks room ({spray().ratio:.2f} times the bound when sprayed), {one().packets('dropped')} packets were dropped; "
            f"leaf0's uplinks carried {', '.join(f'{share:.0f} %' for share in shares(one()).values())}"
        ),
        points=2,
    )
    sheet.choice(
        "price",
        "What spraying costs",
        {
            "loss": lambda: spray().packets("retransmitted") > 0,
            "order": lambda: spray().packets("retransmitted") == 0 and spray().packets("reordered") > 0,
            "nothing": lambda: spray().packets("retransmitted") == 0 and spray().packets("reordered") == 0,
        },
        because=lambda: (
            f"{spray().packets('reordered')} packets out of order, {spray().packets('retransmitted')} sent again"
        ),
    )
    sheet.choice(
        "slow_link",
        "What spraying does about a slow link",
        {"equal_shares": lambda: slow_share() > 23, "moves_away": lambda: slow_share() < 22},
        because=lambda: (
            f"the slow link carried {slow_share():.1f} % of what leaf0 sent; an equal share is 25 %, the share of its rate 7.7 %"
        ),
    )
