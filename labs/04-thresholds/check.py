"""Lab 4: the marking threshold."""

from __future__ import annotations

from emulator.lab.runs import LabRun, NoSuchRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work
from emulator.topology.model import Topology

PORT = "leaf0:host0"
FULL = 1.035
SHORT_BYTES = 80_000
WIRE_BYTES = 4190


def check(work: Work, sheet: Sheet) -> None:
    def dctcp(k: int) -> LabRun:
        return work.run("dctcp.yaml", f"ecn.kmin={k}KB", f"ecn.kmax={k + 5}KB")

    def dcqcn() -> LabRun:
        return work.run("dcqcn.yaml", "ecn.kmin=160KB", "ecn.kmax=165KB")

    def mean(run: LabRun) -> float:
        return float(run.port(PORT)["mean_bytes"])

    def rule() -> float:
        """DCTCP's rule (Alizadeh and others, SIGCOMM 2010) for the fabric that was run, in kB."""
        network = Topology.model_validate(dctcp(160).setup["topology"]).network()
        rtt_ns = network.base_rtt_ns("host1", "host0", WIRE_BYTES)
        return dctcp(160).port(PORT)["rate_gbps"] * rtt_ns / 8 / 7 / 1e3

    def smallest() -> float:
        for k in (20, 40, 160, 640):
            if dctcp(k).ratio <= FULL:
                return float(k)
        raise NoSuchRun("none of these K kept the link full")

    def gain() -> tuple[float, float, float]:
        """What 640 KB brings over 160 KB: time, fairness, mean queue."""
        low, high = dctcp(160), dctcp(640)
        return low.time_us / high.time_us - 1, high.fairness - low.fairness, mean(high) / mean(low)

    def first_cut() -> float:
        rates = dcqcn().rates
        cuts = rates[rates["trigger"] == "cnp"].sort_values("time_ns")
        if cuts.empty:
            raise NoSuchRun(f"{dcqcn().name} recorded no CNP")
        return float(cuts["rate_bps"].iloc[0]) / (dcqcn().port(PORT)["rate_gbps"] * 1e9) * 100

    def mine() -> tuple[bool, str]:
        k = round(work.answers.number("my_k", "KB") if work.answers.given("my_k") else 0)
        if not k:
            return False, "no answer yet to `my_k`"
        run = work.pick(
            f"dctcp.yaml with K = {k} KB",
            f"`fabriclab run dctcp.yaml --set ecn.kmin={k}KB --set ecn.kmax={k + 5}KB`",
            lambda r: (
                r.setup["transport"]["cc"] == "dctcp-window"
                and r.setup["workload"] == dctcp(160).setup["workload"]
                and r.port(PORT)["kmin_bytes"] == k * 1000
                and _same_but_marking(r, dctcp(160))
            ),
        )
        good = run.ratio <= FULL and mean(run) <= SHORT_BYTES
        return good, (
            f"K = {k} KB: {run.ratio:.3f} times the bound (at most {FULL}), mean queue {mean(run) / 1e3:.1f} kB "
            f"(at most {SHORT_BYTES // 1000}) in {run.name}"
        )

    sheet.prediction(
        "predict_k", "Predicted: the smallest K that fills the link", smallest, low=1, high=4000, unit="kB"
    )
    sheet.number(
        "rule_k", "K by DCTCP's rule", rule, unit="kB", tolerance=0.08, look="the base RTT of `fabriclab topo show`"
    )
    sheet.number(
        "bound_20", "Completion over bound at K = 20 KB", lambda: dctcp(20).ratio, tolerance=0.01, look="`completion`"
    )
    sheet.number(
        "bound_160",
        "Completion over bound at K = 160 KB",
        lambda: dctcp(160).ratio,
        tolerance=0.01,
        look="`completion`",
    )
    sheet.number(
        "mean_160", "Mean queue at K = 160 KB", lambda: mean(dctcp(160)) / 1e3, unit="kB", look="`fullest port`: mean"
    )
    sheet.number(
        "mean_640", "Mean queue at K = 640 KB", lambda: mean(dctcp(640)) / 1e3, unit="kB", look="`fullest port`: mean"
    )
    sheet.number(
        "wait_640", "Waiting time in that queue", lambda: mean(dctcp(640)) * 8 / dctcp(640).port(PORT)["rate_gbps"] / 1e3,
        unit="us", look="the mean queue, divided by the rate of the link (in bytes)",
    )  # fmt: skip
    sheet.choice(
        "too_high",
        "What a K of 640 KB buys",
        {
            "throughput": lambda: gain()[0] > 0.02,
            "fairness": lambda: gain()[0] <= 0.02 and gain()[1] > 0.05,
            "only_delay": lambda: gain()[0] <= 0.02 and gain()[1] <= 0.05 and gain()[2] > 1.5,
        },
        because=lambda: (
            f"against 160 KB the time changes by {gain()[0]:+.1%}, the fairness by {gain()[1]:+.3f}, "
            f"the mean queue is {gain()[2]:.1f} times as long"
        ),
        points=2,
    )
    sheet.choice(
        "too_low",
        "The link at K = 20 KB",
        {"full": lambda: dctcp(20).ratio <= FULL, "idle_at_times": lambda: dctcp(20).ratio > FULL},
        because=lambda: (
            f"the same bytes took {dctcp(20).time_us:.0f} us, and {dctcp(160).time_us:.0f} us at 160 KB: with so early marks the windows "
            "become smaller than the bandwidth-delay product"
        ),
    )
    sheet.number(
        "first_cut", "DCQCN's first cut", first_cut, unit="%", tolerance=0.05,
        look="the rates in report.html, or rate_bps of the first row with trigger `cnp` in rates.parquet",
    )  # fmt: skip
    sheet.choice(
        "fuller_link",
        "Which finished sooner at K = 160 KB",
        {"dctcp": lambda: dctcp(160).time_us < dcqcn().time_us, "dcqcn": lambda: dcqcn().time_us < dctcp(160).time_us},
        because=lambda: f"dctcp {dctcp(160).time_us:.0f} us, dcqcn {dcqcn().time_us:.0f} us",
    )
    sheet.fact("my_k", "A K of one's own: a full link and a short queue", mine, points=3)


def _same_but_marking(run: LabRun, other: LabRun) -> bool:
    strip = {"ecn", "name", "description"}
    mine, theirs = run.setup["topology"], other.setup["topology"]
    return {k: v for k, v in mine.items() if k not in strip} == {k: v for k, v in theirs.items() if k not in strip}
