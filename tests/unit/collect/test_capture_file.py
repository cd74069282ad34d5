"""From spool to capture file: order of time over ports, the fabric's clock, what is not of the run left out, comments."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from emulator.collect.capture import CHUNK, INDEX, SPOOL
from emulator.collect.capture_file import comment_of, write_capture
from emulator.collect.capture_text import describe, lines
from emulator.errors import UsageError
from traffic.packet.dscp import DATA, TRIMMED, TRIMMED_LAST_HOP, tos
from traffic.packet.opcodes import Opcode
from traffic.packet.roce import roce_frame

ZERO = 1_700_000_000_000_000_000
TDF = 10


def slot(at_ns: int, data: bytes, wire_bytes: int) -> bytes:
    """A slot as the kernel fills it: tpacket2_hdr (linux/if_packet.h), sockaddr_ll, the packet at `tp_mac`."""
    mac = 66
    seconds, nanoseconds = divmod(ZERO + at_ns, 10**9)
    head = struct.pack("=IIIHHIIHH4x", 1, wire_bytes, len(data), mac, mac + 14, seconds, nanoseconds, 0, 0)
    return (head.ljust(mac, b"\0") + data).ljust(200, b"\0")


def run_dir(folder: Path) -> Path:
    """Two ports, their chunks interleaved, the second port's first packet the earliest of all."""
    raw = folder / "raw"
    raw.mkdir()
    chunks = [
        (0, [slot(-10, b"a" * 60, 60), slot(200, b"b" * 60, 60), slot(400, b"c" * 64, 4000)]),
        (1, [slot(100, b"d" * 61, 61), slot(300, b"e" * 62, 62)]),
        (0, [slot(500, b"f" * 63, 63), slot(20_011, b"g" * 60, 60)]),
    ]
    spool = b"".join(CHUNK.pack(port, len(rows), 200) + b"".join(rows) for port, rows in chunks)
    (raw / SPOOL).write_bytes(spool)
    ports = [{"name": "leaf0:host0", "offered": 7, "lost": 2}, {"name": "host0:leaf0", "offered": 2, "lost": 0}]
    index = {"zero_ns": ZERO, "tdf": TDF, "until_ns": 2000, "snap_bytes": 64, "ports": ports}
    (raw / INDEX).write_text(json.dumps(index))
    return folder


PLAN = {
    "seed": 3,
    "nodes": [{"name": "host0", "kind": "host"}, {"name": "leaf0", "kind": "leaf"}],
    "ports": [
        {"name": "leaf0:host0", "node": "leaf0", "peer": "host0", "ip": "10.0.0.0", "fabric_rate_bps": 10**11},
        {"name": "host0:leaf0", "node": "host0", "peer": "leaf0", "ip": "10.0.0.1", "fabric_rate_bps": 10**11},
    ],
}


def test_packets_come_in_order_on_the_fabrics_clock(tmp_path: Path) -> None:
    made = write_capture(run_dir(tmp_path), PLAN, application="fabriclab")
    assert made is not None and (made.packets, made.lost) == (5, 2)
    found = [(m.ifname.decode(), m.tslow, d[:1], m.wirelen) for d, m in RawPcapReader(str(made.path))]
    # slowed ten times: 100 ns of the machine are 10 ns of the fabric; before 0 and after `until_ns` nothing belongs to the run
    assert found == [
        ("host0:leaf0", 10, b"d", 61),
        ("leaf0:host0", 20, b"b", 60),
        ("host0:leaf0", 30, b"e", 62),
        ("leaf0:host0", 40, b"c", 4000),
        ("leaf0:host0", 50, b"f", 63),
    ]


def test_the_spool_goes_once_the_file_is_there(tmp_path: Path) -> None:
    folder = run_dir(tmp_path)
    write_capture(folder, PLAN, application="fabriclab")
    assert not (folder / "raw" / SPOOL).exists()
    assert write_capture(folder, PLAN, application="fabriclab") is None
    assert (folder / "capture" / "run.pcapng").exists()


def test_a_run_without_a_capture_has_none(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    assert write_capture(tmp_path, PLAN, application="fabriclab") is None
    assert not (tmp_path / "capture").exists()


def test_comments_tell_marks_and_trims_and_nothing_else() -> None:
    frame = bytearray(bytes(roce_frame(Opcode.RC_WRITE_MIDDLE, payload=b"x" * 100)))

    def said(code: int, ecn: int) -> str:
        frame[15] = tos(code, ecn)
        return comment_of(bytes(frame))

    assert said(DATA, 2) == ""
    assert said(DATA, 3) == "congestion experienced (CE)"
    assert said(TRIMMED, 2) == "trimmed to its headers at a core port"
    assert said(TRIMMED_LAST_HOP, 3) == "trimmed to its headers at the last hop; congestion experienced (CE)"
    assert comment_of(b"\xff" * 12 + b"\x08\x06" + bytes(28)) == ""  # ARP


def test_our_own_reading_of_a_cut_frame() -> None:
    frame = bytes(roce_frame(Opcode.MRC_WRITE_MIDDLE, psn=5, dest_qpn=0x101, payload=b"x" * 1000))
    told = "MRC_WRITE_MIDDLE QP=0x000101 PSN=5 msn=0 from port 49152"
    assert describe(frame[:64], len(frame)) == ("10.0.0.1", "10.0.0.2", told)
    assert describe(frame[:54], len(frame))[2].endswith("(cut short) from port 49152")
    assert describe(b"\xff" * 12 + b"\x08\x06" + bytes(46), 60) == ("", "", "60 bytes of Ethernet type 0x0806")


def test_a_port_that_was_not_captured_is_refused(tmp_path: Path) -> None:
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "run.pcapng").touch()
    (tmp_path / "manifest.json").write_text(json.dumps({"resolved": {"pcap": ["leaf0:host0", "leaf0:host1"]}}))
    with pytest.raises(UsageError) as caught:
        lines(tmp_path, tmp_path, port="leaf0:hots0", limit=None)
    assert (caught.value.where, caught.value.remedy) == ("--port", 'did you mean "leaf0:host0"?')
