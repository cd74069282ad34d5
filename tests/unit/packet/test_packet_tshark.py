"""Wireshark's dissector as a second opinion on every frame we make."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import pytest
from scapy.utils import PcapWriter

from traffic.packet.opcodes import Opcode
from traffic.packet.roce import roce_frame

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
_FIELDS = ("frame.protocols", "infiniband.bth.opcode", "infiniband.bth.psn", "_ws.malformed", "_ws.expert.message")


def _dissect(frames: list[bytes], folder: Path) -> list[dict[str, str]]:
    path = folder / "frames.pcap"
    with PcapWriter(str(path), linktype=1) as writer:
        for frame in frames:
            writer.write(frame)
    argv = ["tshark", "-n", "-r", str(path), "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=;"]
    for field in _FIELDS:
        argv += ["-e", field]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return [dict(zip(_FIELDS, row, strict=True)) for row in csv.reader(done.stdout.splitlines(), delimiter=";")]


def _payload(opcode: Opcode) -> bytes:
    if opcode is Opcode.RC_ATOMIC_WRITE:
        return bytes(8)
    return b"gradient bytes" if opcode.carries_payload else b""


@pytest.mark.parametrize("src", ["10.0.0.1", "fd00::1"])
def test_every_opcode_is_roce_and_nothing_is_malformed(src: str, tmp_path: Path) -> None:
    opcodes = list(Opcode)
    dst = "fd00::2" if ":" in src else "10.0.0.2"
    frames = [bytes(roce_frame(op, psn=100 + int(op), payload=_payload(op), src_ip=src, dst_ip=dst)) for op in opcodes]
    rows = _dissect(frames, tmp_path)
    assert len(rows) == len(opcodes)
    for op, row in zip(opcodes, rows, strict=True):
        ip = "ipv6" if ":" in src else "ip"
        assert row["frame.protocols"].startswith(f"eth:ethertype:{ip}:udp:infiniband"), (op.name, row)
        assert int(row["infiniband.bth.opcode"], 0) == op, (op.name, row)
        assert int(row["infiniband.bth.psn"]) == 100 + int(op), (op.name, row)
        assert not row["_ws.malformed"], (op.name, row)
        assert "alformed" not in row["_ws.expert.message"], (op.name, row)
        # We send UDP checksum 0 on IPv6 as Soft-RoCE does; Wireshark's remark on it is expected there and only there.
        remarks = [word for word in row["_ws.expert.message"].split(",") if "checksum" in word]
        assert remarks == (["Illegal checksum value (0)"] if ":" in src else []), (op.name, row)


def test_fields_by_wireshark(tmp_path: Path) -> None:
    frame = roce_frame(Opcode.RC_WRITE_ONLY, payload=b"12345", psn=0xABCDEF, dest_qpn=0x118)
    frame["RETH"].va = 0x1122334455667788
    frame["RETH"].rkey = 0x99AABBCC
    path = tmp_path / "one.pcap"
    with PcapWriter(str(path), linktype=1) as writer:
        writer.write(bytes(frame))
    fields = ["bth.destqp", "bth.psn", "bth.padcnt", "reth.va", "reth.r_key", "reth.dmalen", "invariant.crc"]
    argv = ["tshark", "-n", "-r", str(path), "-T", "fields"]
    for field in fields:
        argv += ["-e", f"infiniband.{field}"]
    out = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    icrc = "0x" + bytes(frame)[-4:].hex()
    assert out == ["0x000118", "11259375", "3", "0x1122334455667788", "0x99aabbcc", "5", icrc]
