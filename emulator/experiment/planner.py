"""Before the run: which clock, and how much to slow the fabric so that this machine can carry it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulator.errors import MissingCapability, UsageError
from emulator.experiment.resolve import DEFAULT_CC, full_packet_wire_bytes
from emulator.experiment.spec import Experiment, Transport
from emulator.experiment.tcp import require_cc, tcp_options

if TYPE_CHECKING:
    from emulator.topology.network import Network
    from traffic.collective.schedule import Schedule

USE = 0.14
"""Share of the measured budget that `--tdf auto` plans with; the rest is for bursts and the machine's own life."""

SLOWER = 2
"""How much more a run is slowed that the machine spoiled."""


@dataclass(frozen=True)
class Choice:
    """Clock and time dilation factor, and why, in a sentence a user reads."""

    clock: str
    tdf: int
    why: str


def choose(experiment: Experiment, network: Network, schedule: Schedule, *, budget: int | None = None) -> Choice:
    """The clock and factor for an experiment; `budget` is packets a second through the full loop (measured if None).

    Raises MissingCapability where the clock asked for cannot run here, UsageError for a factor that makes no sense.
    """
    clock, why = _clock(experiment)
    if clock == "real" and experiment.transport.kind == "tcp":
        options = tcp_options(experiment.transport)  # so that a name that is none is wrong usage, not a missing feature
        require_cc(experiment.transport.cc or DEFAULT_CC["tcp"], clock="real")
        why += "; kernel TCP" + (" with ECN" if options["ecn"] else "")
    if clock == "virtual":
        if experiment.tdf not in ("auto", 1):
            raise UsageError(
                "the virtual clock needs no time dilation", where="--tdf", remedy="leave --tdf out, or use --clock real"
            )
        return Choice("virtual", 1, why)
    if experiment.tdf != "auto":
        return Choice("real", experiment.tdf, why)
    if budget is None:
        from emulator.experiment.budget import packets_per_second

        budget = packets_per_second()
    asked = peak_packets(network, schedule, experiment.transport)
    tdf = max(1, -(-int(asked) // max(1, int(USE * budget))))
    return Choice(
        "real",
        tdf,
        f"{why}; {asked / 1e6:.3g} M packets/s at full speed on a machine that carries {budget / 1e3:.3g} k/s: slowed {tdf}×",
    )


def slower_after(choice: Choice, experiment: Experiment, summary: Mapping[str, Any]) -> Choice | None:
    """The choice for a second attempt, where the first was ours to slow, only the machine spoiled it, and there is time."""
    from emulator.judge.remedy import MADE_AGAIN
    from emulator.judge.verdict import blames_machine

    verdict, clock = summary["verdict"], summary["clock"]
    if choice.clock != "real" or experiment.tdf != "auto" or not blames_machine(verdict):
        return None
    if SLOWER * clock["wall_s"] > experiment.wall_limit_s:
        return None
    tdf = SLOWER * choice.tdf
    return Choice(
        "real",
        tdf,
        f"{MADE_AGAIN} at {choice.tdf}× ({'; '.join(verdict['reasons'])}): made again, slowed {tdf}×",
    )


def peak_packets(network: Network, schedule: Schedule, transport: Transport) -> float:
    """Packets a second when every sender of the workload sends at line rate, with acknowledgements counted as a quarter."""
    senders = {m.src for m in schedule.moves}
    names = [h.name for h in network.hosts]
    rate = sum(network.ports_of(names[rank])[0].rate_bps for rank in senders)
    return 1.25 * rate / 8 / full_packet_wire_bytes(transport.kind, transport.mtu)


def _clock(experiment: Experiment) -> tuple[str, str]:
    from emulator.clock.kernel import find_kernel

    root = os.geteuid() == 0
    kernel = find_kernel()
    if experiment.clock == "virtual":
        if kernel is None:
            raise MissingCapability(
                "there is no guest kernel for the virtual clock",
                where="--clock virtual",
                remedy="build it once with `fabriclab kernel build` (a few minutes, no root)",
            )
        return "virtual", "the virtual clock was asked for"
    if experiment.clock == "real":
        if not root:
            raise MissingCapability(
                "network namespaces need root",
                where="--clock real",
                remedy="run with sudo, or use --clock virtual"
                + ("" if kernel else " (build its kernel once with `fabriclab kernel build`)"),
            )
        return "real", "the real clock was asked for"
    if kernel is not None:
        return "virtual", "auto: a guest kernel is there, so results are exact and repeatable"
    if root:
        return "real", "auto: no guest kernel (`fabriclab kernel build` makes one), but root"
    raise MissingCapability(
        "neither clock can run: no root and no guest kernel",
        where="--clock auto",
        remedy="run with sudo, or build the guest kernel once with `fabriclab kernel build` (a few minutes, no root)",
    )
