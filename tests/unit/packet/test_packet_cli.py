"""`fabriclab packet`: craft and decode are inverse, show covers every opcode, mistakes are named with a remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import rdpcap

from emulator.cli.main import main
from emulator.cli.packet import packet
from emulator.errors import UsageError
from traffic.errors import TrafficError
from traffic.packet.codec import parse
from traffic.packet.explain import explain
from traffic.packet.headers import unpack_reth
from traffic.packet.layout import BTH as BTH_LAYOUT
from traffic.packet.layout import EXTENSION, picture
from traffic.packet.opcodes import EXT_BYTES, Ext, Opcode
from traffic.packet.roce import BTH, layer_of, roce_frame


def run(*argv: str, stdin: str = "") -> Result:
    return CliRunner().invoke(packet, list(argv), input=stdin)


def craft(*argv: str) -> bytes:
    result = run("craft", *argv)
    assert result.exit_code == 0, result.output
    return bytes.fromhex(result.stdout.strip())


def test_craft_example() -> None:
    seen = parse(craft("write-only", "--psn", "5", "--payload", "hello", "--src", "10.0.0.1", "--dst", "10.0.0.2"))
    assert seen is not None
    assert (seen.icrc_ok, seen.opcode, seen.psn, bytes(seen.payload)) == (True, Opcode.RC_WRITE_ONLY, 5, b"hello")
    assert unpack_reth(seen.ext) == (0, 0, 5)


def test_craft_flags_reach_their_fields() -> None:
    frame = craft(
        *("mrc-write-middle", "--timestamp", "--payload-hex", "de ad:be ef", "--qpn", "0x123456"),
        *(
            "--sport",
            "0xC351",
            "--dscp",
            "10",
            "--ecn",
            "1",
            "--ttl",
            "9",
            "--ack-req",
            "--src",
            "fd00::1",
            "--dst",
            "fd00::2",
        ),
        *("--set", "RETH.va=0x1000", "--set", "TSETH.timestamp=77", "--set", "METH.msn=3"),
    )
    seen = parse(frame)
    assert seen is not None
    assert (seen.icrc_ok, seen.dest_qpn, seen.sport, seen.dscp, seen.ecn, seen.ttl) == (True, 0x123456, 50001, 10, 1, 9)
    assert (seen.ack_req, seen.flags8, bytes(seen.payload)) == (True, 0x10, bytes.fromhex("deadbeef"))
    assert bytes(seen.ext).hex() == "00000003004d000100000000000010000000000000000004"


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
def test_capture_file_round_trip(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"frame.{suffix}"
    assert run("craft", "ack", "--set", "AETH.syndrome=0x60", "-o", str(path)).exit_code == 0
    assert bytes(rdpcap(str(path))[0]) == craft("ack", "--set", "AETH.syndrome=0x60")
    shown = run("decode", str(path))
    assert shown.exit_code == 0
    assert "NAK, PSN sequence error" in shown.stdout
    assert "ICRC: good" in shown.stdout


def test_decode_json() -> None:
    frame = craft("write-only", "--payload", "hello")
    data = json.loads(run("decode", frame.hex(), "--json").stdout)
    assert data["opcode"] == {"value": 10, "name": "RC_WRITE_ONLY"}
    assert data["icrc"] == {"stored": frame[-4:].hex(), "computed": frame[-4:].hex(), "good": True}
    assert [s["name"] for s in data["sections"]] == ["Ethernet", "IPv4", "UDP", "BTH", "RETH", "payload", "pad", "ICRC"]
    # transport.md 1.6: TOS, TTL, header checksum, UDP checksum, BTH byte 4, counted from Ethernet.
    assert [(m["start"], m["end"]) for m in data["masked"]] == [(15, 16), (22, 23), (24, 26), (40, 42), (46, 47)]
    masked = {f["name"] for s in data["sections"] for f in s["fields"] if f["icrc"] == "masked"}
    assert masked == {"dscp", "ecn", "ttl", "chksum", "fecn", "becn", "resv6"}
    payload = next(s for s in data["sections"] if s["name"] == "payload")
    assert payload["hex"] == b"hello".hex()


def test_decode_says_bad_and_exits_1() -> None:
    frame = bytearray(craft("write-only", "--payload", "hello"))
    frame[70] ^= 1
    result = run("decode", frame.hex())
    assert result.exit_code == 1
    assert "ICRC: BAD" in result.stdout
    assert json.loads(run("decode", frame.hex(), "--json").stdout)["icrc"]["good"] is False


def test_decode_trimmed() -> None:
    frame = craft("mrc-write-middle", "--dscp", "46")
    data = json.loads(run("decode", frame.hex(), "--json").stdout)
    assert (data["trimmed"], data["icrc"]["good"], len(frame)) == (True, None, 74)
    assert "trimmed this packet" in run("decode", frame.hex()).stdout


def test_decode_takes_dumps() -> None:
    frame = craft("cnp")
    lines = [frame[i : i + 16] for i in range(0, len(frame), 16)]
    xxd = "\n".join(f"{16 * n:08x}: {row.hex(' ', 2)}  ~text~" for n, row in enumerate(lines))
    tcpdump = "\n".join(f"\t0x{16 * n:04x}:  {row.hex(' ', 2)}" for n, row in enumerate(lines))
    expected = json.loads(run("decode", frame.hex(), "--json").stdout)
    for text in (xxd, tcpdump, frame.hex(":"), "0x" + frame.hex().upper()):
        assert json.loads(run("decode", "-", "--json", stdin=text).stdout) == expected
    without_ethernet = json.loads(run("decode", frame[14:].hex(), "--json").stdout)
    assert without_ethernet["icrc"] == expected["icrc"]


@pytest.mark.parametrize("version", ["4", "6"])
@pytest.mark.parametrize("opcode", [op.name.lower().replace("_", "-") for op in Opcode])
def test_show_agrees_with_decode(opcode: str, version: str) -> None:
    """What `show` says of ICRC cover is what the ICRC code does."""
    shown = run("show", opcode, "--ip", version).stdout
    ends: dict[str, Any] = {"src_ip": "fd00::1", "dst_ip": "fd00::2"} if version == "6" else {}
    explanation = explain(bytes(roce_frame(Opcode[opcode.upper().replace("-", "_")], **ends)))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    shown_fields = [(row[2], row[-1]) for row in rows if row[0]]
    assert shown_fields == [(v.field.name, v.cover) for s in explanation.sections for v in s.values]


def test_show_lists_all_opcodes() -> None:
    listing = run("show").stdout
    for op in Opcode:
        assert op.name in listing


@pytest.mark.parametrize("flags", [["--ip", "6"], ["--timestamp"], ["--only-roce"]])
def test_a_flag_of_one_opcode_is_refused_where_all_are_listed(flags: list[str]) -> None:
    error = run("show", *flags).exception
    assert isinstance(error, UsageError) and error.where == flags[0]


@pytest.mark.parametrize("header", Ext)
def test_layout_is_that_of_the_layer(header: Ext) -> None:
    layer = layer_of(header)()
    widths = [(f.name, round(f.sz * 8) if not hasattr(f, "size") else f.size) for f in layer.fields_desc]
    assert [(f.name, f.bits) for f in EXTENSION[header]] == widths
    assert sum(f.bits for f in EXTENSION[header]) == 8 * EXT_BYTES[header]


def test_layout_of_the_bth() -> None:
    assert [f.name for f in BTH_LAYOUT] == [f.name for f in BTH.fields_desc if f.name not in ("icrc", "pad")]
    assert sum(f.bits for f in BTH_LAYOUT) == 96
    assert picture(BTH_LAYOUT)[3] == "|     opcode    |s|m|pad|version|              pkey             |"


@pytest.mark.parametrize(
    ("argv", "what", "remedy"),
    [
        (["decode", "zz"], '"z" at character 1 is not a hex digit', "use 0-9 and a-f"),
        (["decode", "123"], "3 hex digits", "a byte has two digits; one is missing"),
        (["decode", "1234"], "2 bytes that are neither", "give the frame from its destination MAC on"),
        (["decode", "nowhere.pcap"], "no such file", "give hex digits or a file that exists"),
        (["decode", "12", "--index", "2"], "hex holds one packet", "packets of a capture file"),
        (["craft", "ack", "--payload", "x"], "RC_ACKNOWLEDGE carries no payload", "leave the payload out"),
        (["craft", "write-only", "--payload", "x" * 4097], "a payload of 4097 bytes", "largest path MTU is 4096"),
        (["craft", "write-only", "--payload", "x", "--payload-bytes", "3"], "more than one payload", "give one"),
        (["craft", "write-only", "--src", "fd00::1"], "of two IP versions", "use IPv4 or IPv6 for both"),
        (["craft", "write-only", "--src", "leaf0"], '"leaf0" is no IP address', "as in 10.0.0.1"),
        (["craft", "write-only", "--src-mac", "1"], '"1" is no MAC address', "as in 02:00:00:00:00:01"),
        (["craft", "write-only", "--timestamp"], "RC_WRITE_ONLY has no TSETH", "only MRC writes carry one"),
        (["craft", "write-only", "--set", "RETH"], '"RETH"', "write HEADER.FIELD=VALUE"),
        (["craft", "write-only", "--set", "RETHH.va=1"], 'no header "RETHH"', 'did you mean "RETH"?'),
        (["craft", "write-only", "--set", "RETH.vaa=1"], 'RETH has no field "vaa"', 'did you mean "va"?'),
        (["craft", "write-only", "--set", "BTH.psn=0x1000000"], "0x1000000 does not fit BTH.psn", "packet show"),
        (["craft", "write-only", "--set", "RETH.rkey=-1"], "-1 does not fit RETH.rkey", "packet show"),
        (["craft", "write-only", "--set", "IP.src=host.invalid"], '"host.invalid" is no IP address', "as in 10.0.0.1"),
        (["craft", "ack", "-o", "/nonexistent/f.pcap"], "cannot write", "choose another file"),
    ],
)
def test_mistakes(argv: list[str], what: str, remedy: str) -> None:
    result = run(*argv)
    assert isinstance(result.exception, UsageError), result.output
    assert what in result.exception.what
    assert remedy in result.exception.remedy


def test_unknown_opcode_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["packet", "craft", "write-onyl"]) == 2
    error = capsys.readouterr().err
    assert 'no opcode "write-onyl"; did you mean "write-only"?' in error
    assert "Traceback" not in error


def test_opcode_spellings() -> None:
    for name in ("write-only", "RC_WRITE_ONLY", "rc-rdma-write-only", "rdma_write_only", "0x0a", "10"):
        assert craft(name)[42] == 0x0A
    assert craft("sack")[42] == 0xDC


def test_not_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(bytes.fromhex("d4c3b2a1"))
    assert isinstance(run("decode", str(path)).exception, UsageError)
    path.write_bytes(b"\xff\xfe\x00")
    result = run("decode", str(path))
    assert isinstance(result.exception, UsageError)
    assert result.exception.what == "neither a capture nor hex text"


@settings(max_examples=300, deadline=None)
@given(
    noise=st.binary(max_size=120),
    opcode=st.sampled_from(list(Opcode)),
    at=st.integers(0, 60),
    cut=st.integers(0, 120),
)
def test_explain_raises_its_own_error_only(noise: bytes, opcode: Opcode, at: int, cut: int) -> None:
    frame = bytearray(bytes(roce_frame(opcode)))
    frame[at : at + len(noise)] = noise
    for damaged in (noise, bytes(frame), bytes(frame[:cut])):
        try:
            explanation = explain(damaged)
        except TrafficError as error:
            assert error.remedy
        else:
            assert explanation.sections[0].start == 0
            assert explanation.sections[-1].end == len(damaged)


def test_help_loads_no_scapy() -> None:
    script = "import sys, emulator.cli.packet; sys.exit('scapy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
