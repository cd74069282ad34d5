"""Extension headers as bytes: literal layouts, the tables of the sources, and equality with the Scapy fields."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from traffic.packet import headers as h
from traffic.packet import mrc, roce
from traffic.packet import mrc_headers as m
from traffic.packet.opcodes import EXT_BYTES, Ext, Opcode, ext_bytes, extensions, psn_diff

# `.length` of rxe_opcode[] in Linux drivers/infiniband/sw/rxe/rxe_opcode.c (6.12): BTH and extension headers.
RXE_LENGTHS = {
    **dict.fromkeys((0, 1, 2, 4, 7, 8, 14), 12),
    **dict.fromkeys((3, 5, 9, 13, 15, 16, 17, 22, 23), 16),
    **dict.fromkeys((6, 10, 12, 29), 28),
    **{0x0B: 32, 0x12: 24, 0x13: 40, 0x14: 40, 0x1C: 32},
    **dict.fromkeys((32, 33, 34, 36, 39, 40), 12),
    **dict.fromkeys((35, 37, 41), 16),
    **{0x26: 28, 0x2A: 28, 0x2B: 32, 0x64: 20, 0x65: 24},
}


def test_lengths_of_every_rc_uc_ud_opcode() -> None:
    ours = {int(op): 12 + ext_bytes(op) for op in Opcode if op < Opcode.CNP}
    assert ours == RXE_LENGTHS


def test_header_order() -> None:
    assert extensions(Opcode.RC_WRITE_ONLY_IMM) == (Ext.RETH, Ext.IMMDT)
    assert extensions(Opcode.RC_ATOMIC_ACKNOWLEDGE) == (Ext.AETH, Ext.ATOMIC_ACK_ETH)
    assert extensions(Opcode.UD_SEND_ONLY_IMM) == (Ext.DETH, Ext.IMMDT)
    assert extensions(Opcode.RC_READ_RESPONSE_MIDDLE) == ()
    assert extensions(Opcode.MRC_WRITE_ONLY_IMM, timestamp=True) == (Ext.METH, Ext.TSETH, Ext.RETH, Ext.IMMDT)
    assert extensions(Opcode.MRC_SACK, timestamp=True) == (Ext.SETH,)
    with pytest.raises(ValueError, match="21"):
        extensions(0x15)


def test_mrc_opcodes_are_the_rc_codes_plus_c0() -> None:
    for name in ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_IMM", "WRITE_ONLY", "WRITE_ONLY_IMM"):
        assert Opcode[f"MRC_{name}"] == 0xC0 + Opcode[f"RC_{name}"]
    assert Opcode.MRC_ACKNOWLEDGE == 0xC0 + Opcode.RC_ACKNOWLEDGE
    assert (Opcode.MRC_SACK, Opcode.MRC_NACK, Opcode.MRC_PROBE) == (0xDC, 0xDD, 0xDE)


@pytest.mark.parametrize(("a", "b", "diff"), [(5, 3, 2), (0, 0xFFFFFF, 1), (0xFFFFFF, 0, -1), (0x800000, 0, -0x800000)])
def test_psn_order_is_the_sign_of_the_24_bit_difference(a: int, b: int, diff: int) -> None:
    assert psn_diff(a, b) == diff


def test_roce_layouts() -> None:
    assert h.pack_reth(0x0102030405060708, 0x0A0B0C0D, 0x11121314).hex() == "01020304050607080a0b0c0d11121314"
    assert h.pack_aeth(0x60, 0x010203).hex() == "60010203"
    assert h.pack_atomic_eth(1, 2, 3, 4).hex() == "00000000000000010000000200000000000000030000000000000004"
    assert h.pack_deth(0x80010000, 0x0A0B0C).hex() == "80010000000a0b0c"
    assert h.pack_immdt(0xDEADBEEF).hex() == h.pack_ieth(0xDEADBEEF).hex() == "deadbeef"
    assert h.pack_feth(3, 2).hex() == "00000023"
    assert h.unpack_aeth(h.pack_aeth(0x21, 7)) == (0x21, 7)
    assert h.unpack_atomic_ack_eth(h.pack_aeth(0, 1) + h.pack_atomic_ack_eth(99)) == 99


def test_mrc_layouts() -> None:
    sack = m.Sack(0x010203, -2, 5, 0xF0, 0xAABBCCDD, 1, True, 6, 7, 3, 4, 8, 0x1234, 9, True, 127, 0x0A0B0C)
    assert m.pack_sack(sack).hex() == ("0022fffeaabbccdd00060007000102033408000500000000000000f012340009ff0a0b0c")
    nack = m.Nack(0x010203, m.NackReason.TRIMMED, entropy=0xAABBCCDD, timestamp=0x1234)
    assert m.pack_nack(nack).hex() == "00000100aabbccdd000000000001020320001234"
    assert m.pack_meth(1, 0x10002).hex() == "00010002"
    assert m.pack_tseth(0x1234, True, 1).hex() == "12348001"
    assert m.pack_probe(m.Probe(7, 1, 2, 3, True)).hex() == "00000000000700000001000200038001"
    request = m.EndpointRequest(m.EndpointOp.EV_PROBE, 0xFF, 3)
    assert m.pack_endpoint_request(request).hex() == "00010000000000ff0000000000030001"
    assert m.pack_endpoint_response(m.EndpointResponse(1, 3)).hex() == "00100000" + "00" * 24 + "0003000000000000"


@pytest.mark.parametrize(
    ("syndrome", "words"),
    [
        (0x1F, "ACK, no credit information"),
        (0x05, "ACK, credit code 5"),
        (0x60, "NAK, PSN sequence error"),
        (0x62, "NAK, remote access error"),
        (0x7F, "NAK, reserved code 31"),
        (0x20, "RNR NAK, retry after 655.36 ms"),
        (0x21, "RNR NAK, retry after 0.01 ms"),
        (0x39, "RNR NAK, retry after 61.44 ms"),
        (0x3F, "RNR NAK, retry after 491.52 ms"),
        (0x40, "reserved"),
    ],
)
def test_syndrome_in_words(syndrome: int, words: str) -> None:
    assert h.describe_syndrome(syndrome) == words
    aeth = h.Aeth(syndrome, 0)
    kinds = (aeth.is_ack, aeth.is_rnr, aeth.is_nak)
    assert kinds == (words.startswith("ACK"), words.startswith("RNR"), words.startswith("NAK"))


def test_rnr_timers() -> None:
    """Values as in transport.md 1.4 (kernel table, without its slip at 61.44 ms)."""
    wait_ms = [t / 1000 for t in h.RNR_TIMER_US]
    assert wait_ms == [
        *(655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92),
        *(2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76),
        *(327.68, 491.52),
    ]


_CASES: dict[Ext, tuple[Callable[..., bytes], Callable[..., object], bool]] = {
    Ext.RETH: (h.pack_reth, h.unpack_reth, False),
    Ext.ATOMIC_ETH: (h.pack_atomic_eth, h.unpack_atomic_eth, False),
    Ext.AETH: (h.pack_aeth, h.unpack_aeth, False),
    Ext.DETH: (h.pack_deth, h.unpack_deth, False),
    Ext.FETH: (h.pack_feth, h.unpack_feth, False),
    Ext.METH: (m.pack_meth, m.unpack_meth, False),
    Ext.TSETH: (m.pack_tseth, lambda ext: m.unpack_tseth(ext, 0), False),
    Ext.SETH: (m.pack_sack, m.unpack_sack, True),
    Ext.NETH: (m.pack_nack, m.unpack_nack, True),
    Ext.PETH: (m.pack_probe, m.unpack_probe, True),
    Ext.ERTH: (m.pack_endpoint_request, m.unpack_endpoint_request, True),
    Ext.EETH: (m.pack_endpoint_response, m.unpack_endpoint_response, True),
}


@pytest.mark.parametrize("header", _CASES)
def test_fields_mean_the_same_as_in_the_layer(header: Ext) -> None:
    """Random bytes: what `unpack` calls a field is what the layer calls it, and `pack` puts it back (reserved bits zero)."""
    pack, unpack, as_tuple = _CASES[header]
    rng = random.Random(header.value)
    for _ in range(50):
        raw = rng.randbytes(EXT_BYTES[header])
        layer = roce.layer_of(header)(raw)
        seen = unpack(raw)
        clean = roce.layer_of(header)()
        for name, value in seen._asdict().items():  # type: ignore[attr-defined]
            assert int(layer.getfieldval(name)) == int(value), name
            setattr(clean, name, int(value))
        packed = pack(seen) if as_tuple else pack(*seen)  # type: ignore[misc]
        assert packed == bytes(clean)
        assert unpack(packed) == seen


def test_single_word_headers_equal_their_layers() -> None:
    assert bytes(roce.ImmDt(value=0x01020304)) == h.pack_immdt(0x01020304)
    assert bytes(roce.IETH(rkey=0x01020304)) == h.pack_ieth(0x01020304)
    assert bytes(roce.AtomicAckETH(value=1 << 63)) == h.pack_atomic_ack_eth(1 << 63)
    assert h.unpack_immdt(b"\x01\x02\x03\x04") == h.unpack_ieth(b"\x01\x02\x03\x04") == 0x01020304


def test_every_header_has_a_layer_of_its_size() -> None:
    assert {header: len(bytes(roce.layer_of(header)())) for header in Ext} == EXT_BYTES
    assert set(roce.LAYERS) | set(mrc.LAYERS) == set(Ext)
