"""Lab 7: go-back-N, selective repeat, trimming."""

from __future__ import annotations

from emulator.lab.runs import LabRun
from emulator.lab.sheet import Sheet
from emulator.lab.work import Work


def check(work: Work, sheet: Sheet) -> None:
    def gbn() -> LabRun:
        return work.run("wire.yaml")

    def selective() -> LabRun:
        return work.run("wire.yaml", "transport.recovery=selective")

    def drop() -> LabRun:
        return work.run("burst.yaml")

    def trim() -> LabRun:
        return work.run("burst.yaml", "transport.trim=on")

    def each(run: LabRun) -> float:
        return run.packets("retransmitted") / max(1, run.packets("lost"))

    def count(run: LabRun, kind: str) -> float:
        return float(run.packets(kind))

    def probes(run: LabRun) -> list[float]:
        """Times at which senders broke the silence, in us."""
        return sorted(e["time_ns"] / 1e3 for e in run.events if e["kind"] == "probe")

    def waited_us() -> float:
        """Time of the dropping run in which the receiver's port sent nothing."""
        port = drop().port("leaf0:host0")
        return drop().time_us - float(port["tx_bytes"] * 8 / (port["rate_gbps"] * 1e3))

    def again_us() -> float:
        """Time that the packets sent again take on the receiver's link."""
        port = drop().port("leaf0:host0")
        each = port["tx_bytes"] * 8 / (port["rate_gbps"] * 1e3) / (drop().packets("data") - drop().packets("dropped"))
        return float(each * drop().packets("retransmitted"))

    sheet.prediction("predict_resent", "Predicted: sent again for each one lost", lambda: each(gbn()), low=1, high=1000)
    sheet.number(
        "lost_gbn",
        "Lost by the link",
        lambda: count(gbn(), "lost"),
        tolerance=0,
        look="`drops`: lost by the link model",
    )
    sheet.number(
        "resent_gbn", "Sent again, go-back-N", lambda: count(gbn(), "retransmitted"), tolerance=0.01, look="`sent`"
    )
    sheet.number("each_gbn", "Sent again for each one lost, go-back-N", lambda: each(gbn()), look="both numbers above")
    sheet.number(
        "each_selective", "The same, selective repeat", lambda: each(selective()), slack=0.15, look="`drops` and `sent`"
    )
    sheet.number(
        "bound_gbn", "Completion over bound, go-back-N", lambda: gbn().ratio, tolerance=0.02, look="`completion`"
    )
    sheet.number(
        "bound_selective",
        "Completion over bound, selective",
        lambda: selective().ratio,
        tolerance=0.02,
        look="`completion`",
    )
    sheet.number(
        "probes_drop",
        "Probes where the switch drops",
        lambda: float(len(probes(drop()))),
        tolerance=0,
        look="the lines of kind probe in events.jsonl",
    )
    sheet.number(
        "time_drop", "Completion where the switch drops", lambda: drop().time_us, unit="us", look="`completion`"
    )
    sheet.number("trimmed", "Trimmed packets", lambda: count(trim(), "trimmed"), tolerance=0, look="`drops`: trimmed")
    sheet.number(
        "probes_trim",
        "Probes where it trims",
        lambda: float(len(probes(trim()))),
        tolerance=0,
        look="the lines of kind probe in events.jsonl",
    )
    sheet.number("time_trim", "Completion where it trims", lambda: trim().time_us, unit="us", look="`completion`")
    sheet.choice(
        "why_gbn",
        "Why go-back-N sends so much again",
        {
            "lost_twice": lambda: count(gbn(), "lost") > 0.5 * count(gbn(), "retransmitted"),
            "arrived_but_refused": lambda: count(gbn(), "lost") < 0.2 * count(gbn(), "retransmitted"),
        },
        because=lambda: (
            f"the link lost {count(gbn(), 'lost'):.0f} packets in all, but {count(gbn(), 'retransmitted'):.0f} went again: the others had "
            "arrived behind a gap, and the receiver threw them away"
        ),
        points=2,
    )
    sheet.choice(
        "why_time_drop",
        "What takes the time where the switch drops",
        {"waiting": lambda: waited_us() > again_us(), "sending": lambda: waited_us() <= again_us()},
        because=lambda: (
            f"the receiver's link stood idle for {waited_us():.0f} of the {drop().time_us:.0f} us, what was sent again took "
            f"{again_us():.0f} us; "
            f"the first probe left at {probes(drop())[0]:.0f} us"
            if probes(drop())
            else "no sender broke a silence"
        ),
        points=2,
    )
    sheet.choice(
        "what_trim_saves",
        "What trimming saves",
        {
            "packets": lambda: count(trim(), "retransmitted") < 0.7 * count(drop(), "retransmitted"),
            "time": lambda: (
                count(trim(), "retransmitted") >= 0.7 * count(drop(), "retransmitted")
                and trim().time_us < 0.7 * drop().time_us
            ),
        },
        because=lambda: (
            f"sent again: {drop().packets('retransmitted')} after drops, {trim().packets('retransmitted')} after trims; "
            f"time {drop().time_us:.0f} and {trim().time_us:.0f} us"
        ),
    )
