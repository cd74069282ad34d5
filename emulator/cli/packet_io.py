"""Where `fabriclab packet` takes its bytes from and leaves them."""

from __future__ import annotations

import sys
from pathlib import Path

from emulator.errors import UsageError

_CAPTURE_MAGIC = (
    bytes.fromhex("d4c3b2a1"),
    bytes.fromhex("a1b2c3d4"),
    bytes.fromhex("4d3cb2a1"),
    bytes.fromhex("a1b23c4d"),
    bytes.fromhex("0a0d0d0a"),
)


def hex_bytes(text: str, where: str) -> bytes:
    """The bytes of hex digits, with spaces and colons between them as one likes; UsageError names the wrong character."""
    compact = "".join(text.split()).replace(":", "").removeprefix("0x").lower()
    for position, character in enumerate(compact):
        if character not in "0123456789abcdef":
            raise UsageError(
                f'"{character}" at character {position + 1} is not a hex digit', where=where, remedy="use 0-9 and a-f"
            )
    if len(compact) % 2:
        raise UsageError(f"{len(compact)} hex digits", where=where, remedy="a byte has two digits; one is missing")
    return bytes.fromhex(compact)


def _hex_dump_bytes(text: str, where: str) -> bytes:
    """Hex with or without the offsets (0x0010:, 00000010:) and the text column of a dump."""
    parts = []
    for line in text.strip().splitlines():
        offset, colon, rest = line.strip().partition(": ")
        if colon and offset.removeprefix("0x").isalnum():
            line = rest.strip().split("  ")[0]
        parts.append(line)
    return hex_bytes(" ".join(parts), where)


def read_frame(source: str, index: int) -> bytes:
    """One packet from hex, a file of hex, a capture file, or standard input (-)."""
    path = Path(source)
    is_file = source != "-" and len(source) < 256 and path.is_file()
    if is_file and _starts_with(path) in _CAPTURE_MAGIC:
        return _captured(path, index)
    if index > 1:
        raise UsageError("hex holds one packet", where="--index", remedy="it counts the packets of a capture file")
    if source == "-":
        return _hex_dump_bytes(sys.stdin.read(), "standard input")
    if is_file:
        try:
            return _hex_dump_bytes(path.read_text(encoding="ascii"), source)
        except UnicodeDecodeError as error:
            raise UsageError(
                "neither a capture nor hex text", where=source, remedy="give a pcap or a hex file"
            ) from error
    if source.endswith((".pcap", ".pcapng", ".txt", ".hex")) or "/" in source:
        raise UsageError("no such file", where=source, remedy="give hex digits or a file that exists")
    return _hex_dump_bytes(source, "packet decode")


def _starts_with(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _captured(path: Path, index: int) -> bytes:
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    count = 0
    try:
        with RawPcapReader(str(path)) as reader:
            for data, _ in reader:
                count += 1
                if count == index:
                    return bytes(data)
    except (Scapy_Exception, EOFError) as error:
        raise UsageError(f"not a readable capture: {error}", where=str(path), remedy="write it again") from error
    raise UsageError(f"there is no packet {index}, only {count}", where=str(path), remedy=f"--index goes to {count}")


def write_capture(path: Path, frame: bytes) -> None:
    """Writes a capture of one frame: pcapng by that suffix, else pcap."""
    from scapy.layers.l2 import Ether
    from scapy.utils import PcapNgWriter, PcapWriter

    try:
        with PcapNgWriter(str(path)) if path.suffix == ".pcapng" else PcapWriter(str(path), linktype=1) as capture:
            capture.write(Ether(frame))
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", where=str(path), remedy="choose another file") from error
