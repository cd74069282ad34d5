"""Which path each packet takes: entropy values, their states, and the policies that walk them.

An entropy value (EV) is the UDP source port; ECMP turns it into a path. States and transitions follow MRC (OCP MRC 1.0 as
read by third parties, arXiv 2605.04333): GOOD → SKIP on an ECN echo or a trim (misses one turn), GOOD → ASSUMED_BAD on real
loss (comes back by probes only), any ↔ DENIED by the controller. Policies: `oblivious` walks the set in a permuted order;
`bitmap` adds a penalty per EV that visits wear off (uet-htsim uec_mp.cpp); `reps` recycles EVs that came back clean from a
ring of eight (REPS, EuroSys 2026); `flowlet` keeps an EV until a gap; `ecmp` keeps one for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from traffic.errors import TrafficError
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


_PENALTY = {Mark.ECN: 1, Mark.TRIM: 4, Mark.LOSS: 15, Mark.TIMEOUT: 15}
_MAX_PENALTY = 15
_CACHE = 8
_EXPLORE = 16


class PathSet:
    """The entropy values of one sender; `next` picks one, `feedback` learns, probes bring bad ones back.

    `note(now, ev, state, why)` is called at each change of state. At least `min_active` values stay in use: a value is not
    declared bad when that floor is reached (ev_min_active of the public MRC headers).
    """

    policy = "oblivious"

    def __init__(
        self,
        *,
        evs: Sequence[int],
        rng: Rng,
        note: Callable[[int, int, PathState, str], None],
        probe_ns: int,
        probes_needed: int = 3,
        min_active: int = 1,
    ) -> None:
        self.evs = [evs[i] for i in rng.shuffled(range(len(evs)))]
        self.rng = rng
        self.note = note
        self.state = dict.fromkeys(self.evs, PathState.GOOD)
        self.bad: dict[int, int] = {}
        self.probe_ns = probe_ns
        self.probes_needed = probes_needed
        self.min_active = min_active
        self.next_probe = NEVER
        self._probe_turn: deque[int] = deque()
        self._i = -1

    def next(self, now: int) -> int:
        """The entropy value of the next packet."""
        for _ in range(2 * len(self.evs)):
            ev = self._step()
            state = self.state[ev]
            if state is PathState.GOOD:
                return ev
            if state is PathState.SKIP:
                self.state[ev] = PathState.GOOD
        return ev

    def _step(self) -> int:
        self._i = (self._i + 1) % len(self.evs)
        return self.evs[self._i]

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        """What became of a packet that used `ev`."""
        state = self.state.get(ev)
        if state is None or state is PathState.DENIED:
            return
        if mark in (Mark.ECN, Mark.TRIM):
            if state is PathState.GOOD:
                self.state[ev] = PathState.SKIP
        elif mark in (Mark.LOSS, Mark.TIMEOUT) and state is not PathState.ASSUMED_BAD:
            self.declare_bad(now, ev, mark.value)

    def declare_bad(self, now: int, ev: int, why: str) -> None:
        """Take `ev` out until probes succeed."""
        active = sum(s in (PathState.GOOD, PathState.SKIP) for s in self.state.values())
        if active <= self.min_active:
            return
        self.state[ev] = PathState.ASSUMED_BAD
        self.bad[ev] = 0
        self._probe_turn.append(ev)
        if self.next_probe == NEVER:
            self.next_probe = now + self.probe_ns
        self.note(now, ev, PathState.ASSUMED_BAD, why)

    def deny(self, now: int, ev: int, denied: bool) -> None:
        """The controller forbids `ev`, or allows it again."""
        self.bad.pop(ev, None)
        self.state[ev] = PathState.DENIED if denied else PathState.GOOD
        self.note(now, ev, self.state[ev], "controller")

    def probe(self, now: int) -> int | None:
        """The entropy value to probe at `next_probe`, or None when none is bad any more."""
        while self._probe_turn and self._probe_turn[0] not in self.bad:
            self._probe_turn.popleft()
        if not self._probe_turn:
            self.next_probe = NEVER
            return None
        self.next_probe = now + max(1, self.probe_ns // len(self._probe_turn))
        ev = self._probe_turn[0]
        self._probe_turn.rotate(-1)
        return ev

    def probed(self, now: int, ev: int) -> None:
        """A probe on `ev` was answered; enough in a row bring it back."""
        if ev not in self.bad:
            return
        self.bad[ev] += 1
        if self.bad[ev] >= self.probes_needed:
            del self.bad[ev]
            self.state[ev] = PathState.GOOD
            self.note(now, ev, PathState.GOOD, "probes")

    def probe_lost(self, ev: int) -> None:
        """A probe on `ev` was not answered: the count starts anew."""
        if ev in self.bad:
            self.bad[ev] = 0


class BitmapPaths(PathSet):
    """A penalty per entropy value (ECN 1, NACK 4, time-out 15); a visit to a penalised one wears it off and passes on."""

    policy = "bitmap"

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.penalty = dict.fromkeys(self.evs, 0)

    def next(self, now: int) -> int:
        for _ in range((_MAX_PENALTY + 1) * len(self.evs)):
            ev = self._step()
            if self.state[ev] in (PathState.ASSUMED_BAD, PathState.DENIED):
                continue
            if not self.penalty[ev]:
                return ev
            self.penalty[ev] -= 1
        return ev

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        if ev in self.penalty and mark in _PENALTY:
            self.penalty[ev] = min(_MAX_PENALTY, self.penalty[ev] + _PENALTY[mark])
        if mark not in (Mark.ECN, Mark.TRIM):
            super().feedback(now, ev, mark)


class RepsPaths(PathSet):
    """Entropy values that came back without ECN are used again, oldest first; on suspected failure only those (freeze)."""

    policy = "reps"

    def __init__(self, *, freeze_ns: int = 100_000, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.cache: deque[int] = deque(maxlen=_CACHE)
        self.used: deque[int] = deque(maxlen=_CACHE)
        self.freeze_ns = freeze_ns
        self.frozen_until = -1
        self.explore = _EXPLORE

    def next(self, now: int) -> int:
        if now < self.frozen_until:
            pool = self.cache or self.used
            while pool:
                ev = pool[0]
                if self.state[ev] is PathState.GOOD:
                    pool.rotate(-1)
                    return ev
                pool.popleft()
        if self.explore > 0:
            self.explore -= 1
        else:
            while self.cache:
                ev = self.cache.popleft()
                if self.state[ev] is PathState.GOOD:
                    self.used.append(ev)
                    return ev
        for _ in range(4 * len(self.evs)):
            ev = self.evs[self.rng.below(len(self.evs))]
            if self.state[ev] in (PathState.GOOD, PathState.SKIP):
                return ev
        return ev

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        if mark is Mark.CLEAN:
            if self.state.get(ev) is PathState.GOOD:
                self.cache.append(ev)
            return
        if mark in (Mark.LOSS, Mark.TIMEOUT) and now >= self.frozen_until:
            self.frozen_until = now + self.freeze_ns
            self.explore = _EXPLORE
        if mark not in (Mark.ECN, Mark.TRIM):
            super().feedback(now, ev, mark)


class FlowletPaths(PathSet):
    """One entropy value until the sender paused for `gap_ns`, then the next (flowlet switching)."""

    policy = "flowlet"

    def __init__(self, *, gap_ns: int, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.gap_ns = gap_ns
        self._last = -NEVER
        self._current = self.evs[0]

    def next(self, now: int) -> int:
        if now - self._last > self.gap_ns or self.state[self._current] in (PathState.ASSUMED_BAD, PathState.DENIED):
            self._current = super().next(now)
        self._last = now
        return self._current


class EcmpPaths(PathSet):
    """One entropy value for ever: a single path, as a plain queue pair has."""

    policy = "ecmp"

    def next(self, now: int) -> int:
        return self.evs[0]

    def feedback(self, now: int, ev: int, mark: Mark) -> None:
        return


POLICIES: dict[str, type[PathSet]] = {c.policy: c for c in (PathSet, BitmapPaths, RepsPaths, FlowletPaths, EcmpPaths)}


def make_paths(
    policy: str,
    *,
    evs: Sequence[int],
    rng: Rng,
    note: Callable[[int, int, PathState, str], None],
    base_rtt_ns: int,
    probe_ns: int,
    probes_needed: int,
    min_active: int,
) -> PathSet:
    """The policy named `policy`; a flowlet gap is one base round trip, REPS freezes for a hundred microseconds."""
    if policy not in POLICIES:
        raise TrafficError(
            f"no spraying policy {policy!r}", where="--spray", remedy=f"choose one of {', '.join(sorted(POLICIES))}"
        )
    common = {
        "evs": evs,
        "rng": rng,
        "note": note,
        "probe_ns": probe_ns,
        "probes_needed": probes_needed,
        "min_active": min_active,
    }
    if policy == "flowlet":
        return FlowletPaths(gap_ns=base_rtt_ns, **common)
    return POLICIES[policy](**common)  # type: ignore[arg-type]
