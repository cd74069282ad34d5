"""One process of the program: started on its host, its output read, kept and passed on line by line, its end told apart."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emulator.errors import RunFailed, UsageError
from emulator.exec.enter import Door

KEPT_LINES: Final = 12
"""Last lines of a rank that an error shows."""
_BLOCK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 16


@dataclass(frozen=True)
class Ending:
    """How a process ended: exit code, or the signal that ended it, and the CPU time it took with its children."""

    code: int
    cpu_ns: int
    at_ns: int

    @property
    def text(self) -> str:
        """As an error says it."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"


class Process:
    """A command on a host. `label` names it in the live output; all it prints goes to `file`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        door: Door,
        env: Mapping[str, str],
        file: Path,
        on_line: Callable[[str], None],
    ) -> None:
        self.door = door
        self.file = file
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        self.lines = 0
        self.ending: Ending | None = None
        self._on_line = on_line
        self._pending = b""
        self._file = file.open("wb", buffering=0)
        self.started_ns = time.monotonic_ns()
        try:
            with door.opened() as way:
                self._popen = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    start_new_session=True,
                    preexec_fn=way.enter,  # noqa: PLW1509 - plain system calls, looked up before the fork
                )
        except OSError as error:
            self._file.close()
            raise UsageError(
                f"cannot start {argv[0]}: {error.strerror}",
                where=door.host,
                remedy="name a program that is on this machine",
            ) from error
        except subprocess.SubprocessError as error:
            self._file.close()
            raise RunFailed(
                "cannot enter the host's namespaces", where=door.host, remedy="run as root, or use --clock virtual"
            ) from error
        assert self._popen.stdout is not None
        self.output: int | None = self._popen.stdout.fileno()
        os.set_blocking(self.output, False)
        self.pid = self._popen.pid
        self.ended = os.pidfd_open(self.pid)

    @property
    def code(self) -> int:
        """Exit code, or minus the signal that ended it; of one that has ended."""
        assert self.ending is not None
        return self.ending.code

    def read(self) -> None:
        """Take what the process has printed; `output` becomes None once every writer has closed it."""
        while self.output is not None:
            try:
                block = os.read(self.output, _BLOCK)
            except BlockingIOError:
                return
            if not block:
                self._close_output()
                return
            self._file.write(block)
            *whole, self._pending = (self._pending + block).split(b"\n")
            for line in whole:
                self._take(line)
            if len(self._pending) > _LONGEST_LINE:
                self._take(self._pending)
                self._pending = b""

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self.lines += 1
        self.last.append(text)
        self._on_line(text)

    def _close_output(self) -> None:
        if self._popen.stdout is not None:
            self._popen.stdout.close()
            self._popen.stdout = None
        self.output = None
        if self._pending:
            self._take(self._pending)
            self._pending = b""
        self._file.close()

    def reap(self) -> bool:
        """Whether the process has ended; its `ending` is there from then on."""
        if self.ending is None:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                return False
            self._popen.returncode = os.waitstatus_to_exitcode(status)
            self.ending = Ending(self._popen.returncode, _cpu_ns(used), time.monotonic_ns())
            os.close(self.ended)
            self.read()
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process and all it has started in its session."""
        if self.ending is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return

    def close(self) -> None:
        """Kill it if it lives, take its last words, give everything back."""
        self.signal(signal.SIGKILL)
        if self.ending is None:
            _, status, used = os.wait4(self.pid, 0)
            self._popen.returncode = os.waitstatus_to_exitcode(status)
            self.ending = Ending(self._popen.returncode, _cpu_ns(used), time.monotonic_ns())
            os.close(self.ended)
        self.read()
        self._close_output()


def _cpu_ns(used: resource.struct_rusage) -> int:
    return int((used.ru_utime + used.ru_stime) * 1e9)


def record(process: Process, start_ns: int, tdf: int) -> dict[str, Any]:
    """What is kept of a process; times are fabric ns after the start, CPU time is real time."""
    ending = process.ending
    return {
        "started_ns": (process.started_ns - start_ns) // tdf,
        "ended_ns": None if ending is None else (ending.at_ns - start_ns) // tdf,
        "exit_code": None if ending is None else ending.code,
        "cpu_ns": None if ending is None else ending.cpu_ns,
        "lines": process.lines,
    }
