"""The program's processes while they run: one loop that passes on output, samples on a period, and notices every end.

Nothing here polls: the loop waits for output, for the end of a process, or for the next sample.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from emulator.exec.launch import Process
from emulator.exec.rounds import Rounds
from traffic.agent.clock import Poller

GRACE_S: Final = 1.0
"""Wall time between SIGTERM and SIGKILL for what still runs once a rank has failed; on the virtual clock, virtual time."""


@dataclass(frozen=True)
class Member:
    """A process of the program with the name that errors and output give it: `rank 2 on host2`, `mpirun on host0`.

    `rank` is None for what starts others; `explain` then tells which of those failed, if it knows, and `inside` which
    still run: name, host, and what an error says of their last lines.
    """

    name: str
    host: str
    process: Process
    rank: int | None
    explain: Callable[[], dict[str, str] | None] | None = None
    inside: Callable[[], list[tuple[str, str, str]]] | None = None

    def running(self) -> list[tuple[str, str, str]]:
        """Of what still runs, itself or the ranks that it has started: name, host, last lines."""
        return (self.inside() if self.inside is not None else []) or [(self.name, self.host, said(self))]


@dataclass(frozen=True)
class Limits:
    """When a program that does not end is ended: fabric time after the start, and wall time (real clock only)."""

    fabric_ns: int
    wall_s: float


@dataclass
class Outcome:
    """How it went. `problem` names what failed first, in an error's three parts, or is None."""

    end_ns: int
    problem: dict[str, str] | None = None


class Session:
    """Runs until all members have ended with exit code 0, one has not, or a limit passes; then ends those that are left."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        start_ns: int,
        tdf: int,
        limits: Limits,
        rounds: Rounds,
        watch: Sequence[tuple[int, Callable[[], dict[str, str] | None]]] = (),
        on_running: Callable[[list[str]], None] = lambda names: None,
    ) -> None:
        self.members = members
        self.start_ns = start_ns
        self.tdf = tdf
        self.limits = limits
        self.rounds = rounds
        self.watch = dict(watch)
        self.on_running = on_running

    def now(self) -> int:
        """Fabric time."""
        return (time.monotonic_ns() - self.start_ns) // self.tdf

    def run(self) -> Outcome:
        """Wait for the end."""
        outputs = {m.process.output: m.process for m in self.members if m.process.output is not None}
        ends = {m.process.ended: m for m in self.members}
        # A descriptor that is closed leaves the poller by itself.
        poller = Poller([*outputs, *ends, *self.watch, *self.rounds.fds])
        try:
            return self._loop(poller, outputs, ends)
        finally:
            poller.close()
            self.rounds.end(self.now())

    def _loop(self, poller: Poller, outputs: dict[int, Process], ends: dict[int, Member]) -> Outcome:
        deadline = time.monotonic() + self.limits.wall_s
        rounds = self.rounds
        self.on_running([m.name for m in ends.values()])
        while ends:
            now = self.now()
            if now >= rounds.due:
                rounds.take(now)
                now = self.now()
            if now > self.limits.fabric_ns:
                return Outcome(now, self._late(f"{now / 1e9:.6g} s of fabric time", list(ends.values())))
            if time.monotonic() > deadline:
                return Outcome(now, self._late(f"{self.limits.wall_s:g} s of wall time", list(ends.values())))
            due = min(rounds.due, self.limits.fabric_ns + 1)
            ready = poller.wait(due * self.tdf + self.start_ns - time.monotonic_ns())
            if any(fd in rounds.fds for fd in ready):
                rounds.wake(self.now())
            for fd in ready:
                if fd in outputs:
                    outputs[fd].read()
            ended = [ends.pop(fd) for fd in ready if fd in ends and ends[fd].process.reap()]
            if ended:
                self.on_running([m.name for m in ends.values()])
            failed = [m for m in ended if m.process.code != 0]
            if failed:
                return Outcome(self.now(), self._failed(min(failed, key=lambda m: m.process.code)))
            for fd in ready:
                problem = self.watch[fd]() if fd in self.watch else None
                if problem is not None:
                    return Outcome(self.now(), problem)
        return Outcome(self.now())

    def _failed(self, first: Member) -> dict[str, str]:
        """Which one failed first, and who had left before it."""
        if first.explain is not None and (known := first.explain()) is not None:
            return known
        gone = [m for m in self.members if m is not first and m.process.ending is not None and m.process.code == 0]
        before = f"; before it had ended with exit code 0: {self._times(gone)}" if gone else ""
        assert first.process.ending is not None
        return {"what": f"{first.name} {first.process.ending.text}{before}", "where": first.host, "remedy": said(first)}

    def _times(self, members: Sequence[Member]) -> str:
        ends = [(m.name, m.process.ending.at_ns) for m in members if m.process.ending is not None]
        texts = [f"{name} after {(at - self.start_ns) / self.tdf / 1e6:.3f} ms" for name, at in ends]
        return _some(texts)

    def _late(self, limit: str, left: Sequence[Member]) -> dict[str, str]:
        running = [row for m in left for row in m.running()]
        gone = [m for m in self.members if m.process.ending is not None]
        beside = f"; had ended with exit code 0: {self._times(gone)}" if gone else ""
        return {
            "what": f"not finished after {limit}: {_some([name for name, _, _ in running])} still running{beside}",
            "where": _some(list(dict.fromkeys(host for _, host, _ in running))),
            "remedy": "raise --time-limit or --wall-limit, or see what it waits for; "
            + "\n  ".join(last for _, _, last in running[:2]),
        }


def _some(items: Sequence[str], most: int = 4) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def said(member: Member) -> str:
    """The last lines of a member, for an error."""
    lines = list(member.process.last)
    if not lines:
        return f"{member.name} printed nothing"
    return f"{member.name} printed last:\n" + "\n".join(f"    {line}" for line in lines)


def end_all(members: Sequence[Member]) -> None:
    """End every member that still runs: politely, then for good."""
    alive = [m.process for m in members if not m.process.reap()]
    for process in alive:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    poll = select.poll()
    for process in alive:
        poll.register(process.ended, select.POLLIN)
    while alive and (left := deadline - time.monotonic()) > 0:
        poll.poll(left * 1000)
        for process in alive:
            fd = process.ended
            if process.reap():
                poll.unregister(fd)
        alive = [process for process in alive if process.ending is None]
    for member in members:
        member.process.close()
