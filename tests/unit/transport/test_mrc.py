"""MRC over a pure wire: out-of-order placement, SACK, only the lost packet resent, path states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transport.wire import Wire
from traffic.congestion.base import Loss, PathInfo
from traffic.congestion.registry import create, create_receiver
from traffic.packet.codec import Packet
from traffic.packet.dscp import CONTROL, DATA, TRIMMED, TRIMMED_LAST_HOP
from traffic.packet.mrc_headers import NackReason, PathMark, Sack, pack_sack, unpack_nack, unpack_probe, unpack_sack
from traffic.packet.opcodes import Opcode
from traffic.rng import Rng
from traffic.transport.base import Memory, Sink, Verb, WorkRequest
from traffic.transport.mrc import MrcQueuePair
from traffic.transport.options import MrcOptions
from traffic.transport.paths import Mark, PathSettings, PathState
from traffic.transport.spray import make_paths

MTU = 1024
VA = 0x1000
RKEY = 0x77
PATH = PathInfo(line_rate_bps=100_000_000_000, base_rtt_ns=2_000, mtu_bytes=MTU, wire_mtu_bytes=MTU + 102)
EVS = list(range(0xC000, 0xC010))


class Pair:
    def __init__(
        self,
        *,
        psn: int = 0,
        policy: str = "oblivious",
        cc: str = "none",
        cc_params: dict[str, object] | None = None,
        orders: Sequence[tuple[int, int, bool]] = (),
        **options: object,
    ) -> None:
        self.sink = Sink()
        self.far = bytearray(400 * MTU)
        self.states: list[tuple[int, PathState, str]] = []
        memory = [Memory(), Memory()]
        memory[1].register(RKEY, VA, memoryview(self.far))
        opt = MrcOptions(**{"rto_ns": 100_000, "reorder_ns": 8_000} | options)  # type: ignore[arg-type]
        self.a, self.b = (
            MrcQueuePair(
                qpn=0x100 + i,
                peer_qpn=0x101 - i,
                label="a>b",
                mtu=MTU,
                cc=create(cc, path=PATH, params=cc_params),
                memory=memory[i],
                sink=self.sink,
                first_psn=psn,
                peer_first_psn=psn,
                paths=make_paths(
                    policy,
                    PathSettings(
                        evs=EVS,
                        rng=Rng(1),
                        note=lambda now, ev, state, why: self.states.append((ev, state, why)),
                        base_rtt_ns=2_000,
                        probe_ns=20_000,
                        probes_needed=3,
                        min_active=2,
                        orders=orders if i == 0 else (),
                    ),
                ),
                options=opt,
                receiving=create_receiver(cc, path=PATH, params=cc_params),
            )
            for i in (0, 1)
        )

    def post(self, data: bytes, imm: int = 1, va: int = VA) -> WorkRequest:
        work = WorkRequest(id=imm, verb=Verb.WRITE_IMM, local=memoryview(data), remote_va=va, rkey=RKEY, imm=imm)
        self.a.post(work, 0)
        return work


def pattern(size: int) -> bytes:
    return bytes((i * 7 + i // 251) & 255 for i in range(size))


def test_every_packet_takes_another_entropy_value_and_carries_its_address() -> None:
    pair = Pair()
    pair.post(pattern(16 * MTU))
    wire = Wire(pair.a, pair.b)
    wire.run()
    data = [p for p in wire.log if p.opcode < Opcode.MRC_ACKNOWLEDGE]
    assert sorted(p.sport for p in data) == EVS
    assert all(len(p.ext) >= 20 for p in data)
    assert bytes(pair.far[: 16 * MTU]) == pattern(16 * MTU)


def test_only_the_lost_packet_is_resent_without_waiting_for_the_timer() -> None:
    pair = Pair()
    work = pair.post(pattern(100 * MTU))
    took = Wire(pair.a, pair.b, lambda n, p: None if n == 7 else p).run()
    assert (work.retransmitted, work.timeouts) == (1, 0)
    assert took < 100_000
    assert bytes(pair.far[: 100 * MTU]) == pattern(100 * MTU)


def test_reordering_within_the_window_resends_nothing_and_is_counted() -> None:
    pair = Pair()
    work = pair.post(pattern(100 * MTU))
    Wire(pair.a, pair.b, jitter=lambda n: (n * 37 % 11) * 300, in_order=True).run()
    assert work.retransmitted == 0
    assert pair.sink.delivered[0].reordered > 0
    assert sum(pair.sink.reorder.values()) == pair.sink.delivered[0].reordered


def test_a_trimmed_packet_is_named_by_a_nack_and_resent_at_once() -> None:
    pair = Pair()
    work = pair.post(pattern(30 * MTU))

    def fate(n: int, p: Packet) -> Packet:
        return p.but(dscp=TRIMMED, payload=memoryview(b""), icrc_ok=False, trimmed=True) if n == 4 else p

    wire = Wire(pair.a, pair.b, fate)
    took = wire.run()
    assert [p.psn for p in wire.log if p.opcode == Opcode.MRC_NACK] == [4]
    assert work.retransmitted == 1 and took < 30_000
    assert pair.sink.delivered[0].trimmed == 1


def test_a_losing_path_leaves_at_once_and_comes_back_after_three_probes() -> None:
    pair = Pair()
    bad = EVS[3]
    pair.post(pattern(400 * MTU))
    healed = [False]

    def fate(n: int, p: Packet) -> Packet | None:
        if p.sport == bad and p.opcode == Opcode.MRC_PROBE:
            healed[0] = True
        return None if p.sport == bad and not healed[0] else p

    wire = Wire(pair.a, pair.b, fate)
    wire.run()
    assert [(ev, state) for ev, state, _ in pair.states][:1] == [(bad, PathState.ASSUMED_BAD)]
    probes = [p for p in wire.log if p.opcode == Opcode.MRC_PROBE]
    assert probes and all(p.sport == bad for p in probes)
    assert (bad, PathState.GOOD, "probes") in pair.states and len(probes) >= 3
    assert bytes(pair.far) == pattern(400 * MTU)


def test_psn_wraps_at_two_to_the_24() -> None:
    pair = Pair(psn=0xFFFFF0)
    pair.post(pattern(64 * MTU))
    Wire(pair.a, pair.b, lambda n, p: None if n == 20 else p).run()
    assert bytes(pair.far[: 64 * MTU]) == pattern(64 * MTU)


@settings(max_examples=60, deadline=None)
@given(
    losses=st.sets(st.integers(0, 150), max_size=50),
    policy=st.sampled_from(["oblivious", "bitmap", "reps", "flowlet", "ecmp"]),
    sizes=st.lists(st.integers(0, 20 * MTU), min_size=1, max_size=5),
    spread=st.integers(0, 3_000),
)
def test_whatever_is_lost_or_reordered_every_byte_arrives(
    losses: set[int], policy: str, sizes: list[int], spread: int
) -> None:
    pair = Pair(policy=policy)
    data = pattern(sum(sizes))
    offset = 0
    for i, size in enumerate(sizes):
        pair.post(data[offset : offset + size], imm=i, va=VA + offset)
        offset += size
    Wire(pair.a, pair.b, lambda n, p: None if n in losses else p, lambda n: n * 7919 % (spread + 1)).run()
    assert pair.a.failed is None
    assert bytes(pair.far[:offset]) == data
    assert sorted(d.imm for d in pair.sink.delivered) == list(range(len(sizes)))


def test_a_flight_that_times_out_packet_by_packet_is_one_fruitless_try() -> None:
    """Forty packets sent one by one time out one by one; with three retries allowed the connection must outlive that."""
    pair = Pair(retry_count=3, linear_retries=7)
    work = pair.post(pattern(40 * MTU))
    dark = [True]

    def fate(n: int, p: Packet) -> Packet | None:
        if work.retransmitted >= 40:
            dark[0] = False
        return None if dark[0] else p

    Wire(pair.a, pair.b, fate).run()
    assert pair.a.failed is None and work.timeouts <= 2
    assert bytes(pair.far[: 40 * MTU]) == pattern(40 * MTU)


# -- SACKs, NACKs, states ----------------------------------------------------------------------------------------------


def sacks(wire: Wire) -> list[Sack]:
    return [unpack_sack(p.ext) for p in wire.log if p.opcode == Opcode.MRC_SACK]


def test_a_gap_more_than_sixty_four_behind_is_covered_by_bitmaps_that_end_at_the_newest() -> None:
    """Packet 0 comes 150 packets late: bitmaps of 64 must still tell of all the others, and nothing else goes again."""
    pair = Pair(reorder_ns=80_000)
    work = pair.post(pattern(150 * MTU))
    no_probes = lambda n, p: None if p.opcode == Opcode.MRC_PROBE else p  # noqa: E731
    wire = Wire(pair.a, pair.b, no_probes, lambda n: 60_000 if n == 0 else 0)
    wire.run()
    assert work.retransmitted == 0
    far = [s for s in sacks(wire) if s.sack_offset > 1]
    assert far and all(s.bitmap >> 63 for s in far)  # the last bit is the packet that caused it
    assert max(s.sack_offset for s in far) == 150 - 64 + 1
    assert max(s.ooo_count for s in far) == 149


@pytest.mark.parametrize("keep", [3, 5])
def test_lost_sacks_cost_nothing_while_later_ones_tell_the_same(keep: int) -> None:
    pair = Pair(ack_every=1)
    work = pair.post(pattern(120 * MTU))
    count = [0]

    def fate(n: int, p: Packet) -> Packet | None:
        if p.opcode != Opcode.MRC_SACK:
            return p
        count[0] += 1
        return p if count[0] % keep == 0 or count[0] > 115 else None

    Wire(pair.a, pair.b, fate).run()
    assert (work.retransmitted, work.timeouts) == (0, 0)
    assert bytes(pair.far[: 120 * MTU]) == pattern(120 * MTU)


@pytest.mark.parametrize(("lost", "asked"), [(1, 4_000), (3, 4_000 + 8_000), (5, 4_000 + 8_000 + 16_000)])
def test_where_all_sacks_are_lost_probes_ask_again_each_after_twice_the_time(lost: int, asked: int) -> None:
    """Round trip 2 us: silence ends after 4 us, then after 8 and 16 more; two probes each time, and nothing is sent twice."""
    pair = Pair()
    work = pair.post(pattern(3 * MTU))
    left = [lost]

    def fate(n: int, p: Packet) -> Packet | None:
        if p.opcode == Opcode.MRC_SACK and left[0]:
            left[0] -= 1
            return None
        return p

    wire = Wire(pair.a, pair.b, fate)
    took = wire.run()
    assert (work.timeouts, work.retransmitted) == (0, 0) and len(pair.sink.delivered) == 1
    probes = [p.dscp for p in wire.log if p.opcode == Opcode.MRC_PROBE]
    assert probes == [CONTROL, DATA] * ((lost + 1) // 2)
    assert asked + 2_000 <= took <= asked + 4_000


def test_a_probe_gathers_acknowledgements_that_a_shrunken_window_waits_for() -> None:
    """Three packets arrived, the receiver waits for a fourth, and the window has no room for one."""
    pair = Pair(cc="fixed", cc_params={"window_bytes": 8 * MTU})
    pair.post(pattern(20 * MTU))
    wire = Wire(pair.a, pair.b)

    def fate(n: int, p: Packet) -> Packet | None:
        if n == 8:
            pair.a.cc.window_bytes = float(MTU)
        return p.but(ack_req=False)

    wire.fate = fate
    took = wire.run()
    assert pair.sink.delivered and took < 100_000  # not a timer each time


def test_after_silence_only_the_answer_from_behind_the_data_says_that_packets_are_lost() -> None:
    """Eight packets wait in a queue; a probe that overtakes them finds none of them, and that is no loss."""
    pair = Pair()
    sender = pair.a.sender
    pair.post(pattern(8 * MTU))
    for now in range(0, 8 * 330, 330):
        pair.a.emit(now)
    gather, tail = sender.silence(7_000)
    assert (gather.tos >> 2, tail.tos >> 2) == (CONTROL, DATA)
    assert tail.sport == sender.flights[7].ev
    behind = [s for s, f in sender.flights.items() if f.ev == tail.sport]
    for probe, lost in ((gather, []), (tail, behind)):
        number = unpack_probe(probe.ext).probe_id
        sender.sacked(Sack(0xFFFFFF, sack_offset=1, entropy=probe.sport, probe=True, spdcid=number), 9_000, 9_000)
        assert list(sender.lost) == lost


def test_a_probes_answer_is_no_sample_of_the_round_trip_of_what_it_acknowledges() -> None:
    """The receiver kept the acknowledgement: how long says nothing of the path."""
    pair = Pair()
    pair.post(pattern(8 * MTU))
    pair.a.emit(0)
    pair.a.sender.sacked(Sack(0, sack_offset=1, entropy=pair.a.sender.flights[0].ev, probe=True), 50_000, 50_000)
    assert pair.a.sender.una == 1 and pair.a.sender.last_rtt_ns == -1


def test_silence_is_a_round_trip_as_the_last_packet_took_it_and_one_of_the_empty_fabric() -> None:
    """The fabric's own is 2 us; packet 0 was acknowledged after 30."""
    pair = Pair()
    pair.post(pattern(8 * MTU))
    for now in range(0, 8 * 330, 330):
        pair.a.emit(now)
    sender = pair.a.sender
    assert sender.prober.quiet_at == 7 * 330 + 2 * pair.a.cc.path.base_rtt_ns
    sender.sacked(Sack(0, sack_offset=1, entropy=sender.flights[0].ev), 30_000, 30_000)
    assert sender.prober.quiet_at == 30_000 + 30_000 + pair.a.cc.path.base_rtt_ns


@pytest.mark.parametrize(("packets", "asking"), [(4, 1), (8, 2), (12, 3), (16, 16), (32, 32)])
def test_of_a_window_of_few_packets_each_quarter_is_asked_about(packets: int, asking: int) -> None:
    """From 16 on the receiver's own acknowledgement of every fourth is a quarter or less: only the last one asks."""
    pair = Pair(cc="fixed", cc_params={"window_bytes": packets * MTU})
    pair.post(pattern(100 * MTU))
    sent = [pair.a.emit(330 * n).ack_req for n in range(packets)]
    assert [n + 1 for n, asks in enumerate(sent) if asks] == list(range(asking, packets + 1, asking))


@pytest.mark.parametrize("psn", [0xFFFFFF, 0xFFFFC0, 0xFFFF80])
def test_bitmaps_across_the_wrap_of_psns(psn: int) -> None:
    pair = Pair(psn=psn)
    work = pair.post(pattern(200 * MTU))
    gone = {psn + i & 0xFFFFFF for i in (30, 31, 90)}

    def fate(n: int, p: Packet) -> Packet | None:
        if p.psn in gone and p.opcode < Opcode.MRC_ACKNOWLEDGE:
            gone.remove(p.psn)
            return None
        return p

    Wire(pair.a, pair.b, fate).run()
    assert work.retransmitted == 3 and pair.a.failed is None
    assert bytes(pair.far[: 200 * MTU]) == pattern(200 * MTU)


def test_the_receiver_says_how_far_ahead_it_can_remember_and_the_sender_obeys() -> None:
    """Packet 0 is lost again and again; until it comes, nothing beyond the 128 that the first SACK names may leave."""
    pair = Pair(max_psn_range=128)
    pair.post(pattern(300 * MTU))
    waiting: list[int] = []
    arrived = [False]

    def fate(n: int, p: Packet) -> Packet | None:
        if p.opcode < Opcode.MRC_ACKNOWLEDGE and not arrived[0]:
            waiting.append(p.psn)
            arrived[0] = p.psn == 0 and n >= 800
            return None if p.psn == 0 and n < 800 else p
        return p

    wire = Wire(pair.a, pair.b, fate)
    pair.a.sender.opt = MrcOptions(rto_ns=500_000, reorder_ns=400_000)
    pair.a.sender.psn_range = 1 << 14
    wire.run()
    assert {s.mpr for s in sacks(wire)} == {1}
    assert max(waiting) == 127 and waiting.count(0) > 3
    assert [p for p in wire.log if p.opcode == Opcode.MRC_NACK] == []
    assert bytes(pair.far[: 300 * MTU]) == pattern(300 * MTU)


def test_a_packet_beyond_what_the_receiver_can_remember_is_refused() -> None:
    pair = Pair(max_psn_range=32)
    pair.a.sender.psn_range = 1 << 14  # the wire holds forty packets before the first SACK
    pair.post(pattern(100 * MTU))
    wire = Wire(pair.a, pair.b, lambda n, p: None if p.opcode < Opcode.MRC_ACKNOWLEDGE and p.psn == 0 and n < 60 else p)
    wire.run()
    refused = [unpack_nack(p.ext) for p in wire.log if p.opcode == Opcode.MRC_NACK]
    assert {n.reason for n in refused} == {NackReason.PSN_OOR_WINDOW}
    assert bytes(pair.far[: 100 * MTU]) == pattern(100 * MTU)


def test_the_two_kinds_of_trim_are_told_apart_and_only_the_core_blames_the_path() -> None:
    pair = Pair()
    pair.post(pattern(16 * MTU))
    kinds: list[Loss] = []
    marks: list[tuple[int, Mark]] = []
    lost, learn = pair.a.cc.lost, pair.a.sender.paths.feedback

    def hear(*, now: int, size: int, kind: Loss) -> None:
        kinds.append(kind)
        lost(now=now, size=size, kind=kind)

    def mark(now: int, ev: int, what: Mark) -> None:
        marks.append((ev, what))
        learn(now, ev, what)

    pair.a.cc.lost = hear  # type: ignore[method-assign]
    pair.a.sender.paths.feedback = mark  # type: ignore[method-assign,assignment]

    def fate(n: int, p: Packet) -> Packet:
        if p.opcode < Opcode.MRC_ACKNOWLEDGE and n in (2, 5):
            dscp = TRIMMED if n == 2 else TRIMMED_LAST_HOP
            return p.but(dscp=dscp, payload=memoryview(b""), icrc_ok=False, trimmed=True)
        return p

    wire = Wire(pair.a, pair.b, fate)
    wire.run()
    assert kinds == [Loss.TRIM, Loss.TRIM_LAST_HOP]
    assert [m for _, m in marks if m is not Mark.CLEAN] == [Mark.TRIM]
    reasons = [unpack_nack(p.ext).reason for p in wire.log if p.opcode == Opcode.MRC_NACK]
    assert reasons == [NackReason.TRIMMED, NackReason.TRIMMED_LAST_HOP]
    why = [(e["kind"], e["why"], e["count"]) for e in pair.sink.log]
    assert why == [("nack", "trimmed", 1), ("nack", "trimmed_last_hop", 1)]


def test_a_mark_comes_back_at_once_and_skips_the_value() -> None:
    pair = Pair(policy="bitmap")
    pair.post(pattern(40 * MTU))
    wire = Wire(pair.a, pair.b, lambda n, p: p.but(ecn=3) if n == 5 else p)
    wire.run()
    marked = [s for s in sacks(wire) if s.m == PathMark.SKIP_ONCE]
    assert [(s.cack_psn + s.ack_psn_offset, s.entropy) for s in marked] == [(5, wire.log[5].sport)]
    used = Counter(p.sport for p in wire.log if p.opcode < Opcode.MRC_ACKNOWLEDGE)
    assert used[wire.log[5].sport] == min(used.values()) < max(used.values())


@pytest.mark.parametrize("policy", ["oblivious", "bitmap", "reps"])
def test_a_sack_of_four_brings_back_the_values_of_all_four_but_of_a_marked_one_to_reps_alone(policy: str) -> None:
    """REPS, section 4.7, carry EVs; the others hear of the packet that a SACK names."""
    pair = Pair(policy=policy, ack_every=4)
    heard: list[tuple[int, Mark]] = []
    learn = pair.a.sender.paths.feedback

    def feedback(now: int, ev: int, mark: Mark) -> None:
        heard.append((ev, mark))
        learn(now, ev, mark)

    pair.a.sender.paths.feedback = feedback  # type: ignore[method-assign]
    pair.post(pattern(12 * MTU))
    wire = Wire(pair.a, pair.b, lambda n, p: p.but(ecn=3) if n == 5 else p)
    wire.run()
    evs = [p.sport for p in wire.log if p.opcode < Opcode.MRC_ACKNOWLEDGE]
    named = [3, 5, 9, 11]  # the fourth, the marked one and its fourth successor, the last
    if policy == "reps":
        order = [3, 0, 1, 2, 5, 4, 9, 6, 7, 8, 11, 10]
        assert heard == [(evs[i], Mark.ECN if i == 5 else Mark.CLEAN) for i in order]
    else:
        assert heard == [(evs[i], Mark.ECN if i == 5 else Mark.CLEAN) for i in named]


def test_always_skip_takes_the_value_out() -> None:
    pair = Pair()
    pair.post(pattern(40 * MTU))
    wire = Wire(pair.a, pair.b)
    wire.fate = lambda n, p: (
        p.but(ext=memoryview(pack_sack(unpack_sack(p.ext)._replace(m=PathMark.ALWAYS_SKIP))))
        if p.opcode == Opcode.MRC_SACK and not pair.states
        else p
    )
    wire.run()
    assert pair.states[0][1:] == (PathState.ASSUMED_BAD, "loss")


def test_memory_that_is_not_registered_ends_the_connection_on_both_sides() -> None:
    pair = Pair()
    pair.post(pattern(3 * MTU), va=0x10)
    wire = Wire(pair.a, pair.b)
    wire.run()
    assert pair.b.failed is not None and "not registered" in pair.b.failed.what
    pair.a.receive(wire.log[-1] if wire.log[-1].opcode == Opcode.MRC_NACK else _nack(pair), wire.now, wire.now)
    assert pair.a.failed is not None and "unexp_event" in pair.a.failed.what


def _nack(pair: Pair) -> Packet:
    out = pair.b.control.popleft()
    ext, none = memoryview(out.ext), memoryview(b"")
    return Packet(0, 0, 0, 48, 0, 64, out.opcode, False, 0, 0, 0, False, False, 0, out.psn, ext, none, True, False)


def test_denied_values_carry_nothing_from_the_order_on() -> None:
    pair = Pair(orders=[(0, EVS[2], True), (10_000, EVS[3], True)])
    pair.post(pattern(200 * MTU))
    wire = Wire(pair.a, pair.b)
    wire.run()
    used = Counter(p.sport for p in wire.log if p.opcode < Opcode.MRC_ACKNOWLEDGE)
    assert used[EVS[2]] == 0 and 1 <= used[EVS[3]] <= 3
    assert [(ev, s) for ev, s, _ in pair.states] == [(EVS[2], PathState.DENIED), (EVS[3], PathState.DENIED)]


def test_the_timer_doubles_from_the_fourth_fruitless_retry_on() -> None:
    """OCP MRC: linear retries first (here three), then exponential ones."""
    pair = Pair(retry_count=6)
    pair.post(pattern(1 * MTU))
    Wire(pair.a, pair.b, lambda n, p: None).run()
    times = [e["time_ns"] for e in pair.sink.log if e["kind"] == "timeout"]
    gaps = [round((b - a) / 100_000) for a, b in pairwise(times)]
    assert gaps == [1, 1, 1, 2, 4, 8]
    assert pair.a.failed is not None and "after 6 retries" in pair.a.failed.what
    even = Pair(retry_count=6, adaptive=False)
    even.post(pattern(1 * MTU))
    Wire(even.a, even.b, lambda n, p: None).run()
    times = [e["time_ns"] for e in even.sink.log if e["kind"] == "timeout"]
    assert {round((b - a) / 100_000) for a, b in pairwise(times)} == {1}


def test_other_verbs_are_refused() -> None:
    pair = Pair()
    pair.a.post(WorkRequest(id=1, verb=Verb.READ, local=memoryview(bytearray(10)), remote_va=VA, rkey=RKEY), 0)
    assert pair.a.failed is not None and pair.a.failed.what == "MRC has no READ"


def test_a_lost_last_packet_is_found_by_a_probe_before_the_timer() -> None:
    """The tail loss probe of RFC 8985, section 7: nothing comes after the last packet that could overtake it."""
    pair = Pair()
    work = pair.post(pattern(30 * MTU))
    losses = {29}

    def fate(n: int, p: Packet) -> Packet | None:
        if len(p.payload) and p.psn in losses:
            losses.discard(p.psn)
            return None
        return p

    took = Wire(pair.a, pair.b, fate).run()
    assert (work.retransmitted, work.timeouts) == (1, 0)
    assert took < 60_000  # the timer is 100 us


# -- the end of a message ----------------------------------------------------------------------------------------------


def lose(*psns: int) -> Callable[[int, Packet], Packet | None]:
    """Each of these data packets is lost the first time."""
    left = set(psns)

    def fate(n: int, p: Packet) -> Packet | None:
        if len(p.payload) and p.psn in left:
            left.discard(p.psn)
            return None
        return p

    return fate


@pytest.mark.parametrize("lost", [(25,), (20, 23, 26)])
def test_a_packet_lost_near_the_end_goes_again_two_round_trips_later_however_long_the_reordering_window(
    lost: tuple[int, ...],
) -> None:
    """30 packets leave in 9.9 us. Round trip 2 us: the next ones overtake it, a probe behind it asks on its own path."""
    pair = Pair(reorder_ns=60_000)
    work = pair.post(pattern(30 * MTU))
    wire = Wire(pair.a, pair.b, lose(*lost))
    took = wire.run()
    assert (work.retransmitted, work.timeouts) == (len(lost), 0)
    assert took < 9_900 + 3 * 2_000 + 2_000
    data = {p.psn: p.sport for p in reversed(wire.log) if p.opcode < Opcode.MRC_ACKNOWLEDGE}
    behind = [p for p in wire.log if p.opcode == Opcode.MRC_PROBE and p.dscp == DATA]
    assert [p.sport for p in behind] == [data[n] for n in lost]
    why = [(e["kind"], e["why"]) for e in pair.sink.log if e["kind"] == "lost"]
    assert why == [("lost", "passed by a probe")] * len(why) and why


def test_a_late_packet_is_not_lost_when_a_probe_asks_for_it() -> None:
    """Packet 25 and all behind it on its path come 5 us late: the probe waits in the same queue, so nothing is resent."""
    pair = Pair(reorder_ns=60_000)
    work = pair.post(pattern(30 * MTU))
    wire = Wire(pair.a, pair.b, jitter=lambda n: 5_000 if n == late(wire, 25) else 0, in_order=True)
    wire.run()
    assert any(p.opcode == Opcode.MRC_PROBE for p in wire.log)
    assert (work.retransmitted, pair.states) == (0, [])


def test_a_sack_of_what_another_sack_told_before_does_not_mean_that_it_came_twice() -> None:
    """The answer to the second copy of packet 20 takes 600 ns longer than those to packets behind it."""
    pair = Pair(ack_every=1)
    work = pair.post(pattern(200 * MTU))
    wire = Wire(pair.a, pair.b, lose(20))

    def told(n: int) -> bool:
        p = wire.log[n]
        return p.opcode == Opcode.MRC_SACK and pair.b.receiver.newest > 22 and unpack_sack(p.ext).ack_psn_offset < 0

    wire.jitter = lambda n: 600 if told(n) else 0
    wire.run()
    assert work.retransmitted == 1
    assert not [e for e in pair.sink.log if e["kind"] == "reorder window"]


def test_a_copy_that_comes_long_after_widens_the_reordering_window() -> None:
    """Packet 20 comes 12 us late, after it was called lost: both copies arrive."""
    pair = Pair(ack_every=1)
    work = pair.post(pattern(200 * MTU))
    wire = Wire(pair.a, pair.b, jitter=lambda n: 12_000 if n == late(wire, 20) else 0)
    wire.run()
    assert work.retransmitted == 1
    assert [e["window_ns"] for e in pair.sink.log if e["kind"] == "reorder window"] == [16_000]


def late(wire: Wire, psn: int) -> int:
    """The number of the packet with that PSN."""
    return next((i for i, p in enumerate(wire.log) if p.psn == psn and len(p.payload)), -1)


def test_in_the_middle_of_a_message_the_reordering_window_decides_and_no_probe_is_spent() -> None:
    pair = Pair()
    work = pair.post(pattern(200 * MTU))
    wire = Wire(pair.a, pair.b, lose(20))
    wire.run()
    assert work.retransmitted == 1
    assert not [p for p in wire.log if p.opcode == Opcode.MRC_PROBE and p.dscp == DATA]


def test_the_end_of_a_message_is_asked_about_while_the_next_one_is_being_sent() -> None:
    """Who waits for the first message does not wait for the second: its missing packet is asked about on its own."""
    pair = Pair(reorder_ns=30_000)
    pair.post(pattern(30 * MTU), imm=1)
    pair.post(pattern(100 * MTU), imm=2, va=VA + 30 * MTU)
    wire = Wire(pair.a, pair.b, lose(28))
    wire.run()
    assert [d.imm for d in pair.sink.delivered] == [1, 2]
    assert [e["why"] for e in pair.sink.log if e["kind"] == "lost"] == ["passed by a probe"]


def test_what_an_answer_does_not_cover_is_not_called_lost() -> None:
    """An answer's bitmap ends 64 behind what is acknowledged: of a packet farther on it says nothing."""
    pair = Pair(reorder_ns=60_000)
    sender = pair.a.sender
    pair.post(pattern(100 * MTU))
    for now in range(0, 100 * 330, 330):
        pair.a.emit(now)
    ev = sender.flights[80].ev
    number = unpack_probe(sender.prober.doubt(40_000, 80, ev).ext).probe_id
    on_path = [s for s, f in sender.flights.items() if f.ev == ev]
    sender.sacked(Sack(0xFFFFFF, sack_offset=1, entropy=ev, probe=True, spdcid=number), 42_000, 42_000)
    assert set(sender.lost) == {s for s in on_path if s <= 63} and 80 in sender.flights


def test_silence_follows_the_newest_packet_and_then_tries_another_path() -> None:
    """The last packet is lost on a path that loses probes too: the second probe, elsewhere, gets an answer."""
    pair = Pair()
    work = pair.post(pattern(30 * MTU))
    wire = Wire(pair.a, pair.b)
    dead: list[int] = []

    def fate(n: int, p: Packet) -> Packet | None:
        if p.psn == 29 and len(p.payload) and not dead:
            dead.append(p.sport)
        return None if p.sport in dead else p

    wire.fate = fate
    wire.run()
    first, second = [p.sport for p in wire.log if p.opcode == Opcode.MRC_PROBE and p.dscp == DATA][:2]
    assert first == dead[0] != second
    assert work.timeouts == 0 and bytes(pair.far[: 30 * MTU]) == pattern(30 * MTU)
