"""Who watches a run: nobody, or the live view, for which what the run says of itself is turned into snapshots."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

from emulator.report.live import LiveView

_ACKNOWLEDGEMENTS: Final = 1.25
"""Packets the machine carries for each data packet, as the planner counts them."""
_LEAST_NS: Final = 20_000
"""Fabric time over which a rate is taken, at least; shorter ones jump from packet to packet."""


class Silent:
    """A watcher that says nothing."""

    def step(self, text: str, done: int, total: int) -> None:
        """Building or taking away."""

    def progress(self, state: Mapping[str, Any]) -> None:
        """Traffic."""

    def note(self, text: str) -> None:
        """A sentence for the user."""


class LiveWatch:
    """A run's watcher that draws. Queues, marks and progress are as told; rates and the use of the budget are differences."""

    def __init__(self, title: str, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.quiet = quiet
        self.stream = sys.stderr if stream is None else stream
        self._title = title
        self._view: LiveView | None = None
        self._budget: int | None = None
        self._asked = False
        self._before: Mapping[str, Any] | None = None
        self._wall: tuple[int, int] | None = None

    def step(self, text: str, done: int, total: int) -> None:
        """Building or taking away."""
        shown = f"{text} …" if done < total else text
        if self.stream.isatty():
            self._update({"text": shown})
        elif not self.quiet:
            view = self._open()
            view.flush()
            view.say(shown)

    def progress(self, state: Mapping[str, Any]) -> None:
        """Traffic."""
        snapshot = {**state, "text": "traffic"}
        snapshot |= self._rates(state) | self._used(state)
        self._update(snapshot)

    def note(self, text: str) -> None:
        """A sentence for the user, above the view."""
        if text and not self.quiet:
            self._open().say(text)

    def close(self) -> None:
        """Draw the last state and give the terminal back; the next run of several starts a view of its own."""
        if self._view is not None:
            self._view.close()
        self._view = self._before = self._wall = None

    def _open(self) -> LiveView:
        if self._view is None:
            self._view = LiveView(self._title, stream=self.stream)
        return self._view

    def _update(self, snapshot: Mapping[str, Any]) -> None:
        if not self.quiet:
            self._open().update(snapshot)

    def _rates(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Wire bits a second that each host sent since the state before."""
        sent, now = state.get("sent_bytes"), state.get("time_ns")
        if sent is None or now is None:
            return {}
        before = self._before
        if before is None or now < before["time_ns"]:
            self._before = state
            return {}
        if now - before["time_ns"] < _LEAST_NS:
            return {}
        self._before = state
        span = now - before["time_ns"]
        old = before["sent_bytes"]
        return {"rates": {port.split(":")[0]: 8e9 * (n - old.get(port, 0)) / span for port, n in sent.items()}}

    def _used(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The share in use of the packets a second that this machine carries; only the real clock has such a budget."""
        wall, packets = state.get("wall_ns"), state.get("packets")
        if wall is None or packets is None:
            return {}
        if not self._asked:
            from emulator.experiment.budget import known_packets_per_second

            self._budget, self._asked = known_packets_per_second(), True
        before, self._wall = self._wall, (wall, packets)
        if before is None or not self._budget or wall <= before[0]:
            return {}
        rate = _ACKNOWLEDGEMENTS * 1e9 * (packets - before[1]) / (wall - before[0])
        return {"budget": max(0.0, rate / self._budget)}
