"""Which entropy value comes next: literal steps of each policy, states, probes, the controller.

Right values: uet-htsim uec_mp.cpp (oblivious, bitmap), algorithms 1 and 2 of REPS (EuroSys 2026) and its buffer_reps.cpp,
read as rules; MRC's states as in arXiv 2605.04333 section 4.2 and the public OCP headers.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from traffic.errors import TrafficError
from traffic.rng import Rng
from traffic.transport.base import NEVER
from traffic.transport.paths import Mark, PathSet, PathSettings, PathState, by_lot
from traffic.transport.spray import BitmapPaths, RepsPaths, make_paths

A, B, C, D = 0xC000, 0xC001, 0xC002, 0xC003
MS = 1_000_000


class Plain(Rng):
    """No shuffling and no mask, so that the steps can be read."""

    def shuffled(self, items: range | list[int]) -> list[int]:
        return list(items)

    def below(self, bound: int) -> int:
        return 0


class Turns:
    """What the sender was told of states."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, str, str]] = []

    def __call__(self, now: int, ev: int, state: PathState, why: str) -> None:
        self.seen.append((now, ev, state.value, why))


def paths(
    policy: str = "oblivious",
    evs: Sequence[int] = (A, B, C, D),
    *,
    rng: Rng | None = None,
    note: Turns | None = None,
    min_active: int = 1,
    probe_ns: int = 100,
    orders: Sequence[tuple[int, int, bool]] = (),
) -> PathSet:
    return make_paths(
        policy,
        PathSettings(
            evs=evs, rng=rng or Plain(0), note=note or Turns(), base_rtt_ns=1_000, probe_ns=probe_ns,
            probes_needed=3, min_active=min_active, orders=orders,
        ),
    )  # fmt: skip


def take(p: PathSet, count: int, now: int = 0) -> list[int]:
    return [p.next(now) for _ in range(count)]


def test_values_by_lot_are_ports_of_the_entropy_range_each_once() -> None:
    assert by_lot(Plain(0), 3) == [0xC000, 0xC001, 0xC002]
    drawn = by_lot(Rng(7), 4096)
    assert len(set(drawn)) == 4096 and 0xC000 <= min(drawn) < 0xC100 and 0xFF00 < max(drawn) <= 0xFFFF
    assert drawn != sorted(drawn)


# -- oblivious and the states ------------------------------------------------------------------------------------------


def test_the_walk_goes_round() -> None:
    assert take(paths(), 6) == [A, B, C, D, A, B]


def test_each_turn_is_the_index_xor_a_mask() -> None:
    rng = Plain(0)
    p = paths(rng=rng)
    take(p, 4)
    rng.below = lambda bound: 3  # type: ignore[method-assign]
    assert take(p, 4) == [D, C, B, A]


def test_a_set_of_three_walks_over_the_gap() -> None:
    assert take(paths(evs=(A, B, C)), 7) == [A, B, C, A, B, C, A]


def test_every_value_comes_once_a_turn_whatever_the_mask() -> None:
    evs = list(range(0xC000, 0xC000 + 48))
    p = paths(evs=evs, rng=Rng(7))
    turns = [take(p, 48) for _ in range(4)]
    assert all(sorted(turn) == evs for turn in turns)
    assert len({tuple(turn) for turn in turns}) == 4


def test_oblivious_learns_nothing_of_congestion() -> None:
    p = paths()
    p.feedback(0, B, Mark.ECN)
    p.feedback(0, C, Mark.TRIM)
    assert take(p, 6) == [A, B, C, D, A, B]


def test_loss_takes_a_value_out_until_three_probes_in_a_row_are_answered() -> None:
    note = Turns()
    p = paths(note=note)
    p.feedback(10, B, Mark.LOSS)
    assert p.state[B] is PathState.ASSUMED_BAD and take(p, 4) == [A, C, D, A]
    assert p.next_probe == 110
    assert [p.probe(110), p.next_probe] == [B, 210]
    p.probed(120, B)
    p.probed(130, B)
    p.probe_lost(B)
    for now in (140, 150, 160):
        assert p.state[B] is PathState.ASSUMED_BAD
        p.probed(now, B)
    assert p.state[B] is PathState.GOOD
    assert note.seen == [(10, B, "assumed_bad", "loss"), (160, B, "good", "probes")]
    assert p.probe(210) is None and p.next_probe == NEVER


def test_bad_values_share_the_probe_interval() -> None:
    p = paths()
    p.feedback(0, A, Mark.LOSS)
    p.feedback(0, B, Mark.TIMEOUT)
    assert [p.probe(100), p.next_probe, p.probe(150), p.next_probe] == [A, 150, B, 200]


def test_the_floor_keeps_so_many_in_use() -> None:
    p = paths(min_active=3)
    p.feedback(0, A, Mark.LOSS)
    p.feedback(0, B, Mark.LOSS)
    assert [p.state[ev] for ev in (A, B)] == [PathState.ASSUMED_BAD, PathState.GOOD]


def test_the_controller_denies_and_allows_whatever_the_state() -> None:
    note = Turns()
    p = paths(note=note, orders=[(50, A, True), (90, A, False), (50, B, True)])
    p.feedback(0, A, Mark.LOSS)
    assert p.next_order == 50
    p.obey(50)
    assert p.state[A] is p.state[B] is PathState.DENIED and p.bad == {}
    p.feedback(60, B, Mark.LOSS)  # says nothing of a value that is forbidden
    assert take(p, 4, 60) == [C, D, C, D]
    p.obey(90)
    assert p.state[A] is PathState.GOOD and p.next_order == NEVER
    assert [e[2:] for e in note.seen] == [
        ("assumed_bad", "loss"), ("denied", "controller"), ("denied", "controller"), ("good", "controller"),
    ]  # fmt: skip


def test_denied_values_are_the_last_resort() -> None:
    p = paths(evs=(A, B), orders=[(0, A, True)])
    p.obey(0)
    p.feedback(0, B, Mark.LOSS)
    assert take(p, 2) == [B, B]


# -- bitmap ------------------------------------------------------------------------------------------------------------


def test_bitmap_takes_one_penalty_off_and_passes_on() -> None:
    p = paths("bitmap")
    assert isinstance(p, BitmapPaths)
    p.feedback(0, A, Mark.TRIM)
    p.feedback(0, B, Mark.ECN)
    assert p.penalty == {A: 4, B: 1, C: 0, D: 0}
    assert [p.state[ev].value for ev in (A, B, C)] == ["skip", "skip", "good"]
    assert take(p, 2) == [C, D]  # A loses one, B is passed over
    assert p.penalty == {A: 3, B: 1, C: 0, D: 0}
    assert take(p, 2) == [C, D]
    assert take(p, 2) == [C, D]
    assert take(p, 2) == [C, D]
    assert p.penalty == {A: 0, B: 1, C: 0, D: 0}
    assert take(p, 2) == [A, C] and p.penalty[B] == 0 and p.state[B] is PathState.GOOD


def test_where_every_value_is_skipped_the_next_is_used_and_worn() -> None:
    p = paths("bitmap", (A, B))
    assert isinstance(p, BitmapPaths)
    p.feedback(0, A, Mark.TRIM)
    p.feedback(0, B, Mark.ECN)
    assert take(p, 3) == [A, B, B]  # B is good after its turn, and A loses one more on the way to it
    assert p.penalty[A] == 2


def test_a_skipped_value_that_fails_or_is_denied_comes_back_clean() -> None:
    p = paths("bitmap", orders=[(5, B, True), (6, B, False)])
    assert isinstance(p, BitmapPaths)
    for ev in (A, B):
        p.feedback(0, ev, Mark.TRIM)
    p.feedback(1, A, Mark.LOSS)
    p.obey(6)
    for now in (7, 8, 9):
        p.probed(now, A)
    assert p.state[A] is p.state[B] is PathState.GOOD
    p.feedback(10, A, Mark.ECN)
    assert p.penalty[A] == 1


def test_bitmap_penalties_end_at_fifteen() -> None:
    p = paths("bitmap", min_active=4)
    assert isinstance(p, BitmapPaths)
    for _ in range(2):
        p.feedback(0, A, Mark.TIMEOUT)
    assert p.penalty[A] == 15


# -- REPS --------------------------------------------------------------------------------------------------------------


def reps(evs: Sequence[int]) -> RepsPaths:
    p = paths("reps", evs)
    assert isinstance(p, RepsPaths)
    return p


def test_reps_recycles_clean_values_the_oldest_first_and_each_once() -> None:
    p = reps(list(range(A, A + 16)))
    assert take(p, 1) == [A]  # nothing cached: by lot (here always the first)
    for ev in (A + 5, A + 9, A + 7):
        p.feedback(0, ev, Mark.CLEAN)
    p.feedback(0, A + 3, Mark.ECN)
    assert take(p, 4) == [A + 5, A + 9, A + 7, A]


def test_reps_ring_holds_eight_and_overwrites_the_oldest() -> None:
    p = reps(list(range(A, A + 16)))
    for i in range(1, 11):
        p.feedback(0, A + i, Mark.CLEAN)
    assert take(p, 9) == [A + i for i in range(3, 11)] + [A]


def test_reps_freezes_on_loss_then_explores_sixteen() -> None:
    p = reps(list(range(A, A + 16)))
    for i in (1, 2, 3):
        p.feedback(0, A + i, Mark.CLEAN)
    assert take(p, 2) == [A + 1, A + 2]
    p.feedback(5, A + 2, Mark.TIMEOUT)  # A+2 itself goes out
    assert take(p, 5, now=10) == [A + 3, A + 1, A + 3, A + 1, A + 3]  # what is fresh, then the whole ring in turn
    p.feedback(11, A + 6, Mark.CLEAN)
    assert take(p, 3, now=12) == [A + 6, A + 6, A + 1]  # fresh again, so it goes before its turn too
    assert p.frozen_until == 5 + 10 * MS
    after = 5 + 10 * MS + 1
    p.feedback(after, A + 4, Mark.CLEAN)
    assert p.explore == 16
    assert take(p, 16, after) == [A] * 16
    assert take(p, 2, after) == [A + 4, A]


def test_reps_exploring_does_not_freeze_again() -> None:
    p = reps(list(range(A, A + 16)))
    p.feedback(0, A + 1, Mark.LOSS)
    p.next(11 * MS)
    assert p.frozen_until is None and p.explore == 15
    p.feedback(11 * MS, A + 2, Mark.LOSS)
    assert p.frozen_until is None


# -- flowlet, ecmp -----------------------------------------------------------------------------------------------------


def test_flowlet_changes_after_a_pause_longer_than_the_round_trip() -> None:
    p = paths("flowlet")
    assert [p.next(now) for now in (0, 900, 1_800, 2_801, 2_900)] == [A, A, A, B, B]
    p.feedback(2_950, B, Mark.LOSS)
    assert p.next(2_960) == C


def test_ecmp_stays_whatever_happens_unless_the_controller_says() -> None:
    p = paths("ecmp", orders=[(100, A, True)])
    p.feedback(0, A, Mark.TIMEOUT)
    assert take(p, 3) == [A, A, A]
    p.obey(100)
    assert p.next(100) == B


def test_an_unknown_policy_lists_those_there_are() -> None:
    with pytest.raises(TrafficError, match="no spraying policy 'wrr'"):
        paths("wrr")
