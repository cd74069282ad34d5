"""Capture files: bytes as the format's draft has them, and read back by Scapy and by tshark."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from scapy.utils import RawPcapNgReader, RawPcapReader

from emulator.collect.pcapng import PcapngWriter
from tests.captures import tshark
from traffic.packet.opcodes import Opcode
from traffic.packet.roce import roce_frame

FRAME = bytes(roce_frame(Opcode.RC_WRITE_MIDDLE, payload=b"x" * 21, psn=7))


def test_an_interface_block_is_as_the_draft_draws_it() -> None:
    out = io.BytesIO()
    writer = PcapngWriter(out, application="a")
    before = out.tell()
    assert writer.interface("leaf0:host0", description="d", rate_bps=100, snap_bytes=256) == 0
    block = out.getvalue()[before:]
    # draft-ietf-opsawg-pcapng 4.2: type 1, length, link type 1, snap length; options name 2, description 3, speed 8, tsresol 9
    body = struct.pack("<HHI", 1, 0, 256)
    body += struct.pack("<HH", 2, 11) + b"leaf0:host0\0" + struct.pack("<HH", 3, 1) + b"d\0\0\0"
    body += struct.pack("<HHQ", 8, 8, 100) + struct.pack("<HHBxxx", 9, 1, 9) + bytes(4)
    length = struct.pack("<I", len(body) + 12)
    assert block == struct.pack("<I", 1) + length + body + length


def written(folder: Path) -> Path:
    path = folder / "x.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file, application="fabriclab", comment="a run")
        for name in ("leaf0:host0", "leaf0:spine1"):
            writer.interface(name, description=f"egress of {name}", rate_bps=10**11, snap_bytes=0)
        writer.names({"host0": "10.0.0.1"})
        writer.packet(1, 5_000_000_123, FRAME[:60], len(FRAME))
        writer.packet(0, 5_000_000_124, FRAME, len(FRAME), "congestion experienced (CE)")
        writer.statistics(0, 5_000_000_124, received=4, dropped=3)
    return path


def test_scapy_reads_names_nanoseconds_and_comments(tmp_path: Path) -> None:
    reader = RawPcapReader(str(written(tmp_path)))
    assert isinstance(reader, RawPcapNgReader)
    (first, a), (second, b) = list(reader)
    assert (first, second) == (FRAME[:60], FRAME)
    assert (a.ifname, b.ifname) == (b"leaf0:spine1", b"leaf0:host0")
    assert ((a.tshigh << 32) + a.tslow, a.tsresol, a.wirelen) == (5_000_000_123, 10**9, len(FRAME))
    assert (a.comments, b.comments) == (None, [b"congestion experienced (CE)"])


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    fields = (
        "frame.time_epoch",
        "frame.interface_name",
        "frame.len",
        "frame.cap_len",
        "frame.comment",
        "frame.packet_flags_direction",
    )
    first, second = tshark(path, fields)
    assert [first[f] for f in fields[:5]] == ["5.000000123", "leaf0:spine1", str(len(FRAME)), "60", ""]
    assert [second[f] for f in fields[:3]] == ["5.000000124", "leaf0:host0", str(len(FRAME))]
    assert second["frame.comment"] == "congestion experienced (CE)"
    assert int(second["frame.packet_flags_direction"], 0) == 2  # outbound
    named = subprocess.run(
        ["tshark", "-N", "n", "-r", str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "host0" in named.stdout  # the file itself says who has 10.0.0.1
