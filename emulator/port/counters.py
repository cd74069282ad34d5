"""What a port counted: the BPF program's map and the queueing disciplines, in the form of ports.json."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emulator.port import tc
from emulator.port.layout import CLASS_NAMES, CONTROL, DATA, TRIMMED, Records
from emulator.port.netlink import ATTR, HEADER, attrs
from emulator.port.shaper import LEAF_HANDLE

STATS_BASIC, STATS_QUEUE, STATS_APP, STATS_PACKETS64 = 1, 3, 4, 8
WORDS = 6
CLASS_OF = {handle: cls for cls, handle in LEAF_HANDLE.items()}


@dataclass(slots=True)
class ClassCounters:
    """One class of a port. `tx_*` left the queue; bytes are on the wire (24 more a packet than the frame)."""

    tx_packets: int
    tx_bytes: int
    dropped: int
    backlog_bytes: int
    queued_packets: int


@dataclass(slots=True)
class PortCounters:
    """All of one port; `None` is what this kernel or this kind of marking cannot tell.

    `seen_*` count what came to the port (bytes of frames), `marked` what it set to CE, `ce_dropped` CE-marked packets
    it lost or that overflowed, `overflow` packets the program saw would not fit (the queue drops these),
    `max_bytes` and `mean_bytes` the backlog of the data class as its packets found it.
    """

    number: int
    classes: dict[str, ClassCounters]
    seen_packets: int | None = None
    seen_bytes: int | None = None
    marked: int | None = None
    trimmed: int | None = None
    lost: int | None = None
    overflow: int | None = None
    ce_dropped: int | None = None
    unmarked: int | None = None
    max_bytes: int | None = None
    mean_bytes: float | None = None
    above_kmin: int | None = None
    ect_packets: int | None = None
    seen: dict[str, dict[str, int]] | None = None
    histogram: dict[str, list[int]] | None = None
    bin_bytes: int | None = None
    link_dropped: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """One entry of ports.json."""
        out: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "classes"}
        out["classes"] = {
            name: {key: getattr(counted, key) for key in counted.__slots__} for name, counted in self.classes.items()
        }
        return out


def from_program(number: int, classes: dict[str, ClassCounters], record: Records, bin_bytes: int) -> PortCounters:
    """Counters of a port that the BPF program serves; `record` is its entry of the map."""
    per_class = record["cls"]
    data = per_class[DATA]
    found = int(data["packets"])
    return PortCounters(
        number=number,
        classes=classes,
        seen_packets=int(per_class["packets"].sum()),
        seen_bytes=int(per_class["bytes"].sum()),
        marked=int(record["marked"]),
        trimmed=int(record["trimmed"]),
        lost=int(record["lost"]),
        overflow=int(record["overflow"]),
        ce_dropped=int(record["ce_dropped"]),
        unmarked=int(record["unmarked"]),
        max_bytes=int(data["backlog_max"]),
        mean_bytes=int(data["backlog_sum"]) / found if found else None,
        above_kmin=int(record["above_kmin"]),
        ect_packets=int(record["ect"]),
        seen={
            CLASS_NAMES[cls]: {
                "packets": int(per_class[cls]["packets"]),
                "bytes": int(per_class[cls]["bytes"]),
                "max_bytes": int(per_class[cls]["backlog_max"]),
            }
            for cls in (CONTROL, DATA, TRIMMED)
        },
        histogram={
            "control": [int(count) for count in record["histogram"][0]],
            "data": [int(count) for count in record["histogram"][1]],
        },
        bin_bytes=bin_bytes,
    )


def class_counters(answer: tc.Answer) -> ClassCounters:
    """The statistics of one leaf qdisc."""
    found = attrs(answer.attributes[tc.TCA_STATS2])
    size, packets = struct.unpack_from("=QI", found[STATS_BASIC])
    if STATS_PACKETS64 in found:
        packets = struct.unpack_from("=Q", found[STATS_PACKETS64])[0]
    queued, backlog, drops, _, _ = struct.unpack_from("=5I", found[STATS_QUEUE])
    return ClassCounters(packets, size, drops, backlog, queued)


def red_marked(answer: tc.Answer) -> int:
    """Packets that RED marked (tc_red_xstats)."""
    return int(struct.unpack_from("=4I", attrs(answer.attributes[tc.TCA_STATS2])[STATS_APP])[3])


@dataclass(slots=True)
class Layout:
    """Where the statistics of each leaf lie in the bytes of a dump, so that the next one need not be parsed."""

    sizes: tuple[int, ...]
    checks: np.ndarray[Any, np.dtype[np.intp]]
    wanted: np.ndarray[Any, np.dtype[np.uint32]]
    words: np.ndarray[Any, np.dtype[np.intp]]
    ports: list[tuple[int, int]] = field(default_factory=list)


def learn(chunks: list[bytes], members: dict[int, int]) -> Layout:
    """Walks a dump once. `members` maps interface index to port number; `ports` of the answer are (number, class).

    `words` are indices of 32-bit words: packets, qlen, backlog, drops, bytes (lower and upper half) of each leaf, in `ports`'
    order.
    """
    checks: list[int] = []
    wanted: list[int] = []
    words: list[list[int]] = []
    ports: list[tuple[int, int]] = []
    base = 0
    for chunk in chunks:
        offset = 0
        while offset + HEADER.size <= len(chunk):
            size, kind, _, _, _ = HEADER.unpack_from(chunk, offset)
            at = offset + HEADER.size
            if kind == tc.RTM_NEWQDISC:
                _, _, _, ifindex, handle, _, _ = tc.MSG.unpack_from(chunk, at)
                if ifindex in members and handle in CLASS_OF:
                    basic, queue = _find_stats(chunk, at + tc.MSG.size, offset + size)
                    checks += [(base + at + 4) // 4, (base + at + 8) // 4]
                    wanted += [ifindex, handle]
                    words.append(
                        [(base + at_) // 4 for at_ in (basic + 8, queue, queue + 4, queue + 8, basic, basic + 4)]
                    )
                    ports.append((members[ifindex], CLASS_OF[handle]))
            offset += (size + 3) & ~3
        base += (len(chunk) + 3) & ~3
    return Layout(
        sizes=tuple(len(chunk) for chunk in chunks),
        checks=np.array(checks, np.intp),
        wanted=np.array(wanted, np.uint32),
        words=np.array(words, np.intp).reshape(-1, WORDS),
        ports=ports,
    )


def _find_stats(chunk: bytes, offset: int, end: int) -> tuple[int, int]:
    """Where the basic and the queue statistics of a message begin."""
    places: dict[int, int] = {}
    while offset + 4 <= end:
        size, kind = ATTR.unpack_from(chunk, offset)
        if size < 4:
            break
        if kind & 0x3FFF == tc.TCA_STATS2:
            inner = offset + 4
            while inner + 4 <= offset + size:
                part, name = ATTR.unpack_from(chunk, inner)
                if part < 4:
                    break
                places[name & 0x3FFF] = inner + 4
                inner += (part + 3) & ~3
        offset += (size + 3) & ~3
    return places[STATS_BASIC], places[STATS_QUEUE]
