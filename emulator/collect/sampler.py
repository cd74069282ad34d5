"""Reads all queues at a stated period: one dump of queueing disciplines a namespace, one call for all BPF counters.

A dump is walked once to learn where each number lies; later rounds pick the numbers out by position after a check that
the same queues stand at the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator.port import tc
from emulator.port.counters import WORDS, Layout, learn
from emulator.port.layout import DATA
from emulator.port.netlink import Netlink, dump_request
from emulator.port.portset import PortSet

_FIRST_ROWS = 256
_PACKETS, _QLEN, _BACKLOG, _DROPS, _BYTES, _BYTES_HIGH = range(WORDS)

Array = np.ndarray[Any, Any]


def rehearse() -> None:
    """Use once what this room uses of numpy.

    A method whose other half is Python is looked up at its first use, and that reads the clock: 20 to 40 ns of virtual time
    in the guest, in the middle of a round, at a place that depends on what was used before.
    """
    one = np.ones(1, np.uint32)
    _ = (
        one.all(),
        one.any(),
        one.argmin(),
        one.max(),
        one.min(),
        one.sum(axis=0),
        np.flatnonzero(one),
        np.array_equal(one, one),
    )


class _Growing:
    """Rows of one shape, appended in place; doubles when full."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self._rows: Array = np.empty((_FIRST_ROWS, *shape), dtype)
        self.count = 0

    def append(self, row: Any) -> None:
        """Adds one row."""
        if self.count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self.count] = row
        self.count += 1

    def rows(self) -> Array:
        """What was appended."""
        return self._rows[: self.count]


@dataclass(slots=True)
class _Series:
    """The samples of one namespace for one layout of its queues: round, time, and `WORDS` numbers a leaf."""

    ports: list[tuple[int, int]]
    rounds: _Growing
    times: _Growing
    values: _Growing


class _Space:
    """One namespace: its socket, what is known of its dump, its samples."""

    def __init__(self, netlink: Netlink, members: dict[int, int]) -> None:
        self.netlink, self.members = netlink, members
        self.layout: Layout | None = None
        self.series: list[_Series] = []

    def read(self, request: bytearray) -> Array | None:
        """The numbers of each leaf (packets, queued, backlog, drops, bytes), or `None` if the kernel's answer was torn."""
        blocks = self.netlink.dump_raw(request)
        if blocks is None:
            return None
        words = np.frombuffer(blocks[0] if len(blocks) == 1 else b"".join(blocks), np.uint32)
        layout = self.layout
        if (
            layout is None
            or layout.sizes != tuple(map(len, blocks))
            or not np.array_equal(words[layout.checks], layout.wanted)
        ):
            self.layout = layout = learn(blocks, self.members)
            if not self.series or self.series[-1].ports != layout.ports:
                shape = (len(layout.ports), WORDS)
                self.series.append(_Series(layout.ports, _Growing((), "i8"), _Growing((), "i8"), _Growing(shape, "u4")))
        picked: Array = words[layout.words]
        return picked


class Sampler:
    """Rows of queue samples of all ports of a run. Times are fabric nanoseconds.

    `clock` gives the time of each namespace's dump; without it all of a round carry the time given to `sample`.
    A round that was not taken, or an answer the kernel tore, leaves a gap; nothing is filled in. Time in which nothing can
    have moved, because no host has sent since the queues were empty, is told with `slept`.
    """

    def __init__(self, ports: PortSet, *, period_ns: int, clock: Callable[[], int] | None = None) -> None:
        rehearse()
        self.period_ns = period_ns
        self._clock = clock
        self._stats = ports.program.stats if ports.program is not None else None
        self._request = dump_request(tc.RTM_GETQDISC, tc.message(0))
        self._spaces: list[_Space] = []
        for node, socket in ports.sockets.items():
            members = {ports.index[port.number]: port.number for port in ports.plan.ports if port.node == node}
            if members:
                self._spaces.append(_Space(Netlink(socket.netns), members))
        self._names = {port.number: port.name for port in ports.plan.ports}
        self._limits = {port.number: port.limit_bytes for port in ports.plan.ports}
        hosts = {node.name for node in ports.plan.nodes if node.kind == "host"}
        self._sources = {port.number for port in ports.plan.ports if port.node in hosts}
        self._ticks = _Growing((), "i8")
        self._counted = _Growing((2, len(ports.plan.ports)), "i8")
        self._slept: list[tuple[int, int]] = []

    def sample(self, now_ns: int) -> None:
        """Takes one round; `now_ns` is the fabric time at which it is taken."""
        clock, number = self._clock, self._ticks.count
        for space in self._spaces:
            picked = space.read(self._request)
            if picked is not None:
                series = space.series[-1]
                series.rounds.append(number)
                series.times.append(now_ns if clock is None else clock())
                series.values.append(picked)
        if self._stats is not None:
            records = self._stats.view()
            self._counted.append((records["marked"], records["trimmed"]))
        self._ticks.append(now_ns if clock is None else clock())

    @property
    def still(self) -> bool:
        """Whether the last round found what the one before found, with every queue empty."""
        for space in self._spaces:
            series = space.series[-1] if space.series else None
            if series is None or series.values.count < 2:
                return False
            before, last = series.values.rows()[-2:]
            if last[:, _BACKLOG].any() or not np.array_equal(before, last):
                return False
        return True

    def slept(self, from_ns: int, to_ns: int) -> None:
        """Between these fabric times no round was needed, for nothing moved."""
        self._slept.append((from_ns, to_ns))

    def latest(self) -> dict[str, Any]:
        """The newest round, for a live view: `queues` and `limits` {port: bytes} of data queues that are not empty,
        `sent_bytes` {port: bytes on the wire} of hosts' own ports, `marked`, `dropped`, `trimmed` so far.

        Counters that this kernel cannot tell are left out.
        """
        queues: dict[str, int] = {}
        limits: dict[str, int] = {}
        sent: dict[str, int] = {}
        dropped = 0
        for space in self._spaces:
            if not space.series or not space.series[-1].values.count:
                continue
            series = space.series[-1]
            last = series.values.rows()[-1]
            dropped += int(last[:, _DROPS].sum())
            for row in np.flatnonzero(last[:, _BACKLOG]).tolist():
                number, cls = series.ports[row]
                if cls == DATA:
                    queues[self._names[number]] = int(last[row, _BACKLOG])
                    limits[self._names[number]] = self._limits[number]
            for row, (number, _) in enumerate(series.ports):
                if number in self._sources and last[row, _BYTES]:
                    name = self._names[number]
                    sent[name] = sent.get(name, 0) + int(last[row, _BYTES]) + (int(last[row, _BYTES_HIGH]) << 32)
        out: dict[str, Any] = {"queues": queues, "limits": limits, "sent_bytes": sent, "dropped": dropped}
        if self._counted.count:
            marked, trimmed = self._counted.rows()[-1].sum(axis=1).tolist()
            out |= {"marked": marked, "trimmed": trimmed}
        return out

    def finish(self) -> dict[str, Array]:
        """The content of samples.npz, ordered by round, port, class; closes the sockets."""
        for space in self._spaces:
            space.netlink.close()
        tables = [self._table(series) for space in self._spaces for series in space.series]
        columns = (
            "round",
            "time_ns",
            "port",
            "cls",
            "backlog_bytes",
            "enqueued",
            "tx_bytes",
            "dropped",
            "marked",
            "trimmed",
        )
        joined = {
            name: np.concatenate([table[name] for table in tables]) if tables else np.empty(0, "i8") for name in columns
        }
        order = np.lexsort((joined["cls"], joined["port"], joined.pop("round")))
        out = {name: column[order] for name, column in joined.items()}
        out["port"], out["cls"] = out["port"].astype("i4"), out["cls"].astype("u1")
        out["tick_ns"] = self._ticks.rows().copy()
        out["period_ns"] = np.array(self.period_ns, "i8")
        out["slept_ns"] = np.array(self._slept, "i8").reshape(-1, 2)
        return out

    def _table(self, series: _Series) -> dict[str, Array]:
        """Columns of one series, one row a leaf and round."""
        values = series.values.rows().astype("i8")
        rounds, leaves = len(values), len(series.ports)
        numbers = np.array([number for number, _ in series.ports], "i8")
        classes = np.array([cls for _, cls in series.ports], "i8")
        at = series.rounds.rows()
        marked = trimmed = np.full((rounds, leaves), -1, "i8")
        if self._stats is not None and rounds:
            # the program counts for the port; marks and cuts happen to packets of the data class
            counted = self._counted.rows()[at]
            marked = np.where(classes == DATA, counted[:, 0][:, numbers], 0)
            trimmed = np.where(classes == DATA, counted[:, 1][:, numbers], 0)
        return {
            "round": np.repeat(at, leaves),
            "time_ns": np.repeat(series.times.rows(), leaves),
            "port": np.tile(numbers, rounds),
            "cls": np.tile(classes, rounds),
            "backlog_bytes": values[:, :, _BACKLOG].ravel(),
            "enqueued": (values[:, :, _PACKETS] + values[:, :, _QLEN]).ravel(),
            "tx_bytes": (values[:, :, _BYTES] + (values[:, :, _BYTES_HIGH] << 32)).ravel(),
            "dropped": values[:, :, _DROPS].ravel(),
            "marked": marked.ravel(),
            "trimmed": trimmed.ravel(),
        }
