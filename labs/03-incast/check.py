"""Lab 3: incast without and with congestion control."""

from __future__ import annotations

from emulator.lab.runs import LabRun, NoSuchRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work

PORT = "leaf0:host0"
COUNTS = (2, 4, 5, 7)


def check(work: Work, sheet: Sheet) -> None:
    def none(senders: int) -> LabRun:
        return work.run("none.yaml", f"workload.params.senders={senders}")

    def dcqcn() -> LabRun:
        return work.run("dcqcn.yaml")

    def nscc() -> LabRun:
        return work.run("nscc.yaml")

    def peak(run: LabRun) -> float:
        return float(run.port(PORT)["max_bytes"])

    def first_loss() -> float:
        for senders in COUNTS:
            if none(senders).packets("dropped"):
                return float(senders)
        raise NoSuchRun("none of these runs lost a packet")

    def resent(run: LabRun) -> float:
        """Share of the data packets that went again."""
        return run.packets("retransmitted") / run.packets("data")

    def per_sender() -> float:
        """The peak with 4 senders, in bytes of one sender as they are on the wire."""
        return peak(none(4)) / (sum(q["tx_bytes"] for q in none(4).summary["queues"] if q["port"] == "host1:leaf0"))

    def idle() -> float:
        """Share of the time at 7 senders in which the receiver's port sent nothing."""
        run = none(7)
        return 1 - run.port(PORT)["tx_bytes"] * 8 / (run.port(PORT)["rate_gbps"] * run.time_us * 1e3)

    sheet.prediction(
        "predict_peak_4", "Predicted: peak at 4 senders", lambda: peak(none(4)) / 1e6, low=0.01, high=10, unit="MB"
    )
    sheet.prediction("predict_first_loss", "Predicted: first loss", first_loss, low=1, high=8)
    sheet.number("time_4", "Completion with 4 senders", lambda: none(4).time_us, unit="us", look="`completion`")
    sheet.number("peak_2", "Peak with 2 senders", lambda: peak(none(2)) / 1e6, unit="MB", look="`fullest port`")
    sheet.number("peak_4", "Peak with 4 senders", lambda: peak(none(4)) / 1e6, unit="MB", look="`fullest port`")
    sheet.number(
        "first_loss", "First loss", first_loss, tolerance=0, look="`drops` of the runs with 2, 4, 5 and 7 senders"
    )
    sheet.number(
        "resent_7", "Packets sent again at 7 senders", lambda: float(none(7).packets("retransmitted")), look="`sent`"
    )
    sheet.number("times_bound_7", "Completion over bound at 7 senders", lambda: none(7).ratio, look="`completion`")
    sheet.number("fairness_7", "Fairness at 7 senders", lambda: none(7).fairness, slack=0.02, look="`fairness`")
    sheet.number(
        "peak_nscc",
        "Peak with nscc",
        lambda: peak(nscc()) / 1e3,
        unit="kB",
        look="`fullest port` of the run of nscc.yaml",
    )
    sheet.number("times_bound_dcqcn", "Completion over bound with dcqcn", lambda: dcqcn().ratio, look="`completion`")
    sheet.choice(
        "law",
        "The law of the peak",
        {
            "all": lambda: round(per_sender()) == 4,
            "all_but_one": lambda: round(per_sender()) == 3,
            "one": lambda: round(per_sender()) == 1,
        },
        because=lambda: (
            f"the peak with 4 senders is {per_sender():.2f} times what one sender brings: while the first bytes come in, "
            "the link takes away as much as one of them sends"
        ),
    )
    sheet.choice(
        "why_slow_7",
        "What costs the time at 7 senders",
        {
            "loss": lambda: none(7).packets("retransmitted") > 0 and none(4).ratio < 1.1,
            "port": lambda: none(4).ratio >= 1.1,
        },
        because=lambda: (
            f"without loss (4 senders) the port finishes in {none(4).ratio:.2f} times the bound, with it (7) in {none(7).ratio:.2f}: "
            f"{none(7).packets('dropped')} packets dropped, {none(7).packets('retransmitted')} sent again, "
            f"{none(7).packets('timeouts')} time-outs, the port idle {idle():.0%} of the time"
        ),
        points=2,
    )
    sheet.choice(
        "why_slow_dcqcn",
        "What costs the time with dcqcn",
        {
            "loss": lambda: resent(dcqcn()) > 0.05,
            "caution": lambda: resent(dcqcn()) <= 0.05 and dcqcn().ratio > 1.1,
        },
        because=lambda: (
            f"{resent(dcqcn()):.1%} of the packets were sent again, and all senders together brought "
            f"{dcqcn().summary['flows']['goodput_gbps']:.0f} of 100 Gbit/s"
        ),
        points=2,
    )
