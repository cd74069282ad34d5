"""A capture as lines of text: by tshark and our dissector where it is installed, else by our own reading of the headers."""

from __future__ import annotations

import itertools
import json
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emulator.collect.capture_file import FILE, comment_of
from emulator.errors import FabricError, UsageError
from emulator.topology.suggest import nearest
from traffic.packet import headers, mrc_headers
from traffic.packet.dscp import TRIMMED, TRIMMED_LAST_HOP
from traffic.packet.opcodes import EXTENSIONS, FLAG_RTX, FLAG_TS, ROCE_PORT, Ext, Opcode, extensions

FIELDS: Final = (
    "frame.number",
    "frame.time_epoch",
    "frame.interface_name",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "_ws.col.Info",
    "frame.comment",
    "udp.srcport",
    "udp.dstport",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
)
_ADDRESSES = struct.Struct(">4s4s")


@dataclass(frozen=True, slots=True)
class Line:
    """One packet: number in the file, fabric time, port it left by, from and to whom, what it is, remarks."""

    number: int
    time_us: float
    port: str
    src: str
    dst: str
    info: str
    comment: str

    def text(self) -> str:
        """As one line."""
        remark = f"   [{self.comment}]" if self.comment else ""
        return f"{self.number:6} {self.time_us:12.3f} {self.port:<16} {self.src:>8} > {self.dst:<8} {self.info}{remark}"


HEADING: Final = f"{'number':>6} {'fabric us':>12} {'left by':<16} {'from':>8} > {'to':<8} packet"


def find_capture(run_dir: Path) -> Path:
    """The capture of a run directory (or the file itself). Raises UsageError where there is none."""
    path = run_dir if run_dir.is_file() else run_dir / FILE
    if not path.is_file():
        raise UsageError(
            "there is no capture here",
            where=str(path),
            remedy="run again with --pcap all, or --pcap and a port such as leaf0:host0",
        )
    return path


def host_names(run_dir: Path) -> dict[str, str]:
    """Hosts by address, as the run's plan has them; empty if the plan was not kept."""
    try:
        plan = json.loads((run_dir / "raw" / "plan.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    hosts = {node["name"] for node in plan["nodes"] if node["kind"] == "host"}
    return {port["ip"]: port["node"] for port in plan["ports"] if port["node"] in hosts}


def tshark_argv(path: Path, dissector: Path, *extra: str) -> list[str]:
    """The command that reads a capture with our dissector."""
    return ["tshark", "-n", "-X", f"lua_script:{dissector}", "-r", str(path), *extra]


def lines(run_dir: Path, dissector: Path, *, port: str | None, limit: int | None) -> Iterator[Line]:
    """The packets of a capture, of one port if told, at most `limit`. Raises UsageError for a port that was not captured."""
    path = find_capture(run_dir)
    folder = run_dir if run_dir.is_dir() else path.parents[1]
    _check_port(port, folder)
    names = host_names(folder)
    found = _by_tshark(path, dissector, port, names) if shutil.which("tshark") else _by_ourselves(path, port, names)
    return itertools.islice(found, limit)


def _check_port(port: str | None, folder: Path) -> None:
    """Raises UsageError for a port that the run did not capture; a file without its run directory tells nothing."""
    try:
        captured = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["resolved"]["pcap"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if port is not None and port not in captured:
        raise UsageError(f'port "{port}" was not captured', where="--port", remedy=nearest(port, captured))


def _by_tshark(path: Path, dissector: Path, port: str | None, names: dict[str, str]) -> Iterator[Line]:
    # A packet is there once for every port it passed, which TCP's analysis would call retransmissions.
    extra = ["-o", "tcp.analyze_sequence_numbers:FALSE", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"]
    extra += [word for field in FIELDS for word in ("-e", field)]
    if port is not None:
        extra += ["-Y", f'frame.interface_name == "{port}"']
    argv = tshark_argv(path, dissector, *extra)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            for row in process.stdout:
                number, at, name, src4, dst4, src6, dst6, info, comment, *bth = row.rstrip("\n").split("\t")
                info = _told(info.strip(), *bth)
                src, dst = src4 or src6, dst4 or dst6
                seconds, _, fraction = at.partition(".")
                time_us = int(seconds) * 1e6 + int((fraction + "0" * 9)[:9]) / 1e3
                yield Line(int(number), time_us, name, names.get(src, src), names.get(dst, dst), info, comment)
            errors = process.stderr.read()
            if process.wait() != 0:
                raise FabricError(
                    f"tshark failed: {errors.strip()}", where=" ".join(argv), remedy="try the command by hand"
                )
        finally:
            process.terminate()


def _told(info: str, sport: str, dport: str, opcode: str, psn: str) -> str:
    """tshark's own words on a RoCE packet name no PSN, and a CNP is an unknown opcode to them."""
    if opcode == str(int(Opcode.CNP)):
        info = info.replace("Unknown OpCode", "CNP ")
    if psn and "PSN=" not in info:
        info += f" PSN={int(psn)}"
    return f"{info} from port {sport}" if dport == str(ROCE_PORT) else info


def _by_ourselves(path: Path, port: str | None, names: dict[str, str]) -> Iterator[Line]:
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapNgReader, RawPcapReader

    try:
        reader = RawPcapReader(str(path))
        if not isinstance(reader, RawPcapNgReader):
            raise UsageError("this is no pcapng file", where=str(path), remedy="name a capture that a run made")
        with reader:
            packets: Iterator[tuple[bytes, Any]] = iter(reader)
            for number, (frame, meta) in enumerate(packets, 1):
                name = (meta.ifname or b"").decode()
                if port is None or name == port:
                    nanoseconds = (meta.tshigh << 32) + meta.tslow
                    src, dst, info = describe(frame, meta.wirelen)
                    yield Line(
                        number,
                        nanoseconds / 1e3,
                        name,
                        names.get(src, src),
                        names.get(dst, dst),
                        info,
                        comment_of(frame),
                    )
    except Scapy_Exception as error:
        raise UsageError(f"not a readable capture: {error}", where=str(path), remedy="run again") from error


def describe(frame: bytes, wire_bytes: int) -> tuple[str, str, str]:
    """(source, destination, what it is) of a frame that may have been cut; IPv4."""
    if frame[12:14] != b"\x08\x00" or len(frame) < 54:
        return "", "", f"{wire_bytes} bytes of Ethernet type 0x{frame[12:14].hex()}"
    src, dst = (".".join(map(str, part)) for part in _ADDRESSES.unpack_from(frame, 26))
    if frame[23] != 17 or int.from_bytes(frame[36:38]) != ROCE_PORT:
        return src, dst, f"{wire_bytes} bytes of IP protocol {frame[23]}"
    opcode, flags = frame[42], frame[50]
    name = Opcode(opcode).name if opcode in EXTENSIONS else f"opcode 0x{opcode:02x}"
    qp, psn, sport = (int.from_bytes(frame[at : at + size]) for at, size in ((47, 3), (51, 3), (34, 2)))
    words = [f"{name} QP=0x{qp:06x} PSN={psn}"]
    if opcode in EXTENSIONS:
        words += _extension(frame[54:], opcode, bool(flags & FLAG_TS))
        if Opcode(opcode).is_mrc and flags & FLAG_RTX:
            words.append("(retransmission)")
    if frame[15] >> 2 in (TRIMMED, TRIMMED_LAST_HOP):
        words.append("(trimmed)")
    return src, dst, " ".join([*words, f"from port {sport}"])


def _extension(ext: bytes, opcode: int, timestamp: bool) -> Sequence[str]:
    """The extension headers that say something at a glance."""
    first = next(iter(extensions(opcode, timestamp=timestamp)), None)
    try:
        if first is Ext.AETH:
            aeth = headers.unpack_aeth(ext)
            return [headers.describe_syndrome(aeth.syndrome), f"msn={aeth.msn}"]
        if first is Ext.SETH:
            sack = mrc_headers.unpack_sack(ext)
            return [
                f"cack={sack.cack_psn} causes={sack.ack_psn_offset:+d} bits={sack.bitmap:016x} ev=0x{sack.entropy:x}"
            ]
        if first is Ext.NETH:
            nack = mrc_headers.unpack_nack(ext)
            return [f"psn={nack.nack_psn} reason 0x{nack.reason:02x} ev=0x{nack.entropy:x}"]
        if first is Ext.METH:
            return [f"msn={mrc_headers.unpack_meth(ext).msn}"]
    except struct.error:
        return ["(cut short)"]
    return []
