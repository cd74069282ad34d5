"""The live view of a run: redrawn in place on a terminal, plain lines anywhere else.

A snapshot is a plain dict; every key may be missing, and what is missing is not shown:
`text` the phase; `time_ns` fabric time; `bytes_done`, `bytes_total`, `moves_left`, `packets`; `step`, `steps` of a collective;
`queues` and `limits` {port: bytes}; `rates` {flow: bit/s}; `marked`, `dropped`, `retransmitted`;
`budget` the share of this machine's packet budget in use; `late_p99_ns` how late the agents' event loop is (fabric time).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from emulator.report.text import size, time_us

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

SHOWN = 8
BAR = 24


class LiveView:
    """Told with `update(snapshot)` as often as one likes; draws at most `per_second` times a second.

    Use as a context manager, or call `close`. Plain lines come at most every `line_s` seconds of wall time.
    """

    def __init__(
        self, title: str, *, stream: TextIO | None = None, per_second: float = 8.0, line_s: float = 2.0
    ) -> None:
        self.title = title
        self.stream = sys.stderr if stream is None else stream
        self.state: dict[str, Any] = {}
        self._pause = 1 / per_second if self.stream.isatty() else line_s
        self._drawn = float("-inf")
        self._fresh = False
        self._live: Live | None = None

    def update(self, snapshot: Mapping[str, Any]) -> None:
        """Take over what the snapshot says; keys it leaves out keep what they were."""
        self.state.update(snapshot)
        self._fresh = True
        now = time.monotonic()
        if now - self._drawn < self._pause:
            return
        self._drawn = now
        self._draw()

    def say(self, text: str) -> None:
        """A line that stays, above the view."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def flush(self) -> None:
        """Draw what has not been drawn yet."""
        if self._fresh:
            self._draw()

    def close(self) -> None:
        """Draw the last state and give the terminal back."""
        self.flush()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> LiveView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draw(self) -> None:
        self._fresh = False
        if not self.stream.isatty():
            print(plain_line(self.state), file=self.stream, flush=True)
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console(), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(panel(self.title, self.state), refresh=True)

    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=self.stream)


def plain_line(state: Mapping[str, Any]) -> str:
    """One snapshot as one line."""
    parts = [str(state["text"])] if state.get("text") else []
    if state.get("time_ns") is not None:
        parts.append(f"{time_us(state['time_ns'] / 1000)} of fabric time")
    parts += _progress(state)
    full = _fullest(state)
    if full:
        name, backlog, share = full[0]
        parts.append(f"fullest {name} {size(backlog)}" + ("" if share is None else f" ({100 * share:.0f} %)"))
    parts += _counters(state)
    return "; ".join(parts)


def panel(title: str, state: Mapping[str, Any]) -> RenderableType:
    """One snapshot as a rich panel: progress, queues as bars, rates, counters."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    done = _share(state.get("bytes_done"), state.get("bytes_total"))
    head = Text()
    if done is not None:
        head.append(bar(done, BAR), style="cyan")
        head.append(f" {100 * done:3.0f} %  ")
    if state.get("time_ns") is not None:
        head.append(f"{time_us(state['time_ns'] / 1000)} of fabric time  ")
    head.append(", ".join(_progress(state)[1 if done is not None else 0 :]))
    parts: list[RenderableType] = [head]
    full = _fullest(state)
    if full:
        table = Table.grid(padding=(0, 1))
        for name, backlog, share in full[:SHOWN]:
            style = (
                "red"
                if share is not None and share > 0.9
                else "yellow"
                if share is not None and share > 0.5
                else "blue"
            )
            shown = bar(share, BAR) if share is not None else "?" * 3
            table.add_row(
                name, Text(shown, style=style), size(backlog), "" if share is None else f"{100 * share:.0f} %"
            )
        parts += [Text("queues", style="bold"), table]
    rates = sorted((state.get("rates") or {}).items(), key=lambda item: str(item[0]))
    if rates:
        most = max(float(r or 0) for _, r in rates) or 1.0
        table = Table.grid(padding=(0, 1))
        for flow, rate in rates[:SHOWN]:
            table.add_row(
                str(flow),
                Text(bar(float(rate or 0) / most, BAR), style="green"),
                f"{float(rate or 0) / 1e9:.2f} Gbit/s",
            )
        if len(rates) > SHOWN:
            table.add_row(f"{len(rates) - SHOWN} more")
        parts += [Text("rates", style="bold"), table]
    counters = _counters(state)
    if counters:
        parts.append(Text("; ".join(counters)))
    return Panel(Group(*parts), title=title, subtitle=str(state.get("text") or ""))


def bar(share: float, width: int) -> str:
    """A bar of block characters, exact to an eighth of a cell."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]).ljust(width, "·")


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _progress(state: Mapping[str, Any]) -> list[str]:
    parts = []
    done = _share(state.get("bytes_done"), state.get("bytes_total"))
    if done is not None:
        parts.append(f"{100 * done:.0f} % of {size(state['bytes_total'])}")
    if state.get("step") is not None and state.get("steps"):
        parts.append(f"step {state['step']} of {state['steps']}")
    if state.get("moves_left") is not None:
        parts.append(f"{state['moves_left']} transfers left")
    return parts


def _fullest(state: Mapping[str, Any]) -> list[tuple[str, float, float | None]]:
    limits = state.get("limits") or {}
    known = [
        (str(n), float(b), _share(b, limits.get(n))) for n, b in (state.get("queues") or {}).items() if b is not None
    ]
    return sorted(known, key=lambda item: (-(item[2] or 0.0), -item[1], item[0]))


def _counters(state: Mapping[str, Any]) -> list[str]:
    parts = [
        f"{name} {state[name]:,}" for name in ("marked", "dropped", "retransmitted") if state.get(name) is not None
    ]
    if state.get("packets") is not None:
        parts.insert(0, f"{state['packets']:,} packets sent")
    if state.get("budget") is not None:
        parts.append(f"budget {100 * state['budget']:.0f} %")
    if state.get("late_p99_ns") is not None:
        parts.append(f"late p99 {time_us(state['late_p99_ns'] / 1000)}")
    return parts
