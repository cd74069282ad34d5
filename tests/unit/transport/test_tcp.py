"""Messages on a byte stream: cut anywhere, they arrive where they belong; acknowledgements end them; TCP_INFO is read right."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.errors import TrafficError
from traffic.transport.base import Memory, Verb, WorkRequest
from traffic.transport.tcp import HEADER, Inbox, Outbox, control_info, tcp_info

VA, RKEY = 0x7F00_0000_0000, 0x1234


def request(number: int, data: bytes, offset: int = 0) -> WorkRequest:
    return WorkRequest(number, Verb.WRITE_IMM, memoryview(data), remote_va=VA + offset, rkey=RKEY, imm=number)


def inbox(size: int) -> tuple[Inbox, bytearray]:
    memory, place = Memory(), bytearray(size)
    memory.register(RKEY, VA, memoryview(place))
    return Inbox(memory, "a>b"), place


def feed(box: Inbox, stream: bytes, cut: int) -> list[tuple[int, int]]:
    """Puts a stream into an inbox, at most `cut` bytes at once; the messages it completes."""
    done = []
    while stream:
        target = box.want()
        count = min(cut, len(target), len(stream))
        target[:count] = stream[:count]
        stream = stream[count:]
        arrived = box.took(count)
        if arrived is not None:
            done.append((arrived.move, arrived.size))
    return done


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5), st.integers(1, 400), st.integers(1, 400))
def test_any_cut_of_the_stream_gives_the_same_messages(parts: list[bytes], taken: int, cut: int) -> None:
    out, stream, offset = Outbox(), b"", 0
    for number, part in enumerate(parts):
        out.post(request(number, part, offset))
        offset += len(part)
    while out.waiting:
        buffers, last = out.gather(64)
        whole = b"".join(bytes(b) for b in buffers)
        assert len(whole) <= 64
        took = whole[:taken]
        out.handed(len(took))
        stream += took
        assert not last or took != whole or out.flying
    assert out.position == len(stream) == sum(HEADER.size + len(p) for p in parts)
    box, place = inbox(offset)
    assert feed(box, stream, cut) == [(i, len(p)) for i, p in enumerate(parts)]
    assert bytes(place) == b"".join(parts)


def test_the_last_piece_of_a_message_is_told_and_pieces_end_on_segments() -> None:
    out = Outbox()
    out.post(request(0, bytes(100)))
    sizes, lasts = [], []
    while out.waiting:
        buffers, last = out.gather(64)
        sizes.append(sum(len(b) for b in buffers))
        lasts.append(last)
        out.handed(sizes[-1])
    assert sizes == [64, 56] and lasts == [False, True]


def test_an_acknowledged_byte_ends_the_messages_before_it_also_past_4_gib() -> None:
    out = Outbox()
    for number in range(3):
        out.post(request(number, bytes(10)))
    out.position = (1 << 32) - 40
    while out.waiting:
        buffers, _ = out.gather(1000)
        out.handed(sum(len(b) for b in buffers))
    # the three end at 2^32 - 10, 2^32 + 20 and 2^32 + 50; positions are told modulo 2^32
    assert out.acknowledged((1 << 32) - 12) == []
    assert [w.id for w in out.acknowledged((1 << 32) - 11)] == [0]
    assert [w.id for w in out.acknowledged(49)] == [1, 2]


def test_the_oldest_message_and_how_much_of_it_is_known_to_be_there() -> None:
    out = Outbox()
    assert out.oldest(0) is None
    out.post(request(0, bytes(100)))
    buffers, _ = out.gather(1000)
    out.handed(50)
    assert out.oldest(30)[1] == 30 - HEADER.size  # type: ignore[index]
    out.handed(sum(len(b) for b in buffers) - 50)
    assert out.oldest(1000)[1] == 100  # type: ignore[index]


@pytest.mark.parametrize(("rkey", "va", "size"), [(RKEY, VA, 101), (RKEY, VA - 1, 10), (RKEY + 1, VA, 10)])
def test_memory_that_is_not_registered_is_refused(rkey: int, va: int, size: int) -> None:
    box, _ = inbox(100)
    with pytest.raises(TrafficError, match="no such memory"):
        feed(box, HEADER.pack(7, rkey, va, size), 100)


def test_tcp_info_as_the_kernel_lays_it_out() -> None:
    """Offsets of struct tcp_info in include/uapi/linux/tcp.h; a kernel that ends before tcpi_total_rto tells no time-outs."""
    raw = bytearray(248)
    raw[1], raw[5] = 2, 8
    for offset, value in (
        (16, 4096),
        (68, 500),
        (76, 0x7FFFFFFF),
        (80, 10),
        (100, 3),
        (148, 400),
        (156, 99),
        (192, 97),
        (196, 5),
    ):
        struct.pack_into("=I", raw, offset, value)
    struct.pack_into("=Q", raw, 104, (1 << 64) - 1)
    struct.pack_into("=Q", raw, 120, 12345)
    struct.pack_into("=H", raw, 240, 2)
    info = tcp_info(bytes(raw))
    assert (info.state, info.mss, info.cwnd, info.rtt_us, info.min_rtt_us, info.ecn) == (
        "cwr",
        4096,
        10,
        500,
        400,
        True,
    )
    assert (info.ssthresh, info.pacing_rate) == (None, None)
    assert (info.retransmits, info.data_segments, info.bytes_acked, info.delivered_ce, info.timeouts) == (
        3,
        99,
        12345,
        5,
        2,
    )
    assert tcp_info(bytes(raw[:232])).timeouts is None
    with pytest.raises(TrafficError):
        tcp_info(bytes(raw[:160]))


def test_dctcp_tells_alpha_in_parts_of_1024() -> None:
    assert control_info("dctcp", struct.pack("=HHIII", 1, 0, 512, 0, 0)) == {"alpha": 0.5}
    assert control_info("dctcp", struct.pack("=HHIII", 0, 0, 512, 0, 0)) == {}
    assert control_info("cubic", b"") == {}
