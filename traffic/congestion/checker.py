"""Try an algorithm on recorded traces and say what it did wrong, and at which event.

Rules (a violation fails the check, a warning does not):
exception, endless-loop, wrong-type, not-a-number, negative, stuck, above-line, timer-in-the-past, time-backwards, no-repeat;
warnings: no-reaction, no-recovery, impure-import.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from traffic.congestion.base import CongestionControl, Feedback, PathInfo
from traffic.congestion.params import Params
from traffic.congestion.plugin import student_line
from traffic.congestion.registry import parameters
from traffic.congestion.toy import Scene, Toy
from traffic.congestion.traces import Event, Trace, traces

_LINES = 100_000  # lines of Python that one call may execute
_TIMERS = 1_000  # deadlines at one instant
_IMPURE = ("asyncio", "datetime", "random", "secrets", "select", "socket", "subprocess", "threading", "time")


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where (trace, number of the event, fabric time, verb; the student's line where there is one) and how."""

    rule: str
    text: str
    trace: str = ""
    event: int = 0
    now_ns: int = 0
    verb: str = ""
    line: str | None = None
    warning: bool = False

    def __str__(self) -> str:
        place = f"{self.trace} event {self.event}, {self.now_ns} ns, {self.verb}()" if self.trace else ""
        parts = [p for p in (self.line, place) if p]
        kind = "warning" if self.warning else "violation"
        return f"{kind}: {self.rule}: {self.text}" + (f" [{'; '.join(parts)}]" if parts else "")


@dataclass(slots=True)
class Report:
    """What the check found, and how the first of eight senders fared in the toy (bit/s per bin, with the queue in bytes)."""

    findings: list[Finding] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    rate_bps: list[float] = field(default_factory=list)
    queue_bytes: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No violation (warnings allowed)."""
        return all(f.warning for f in self.findings)


def check(
    cls: type[CongestionControl],
    *,
    file: Path | None = None,
    params: dict[str, Any] | None = None,
    path: PathInfo | None = None,
) -> Report:
    """Play every trace twice, then the toy. `file` is the student's, for line numbers and the look at its imports."""
    path = path or Scene().path
    report = Report()
    if file is not None:
        report.findings += _imports(file)
    ready = parameters(cls, path=path, params=params)
    for trace in traces(path):
        report.traces.append(trace.name)
        first = _Play(cls, path, ready, trace, file)
        first.run()
        report.findings += first.findings
        if all(f.warning for f in first.findings):
            second = _Play(cls, path, ready, trace, file)
            second.run()
            report.findings += _differences(first, second, trace)
    if report.ok:
        _play_toy(cls, ready, file, report)
    return report


class _TooLong(BaseException):
    """More lines than one call may execute; not an Exception, so that a student's handler lets it pass."""


class _Play:
    """One algorithm, one trace."""

    def __init__(
        self, cls: type[CongestionControl], path: PathInfo, params: Params, trace: Trace, file: Path | None
    ) -> None:
        self._make = lambda: cls(path=path, params=params)
        self._path, self._trace, self._file = path, trace, file
        self._may_exceed = cls.may_exceed_line
        self._by_receiver = cls.feedback is Feedback.CREDIT
        self.findings: list[Finding] = []
        self.history: list[tuple[Any, ...]] = []
        self._levels: dict[str, list[float]] = {}
        self._index, self._event = 0, Event(0, "__init__", {})
        self._stop = False
        self._ran: str | None = None  # the student's line that ran last in an event

    def run(self) -> None:
        made = self._call(self._make, keep_line=True)
        if not isinstance(made, CongestionControl):
            return
        self._look(made)
        latest = 0
        for index, event in enumerate(self._trace.events, 1):
            self._index = index
            self._timers(made, max(latest, event.now))
            self._event, latest = event, max(latest, event.now)
            if event.verb != "look":
                self._call(partial(getattr(made, event.verb), now=event.now, **event.args), keep_line=True)
            self._look(made)
            if self._stop:
                return
        self._judge()

    def _timers(self, made: CongestionControl, before: int) -> None:
        """Run the deadlines that lie before the next event."""
        now, same = -1, 0
        for _ in range(1_000_000):
            due = self._call(made.next_timer)
            if self._stop or due is None:
                return
            if not isinstance(due, int) or isinstance(due, bool):
                self._found("wrong-type", f"next_timer() gave {due!r}; it must be whole nanoseconds or None")
                return
            if due >= before:
                return
            same = same + 1 if due <= now else 0
            now = max(now, due)
            if same > _TIMERS:
                text = f"next_timer() stays at {due} after {same} calls of expired(now={now}): it never ends"
                self._found("timer-in-the-past", text)
                return
            self._event = Event(now, "expired", {})
            self._call(partial(made.expired, now=now), keep_line=True)
            self._look(made)
            if self._stop:
                return
        self._found("timer-in-the-past", "a million deadlines between two events")

    def _call(self, action: Callable[[], Any], *, keep_line: bool = False) -> Any:
        if self._stop:
            return None
        try:
            result, last = _limited(action, self._file)
            if keep_line and last:
                self._ran = f"{self._file}:{last}" if self._file else None
            return result
        except _TooLong as exc:
            self._found("endless-loop", f"more than {_LINES} lines in one call", self._line(exc))
        except Exception as exc:
            rule = "exception" if self._trace.monotonic else "time-backwards"
            self._found(rule, f"{type(exc).__name__}: {exc}", self._line(exc))
        return None

    def _line(self, exc: BaseException) -> str | None:
        return student_line(exc, self._file) if self._file else None

    def _look(self, made: CongestionControl) -> None:
        if self._stop:
            return
        values = (made.rate_bps, made.window_bytes, made.credit_bytes)
        for what, value in zip(("rate_bps", "window_bytes", "credit_bytes"), values, strict=True):
            self._check(what, value)
        rate = made.rate_bps
        if not self._stop and rate is not None:
            if rate == 0 and self._call(made.next_timer) is None:
                self._found("stuck", "rate_bps is 0 and no timer is set: the flow never sends again")
            elif rate > self._path.line_rate_bps * (1 + 1e-9) and not self._may_exceed:
                self._found("above-line", f"rate_bps is {rate:.0f}, the line has {self._path.line_rate_bps}; cap it")
        state = self._call(made.state)
        if not self._stop and not _numbers(state):
            self._found("wrong-type", f"state() gave {state!r}; it must be a dict of names and numbers")
        if not self._stop:
            self.history.append((self._event.now, self._event.verb, *values, made.trigger))
            self._levels.setdefault(self._event.phase, []).append(self._allowance(made))

    def _check(self, what: str, value: Any) -> None:
        if value is None or self._stop:
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._found("wrong-type", f"{what} is {value!r}; it must be a number or None")
        elif math.isnan(value) or math.isinf(value):
            self._found("not-a-number", f"{what} is {value}")
        elif value < 0 and what != "credit_bytes":
            self._found("negative" if self._trace.monotonic else "time-backwards", f"{what} is {value}")

    def _allowance(self, made: CongestionControl) -> float:
        """What the flow may send, as a rate: by its pace, or its window in each base round trip."""
        line = float(self._path.line_rate_bps)
        window = made.window_bytes * 8e9 / self._path.base_rtt_ns if made.window_bytes is not None else math.inf
        return min(made.rate_bps if made.rate_bps is not None else line, window)

    def _judge(self) -> None:
        """Did it slow down in congestion, and come back after it?"""
        alone, crowd, quiet = (self._levels.get(phase) for phase in ("alone", "congested", "quiet"))
        if self._trace.name != "incast" or self._by_receiver or not (alone and crowd and quiet):
            return
        line = float(self._path.line_rate_bps)
        if min(crowd) >= 0.98 * min(alone[-1], line):
            self._found("no-reaction", "neither rate nor window fell during 2 ms of marks and delay", warning=True)
        elif quiet[-1] < 0.9 * line and quiet[-1] <= 1.02 * crowd[-1]:
            self._found("no-recovery", "neither rate nor window grew during 20 ms without a mark", warning=True)

    def _found(self, rule: str, text: str, line: str | None = None, *, warning: bool = False) -> None:
        event, line = self._event, line or (None if warning else self._ran)
        self.findings.append(Finding(rule, text, self._trace.name, self._index, event.now, event.verb, line, warning))
        self._stop = self._stop or not warning


def _limited(action: Callable[[], Any], file: Path | None) -> tuple[Any, int]:
    """Run it, but stop it after too many lines of the student's file (or of anything, without a file); also its last line."""
    left, last = _LINES, 0
    mine = {str(file), str(file.absolute()), str(file.resolve())} if file else None

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left, last
        left -= 1
        last = frame.f_lineno
        if left < 0:
            raise _TooLong
        return local

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        return local if mine is None or frame.f_code.co_filename in mine else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return action(), last
    finally:
        sys.settrace(before)


def _numbers(state: Any) -> bool:
    return isinstance(state, dict) and all(isinstance(k, str) and isinstance(v, int | float) for k, v in state.items())


def _differences(first: _Play, second: _Play, trace: Trace) -> list[Finding]:
    for index, (one, two) in enumerate(zip(first.history, second.history, strict=False)):
        if one != two:
            text = f"the same trace gave another result the second time: {one[2:]} and {two[2:]}; use no clock and no randomness"
            return [Finding("no-repeat", text, trace.name, index, one[0], one[1])]
    return []


def _imports(file: Path) -> list[Finding]:
    """Modules that make a result depend on more than what happened."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name.split(".")[0] in _IMPURE:
                text = f"imports {name}: fabric time and events are all an algorithm may go by"
                found.append(Finding("impure-import", text, line=f"{file}:{getattr(node, 'lineno', 0)}", warning=True))
    return found


def _play_toy(cls: type[CongestionControl], params: Params, file: Path | None, report: Report) -> None:
    toy = Toy(cls, params=params)
    try:
        outcome = toy.run()
    except Exception as exc:
        line = student_line(exc, file) if file else None
        report.findings.append(Finding("exception", f"{type(exc).__name__}: {exc}", "toy", 0, toy.now, "run", line))
        return
    report.rate_bps = outcome.rates_bps[0]
    report.queue_bytes = outcome.queue_bytes
