"""The fast codec against the Scapy layers, and its own promises: inverse, every byte checked, never raises."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from traffic.errors import TrafficError
from traffic.packet import dscp
from traffic.packet.codec import FlowTemplate, Parser, compile_template, frame_bytes, header_bytes, parse, wire_bytes
from traffic.packet.headers import pack_reth
from traffic.packet.icrc import icrc_ok, masked_fields
from traffic.packet.opcodes import EXTENSIONS, FLAG_TS, Opcode, ext_bytes, extensions
from traffic.packet.roce import BTH, layer_of, roce_frame

ENDS: dict[str, Any] = {
    "src_mac": "02:00:00:00:00:01",
    "dst_mac": "02:00:00:00:00:02",
    "src_ip": "10.0.0.1",
    "dst_ip": "10.0.0.2",
}
ENDS_V6 = ENDS | {"src_ip": "fd00::1", "dst_ip": "fd00::2"}

fields = st.fixed_dictionaries(
    {
        "psn": st.integers(0, 0xFFFFFF),
        "size": st.integers(0, 4096),
        "sport": st.integers(0xC000, 0xFFFF),
        "qpn": st.integers(0, 0xFFFFFF),
        "tos": st.integers(0, 255).filter(lambda tos: tos >> 2 not in (dscp.TRIMMED, dscp.TRIMMED_LAST_HOP)),
        "ttl": st.integers(1, 255),
        "ip_id": st.integers(0, 0xFFFF),
        "pkey": st.integers(0, 0xFFFF),
        "ack_req": st.booleans(),
        "becn": st.booleans(),
        "solicited": st.booleans(),
        "migreq": st.booleans(),
        "flags8": st.integers(0, 127),
        "v6": st.booleans(),
        "seed": st.integers(0, 2**32),
    }
)


def _scapy_frame(opcode: int, f: dict[str, Any], ext: bytes, payload: bytes) -> ScapyPacket:
    if f["v6"]:
        ip: ScapyPacket = IPv6(src="fd00::1", dst="fd00::2", tc=f["tos"], hlim=f["ttl"], fl=f["ip_id"])
    else:
        ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=f["tos"], ttl=f["ttl"], id=f["ip_id"], flags="DF")
    bth = BTH(
        opcode=opcode,
        solicited=f["solicited"],
        migreq=f["migreq"],
        pkey=f["pkey"],
        becn=f["becn"],
        dqpn=f["qpn"],
        ackreq=f["ack_req"],
        flags8=f["flags8"],
        psn=f["psn"],
    )
    frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / UDP(sport=f["sport"]) / bth
    at = 0
    for header in extensions(opcode, timestamp=bool(f["flags8"] & FLAG_TS)):
        layer = layer_of(header)
        size = len(bytes(layer()))
        frame /= layer(ext[at : at + size])
        at += size
    assert at == len(ext)
    return frame / Raw(payload)


@pytest.mark.parametrize("opcode", Opcode, ids=lambda op: op.name)
@settings(max_examples=20, deadline=None)
@given(f=fields)
def test_codec_equals_layers(opcode: Opcode, f: dict[str, Any]) -> None:
    rng = random.Random(f["seed"])
    payload = rng.randbytes(f["size"])
    ext = rng.randbytes(ext_bytes(opcode, timestamp=bool(f["flags8"] & FLAG_TS)))
    scapy = _scapy_frame(opcode, f, ext, payload)
    expected = bytes(scapy)

    direct = FlowTemplate(
        **(ENDS_V6 if f["v6"] else ENDS),
        dest_qpn=f["qpn"],
        tos=f["tos"],
        ttl=f["ttl"],
        pkey=f["pkey"],
        ip_id=0 if f["v6"] else f["ip_id"],
        flow_label=f["ip_id"] if f["v6"] else 0,
        migreq=f["migreq"],
    )
    for template in (direct, compile_template(scapy)):
        header, trailer = template.build(
            opcode,
            f["psn"],
            ext,
            memoryview(payload),
            sport=f["sport"],
            ack_req=f["ack_req"],
            becn=f["becn"],
            flags8=f["flags8"],
            solicited=f["solicited"],
        )
        assert header + payload + trailer == expected

    seen = parse(expected)
    assert seen is not None
    assert seen.icrc_ok
    assert not seen.trimmed
    assert (seen.opcode, seen.psn, seen.sport, seen.dest_qpn) == (opcode, f["psn"], f["sport"], f["qpn"])
    assert (seen.dscp << 2 | seen.ecn, seen.ttl, seen.pkey, seen.pad) == (f["tos"], f["ttl"], f["pkey"], -f["size"] & 3)
    assert (seen.ack_req, seen.becn, seen.se, seen.flags8) == (f["ack_req"], f["becn"], f["solicited"], f["flags8"])
    assert (bytes(seen.ext), bytes(seen.payload)) == (ext, payload)
    if not f["v6"]:
        assert (seen.src_ip, seen.dst_ip) == (0x0A000001, 0x0A000002)

    again = Ether(expected)
    assert again[BTH].icrc_ok
    assert bytes(again) == expected


@pytest.mark.parametrize("ends", [ENDS, ENDS_V6], ids=["ipv4", "ipv6"])
def test_every_covered_bit_is_checked(ends: dict[str, Any]) -> None:
    template = FlowTemplate(**ends, dest_qpn=0x123456, tos=dscp.tos(dscp.DATA, dscp.ECT0))
    payload = b"gradient!"
    header, trailer = template.build(
        Opcode.RC_WRITE_ONLY, 0xABCDEF, pack_reth(1 << 40, 7, 9), payload, sport=0xC123, ack_req=True
    )
    frame = header + payload + trailer
    masked = bytearray(len(frame))
    for field in masked_fields(frame[14:]):
        masked[14 + field.start : 14 + field.end] = field.mask
    free = 0
    for at in range(14, len(frame)):
        for bit in range(8):
            damaged = bytearray(frame)
            damaged[at] ^= 1 << bit
            seen = parse(damaged)
            if masked[at] >> bit & 1:
                free += 1
                assert seen is not None, (at, bit)
                assert seen.icrc_ok, (at, bit)
                assert icrc_ok(bytes(damaged[14:]))
            else:
                assert seen is None or not seen.icrc_ok, (at, bit)
                assert not icrc_ok(bytes(damaged[14:])), (at, bit)
    # IPv4: TOS, TTL, header checksum; IPv6: class, label, hop limit; both: UDP checksum and BTH byte 4.
    assert free == (8 + 8 + 16 if ends is ENDS else 8 + 20 + 8) + 16 + 8


def test_ce_mark_and_hop_keep_the_icrc() -> None:
    frame = bytearray(bytes(roce_frame(Opcode.RC_SEND_ONLY, payload=b"x" * 1024)))
    frame[15] |= dscp.CE
    frame[22] -= 3
    seen = parse(frame)
    assert seen is not None
    assert (seen.icrc_ok, seen.ecn, seen.ttl) == (True, 0b11, 61)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200))
def test_parse_never_raises_on_noise(frame: bytes) -> None:
    assert parse(frame) is None or isinstance(parse(frame), tuple)


@settings(max_examples=400, deadline=None)
@given(
    opcode=st.sampled_from(list(Opcode)),
    v6=st.booleans(),
    cut=st.integers(0, 150),
    damage=st.lists(st.tuples(st.integers(0, 149), st.integers(0, 255)), max_size=6),
)
def test_parse_never_raises_on_damage(opcode: Opcode, v6: bool, cut: int, damage: list[tuple[int, int]]) -> None:
    ends: dict[str, Any] = {"src_ip": "fd00::1", "dst_ip": "fd00::2"} if v6 else {}
    frame = bytearray(bytes(roce_frame(opcode, payload=b"payload" if opcode.carries_payload else b"", **ends)))
    for at, value in damage:
        frame[at % len(frame)] = value
    seen = parse(frame[:cut])
    if seen is not None and seen.opcode in EXTENSIONS:
        assert len(seen.ext) == ext_bytes(seen.opcode, timestamp=bool(seen.flags8 & FLAG_TS))


def test_unknown_opcode_is_seen_not_swallowed() -> None:
    frame = Ether(bytes(roce_frame(Opcode.RC_SEND_ONLY, payload=b"12345678")))
    frame[BTH].opcode = 0x15  # reserved
    del frame[BTH].icrc
    seen = parse(bytes(frame))
    assert seen is not None
    assert (seen.opcode, seen.icrc_ok, bytes(seen.ext), bytes(seen.payload)) == (0x15, True, b"", b"12345678")


@pytest.mark.parametrize(
    ("at", "value"),
    [(12, 0x08DD), (14, 0x46), (20, 0x2000), (20, 0x0001), (23, 6), (36, 4790), (38, 9), (16, 2000)],
    ids=["ethertype", "ip-options", "more-fragments", "fragment", "tcp", "port", "udp-length", "ip-length"],
)
def test_not_roce_gives_none(at: int, value: int) -> None:
    frame = bytearray(bytes(roce_frame(Opcode.RC_SEND_ONLY, payload=b"x" * 64)))
    width = 1 if at in (14, 23) else 2
    frame[at : at + width] = value.to_bytes(width)
    assert parse(frame) is None


def test_ethernet_padding_is_ignored() -> None:
    frame = bytes(roce_frame(Opcode.RC_SEND_ONLY, payload=b""))
    assert len(frame) == 58
    seen = parse(frame + bytes(2))
    assert seen is not None
    assert seen.icrc_ok
    assert len(seen.payload) == 0


@pytest.mark.parametrize("code_point", [dscp.TRIMMED, dscp.TRIMMED_LAST_HOP])
def test_trimmed_packet_keeps_its_headers(code_point: int) -> None:
    opcode = Opcode.MRC_WRITE_MIDDLE
    template = FlowTemplate(**ENDS, dest_qpn=9, tos=dscp.tos(dscp.DATA, dscp.ECT0))
    ext = b"\x00\x01\x00\x02" + pack_reth(4096, 5, 1 << 20)
    header, _ = template.build(opcode, 77, ext, bytes(4096), sport=0xC005)
    cut = bytearray(header)  # what a switch leaves: header only, lengths and DSCP rewritten
    cut[15] = dscp.tos(code_point, dscp.ECT0)
    cut[16:18] = (len(header) - 14).to_bytes(2)
    cut[38:40] = (len(header) - 34).to_bytes(2)
    seen = parse(cut)
    assert seen is not None
    assert (seen.trimmed, seen.icrc_ok, seen.dscp, seen.psn, seen.sport) == (True, False, code_point, 77, 0xC005)
    assert (bytes(seen.ext), len(seen.payload)) == (ext, 0)
    assert parse(cut[:-1]) is None
    layers = Ether(bytes(cut))
    assert layers[BTH].trimmed
    assert layers[BTH].icrc_ok is None
    assert bytes(layers) == bytes(cut)


def test_tos_of_one_packet() -> None:
    template = FlowTemplate(**ENDS, dest_qpn=1, tos=4)
    for tos in (None, 0xC0, 4, 0xC0):
        header, trailer = template.build(Opcode.RC_ACKNOWLEDGE, 1, bytes(4), b"", sport=0xC000, tos=tos)
        seen = parse(header + trailer)
        assert seen is not None
        assert seen.icrc_ok
        assert seen.dscp << 2 | seen.ecn == (4 if tos is None else tos)
        assert IP(header[14:34]).chksum == IP(bytes(IP(src="10.0.0.1", dst="10.0.0.2", tos=header[15], id=0,
                                                       flags="DF", proto=17, len=48))).chksum  # fmt: skip


def test_flow_label_of_one_packet() -> None:
    template = FlowTemplate(**ENDS_V6, dest_qpn=1, tos=0xFF, flow_label=0xFFFFF)
    header, trailer = template.build(Opcode.RC_SEND_ONLY, 1, b"", b"", sport=0xC000, flow_label=0x12345)
    assert header[14:18].hex() == "6ff12345"
    seen = parse(header + trailer)
    assert seen is not None
    assert seen.icrc_ok


def test_psn_wraps_at_2_to_24() -> None:
    template = FlowTemplate(**ENDS, dest_qpn=1)
    wrapped = template.build(Opcode.RC_SEND_ONLY, 1 << 24, b"", b"", sport=0xC000)
    assert wrapped == template.build(Opcode.RC_SEND_ONLY, 0, b"", b"", sport=0xC000)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FlowTemplate(**ENDS | {"src_ip": "fd00::1"}, dest_qpn=1), "two IP versions"),
        (lambda: FlowTemplate(**ENDS, dest_qpn=1 << 24), "dest_qpn 16777216 is out of range; it has 24 bits"),
        (lambda: FlowTemplate(**ENDS | {"src_mac": b"12345"}, dest_qpn=1), "is not a MAC address"),
        (lambda: FlowTemplate(**ENDS, dest_qpn=1).build(0x0A, 0, b"", b"", sport=1), "it carries RETH: 16 bytes"),
        (lambda: FlowTemplate(**ENDS, dest_qpn=1).build(0x15, 0, b"", b"", sport=1), "unknown opcode 0x15"),
        (lambda: FlowTemplate(**ENDS, dest_qpn=1).build(4, 0, b"", bytes(65500), sport=1), "do not fit an IP packet"),
        (lambda: FlowTemplate(**ENDS, dest_qpn=1).build(4, 0, b"", b"", sport=1, tos=256), "tos 256 is out of range"),
        (lambda: compile_template(b"short"), "not a RoCE v2 frame"),
    ],
)
def test_errors_say_what_and_what_to_do(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TrafficError) as caught:
        make()
    assert words in str(caught.value)
    assert caught.value.remedy


def test_sizes() -> None:
    # transport.md 1.1: 58 bytes without RETH and FCS on IPv4, 78 on IPv6; RETH adds 16.
    assert frame_bytes(Opcode.RC_WRITE_MIDDLE, 0) == 58
    assert frame_bytes(Opcode.RC_WRITE_MIDDLE, 0, ip_version=6) == 78
    assert frame_bytes(Opcode.RC_WRITE_FIRST, 4096) == 58 + 16 + 4096
    assert header_bytes(Opcode.MRC_WRITE_MIDDLE, timestamp=True) == 14 + 20 + 8 + 12 + 4 + 4 + 16
    assert wire_bytes(Opcode.RC_WRITE_MIDDLE, 5) == 58 + 5 + 3 + 24
    for op in Opcode:
        payload = b"12345" if op.carries_payload else b""
        assert len(bytes(roce_frame(op, payload=payload))) == frame_bytes(op, len(payload))


def test_fast_path_does_without_scapy() -> None:
    script = (
        "import sys, traffic.packet.codec, traffic.packet.opcodes, traffic.packet.icrc, traffic.packet.mrc_headers\n"
        "sys.exit('scapy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_a_parser_that_knows_the_ip_header_still_checks_every_byte() -> None:
    """The second frame of a flow takes the short way; each flipped bit must show there as it does on the long one."""
    template = FlowTemplate(
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="10.0.0.1",
        dst_ip="10.0.0.2",
        dest_qpn=5,
        tos=106,
    )
    frame = bytearray(128)
    size = template.write(memoryview(frame), Opcode.RC_WRITE_MIDDLE, 7, b"", bytes(range(40)), 0xC001, False, 106)
    parser = Parser()
    first = parser.parse(frame[:size])
    assert first is not None and first.icrc_ok
    for at in range(34, size):
        for bit in range(8):
            damaged = bytearray(frame[:size])
            damaged[at] ^= 1 << bit
            short, long = parser.parse(damaged), parse(damaged)
            assert (short is None) == (long is None), (at, bit)
            if short is not None and long is not None:
                assert (short.icrc_ok, short.psn, short.opcode) == (long.icrc_ok, long.psn, long.opcode), (at, bit)
                assert short.icrc_ok == icrc_ok(bytes(damaged[14:])), (at, bit)
