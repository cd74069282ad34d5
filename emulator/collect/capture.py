"""Captures: rings on the ports asked for, emptied now and then into a file in `raw/`, made into pcapng after the run.

While traffic runs nothing is looked at or sorted, only copied; the work comes afterwards (`capture_file`).
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from emulator.collect.ring import BLOCK, Array, Geometry, PortRing
from emulator.errors import RunFailed

if TYPE_CHECKING:
    from emulator.fabric.plan import FabricPlan

INDEX, SPOOL = "capture.json", "capture.spool"
CHUNK: Final = struct.Struct("<III")
"""Before each chunk of the spool: number of the port in the index, rows, bytes a row."""

DRAIN_NS: Final = 5_000_000
"""CLOCK_MONOTONIC between two drains on the real clock."""
SPOOL_LIMIT: Final = 4 << 30
"""Bytes of spool; what comes after is left out and counted as lost."""
_ROOM: Final = {"real": 128 << 20, "virtual": 256 << 20}
_MOST_ROOM: Final = 16 << 20
_STORE: Final = {"real": 32 << 20, "virtual": 256 << 20}
_ETHERNET = 14


class Capture:
    """The captured ports of a run. A context manager; `zero_ns` (CLOCK_REALTIME of fabric time 0) is set before the traffic.

    Call `drain` often, `stop` when the traffic has ended. Everything lost on the way is in `drops`.
    """

    def __init__(
        self,
        plan: FabricPlan,
        netns: Callable[[str], Path],
        ports: Sequence[str],
        *,
        snap_bytes: int,
        clock: str,
        folder: Path,
    ) -> None:
        self.zero_ns = 0
        self.drops = 0
        self._plan, self._clock, self._folder, self._snap = plan, clock, folder, snap_bytes
        self._ports = [plan.port(name) for name in ports]
        whole = plan.mtu + _ETHERNET
        keep = min(snap_bytes or whole, whole)
        geometry = Geometry.of(keep, min(_MOST_ROOM, _ROOM[clock] // max(1, len(ports))))
        self._rings: list[PortRing] = []
        self._left_out = [0] * len(self._ports)
        # In the guest system calls are counted (a task that makes many is made to let others go first), so a capture that made
        # any while traffic runs would shift it by some 20 ns: memory is taken beforehand, enough for most runs.
        self._memory = mmap.mmap(-1, _STORE[clock])
        self._store: Array = np.frombuffer(self._memory, np.uint8)
        self._filled = self._written = 0
        try:
            for port in self._ports:
                self._rings.append(PortRing(str(netns(port.node)), port.ifname, snap_bytes=keep, geometry=geometry))
            self._spool = (folder / SPOOL).open("wb", buffering=0)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def drain(self) -> None:
        """Copy what the rings hold. Raises RunFailed where the file cannot be written."""
        for number, ring in enumerate(self._rings):
            while True:
                if self._filled + BLOCK + CHUNK.size > len(self._store):
                    self._write()
                start = self._filled + CHUNK.size
                count, width = ring.copy(self._store[start:])
                if not count:
                    break
                if self._written + self._filled > SPOOL_LIMIT:
                    self._left_out[number] += count
                    continue
                CHUNK.pack_into(self._memory, self._filled, number, count, width)
                self._filled = start + count * width

    def stop(self, until_ns: int | None = None) -> None:
        """The traffic has ended: take the rest, write the index, close. Packets after fabric time `until_ns` are not of the run."""
        self.drain()
        entries: list[dict[str, Any]] = []
        for port, ring, left_out in zip(self._ports, self._rings, self._left_out, strict=True):
            ring.count()
            lost = ring.drops + left_out
            self.drops += lost
            entries.append({"name": port.name, "offered": ring.packets, "lost": lost})
        index = {
            "zero_ns": self.zero_ns,
            "tdf": self._plan.tdf,
            "until_ns": until_ns,
            "snap_bytes": self._snap,
            "ports": entries,
        }
        self._write()
        (self._folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
        self.close()

    def close(self) -> None:
        """Close rings and file."""
        for ring in self._rings:
            ring.close()
        self._rings = []
        if hasattr(self, "_spool"):
            self._spool.close()

    def _write(self) -> None:
        """What is in memory goes to the file. In a guest it must not linger as unwritten pages, for whose sake writers are put to sleep."""
        self._guarded(self._spool.write, memoryview(self._memory)[: self._filled])
        if self._clock == "virtual":
            self._guarded(os.fdatasync, self._spool.fileno())
        self._written += self._filled
        self._filled = 0

    def _guarded(self, action: Callable[..., object], *arguments: Any) -> None:
        try:
            action(*arguments)
        except OSError as error:
            raise RunFailed(
                f"the capture cannot be written: {error.strerror}",
                where=str(self._folder / SPOOL),
                remedy="make room, capture fewer ports, or shorten the packets with --pcap-snap",
            ) from error
