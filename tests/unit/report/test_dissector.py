"""The Wireshark dissector of MRC, through tshark: fields by name with the values that were packed, and nothing malformed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emulator.collect.pcapng import PcapngWriter
from emulator.report.dissector import dissector_path, lua_tables
from tests.captures import malformed, tshark
from traffic.packet.codec import FlowTemplate
from traffic.packet.dscp import DATA, TRIMMED, TRIMMED_LAST_HOP, tos
from traffic.packet.headers import pack_reth
from traffic.packet.mrc_headers import Nack, NackReason, Sack, pack_meth, pack_nack, pack_sack, pack_tseth
from traffic.packet.opcodes import FLAG_RTX, FLAG_TS, Opcode
from traffic.packet.roce import roce_frame

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def save(path: Path, frames: list[bytes], *, snap: int = 0) -> Path:
    with path.open("wb") as file:
        writer = PcapngWriter(file, application="test")
        writer.interface("leaf0:host0", description="", rate_bps=10**11, snap_bytes=snap)
        for number, frame in enumerate(frames):
            writer.packet(0, number, frame[: snap or None], len(frame))
    return path


def test_its_tables_are_those_of_the_packet_room() -> None:
    assert lua_tables() in dissector_path().read_text(encoding="utf-8")


@needs_tshark
@pytest.mark.parametrize("snap", [0, 256, 64])
def test_no_opcode_is_malformed_whole_or_cut(tmp_path: Path, snap: int) -> None:
    frames = [
        bytes(
            roce_frame(
                op,
                psn=9,
                payload=bytes(8) if op is Opcode.RC_ATOMIC_WRITE else b"g" * 900 if op.carries_payload else b"",
            )
        )
        for op in Opcode
    ]
    path = save(tmp_path / "x.pcapng", frames, snap=snap)
    assert malformed(path) == []
    for op, row in zip(Opcode, tshark(path, ["infiniband.bth.opcode", "mrc.opcode", "_ws.col.Info"]), strict=True):
        assert int(row["infiniband.bth.opcode"], 0) == op  # Wireshark's own RoCE dissector still reads the BTH
        assert bool(row["mrc.opcode"]) == (op >= 0xC0)
        assert op < 0xC0 or row["_ws.col.Info"].startswith(f"{op.name} QP=0x")


@needs_tshark
def test_fields_of_mrc_have_names_and_the_values_that_were_packed(tmp_path: Path) -> None:
    make = FlowTemplate(
        src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02", src_ip="10.0.0.1", dst_ip="10.0.0.2", dest_qpn=0x118, tos=tos(DATA, 2)
    )  # fmt: skip

    def frame(op: Opcode, ext: bytes, payload: bytes = b"", flags8: int = 0) -> bytes:
        header, trailer = make.build(op, 77, ext, payload, sport=0xC001, ack_req=False, flags8=flags8)
        return bytes(header) + payload + bytes(trailer)

    sack = Sack(cack_psn=1000, ack_psn_offset=-2, sack_offset=5, bitmap=0xF000000000000001, entropy=0xC0DE, m=1, mpr=4, timestamp=9,
                ooo_count=3, restore=True, rcv_cwnd_pen=100, rcvd_bytes=0x10000)  # fmt: skip
    data = pack_meth(6, 7) + pack_tseth(0x1234, tsr=True) + pack_reth(0x1122334455667788, 0x99, 4)
    frames = [
        frame(Opcode.MRC_SACK, pack_sack(sack)),
        frame(Opcode.MRC_NACK, pack_nack(Nack(55, NackReason.TRIMMED_LAST_HOP, entropy=0xC002))),
        frame(Opcode.MRC_WRITE_MIDDLE, data, b"abcd", FLAG_TS | FLAG_RTX),
    ]
    path = save(tmp_path / "x.pcapng", frames)
    wanted = {
        0: {
            "mrc.seth.cack_psn": 1000, "mrc.seth.ack_psn_offset": -2, "mrc.seth.sack_offset": 5, "mrc.seth.bitmap": 0xF000000000000001,
            "mrc.seth.entropy": 0xC0DE, "mrc.seth.m": 1, "mrc.seth.mpr": 4, "mrc.seth.ooo_count": 3, "mrc.seth.restore": 1,
            "mrc.seth.rcv_cwnd_pen": 100, "mrc.seth.rcvd_bytes": 0x10000, "mrc.seth.timestamp": 9,
        },
        1: {"mrc.neth.nack_psn": 55, "mrc.neth.reason": 2, "mrc.neth.entropy": 0xC002},
        2: {"mrc.meth.rqmsn": 6, "mrc.meth.msn": 7, "mrc.tseth.timestamp": 0x1234, "mrc.tseth.tsr": 1, "mrc.reth.va": 0x1122334455667788,
            "mrc.reth.rkey": 0x99, "mrc.reth.length": 4, "mrc.psn": 77, "mrc.dqpn": 0x118},
    }  # fmt: skip
    for number, values in wanted.items():
        row = tshark(path, list(values))[number]
        assert {name: int(row[name], 0) for name in values} == values
    (info,) = (row["_ws.col.Info"] for row in tshark(path, ["_ws.col.Info"])[2:])
    assert info == "MRC_WRITE_MIDDLE QP=0x000118 PSN=77 msn=7 4 bytes (retransmission)"
    payload, icrc = tshark(path, ["mrc.payload", "mrc.icrc"])[2].values()
    assert payload == b"abcd".hex() and int(icrc, 0) == int.from_bytes(frames[2][-4:])


@needs_tshark
@pytest.mark.parametrize(("code", "word"), [(TRIMMED, "at a core port"), (TRIMMED_LAST_HOP, "at the last hop")])
@pytest.mark.parametrize("op", [Opcode.MRC_WRITE_MIDDLE, Opcode.RC_WRITE_FIRST])
def test_a_trimmed_packet_is_its_headers_and_says_so(tmp_path: Path, op: Opcode, code: int, word: str) -> None:
    whole = bytearray(bytes(roce_frame(op, psn=300, payload=b"g" * 900))[: 42 + 40])
    whole[15] = tos(code, 2)
    whole[16:18] = (len(whole) - 14).to_bytes(2)
    whole[38:40] = (len(whole) - 34).to_bytes(2)
    path = save(tmp_path / "x.pcapng", [bytes(whole)])
    assert malformed(path) == []
    (row,) = tshark(path, ["mrc.trimmed", "mrc.psn", "mrc.reth.va", "mrc.icrc", "infiniband.invariant.crc"])
    assert row["mrc.trimmed"].endswith(word) and row["mrc.psn"] == "300" and row["mrc.reth.va"]
    assert not row["mrc.icrc"] and not row["infiniband.invariant.crc"]  # what is left of the payload is no ICRC
