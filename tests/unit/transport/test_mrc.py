"""MRC over a pure wire: out-of-order placement, SACK, only the lost packet resent, path states."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transport.wire import Wire
from traffic.congestion.base import PathInfo
from traffic.congestion.registry import create, create_receiver
from traffic.packet.codec import Packet
from traffic.packet.dscp import TRIMMED
from traffic.packet.opcodes import Opcode
from traffic.rng import Rng
from traffic.transport.base import Memory, Sink, Verb, WorkRequest
from traffic.transport.mrc import MrcQueuePair
from traffic.transport.options import MrcOptions
from traffic.transport.paths import PathSettings, PathState
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
    Wire(pair.a, pair.b, jitter=lambda n: (n * 37 % 11) * 300).run()
    assert work.retransmitted == 0
    assert pair.sink.delivered[0].reordered > 0
    assert sum(pair.sink.reorder.values()) == pair.sink.delivered[0].reordered


def test_a_trimmed_packet_is_named_by_a_nack_and_resent_at_once() -> None:
    pair = Pair()
    work = pair.post(pattern(30 * MTU))

    def fate(n: int, p: Packet) -> Packet:
        return p._replace(dscp=TRIMMED, payload=memoryview(b""), icrc_ok=False, trimmed=True) if n == 4 else p

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
    if (bad, PathState.GOOD, "probes") in pair.states:
        assert len(probes) >= 3
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
        if work.timeouts >= 40:
            dark[0] = False
        return None if dark[0] else p

    Wire(pair.a, pair.b, fate).run()
    assert pair.a.failed is None
    assert bytes(pair.far[: 40 * MTU]) == pattern(40 * MTU)
