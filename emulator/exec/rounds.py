"""What is measured at fixed fabric times while a program runs, and when not to: see `quiet`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from emulator.collect.sampler import Sampler
from emulator.exec.quiet import Taps

NEVER: Final = 1 << 62
Each = Callable[[int], None]


PROGRESS_NS: Final = {"real": 200_000_000, "virtual": 1_000_000}
"""CLOCK_MONOTONIC between two reports of how the program's run stands."""


class Progress:
    """Tells a live view where the queues stand, at most every so much fabric time."""

    def __init__(self, sampler: Sampler, say: Callable[[str, Mapping[str, Any]], None], *, every_ns: int) -> None:
        self._sampler = sampler
        self._say = say
        self._every_ns = every_ns
        self._next = 0

    def round(self, now: int) -> None:
        """After a round of the sampler."""
        if now >= self._next:
            self._next = now + self._every_ns
            self._say("progress", {"time_ns": now, **self._sampler.latest(), "wall_ns": time.monotonic_ns()})


class Rounds:
    """Rounds of the sampler, and of `others` with it, every `period_ns`, counted from the start so that no drift adds up.

    With `taps` the rounds stop while nothing can move; `woken` are told when they go on.
    """

    def __init__(
        self, sampler: Sampler, period_ns: int, *, others: Sequence[Each], woken: Sequence[Each], taps: Taps | None
    ) -> None:
        self.due = 0
        self._sampler = sampler
        self._period_ns = period_ns
        self._others = others
        self._woken = woken
        self._taps = taps
        self._asleep_ns = -1
        self.fds: Sequence[int] = () if taps is None else taps.fds

    def begin(self, now: int) -> None:
        """Before the program starts: with taps two rounds, which show that nothing moves, so that starting it is not missed."""
        for _ in range(1 if self._taps is None else 2):
            self.take(now)

    def take(self, now: int) -> None:
        """One round, at `due` or soon after."""
        self._sampler.sample(now)
        for other in self._others:
            other(now)
        self.due += self._period_ns * max(1, -(-(now + 1 - self.due) // self._period_ns))
        if self._taps is not None and self._sampler.still:
            self._taps.open()
            self._asleep_ns, self.due = now, NEVER

    def wake(self, now: int) -> None:
        """A host has sent: go on, with a round at once."""
        if self._taps is None or self._asleep_ns < 0:
            return
        self._taps.shut()
        self._sampler.slept(self._asleep_ns, now)
        self._asleep_ns = -1
        for other in self._woken:
            other(now)
        self.due = now // self._period_ns * self._period_ns
        self.take(now)

    def end(self, now: int) -> None:
        """The program has ended."""
        if self._asleep_ns >= 0:
            self._sampler.slept(self._asleep_ns, now)
            self._asleep_ns = -1
