"""Captures on the virtual clock: they change nothing, miss nothing, and tshark reads all of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from emulator.collect.capture_text import host_names, lines
from emulator.experiment.manifest import read_manifest, resolved_of
from emulator.experiment.run import run_resolved
from emulator.report.api import Run
from emulator.report.dissector import dissector_path
from tests.captures import malformed, tshark
from tests.experiments import Silent, check_of, incast
from traffic.packet.parse import parse

pytestmark = pytest.mark.virtual

TABLES = ("flows", "queues", "histogram", "rates")
PROBES = 2
"""Idle probes of each sender, one before the traffic and one after: the ports count them, the capture does not hold them."""


def captured(transport: str) -> Run:
    return incast("virtual", transport, pcap=["all"])


def same_tables(a: Run, b: Run) -> bool:
    return all((a.path / f"{t}.parquet").read_bytes() == (b.path / f"{t}.parquet").read_bytes() for t in TABLES)


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_a_capture_changes_nothing(transport: str) -> None:
    assert same_tables(incast("virtual", transport), captured(transport))


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_every_packet_of_every_port_is_there_and_whole(transport: str) -> None:
    run = captured(transport)
    assert run.capture is not None
    found: Counter[str] = Counter()
    for frame, meta in RawPcapReader(str(run.capture)):
        found[meta.ifname.decode()] += 1
        assert len(frame) == meta.wirelen
        packet = parse(frame)
        assert packet is not None and packet.icrc_ok
    ports = json.loads((run.path / "raw" / "ports.json").read_text())
    sent = {name: sum(c["tx_packets"] for c in port["classes"].values()) for name, port in ports.items()}
    assert found["leaf0:host0"] == sent["leaf0:host0"] - 7 * PROBES
    for rank in range(1, 8):
        leaf = "leaf0" if rank < 4 else "leaf1"
        assert found[f"host{rank}:{leaf}"] == sent[f"host{rank}:{leaf}"] - PROBES
        assert found[f"{leaf}:host{rank}"] == sent[f"{leaf}:host{rank}"]
    assert check_of(run, "F7")["status"] == "pass" and "captures" in check_of(run, "F7")["reason"]


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_tshark_reads_all_of_it(transport: str) -> None:
    run = captured(transport)
    assert run.capture is not None
    assert malformed(run.capture) == []
    fields = (
        "udp.dstport",
        "infiniband.bth.opcode",
        "mrc.opcode",
        "frame.interface_name",
        "frame.comment",
        "ip.dsfield.ecn",
    )
    rows = tshark(run.capture, fields)
    assert {row["udp.dstport"] for row in rows} == {"4791"}
    assert all(row["infiniband.bth.opcode"] for row in rows)
    assert {bool(row["mrc.opcode"]) for row in rows} == {transport == "mrc"}
    # Every marked packet is commented, and all that are marked come to the last port: as many as the ports marked.
    assert all(
        (row["frame.comment"] == "congestion experienced (CE)") == (row["ip.dsfield.ecn"] == "3") for row in rows
    )
    marked = sum(row["frame.interface_name"] == "leaf0:host0" and row["ip.dsfield.ecn"] == "3" for row in rows)
    assert marked == run.summary["packets"]["marked"] > 0


def test_a_line_names_packet_number_and_port_and_knows_a_cnp() -> None:
    found = list(lines(captured("roce").path, dissector_path(), port=None, limit=None))
    assert all(re.search(r" PSN=\d+\b.* from port \d+$", line.info) for line in found)
    assert not any("Unknown" in line.info for line in found)
    assert any(line.info.startswith("CNP QP=") for line in found)


def test_times_are_the_fabrics() -> None:
    run = captured("mrc")
    first, *_, last = list(lines(run.path, dissector_path(), port="leaf0:host0", limit=None))
    # a first packet of 4198 bytes on the wire crosses two links (336 ns and 500 ns each) before it leaves the last port
    assert 0.8 <= first.time_us <= 3
    # the last one is in memory after its own transmission (a full packet: 4198 bytes at 100 Gbit/s at most) and 500 ns of cable
    assert last.info.startswith("MRC_WRITE_")
    assert 0.5 <= run.flows["end_ns"].max() / 1000 - last.time_us <= 0.5 + 2 * 0.336
    assert (first.src[:4], first.dst) == ("host", "host0")


def test_without_tshark_the_same_packets_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    run = captured("mrc")
    theirs = list(lines(run.path, dissector_path(), port="host0:leaf0", limit=50))
    monkeypatch.setattr("shutil.which", lambda name: None)
    ours = list(lines(run.path, dissector_path(), port="host0:leaf0", limit=50))
    assert len(theirs) == 50 and set(host_names(run.path).values()) == {f"host{i}" for i in range(8)}
    assert [(x.number, x.time_us, x.port, x.src, x.dst, x.comment) for x in ours] == [
        (x.number, x.time_us, x.port, x.src, x.dst, x.comment) for x in theirs
    ]
    assert [x.info for x in ours] == [x.info for x in theirs]  # SACKs: the two readings agree in every word


def test_rerun_captures_again_the_same_bytes(tmp_path: Path) -> None:
    run = captured("roce")
    manifest = read_manifest(run.path)
    again = run_resolved(resolved_of(manifest, run.path), out=tmp_path, argv=["tests"], watch=Silent(), why="again")

    def packets(path: Path) -> list[tuple[bytes, int, str]]:
        return [(d, (m.tshigh << 32) + m.tslow, m.ifname.decode()) for d, m in RawPcapReader(str(path))]

    assert run.capture is not None
    assert packets(again.run_dir / "capture" / "run.pcapng") == packets(run.capture)
