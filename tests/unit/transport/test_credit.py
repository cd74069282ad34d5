"""Receiver credits over a wire that loses packets, over MRC and over RC; and the receiver's timers, CNPs, penalty.

The wire carries running totals in units of 256 bytes, rounded up (`transport/credit.py`); what an algorithm grants and when
is tested with the algorithms.
"""

from __future__ import annotations

import pytest

from tests.unit.transport import test_mrc, test_rc
from tests.unit.transport.wire import Wire
from traffic.congestion.base import CongestionControl, Feedback, PathInfo, ReceiverControl
from traffic.errors import TrafficError
from traffic.packet.codec import Packet
from traffic.packet.headers import unpack_creth
from traffic.packet.mrc_headers import CC_CREDIT, unpack_credit_target, unpack_sack
from traffic.packet.opcodes import FLAG_TS, Opcode
from traffic.transport.base import NEVER, Verb
from traffic.transport.credit import CreditAsker, CreditGiver, unwrap
from traffic.transport.receiving import ReceivingPort

MTU = 1024
PATH = PathInfo(line_rate_bps=100_000_000_000, base_rtt_ns=2_000, mtu_bytes=MTU, wire_mtu_bytes=MTU + 98)


class Wish(CongestionControl):
    """Wishes for what is missing, spends what it has."""

    feedback = Feedback.CREDIT

    def __init__(self) -> None:
        super().__init__(path=PATH)
        self.credit_bytes: float = 0.0
        self.granted = 0

    def credited(self, *, now: int, size: int) -> None:
        self.credit_bytes += size
        self.granted += size

    def credit_target(self, *, backlog: int) -> int:
        return self.granted + max(0, backlog - int(self.credit_bytes))


def test_totals_wrap_at_twenty_four_bits() -> None:
    assert unwrap(0xFFFFFF, 0x000001) == 0x1000001
    assert unwrap(0x1000001, 0xFFFFFF) == 0xFFFFFF


def test_a_wish_is_told_once_and_repeated_when_no_answer_comes() -> None:
    cc = Wish()
    asker = CreditAsker(cc, repeat_ns=1_000)
    assert asker.ask(0, 0) is None and asker.repeat_at == NEVER
    assert asker.ask(10, 300) == 2  # 300 bytes are two units
    assert asker.ask(20, 300) is None
    assert asker.repeat_at == 1_010
    assert asker.ask(1_010, 300) == 2
    assert asker.ask(1_020, 600) == 3  # news at once
    asker.credited(3, 1_100)
    assert cc.credit_bytes == 768
    assert asker.ask(3_000, 600) is None and asker.repeat_at == NEVER


def test_a_lost_grant_is_made_good_by_the_next_and_an_old_one_says_nothing() -> None:
    cc = Wish()
    asker = CreditAsker(cc, repeat_ns=1_000)
    asker.credited(4, 0)
    asker.credited(12, 1)  # the one with 8 was lost
    asker.credited(8, 2)
    assert cc.granted == 12 * 256


def test_without_a_field_in_data_the_wish_is_told_a_step_ahead() -> None:
    cc = Wish()
    asker = CreditAsker(cc, repeat_ns=1_000, step_bytes=1_024)
    asker.credited(40, 0)
    assert asker.ask(0, 10_240 + 900) == 44  # known so far: nothing; wished: 44 units
    assert asker.ask(0, 10_240 + 1_600) is None  # three units more
    assert asker.ask(0, 10_240 + 2_048) == 48


def test_totals_are_rounded_up_once_and_not_with_each_grant() -> None:
    giver = CreditGiver()
    totals = []
    for _ in range(5):
        giver.bytes += 100
        totals.append(giver.total)
    assert totals == [1, 1, 2, 2, 2]


# -- over the wire -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cc", ["rccc", "cts"])
@pytest.mark.parametrize("lost", [0, 3])
def test_mrc_data_carries_the_wish_and_sacks_the_total(cc: str, lost: int) -> None:
    pair = test_mrc.Pair(cc=cc, cc_params={"speculate": False} if cc == "rccc" else None)
    size = 100 * MTU
    pair.post(test_mrc.pattern(size))

    def fate(n: int, p: Packet) -> Packet | None:
        return None if lost and n % 11 == lost else p

    wire = Wire(pair.a, pair.b, fate)
    wire.run()
    assert bytes(pair.far[:size]) == test_mrc.pattern(size)
    data = [p for p in wire.log if Opcode.MRC_WRITE_FIRST <= p.opcode < Opcode.MRC_ACKNOWLEDGE]
    assert all(p.flags8 & FLAG_TS and unpack_credit_target(p.ext, 4) is not None for p in data)
    first = next(p for p in wire.log)
    assert first.opcode == Opcode.MRC_PROBE and unpack_credit_target(first.ext, 12) is not None  # nothing on trust
    sacks = [unpack_sack(p.ext) for p in wire.log if p.opcode == Opcode.MRC_SACK]
    assert {s.cc_type for s in sacks} == {CC_CREDIT}
    assert max(s.rcvd_bytes for s in sacks) * 256 >= size
    if not lost and cc == "cts":
        assert max(s.rcvd_bytes for s in sacks) * 256 == size  # granted what was wished for and no more


@pytest.mark.parametrize("cc", ["rccc", "cts"])
@pytest.mark.parametrize("recovery", ["gbn", "selective"])
@pytest.mark.parametrize("lost", [0, 5])
def test_rc_asks_and_grants_in_messages_of_its_own(cc: str, recovery: str, lost: int) -> None:
    pair = test_rc.Pair(cc=cc, recovery=recovery, cc_params={"speculate": False} if cc == "rccc" else None)
    pair.post(Verb.WRITE_IMM, test_rc.pattern(60 * MTU), imm=3)
    wire = Wire(pair.a, pair.b, lambda n, p: None if lost and n % 13 == lost else p)
    wire.run()
    assert pair.a.failed is None and bytes(pair.far[: 60 * MTU]) == test_rc.pattern(60 * MTU)
    words = [unpack_creth(p.ext) for p in wire.log if p.opcode == Opcode.CREDIT]
    assert words[0][0] is False and any(grant for grant, _ in words)
    assert max(total for grant, total in words if grant) * 256 >= 60 * MTU


@pytest.mark.parametrize("kind", ["mrc", "rc"])
@pytest.mark.parametrize("victim", ["request", "grant"])
def test_a_lost_request_and_a_lost_grant_are_repeated_after_the_timer(kind: str, victim: str) -> None:
    pair: test_mrc.Pair | test_rc.Pair
    if kind == "mrc":
        pair = test_mrc.Pair(cc="cts")
        pair.post(test_mrc.pattern(4 * MTU))
    else:
        pair = test_rc.Pair(cc="cts")
        pair.post(Verb.WRITE, test_rc.pattern(4 * MTU))
    # MRC answers a request at once, with the total so far, and then grants
    gone = {0} if victim == "request" else {1, 2} if kind == "mrc" else {1}
    took = Wire(pair.a, pair.b, lambda n, p: None if n in gone else p).run()
    assert bytes(pair.far[: 4 * MTU]) == test_rc.pattern(4 * MTU)
    assert 100_000 <= took < 110_000  # one timer


def test_no_credit_stops_the_sender() -> None:
    class Never(ReceiverControl):
        pass

    pair = test_mrc.Pair(cc="cts")
    pair.b.receiving = pair.b.receiver.receiving = Never(path=PATH)
    pair.post(test_mrc.pattern(4 * MTU))
    with pytest.raises(AssertionError, match="did not come to rest"):
        Wire(pair.a, pair.b).run(2_000_000)
    assert pair.a.sender.nxt == 0


# -- the receiving port ------------------------------------------------------------------------------------------------


def test_a_notification_waits_for_the_delay_of_the_card_and_goes_to_its_own_queue_pair() -> None:
    pair = test_rc.Pair(cc="dcqcn", cc_params={"cnp_delay_ns": 55_000})
    assert pair.b.receiving is not None
    port = ReceivingPort(pair.b.receiving)
    port.add(pair.b)
    pair.b.receiving.arrived(now=1_000, qp=pair.b.qpn, size=MTU, ce=True)
    port.answer()
    assert not pair.b.control and port.next_timer() == 56_000
    port.expire(56_000)
    port.answer()
    assert [p.opcode for p in pair.b.control] == [Opcode.CNP] and pair.sink.cnp_sent == 1


def test_two_queue_pairs_of_a_host_share_one_receiver_half() -> None:
    """The clear-to-send of one host calls its senders one after the other."""
    one, two = (test_mrc.Pair(cc="cts", cc_params={"grant_bytes": 8 * MTU, "ahead_bytes": 0}) for _ in range(2))
    shared = one.b.receiving
    assert shared is not None
    two.b.receiving = two.b.receiver.receiving = shared
    two.b.qpn = two.b.receiver.mine = 0x201
    port = ReceivingPort(shared)
    port.add(one.b)
    port.add(two.b)
    for qp in (0x101, 0x201):
        shared.requested(now=0, qp=qp, credit_target=8 * MTU)
    port.answer()
    assert len(one.b.control) == 1 and not two.b.control
    shared.arrived(now=10, qp=0x101, size=8 * MTU, ce=False, credit_target=8 * MTU)
    port.answer()
    assert len(two.b.control) == 1


@pytest.mark.parametrize("cc", ["rccc", "cts", "dcqcn"])
def test_a_closed_port_says_nothing_more(cc: str) -> None:
    pair = test_rc.Pair(cc=cc)
    half = pair.b.receiving
    assert half is not None
    port = ReceivingPort(half)
    port.add(pair.b)
    for now in (0, 1):
        half.arrived(now=now, qp=0x101, size=MTU, ce=True, credit_target=100 * MTU)
    port.close(2)
    half.arrived(now=3, qp=0x101, size=MTU, ce=True, credit_target=100 * MTU)  # a copy of a packet
    while (due := port.next_timer()) < 1_000_000:
        port.expire(due)
    port.answer()
    assert not pair.b.control


def test_a_transport_says_what_it_cannot_carry() -> None:
    pair = test_mrc.Pair()
    with pytest.raises(TrafficError, match="no notification packets"):
        pair.a.notify()


def test_the_penalty_reaches_the_sender_and_is_taken_back() -> None:
    pair = test_mrc.Pair(cc="nscc", cc_params={"penalty": 20})
    told: list[int] = []
    pair.a.cc.penalised = lambda *, now, penalty: told.append(penalty)  # type: ignore[method-assign]
    pair.post(test_mrc.pattern(20 * MTU))
    wire = Wire(pair.a, pair.b)
    seen = wire.ends[1].receiving
    assert seen is not None
    real = seen.penalty
    seen.penalty = lambda *, qp: real(qp=qp) if wire.now < 4_000 else 0  # type: ignore[method-assign]
    wire.run()
    assert told == [20, 0]
