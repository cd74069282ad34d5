"""From facts to one of three words: trusted, use with care, do not trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from emulator.judge import invariants as i
from emulator.judge.check import FAIL, NOT_MODELLED, WARN, Check
from emulator.judge.conservation import check_conservation
from emulator.judge.facts import Facts
from emulator.judge.marking import check_marking
from emulator.judge.program import check_program, check_repeatable
from emulator.judge.rate import check_rate
from emulator.judge.remedy import remedies
from emulator.judge.spacing import check_spacing

Word = Literal["trusted", "care", "untrusted"]

WORDS: dict[Word, str] = {"trusted": "trusted", "care": "use with care", "untrusted": "do not trust"}
EXIT_CODES: dict[Word, int] = {"trusted": 0, "care": 0, "untrusted": 3}

ESSENTIAL = ("F1", "F6", "F9")
"""A run in which one of these could not be made is not trusted without care."""
ESSENTIAL_WITH_TRANSFERS = ("F12", "F14")
"""The same, where our agents carried the workload."""
OF_THE_MACHINE = ("F2", "F3", "F4", "F5", "F8", "F9")
"""Checks that fail on the real clock when the machine is late (F2 where its timers let a port idle), although nothing is wrong
with the fabric or the transport."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word`, the reasons for it (none when trusted), every check, notes that change nothing: what was never reached,
    what is not modelled; and what a person does about the reasons."""

    word: Word
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As people read it: "use with care (F5 source kept up: …)"."""
        return WORDS[self.word] + (f" ({'; '.join(self.reasons)})" if self.reasons else "")

    @property
    def exit_code(self) -> int:
        """Of the process that ran it: 0, or 3 for do not trust."""
        return EXIT_CODES[self.word]

    def to_json(self) -> dict[str, Any]:
        """As `summary.json` holds it."""
        return {
            "word": self.word,
            "reasons": list(self.reasons),
            "remedies": list(self.remedies),
            "checks": [c.to_json() for c in self.checks],
            "notes": list(self.notes),
        }


def all_checks(facts: Facts) -> tuple[Check, ...]:
    """Every invariant, in order."""
    f = facts
    source = i.check_source(
        tx_packets=f.tx_packets, enobufs=f.enobufs, late_p99_ns=f.late_p99_ns, base_rtt_ns=f.base_rtt_ns, clock=f.clock
    )
    order = i.check_order(
        single_path=f.single_path,
        reordered=f.reordered,
        retransmitted=f.retransmitted,
        packets=f.packets,
        gaps=f.gaps_told,
        lost=f.lost,
    )
    if f.program is None:
        workload = i.check_workload(
            wrong=f.wrong, checked=f.checked, unfinished=f.unfinished, transfers=f.transfers, problem=f.problem
        )
        more: tuple[Check, ...] = ()
    else:
        workload = check_program(f.program, wrong=f.wrong, checked=f.checked, problem=f.problem)
        more = (check_repeatable(f.program),) if f.clock == i.VIRTUAL else ()
    return (
        i.check_plan(f.differences),
        check_rate(f.series),
        check_spacing(f.gaps),
        i.check_propagation(f.probes, clock=f.clock, tdf=f.tdf, unmodelled_ns=f.unmodelled_ns),
        source,
        check_conservation(f.ports, f.hosts),
        i.check_hidden_drops(f.hidden),
        i.check_cpu(f.cpu, clock=f.clock, measured=f.program is not None and f.program.measured),
        i.check_sampler(f.ticks_ns, f.period_ns, f.watched_ns or f.end_ns),
        check_marking(f.marking, f.ce_seen),
        order,
        workload,
        i.check_repeats(f.repeats),
        i.check_theory(f.whole, f.each),
        i.check_clock(f.clock_step_ns, clock=f.clock),
        i.check_timers(kernel_tcp=f.transport == "tcp", clock=f.clock, tdf=f.tdf),
        *more,
    )


def judge(facts: Facts) -> Verdict:
    """The verdict of a run: any fail is untrusted; any warning, or an essential check that could not be made, is care."""
    checks = all_checks(facts)
    essential = ESSENTIAL + (ESSENTIAL_WITH_TRANSFERS if facts.transfers else ())
    failed = [_reason(c) for c in checks if c.status == FAIL]
    warned = [_reason(c) for c in checks if c.status == WARN]
    unmade = [
        f"{c.id} {c.name} could not be checked: {c.reason}"
        for c in checks
        if c.status == NOT_MODELLED and c.id in essential
    ]
    word: Word = "untrusted" if failed else "care" if warned or unmade else "trusted"
    silent = bool(facts.ports) and not any(p.sent for p in facts.ports)
    to_mend = tuple(c for c in essential if c != "F6" or not silent)  # where nobody sent, no counter is at fault
    what_to_do = remedies(checks, clock=facts.clock, tdf=facts.tdf, essential=to_mend)
    return Verdict(word, (*failed, *warned, *unmade), checks, tuple(facts.notes), what_to_do)


def blames_machine(verdict: Mapping[str, Any]) -> bool:
    """Whether a verdict, as `summary.json` holds it, is less than trusted for the machine alone."""
    bad = [c["id"] for c in verdict["checks"] if c["status"] in (FAIL, WARN)]
    return verdict["word"] != "trusted" and bool(bad) and all(ident in OF_THE_MACHINE for ident in bad)


def _reason(check: Check) -> str:
    return f"{check.id} {check.name}: {check.reason}"
