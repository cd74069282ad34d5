"""What a person does about a check that failed or warned."""

from __future__ import annotations

from collections.abc import Iterable

from emulator.judge.check import FAIL, NOT_MODELLED, WARN, Check

REAL_CLOCK = (
    "this machine was late: stop other programs, or slow the fabric more with --tdf {slower}, or use --clock virtual"
)
MADE_AGAIN = "this machine spoiled the run"
"""How the reason for a second attempt begins, in the manifest and in the notes of its verdict."""
OTHERS = (
    "other programs keep this machine busy: stop them and run again, or use --clock virtual, which they do not touch"
)
OURS = "a fault of fabriclab or of something hidden in the way of the packets: run it again, and report it if it stays"

REMEDIES = {
    "F1": "something changed the network of this run: see applied.json and commands.log, stop it, and run again",
    "F2": REAL_CLOCK,
    "F3": REAL_CLOCK,
    "F4": REAL_CLOCK,
    "F5": REAL_CLOCK,
    "F6": OURS,
    "F7": "this machine lost packets itself: quiet it, or use --clock virtual",
    "F8": OTHERS,
    "F9": REAL_CLOCK,
    "F10": OURS,
    "F11": OURS,
    "F12": "a transfer failed or its data is wrong: see events.jsonl for what happened to it",
    "F13": "repeats differ: make more of them, or use --clock virtual",
    "F14": OURS,
    "C1": "the system's clock was set during the run: pause time synchronisation and run again",
    "C2": "the kernel's TCP keeps wall time: use --clock virtual",
    "C3": "for a result that repeats use --compute free or --compute fixed=TIME",
}
"""By the identity of a check; `{slower}` stands for twice the dilation factor of the run."""


def remedies(checks: Iterable[Check], *, clock: str, tdf: int, essential: Iterable[str]) -> tuple[str, ...]:
    """One sentence for each kind of complaint, in order, none twice. On the virtual clock no machine is to blame."""
    needed = set(essential)
    bad = [c.id for c in checks if c.status in (FAIL, WARN) or (c.status == NOT_MODELLED and c.id in needed)]
    texts = (OURS if clock == "virtual" and REMEDIES[i] is REAL_CLOCK else REMEDIES[i] for i in bad)
    return tuple(dict.fromkeys(text.format(slower=2 * tdf) for text in texts))
