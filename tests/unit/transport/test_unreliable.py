"""UC and UD over a pure wire: a broken message is dropped whole, a datagram needs key and buffer. Rules: rxe_resp.c, rxe_recv.c."""

from __future__ import annotations

import pytest

from tests.unit.transport.test_rc import MTU, PATH, RKEY, VA, pattern
from tests.unit.transport.wire import Wire
from traffic.congestion.base import CongestionControl
from traffic.congestion.registry import create
from traffic.packet.headers import unpack_deth
from traffic.packet.opcodes import Opcode
from traffic.transport.base import Memory, Sink, Verb, WorkRequest
from traffic.transport.uc import UcQueuePair
from traffic.transport.ud import UdQueuePair


class Uc:
    def __init__(self, psn: int = 0, cc: CongestionControl | None = None) -> None:
        self.sink = Sink()
        self.far = bytearray(40 * MTU)
        memories = [Memory(), Memory()]
        memories[1].register(RKEY, VA, memoryview(self.far))
        self.a, self.b = (
            UcQueuePair(
                qpn=0x100 + i, peer_qpn=0x101 - i, label="a>b", mtu=MTU, cc=cc or create("none", path=PATH),
                memory=memories[i], sink=self.sink, first_psn=psn, peer_first_psn=psn, sport=0xC001,
            )
            for i in (0, 1)
        )  # fmt: skip

    def post(self, verb: Verb, data: bytes, *, at: int = 0, imm: int = 0, rkey: int = RKEY) -> WorkRequest:
        work = WorkRequest(id=1, verb=verb, local=memoryview(data), remote_va=VA + at, rkey=rkey, imm=imm)
        self.a.post(work, 0)
        return work


@pytest.mark.parametrize("size", [0, 1, MTU, 5 * MTU + 3])
@pytest.mark.parametrize("psn", [0, 0xFFFFFE])
def test_uc_write_arrives_without_a_word_of_acknowledgement(size: int, psn: int) -> None:
    uc = Uc(psn)
    uc.post(Verb.WRITE_IMM, pattern(size), imm=7)
    wire = Wire(uc.a, uc.b)
    wire.run()
    assert bytes(uc.far[:size]) == pattern(size)
    assert [(d.imm, d.size, d.verb) for d in uc.sink.delivered] == [(7, size, Verb.WRITE_IMM)]
    assert all(Opcode.UC_SEND_FIRST <= p.opcode <= Opcode.UC_WRITE_ONLY_IMM for p in wire.log)
    assert len(uc.sink.completed) == 1


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_uc_loses_the_message_that_lost_a_packet_and_no_other(gone: int) -> None:
    uc = Uc()
    for k in range(3):
        uc.post(Verb.WRITE_IMM, bytes([k + 1]) * 5 * MTU, at=5 * MTU * k, imm=k)
    Wire(uc.a, uc.b, lambda n, p: None if n == 5 + gone else p).run()
    assert [d.imm for d in uc.sink.delivered] == [0, 2]
    assert set(uc.far[5 * MTU * 2 : 5 * MTU * 3]) == {3}
    kept = uc.far[5 * MTU : 10 * MTU]
    assert kept.count(2) == gone * MTU  # what came before the gap was placed, nothing after it


def test_uc_send_needs_a_buffer_and_says_nothing_without() -> None:
    uc = Uc()
    room = bytearray(2 * MTU)
    uc.b.assembly.buffers.append(memoryview(room))
    uc.post(Verb.SEND, pattern(2 * MTU))
    uc.post(Verb.SEND_IMM, pattern(2 * MTU), imm=5)
    wire = Wire(uc.a, uc.b)
    wire.run()
    assert bytes(room) == pattern(2 * MTU)
    assert [d.verb for d in uc.sink.delivered] == [Verb.SEND]
    assert [(e["kind"], e["why"]) for e in uc.sink.log] == [("dropped message", "no receive buffer")]
    assert len(wire.log) == 4 and uc.b.failed is None


def test_uc_wrong_key_drops_the_message_and_keeps_the_connection() -> None:
    uc = Uc()
    uc.post(Verb.WRITE, pattern(3 * MTU), rkey=RKEY + 1)
    uc.post(Verb.WRITE, pattern(10))
    Wire(uc.a, uc.b).run()
    assert bytes(uc.far[:10]) == pattern(10) and len(uc.sink.delivered) == 1


def test_uc_keeps_the_rate_and_has_no_read() -> None:
    uc = Uc(cc=create("fixed", path=PATH, params={"rate_bps": 10e9}))
    uc.post(Verb.WRITE, pattern(20 * MTU))
    took = Wire(uc.a, uc.b).run()
    assert took >= 19 * (MTU + 98) * 8 / 10
    uc.a.post(WorkRequest(id=1, verb=Verb.READ, local=memoryview(bytearray(8))), 0)
    assert uc.a.failed is not None and uc.a.failed.what == "UC has no READ"


class Ud:
    def __init__(self) -> None:
        self.sink = Sink()
        self.a, self.b = (
            UdQueuePair(
                qpn=0x100 + i, peer_qpn=0x101 - i, label="a>b", mtu=MTU, cc=create("none", path=PATH), memory=Memory(),
                sink=self.sink, first_psn=0, qkey=0x1234, sport=0xC001,
            )
            for i in (0, 1)
        )  # fmt: skip

    def post(self, data: bytes, *, qkey: int = 0x1234, verb: Verb = Verb.SEND, imm: int = 0) -> None:
        self.a.post(WorkRequest(id=1, verb=verb, local=memoryview(data), rkey=qkey, imm=imm), 0)


def test_ud_datagram_names_its_sender_and_needs_the_key_and_a_buffer() -> None:
    ud = Ud()
    rooms = [bytearray(100), bytearray(10)]
    ud.b.recv_buffers.extend(memoryview(r) for r in rooms)
    ud.post(pattern(60))
    ud.post(pattern(60), qkey=1)  # wrong key: the buffer stays
    ud.post(pattern(60))  # longer than the next buffer
    ud.post(pattern(8), verb=Verb.SEND_IMM, imm=9)
    ud.post(pattern(8))  # no buffer left
    wire = Wire(ud.a, ud.b)
    wire.run()
    assert bytes(rooms[0][:60]) == pattern(60) and bytes(rooms[1][:8]) == pattern(8)
    assert [(d.verb, d.imm, d.size) for d in ud.sink.delivered] == [(Verb.SEND, 0, 60), (Verb.SEND_IMM, 9, 8)]
    assert {unpack_deth(p.ext).src_qpn for p in wire.log} == {0x100}
    assert [p.opcode for p in wire.log] == [Opcode.UD_SEND_ONLY] * 3 + [Opcode.UD_SEND_ONLY_IMM, Opcode.UD_SEND_ONLY]
    assert [p.psn for p in wire.log] == list(range(5))


@pytest.mark.parametrize(("verb", "size"), [(Verb.WRITE, 8), (Verb.SEND, MTU + 1)])
def test_ud_refuses_other_verbs_and_more_than_a_packet(verb: Verb, size: int) -> None:
    ud = Ud()
    ud.post(bytes(size), verb=verb)
    assert ud.a.failed is not None
