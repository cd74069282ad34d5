"""From the spool of a capture to `capture/run.pcapng`: in order of time, on the fabric's clock, with comments."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from emulator.collect.capture import CHUNK, INDEX, SPOOL
from emulator.collect.pcapng import PcapngWriter
from emulator.collect.ring import unpack
from traffic.packet import dscp

FILE: Final = Path("capture", "run.pcapng")
"""Where the capture of a run is, in its directory."""

_CE = 3
_TRIMMED = {
    dscp.TRIMMED: "trimmed to its headers at a core port",
    dscp.TRIMMED_LAST_HOP: "trimmed to its headers at the last hop",
}


@dataclass(frozen=True)
class Captured:
    """What went into the file, and what was lost on the way."""

    path: Path
    packets: int
    lost: int


def write_capture(run_dir: Path, plan: Mapping[str, Any], *, application: str) -> Captured | None:
    """Make the capture file of a run from what `Capture` left in `raw/`, which is then deleted; None if there is nothing.

    Times are fabric nanoseconds after the common start, as the kernel stamped each packet when it left the queue of its port.
    """
    raw = run_dir / "raw"
    if not (raw / INDEX).is_file() or not (raw / SPOOL).is_file():
        return None
    index = json.loads((raw / INDEX).read_text(encoding="utf-8"))
    ports = {p["name"]: p for p in plan["ports"]}
    path = run_dir / FILE
    path.parent.mkdir(exist_ok=True)
    count, last = 0, 0
    with (raw / SPOOL).open("rb") as spool, path.open("wb", buffering=1 << 20) as file:
        tdf = index["tdf"]
        comment = f"{run_dir.name}: times are nanoseconds of fabric time after the common start; TDF {tdf}, seed {plan['seed']}"
        writer = PcapngWriter(file, application=application, comment=comment)
        for entry in index["ports"]:
            port = ports[entry["name"]]
            writer.interface(
                entry["name"],
                description=f"egress of {port['node']} towards {port['peer']}",
                rate_bps=port["fabric_rate_bps"],
                snap_bytes=index["snap_bytes"],
            )
        writer.names({p["node"]: p["ip"] for p in plan["ports"] if p["node"] in _hosts(plan)})
        streams = [_stream(spool, number, places) for number, places in _places(spool, len(index["ports"])).items()]
        until = index["until_ns"]
        for stamp, number, wire_bytes, data in heapq.merge(*streams):
            time_ns = (stamp - index["zero_ns"]) // tdf
            if time_ns >= 0 and (until is None or time_ns <= until):
                writer.packet(number, time_ns, data, wire_bytes, comment_of(data))
                count, last = count + 1, time_ns
        for number, entry in enumerate(index["ports"]):
            writer.statistics(number, last, received=entry["offered"], dropped=entry["lost"])
    (raw / SPOOL).unlink()
    return Captured(path, count, sum(entry["lost"] for entry in index["ports"]))


def _hosts(plan: Mapping[str, Any]) -> set[str]:
    return {node["name"] for node in plan["nodes"] if node["kind"] == "host"}


def _places(spool: IO[bytes], ports: int) -> dict[int, list[tuple[int, int, int]]]:
    """Where the chunks of each port lie: offset of the rows, their number and width."""
    found: dict[int, list[tuple[int, int, int]]] = {number: [] for number in range(ports)}
    offset = 0
    while head := spool.read(CHUNK.size):
        number, rows, width = CHUNK.unpack(head)
        offset += CHUNK.size
        found[number].append((offset, rows, width))
        offset += rows * width
        spool.seek(offset)
    return found


def _stream(spool: IO[bytes], number: int, places: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, bytes]]:
    """The packets of one port: CLOCK_REALTIME, number of the port, bytes on the wire, captured bytes."""
    for offset, rows, width in places:
        spool.seek(offset)
        block = np.frombuffer(spool.read(rows * width), np.uint8).reshape(rows, width)
        yield from ((stamp, number, wire_bytes, data) for stamp, wire_bytes, data in unpack(block))


def comment_of(frame: bytes) -> str:
    """What to say about a packet: that it was trimmed, that it carries a congestion mark; empty for most."""
    if frame[12:14] == b"\x08\x00":
        tos = frame[15]
    elif frame[12:14] == b"\x86\xdd":
        tos = (frame[14] << 4 | frame[15] >> 4) & 0xFF
    else:
        return ""
    words = [_TRIMMED[tos >> 2]] if tos >> 2 in _TRIMMED else []
    if tos & 3 == _CE:
        words.append("congestion experienced (CE)")
    return "; ".join(words)
