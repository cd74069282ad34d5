"""Captured and published frames, byte for byte: ICRC, Scapy layers, fast codec.

Not used, because it is wrong: the CNP of the vendor article "RoCEv2 CNP packet format example" (ICRC e4 2d ad 81).
Scapy's own test marks it as not matching, and we get da fc 1b ef for its fields; see the last test.
"""

from __future__ import annotations

from zlib import crc32

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from traffic.packet.codec import compile_template, parse
from traffic.packet.headers import unpack_reth
from traffic.packet.icrc import CRC_RESIDUE, icrc_of, icrc_ok, masked_packet
from traffic.packet.opcodes import Opcode
from traffic.packet.roce import BTH, RETH, CNPReserved

# scapy test/contrib/roce.uts: CNP captured on a ConnectX-4 Lx.
CNP_CX4 = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201"
    "000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a"
)
# scapy test/contrib/roce.uts: UC SEND only, 18 bytes of payload and 2 of pad (the test gives them as 20).
UC_SEND = bytes.fromhex(
    "248a07a8fa22248a07a8fa220800"
    "450100400478400040"
    "11b4d5c0a80007c0a80007"
    "c00012b7002caca2"
    "2460ffff000000d300cf1710"
    "4630818be28935d90e9a95505401be885e500000"
    "78f353f3"
)
# The same test file since pull request 4154 ("RoCE over IPv6").
UC_SEND_V6 = bytes.fromhex(
    "248a07a8fa22248a07a8fa2286dd"
    "6e21face002c11ff"
    "20220000000000000000000000001023"
    "20230000000000000000000000001024"
    "c00012b7002ce7c5"
    "2460ffff000000d300cf1710"
    "4630818be28935d90e9a95505401be885e500000"
    "3e5b743b"
)
# Frames of an independent FPGA implementation's driver (RoomSoC network peripheral tests); its own ICRC code made them.
WRITE_ONLY = bytes.fromhex(
    "123456789abc7cb27d62c1ef08004500004c000100004011f54cc0a80201c0a80202"
    "01f412b70038ffa60a00ffff000000020000000000000000000012300000000000000010"
    "000102030405060708090a0b0c0d0e0fca47470e"
)
READ_REQUEST = bytes.fromhex(
    "123456789abc7cb27d62c1ef08004500003c000100004011f55cc0a80201c0a80202"
    "01f412b7002867630c00ffff00000002000000000000000000001230000000000000001"
    "06e0f71ea"
)

FRAMES = {
    "cnp-connectx4": (CNP_CX4, "82fd002a"),
    "uc-send-only": (UC_SEND, "78f353f3"),
    "uc-send-only-ipv6": (UC_SEND_V6, "3e5b743b"),
    "write-only": (WRITE_ONLY, "ca47470e"),
    "read-request": (READ_REQUEST, "6e0f71ea"),
}


@pytest.mark.parametrize(("frame", "icrc"), FRAMES.values(), ids=FRAMES)
def test_icrc_of_captured_frame(frame: bytes, icrc: str) -> None:
    assert icrc_of(frame[14:]).hex() == icrc == frame[-4:].hex()
    assert icrc_of(frame[14:-4]).hex() == icrc
    assert icrc_of(frame[14:] + bytes(6)).hex() == icrc, "Ethernet padding is not covered"
    assert icrc_ok(frame[14:])


@pytest.mark.parametrize(("frame", "icrc"), FRAMES.values(), ids=FRAMES)
def test_layers_take_it_apart_and_put_it_together(frame: bytes, icrc: str) -> None:
    packet = Ether(frame)
    assert packet[BTH].icrc_ok
    assert bytes(packet) == frame
    del packet[BTH].icrc
    assert bytes(packet) == frame


@pytest.mark.parametrize(("frame", "icrc"), FRAMES.values(), ids=FRAMES)
def test_codec_reads_it_and_builds_the_same(frame: bytes, icrc: str) -> None:
    seen = parse(frame)
    assert seen is not None
    assert seen.icrc_ok
    header, trailer = compile_template(Ether(frame)).build(
        seen.opcode, seen.psn, bytes(seen.ext), seen.payload, sport=seen.sport, becn=seen.becn, ack_req=seen.ack_req
    )
    rebuilt = bytearray(header + bytes(seen.payload) + trailer)
    udp_checksum = slice(60, 62) if frame[12] == 0x86 else slice(40, 42)
    rebuilt[udp_checksum] = frame[udp_checksum]  # some senders fill it in, we send 0; the ICRC does not see it
    assert bytes(rebuilt) == frame


def test_fields_of_the_cnp() -> None:
    seen = parse(CNP_CX4)
    assert seen is not None
    assert (seen.opcode, seen.becn, seen.ack_req, seen.psn, seen.pkey) == (Opcode.CNP, True, False, 0, 0xFFFF)
    assert (seen.dscp, seen.ecn, seen.ttl, seen.sport, seen.dest_qpn) == (48, 0b10, 64, 0, 0x118)
    assert (seen.src_ip, seen.dst_ip) == (0x0A001101, 0x0A001201)
    assert bytes(seen.ext) == bytes(16)
    assert len(seen.payload) == 0


def test_fields_of_the_uc_send() -> None:
    for frame in (UC_SEND, UC_SEND_V6):
        seen = parse(frame)
        assert seen is not None
        assert (seen.opcode, seen.psn, seen.dest_qpn, seen.pad) == (Opcode.UC_SEND_ONLY, 13571856, 211, 2)
        assert bytes(seen.payload) == b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P"


def test_fields_of_the_write() -> None:
    seen = parse(WRITE_ONLY)
    assert seen is not None
    assert unpack_reth(seen.ext) == (0x1230, 0, 16)
    assert bytes(seen.payload) == bytes(range(16))
    assert Ether(WRITE_ONLY)[RETH].va == 0x1230


def test_uc_send_from_its_fields() -> None:
    payload = UC_SEND[54:72]
    packet = (
        Ether(dst="24:8a:07:a8:fa:22", src="24:8a:07:a8:fa:22")
        / IP(tos=1, id=1144, flags="DF", ttl=64, src="192.168.0.7", dst="192.168.0.7")
        / UDP(sport=49152, chksum=0xACA2)
        / BTH(opcode="UC_SEND_ONLY", migreq=1, dqpn=211, psn=13571856)
        / Raw(payload)
    )
    assert bytes(packet) == UC_SEND


def test_uc_send_over_ipv6_from_its_fields() -> None:
    packet = (
        Ether(dst="24:8a:07:a8:fa:22", src="24:8a:07:a8:fa:22")
        / IPv6(src="2022::1023", dst="2023::1024", hlim=255, fl=0x1FACE, tc=226)
        / UDP(sport=49152, chksum=0xE7C5)
        / BTH(opcode="UC_SEND_ONLY", migreq=1, dqpn=211, psn=13571856)
        / Raw(UC_SEND_V6[74:92])
    )
    assert bytes(packet) == UC_SEND_V6


@pytest.mark.parametrize(("frame", "icrc"), FRAMES.values(), ids=FRAMES)
def test_residue_of_packet_and_its_icrc(frame: bytes, icrc: str) -> None:
    """CRC-32 over the masked packet and its own CRC is always 0x2144DF1C."""
    ones = b"\xff" * 8
    assert crc32(ones + masked_packet(frame[14:]) + frame[-4:]) == 0x2144DF1C == CRC_RESIDUE
    assert crc32(ones) ^ 0xFFFFFFFF == 0xDEBB20E3, "the seed of Linux rxe_icrc.c"


def test_vendor_article_cnp_is_wrong() -> None:
    packet = (
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / IP(src="22.22.22.8", dst="22.22.22.7", id=0x98C6, flags="DF", ttl=0x20, tos=0x89)
        / UDP(sport=56238)
        / BTH(dqpn=0xD2)
        / CNPReserved()
    )
    frame = bytes(packet)
    assert frame[-4:].hex() == "dafc1bef"
    assert not icrc_ok(frame[14:-4] + bytes.fromhex("e42dad81"))
