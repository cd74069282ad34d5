"""Entropy values of a sender and what it thinks of each: the states of MRC, probes, the controller's orders.

An entropy value (EV) is the UDP source port; ECMP turns it into a path. States and transitions follow MRC (OCP MRC
1.0 as read by third parties, arXiv 2605.04333): GOOD → SKIP on an ECN echo or a trim in the core (misses turns;
policy `bitmap`), GOOD → ASSUMED_BAD on real loss (comes back by probes only), any ↔ DENIED by the controller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from traffic.packet.opcodes import SPORT_MAX, SPORT_MIN
from traffic.rng import Rng
from traffic.transport.base import NEVER


class PathState(Enum):
    """What the sender thinks of an entropy value."""

    GOOD = "good"
    SKIP = "skip"
    ASSUMED_BAD = "assumed_bad"
    DENIED = "denied"


class Mark(Enum):
    """What feedback said about the packet that used an entropy value."""

    CLEAN = "clean"
    ECN = "ecn"
    TRIM = "trim"
    LOSS = "loss"
    TIMEOUT = "timeout"


USABLE: Final = (PathState.GOOD, PathState.SKIP)
"""States whose values are sent on."""

Note = Callable[[int, int, PathState, str], None]
"""(now, entropy value, new state, why)."""


def by_lot(rng: Rng, size: int) -> list[int]:
    """So many UDP source ports, whatever paths they take: what a sender has that knows nothing of the hash."""
    return [SPORT_MIN + port for port in rng.shuffled(range(SPORT_MAX - SPORT_MIN + 1))[:size]]


@dataclass(frozen=True)
class PathSettings:
    """What a `PathSet` is made from; times in fabric ns.

    `note` is called at each change of state but SKIP. At least `min_active` values stay in use: a value is not
    declared bad when that floor is reached (ev_min_active of the public MRC headers). `orders` are the controller's:
    (when, value, denied).
    """

    evs: Sequence[int]
    rng: Rng
    note: Note
    base_rtt_ns: int
    probe_ns: int
    probes_needed: int = 3
    min_active: int = 1
    orders: Sequence[tuple[int, int, bool]] = ()


class PathSet:
    """The entropy values of one sender; `next` picks one, `feedback` learns, probes bring bad ones back.

    On its own it walks the set in another order each turn: the index XOR a random mask (uet-htsim uec_mp.cpp,
    oblivious).
    """

    policy: ClassVar[str] = "oblivious"
    recycles: ClassVar[bool] = False
    """Whether it hears of every packet that arrived unmarked, not just of those a SACK names."""

    def __init__(self, settings: PathSettings) -> None:
        self.settings = settings
        self.rng = settings.rng
        self.evs = [settings.evs[i] for i in self.rng.shuffled(range(len(settings.evs)))]
        self.state = dict.fromkeys(self.evs, PathState.GOOD)
        self.active = len(self.evs)
        self.bad: dict[int, int] = {}
        self.next_probe = NEVER
        self._probe_turn: deque[int] = deque()
        self._orders = deque(sorted(settings.orders))
        self.span = 1 << (len(self.evs) - 1).bit_length()
        self._index = -1
        self._mask = 0

    # -- picking -------------------------------------------------------------------------------------------------------

    def next(self, now: int) -> int:
        """The entropy value of the next packet."""
        for _ in range(self.span):
            ev = self.step()
            if self.state[ev] in USABLE:
                return ev
        return self.any()

    def step(self) -> int:
        """The next value of the walk: index XOR mask, passing over indices above the set's size."""
        while True:
            self._index += 1
            if self._index == self.span:
                self._index = 0
                self._mask = self.rng.below(self.span)
            place = self._index ^ self._mask
            if place < len(self.evs):
                return self.evs[place]

    def any(self) -> int:
        """Where no value is good: one that is not denied, if there is one."""
        return next((ev for ev in self.evs if self.state[ev] is not PathState.DENIED), self.evs[0])

    def random(self) -> int:
        """A usable value by lot."""
        for _ in range(4 * len(self.evs)):
            ev = self.evs[self.rng.below(len(self.evs))]
            if self.state[ev] in USABLE:
                return ev
        return next((ev for ev in self.evs if self.state[ev] in USABLE), self.any())

    # -- learning ------------------------------------------------------------------------------------------------------

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        """What became of a packet that used `ev`; echoes of congestion are the policy's business."""
        if mark in (Mark.LOSS, Mark.TIMEOUT) and self.state.get(ev) in USABLE:
            self.declare_bad(now, ev, mark.value)

    def declare_bad(self, now: int, ev: int, why: str) -> None:
        """Take `ev` out until probes succeed."""
        if self.active <= self.settings.min_active:
            return
        self.active -= 1
        self.state[ev] = PathState.ASSUMED_BAD
        self.bad[ev] = 0
        self._probe_turn.append(ev)
        if self.next_probe == NEVER:
            self.next_probe = now + self.settings.probe_ns
        self.settings.note(now, ev, PathState.ASSUMED_BAD, why)

    def deny(self, now: int, ev: int, denied: bool) -> None:
        """The controller forbids `ev`, or allows it again."""
        state = self.state.get(ev)
        if state is None or (state is PathState.DENIED) == denied:
            return
        if denied:
            self.active -= state in USABLE
            self.bad.pop(ev, None)
        else:
            self.active += 1
        self.state[ev] = PathState.DENIED if denied else PathState.GOOD
        self.settings.note(now, ev, self.state[ev], "controller")

    # -- timers --------------------------------------------------------------------------------------------------------

    @property
    def next_order(self) -> int:
        """When the controller's next order takes effect (`NEVER`: there is none)."""
        return self._orders[0][0] if self._orders else NEVER

    def obey(self, now: int) -> None:
        """Carry out the orders that are due."""
        while self._orders and self._orders[0][0] <= now:
            _, ev, denied = self._orders.popleft()
            self.deny(now, ev, denied)

    def probe(self, now: int) -> int | None:
        """The entropy value to probe at `next_probe`, or None when none is bad any more; each bad one in its turn."""
        while self._probe_turn and self._probe_turn[0] not in self.bad:
            self._probe_turn.popleft()
        if not self._probe_turn:
            self.next_probe = NEVER
            return None
        self.next_probe = now + max(1, self.settings.probe_ns // len(self._probe_turn))
        ev = self._probe_turn[0]
        self._probe_turn.rotate(-1)
        return ev

    def probed(self, now: int, ev: int) -> None:
        """A probe on `ev` was answered; enough in a row bring it back."""
        if ev not in self.bad:
            return
        self.bad[ev] += 1
        if self.bad[ev] >= self.settings.probes_needed:
            del self.bad[ev]
            self.active += 1
            self.state[ev] = PathState.GOOD
            self.settings.note(now, ev, PathState.GOOD, "probes")

    def probe_lost(self, ev: int) -> None:
        """A probe on `ev` was not answered: the count starts anew."""
        if ev in self.bad:
            self.bad[ev] = 0
