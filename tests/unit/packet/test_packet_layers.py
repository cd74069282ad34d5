"""What the Scapy layers do beyond scapy.contrib.roce: pad, checked ICRC, every extension header, UDP as RoCE sends it."""

from __future__ import annotations

import pytest
from scapy.layers.dns import DNS
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from traffic.errors import TrafficError
from traffic.packet.icrc import icrc_of, icrc_ok
from traffic.packet.opcodes import Ext, Opcode, extensions
from traffic.packet.roce import AETH, BTH, RETH, AtomicAckETH, CNPReserved, ImmDt, layer_of, roce_frame

L2 = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
L3 = IP(src="10.0.0.1", dst="10.0.0.2", id=1, flags="DF")


@pytest.mark.parametrize("opcode", Opcode, ids=lambda op: op.name)
def test_every_opcode_dissects_into_its_headers(opcode: Opcode) -> None:
    payload = b"payload" if opcode.carries_payload else b""
    seen = Ether(bytes(roce_frame(opcode, payload=payload, timestamp=opcode.is_mrc)))
    layers = seen[BTH].layers()[1:]
    wanted = [layer_of(header) for header in extensions(opcode, timestamp=opcode.is_mrc)]
    assert layers == wanted + ([Raw] if payload else [])
    assert seen[BTH].icrc_ok
    if payload:
        assert seen[Raw].load == payload
        assert (seen[BTH].padcount, seen[BTH].pad) == (1, b"\x00")


def test_udp_is_as_roce_sends_it() -> None:
    """Scapy alone takes source port 53 and a real checksum, and shows the frame as DNS (bugs.md O12)."""
    frame = Ether(bytes(L2 / L3 / UDP() / BTH() / b"data"))
    assert (frame[UDP].sport, frame[UDP].dport, frame[UDP].chksum) == (0xC000, 4791, 0)
    dns_port = Ether(bytes(L2 / L3 / UDP(sport=53) / BTH() / b"data"))
    assert BTH in dns_port
    assert DNS not in dns_port


def test_helper_sets_df_and_the_class_of_traffic() -> None:
    data, ack = roce_frame(Opcode.RC_WRITE_ONLY, payload=b"x" * 9), roce_frame(Opcode.RC_ACKNOWLEDGE)
    assert (data[IP].flags, data[IP].id, data[IP].tos, data[RETH].length) == ("DF", 0, 26 << 2 | 2, 9)
    assert ack[IP].tos == 48 << 2
    assert roce_frame(Opcode.CNP)[BTH].becn == 1


@pytest.mark.parametrize("size", range(9))
def test_pad_to_four_bytes(size: int) -> None:
    frame = bytes(roce_frame(Opcode.RC_SEND_ONLY, payload=b"p" * size))
    assert (len(frame) - 58) % 4 == 0
    assert frame[43] >> 4 & 3 == -size % 4


def test_read_response_and_atomic_ack_carry_aeth() -> None:
    response = Ether(bytes(roce_frame(Opcode.RC_READ_RESPONSE_LAST, payload=b"data")))
    assert response[AETH].payload.load == b"data"
    assert AETH not in Ether(bytes(roce_frame(Opcode.RC_READ_RESPONSE_MIDDLE, payload=b"data")))
    atomic = roce_frame(Opcode.RC_ATOMIC_ACKNOWLEDGE)
    atomic[AtomicAckETH].value = 42
    assert Ether(bytes(atomic))[AtomicAckETH].value == 42
    imm = roce_frame(Opcode.UD_SEND_ONLY_IMM)
    imm[ImmDt].value = 7
    assert Ether(bytes(imm))[ImmDt].value == 7


def test_bad_icrc_is_said() -> None:
    frame = bytearray(bytes(roce_frame(Opcode.RC_SEND_ONLY, payload=b"gradient")))
    assert "(good)" in str(Ether(bytes(frame)).show(dump=True))
    frame[60] ^= 1
    seen = Ether(bytes(frame))
    assert seen[BTH].icrc_ok is False
    assert "(BAD)" in str(seen.show(dump=True))
    assert bytes(seen) == bytes(frame), "a damaged packet is kept as it came"


def test_changing_a_field_shows_in_the_icrc() -> None:
    seen = Ether(bytes(roce_frame(Opcode.RC_SEND_ONLY, payload=b"gradient", psn=1)))
    seen[BTH].psn = 2
    assert seen[BTH].icrc_ok is False
    del seen[BTH].icrc
    assert Ether(bytes(seen))[BTH].icrc_ok


def test_syndrome_is_decoded() -> None:
    nak = roce_frame(Opcode.RC_ACKNOWLEDGE)
    nak[AETH].syndrome = 0x60
    assert "0x60 (NAK, PSN sequence error)" in str(nak.show(dump=True))


def test_cnp_by_its_layers() -> None:
    cnp = Ether(bytes(L2 / L3 / UDP() / BTH(dqpn=5) / CNPReserved()))
    assert (cnp[BTH].opcode, cnp[BTH].becn, cnp[IP].len, cnp[UDP].len) == (0x81, 1, 60, 40)


def test_bth_alone_has_no_icrc() -> None:
    """The ICRC covers IP and UDP, so there is none without them."""
    assert len(bytes(BTH())) == 12
    assert BTH(bytes(BTH(psn=3)) + b"1234")[Raw].load == b"1234"


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (b"", "not an IP packet"),
        (b"\x45" + bytes(40), "IP protocol 0 is not UDP"),
        (b"\x45" + bytes(8) + b"\x11" + bytes(25), "35 bytes end before the BTH does"),
        (bytes(L3 / UDP() / BTH() / b"data")[:-5], "the IP header says 48 bytes, 43 are here"),
        (b"\x45\x00\x00\x1e" + bytes(5) + b"\x11" + bytes(40), "an IP length of 30 leaves no room"),
    ],
)
def test_icrc_of_something_else(packet: bytes, words: str) -> None:
    with pytest.raises(TrafficError) as caught:
        icrc_of(packet)
    assert words in str(caught.value)
    assert not icrc_ok(packet)


def test_no_field_hides_behind_an_attribute_of_scapy() -> None:
    """Scapy's `Packet.original` and the like win over a field of that name."""
    for header in Ext:
        layer = layer_of(header)
        hidden = [
            field.name for field in layer.fields_desc if field.name in Packet.__slots__ or hasattr(Packet, field.name)
        ]
        assert not hidden
