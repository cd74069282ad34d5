"""How a sender picks the entropy value of each packet: five policies over the states of `paths`.

oblivious  walks the set, in another order each turn, whatever comes back but loss (`PathSet`)
bitmap     MRC's state SKIP: the same walk over penalties, ECN +1, trim in the core +4, loss +15, at most 15; where it
           meets penalties it takes one off the first and passes on to a value without (uet-htsim uec_mp.cpp)
reps       recycles values that came back clean from a ring of eight, the oldest first, else random; on suspected loss
           it uses the ring alone for a while, old values where none is fresh, then explores with 16 random ones (REPS,
           EuroSys 2026, algorithms 1 and 2; buffer_reps.cpp). A SACK of several packets brings back the values of all
           of them (its variant "carry EVs", section 4.7): the sender remembers which packet used which
flowlet    keeps a value until the flow pauses for a base round trip
ecmp       keeps one for ever
"""

from __future__ import annotations

from typing import ClassVar, Final

from traffic.errors import TrafficError
from traffic.transport.base import NEVER
from traffic.transport.paths import USABLE, Mark, PathSet, PathSettings, PathState

_PENALTY: Final = {Mark.ECN: 1, Mark.TRIM: 4, Mark.LOSS: 15, Mark.TIMEOUT: 15}
_MAX_PENALTY: Final = 15
_RING: Final = 8
_EXPLORE: Final = 16
_FREEZE_NS: Final = 10_000_000
"""REPS: how long the ring alone is used (the artifact's exit_freeze_after, 10 ms)."""


class BitmapPaths(PathSet):
    """A value with a penalty is in state SKIP: it misses turns until visits have worn the penalty off."""

    policy: ClassVar[str] = "bitmap"

    def __init__(self, settings: PathSettings) -> None:
        super().__init__(settings)
        self.penalty = dict.fromkeys(self.evs, 0)
        self._skipping = 0

    def next(self, now: int) -> int:
        none_good = self._skipping == self.active
        worn = False
        for _ in range(self.span):
            ev = self.step()
            state = self.state[ev]
            if state is PathState.GOOD:
                return ev
            if state is PathState.SKIP and not worn:
                worn = True
                self._wear(ev)
                if none_good:
                    return ev
        return self.any()

    def _wear(self, ev: int) -> None:
        self.penalty[ev] -= 1
        if not self.penalty[ev]:
            self._skipping -= 1
            self.state[ev] = PathState.GOOD

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        before = self.state.get(ev)
        super().feedback(now, ev, mark)
        state = self.state.get(ev)
        if before is PathState.SKIP and state is PathState.ASSUMED_BAD:
            self._skipping -= 1
        elif state in USABLE and mark in _PENALTY:
            old = self.penalty[ev] if state is PathState.SKIP else 0
            self._skipping += state is PathState.GOOD
            self.penalty[ev] = min(_MAX_PENALTY, old + _PENALTY[mark])
            self.state[ev] = PathState.SKIP

    def deny(self, now: int, ev: int, denied: bool) -> None:
        self._skipping -= denied and self.state.get(ev) is PathState.SKIP
        super().deny(now, ev, denied)


class RepsPaths(PathSet):
    """Recycles what came back clean; `ring` holds values, `fresh` whether each is still to be used again."""

    policy: ClassVar[str] = "reps"
    recycles: ClassVar[bool] = True

    def __init__(self, settings: PathSettings) -> None:
        super().__init__(settings)
        self._reset()
        self.frozen_until: int | None = None
        self.explore = 0

    def _reset(self) -> None:
        self.ring: list[int] = []
        self.fresh: list[bool] = []
        self._head = 0
        self._turn = -1

    def next(self, now: int) -> int:
        self._thaw(now)
        if self.explore:
            self.explore -= 1
            return self.random()
        ev = self._oldest_fresh()
        if ev is None and self.frozen_until is not None:
            ev = self._again()
        return self.random() if ev is None else ev

    def _oldest_fresh(self) -> int | None:
        size = len(self.ring)
        start = self._head if size == _RING else 0
        for k in range(size):
            i = (start + k) % size
            if self.fresh[i]:
                self.fresh[i] = False
                if self.state[self.ring[i]] in USABLE:
                    return self.ring[i]
        return None

    def _again(self) -> int | None:
        """A value that was used before, in turn."""
        for _ in self.ring:
            self._turn = (self._turn + 1) % len(self.ring)
            ev = self.ring[self._turn]
            if self.state[ev] in USABLE:
                return ev
        return None

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        if mark in (Mark.LOSS, Mark.TIMEOUT) and self.frozen_until is None and not self.explore:
            self.frozen_until = now + _FREEZE_NS
        self._thaw(now)
        if mark is Mark.CLEAN:
            if self.state.get(ev) in USABLE:
                self._add(ev)
        else:
            super().feedback(now, ev, mark)

    def _add(self, ev: int) -> None:
        if len(self.ring) < _RING:
            self.ring.append(ev)
            self.fresh.append(True)
        else:
            self.ring[self._head], self.fresh[self._head] = ev, True
        self._head = (self._head + 1) % _RING

    def _thaw(self, now: int) -> None:
        if self.frozen_until is not None and now > self.frozen_until:
            self.frozen_until = None
            self._reset()
            self.explore = _EXPLORE


class FlowletPaths(PathSet):
    """One entropy value until the sender paused for a base round trip, then the next (flowlet switching)."""

    policy: ClassVar[str] = "flowlet"

    def __init__(self, settings: PathSettings) -> None:
        super().__init__(settings)
        self._last = -NEVER
        self._current = self.evs[0]

    def next(self, now: int) -> int:
        if now - self._last > self.settings.base_rtt_ns or self.state[self._current] not in USABLE:
            self._current = super().next(now)
        self._last = now
        return self._current


class EcmpPaths(PathSet):
    """One entropy value for ever: a single path, as a plain queue pair has; only the controller moves it."""

    policy: ClassVar[str] = "ecmp"

    def next(self, now: int) -> int:
        return self.any()

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        return


POLICIES: Final[dict[str, type[PathSet]]] = {
    c.policy: c for c in (PathSet, BitmapPaths, RepsPaths, FlowletPaths, EcmpPaths)
}


def make_paths(policy: str, settings: PathSettings) -> PathSet:
    """The policy of that name. Raises TrafficError for a name that is none."""
    if policy not in POLICIES:
        raise TrafficError(
            f"no spraying policy {policy!r}", where="--spray", remedy=f"choose one of {', '.join(sorted(POLICIES))}"
        )
    return POLICIES[policy](settings)
