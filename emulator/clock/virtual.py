"""Host side of the virtual clock: boot the guest, relay what it prints, end it, leave nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import secrets
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from emulator.clock.kernel import VARIABLE, find_kernel
from emulator.errors import MissingCapability, RunFailed, UsageError
from emulator.fabric.ending import EndingSignals


class GuestLate(RunFailed):
    """The guest did not end within its wall time."""


EPOCH_NS: Final = 1_735_689_600_000_000_000
"""CLOCK_REALTIME at guest boot: 2025-01-01T00:00:00Z, so that no date of the host shows in a result."""

PERSONALITY_NO_RANDOMISE: Final = 0x0040000
PERSONALITY_QUERY: Final = 0xFFFFFFFF
PR_SET_PDEATHSIG: Final = 1
POLL_MS: Final = 20
COMMAND_LINE_LIMIT: Final = 4096

GUEST_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/run/home",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "FABRICLAB_GUEST": "1",
}
"""All a guest program sees of an environment, besides what the caller adds."""


def run_guest(
    argv: Sequence[str],
    *,
    run_dir: Path,
    memory: str = "2G",
    wall_limit_s: float,
    on_line: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seed: int = 0,
    core: int | None = None,
    kernel: Path | None = None,
    visible: Sequence[Path] = (),
    run_at: Path | None = None,
    measured: bool = False,
) -> int:
    """Run a program inside a fresh guest and give its exit status (128 + n when signal n ended it).

    The guest sees the host's files read-only at their own places, `run_dir` writable (at `run_at`, if given), and scratch
    space in /tmp, /run, /var/tmp and /dev/shm. Folders that lie there on the host are seen if Python needs them or `visible` names them.
    `on_line` is called in this thread with each line the program prints, as it prints it. `seed` seeds the guest
    kernel's random numbers, `core` pins the guest (by default the least busy core allowed). The calling thread must
    live as long as the guest, which dies with it.
    With `measured` CPU time counts (time-travel's basic mode), so no two runs are the same.
    Raises MissingCapability without a guest kernel, RunFailed when the guest dies or `wall_limit_s` passes.
    """
    binary = kernel or find_kernel()
    if binary is None:
        raise MissingCapability(
            "there is no guest kernel for the virtual clock",
            where="--clock virtual",
            remedy="build it once with `fabriclab kernel build`, or name one in FABRICLAB_KERNEL",
        )
    run_dir = run_dir.resolve(strict=True)
    place = (cwd or Path.cwd()).resolve(strict=True)
    token = secrets.token_hex(8)
    order = {
        "argv": list(argv),
        "cwd": str(place),
        "env": {**GUEST_ENVIRONMENT, **(env or {})},
        "run_dir": str(run_dir),
        "run_at": str(run_at or run_dir),
        "visible": [str(folder) for folder in _hidden_by_scratch({place, *visible})],
        "token": token,
        "measured": measured,
    }
    with _channel(run_dir, order) as (path, offset, reading):
        command = _command(binary, path, memory, seed, measured=measured)
        lines = _Lines(reading, offset, token, on_line)
        log = os.memfd_create("guest-log", os.MFD_CLOEXEC)
        try:
            with EndingSignals():
                process = _boot(command, log, core if core is not None else quiet_core())
                try:
                    finished = _watch(process, lines, wall_limit_s)
                finally:
                    _end(process)
            lines.read()
            if lines.status is not None:
                return lines.status
            raise _failure(finished, wall_limit_s, lines.last, _log_tail(log), process.returncode)
        finally:
            os.close(log)


def quiet_core() -> int:
    """The core this process may use with the fewest sessions pinned to it, as other guests are; among equals the one least busy
    over the last 20 ms, then the highest number."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) == 1:
        return allowed[0]
    before = _busy_ticks()
    time.sleep(0.02)
    after = _busy_ticks()
    pinned = _pinned()
    return min(allowed, key=lambda core: (len(pinned[core]), after.get(core, 0) - before.get(core, 0), -core))


def _pinned() -> defaultdict[int, set[int]]:
    """The sessions with a program that may run on this core alone (the kernel's own threads have no memory of their own)."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (folder / "status").read_text(errors="replace").splitlines()
            fields = dict(line.partition(":\t")[::2] for line in lines)
            cores = fields.get("Cpus_allowed_list", "")
            if "VmSize" in fields and cores.isdigit():
                found[int(cores)].add(os.getsid(int(folder.name)))
    return found


def _busy_ticks() -> dict[int, int]:
    """Ticks each core spent on anything but waiting (proc(5), /proc/stat: fields 4 and 5 are idle and iowait)."""
    busy: dict[int, int] = {}
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields]
            busy[int(name[3:])] = sum(ticks[:8]) - ticks[3] - ticks[4]
    return busy


def _hidden_by_scratch(folders: set[Path]) -> list[Path]:
    """Folders the program needs that lie where the guest mounts scratch space; outer ones first, none inside another."""
    scratch = [Path("/tmp"), Path("/run"), Path("/var/tmp")]
    needed = {Path(entry).resolve() for entry in (*sys.path, sys.prefix, sys.base_prefix) if entry} | folders
    found: list[Path] = []
    for folder in sorted(needed):
        if not folder.is_dir() or folder in scratch or not any(top in folder.parents for top in scratch):
            continue
        if not any(outer in folder.parents for outer in found):
            found.append(folder)
    return found


@contextlib.contextmanager
def _channel(run_dir: Path, order: Mapping[str, object]) -> Iterator[tuple[Path, int, int]]:
    """A file with the order in its first line; the guest appends to it and removes its name at once."""
    path = run_dir / f".guest-{order['token']}"
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"the run directory cannot be written ({error.strerror})", where=str(run_dir), remedy="choose another --out"
        ) from error
    try:
        data = json.dumps(order).encode() + b"\n"
        os.write(number, data)
        yield path, len(data), number
    finally:
        os.close(number)
        # The guest has removed it; it is there only when the guest did not get that far, or the folder is out of reach.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()


def _command(kernel: Path, channel: Path, memory: str, seed: int, *, measured: bool) -> list[str]:
    """The guest kernel's command line; spaces in paths are quoted the kernel's way."""
    script = Path(__file__).with_name("guest.py").resolve()
    words = [
        str(kernel),
        f"mem={memory}",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        "norandmaps",
        "dummy.numdummies=0",
        "ifb.numifbs=0",
        "con=null",
        "console=none",
        "time-travel" if measured else "time-travel=inf-cpu",
        f"time-travel-start={EPOCH_NS}",
        f"rng-seed={seed % 2**64}",
        f"init={_quoted(sys.executable)}",
        "--",
        "-I",
        "-S",
        _quoted(str(script)),
        _quoted(str(channel)),
    ]
    if sum(len(word) + 1 for word in words) >= COMMAND_LINE_LIMIT:
        raise UsageError(
            "the path is too long for the guest kernel's command line",
            where=str(channel.parent),
            remedy="choose a shorter --out",
        )
    return words


def _quoted(path: str) -> str:
    if '"' in path:
        raise UsageError('a path with " in it cannot reach the guest', where=path, remedy="rename the folder")
    return f'"{path}"' if " " in path else path


def require_fixed_addresses() -> None:
    """Raises MissingCapability where a process may not have its addresses fixed: they would show in the results."""
    libc = ctypes.CDLL(None, use_errno=True)
    now = libc.personality(ctypes.c_ulong(PERSONALITY_QUERY))
    if libc.personality(ctypes.c_ulong(now | PERSONALITY_NO_RANDOMISE)) < 0:
        raise MissingCapability(
            f"the virtual clock cannot fix its guest's addresses ({os.strerror(ctypes.get_errno())})",
            where="personality(ADDR_NO_RANDOMIZE)",
            remedy="a container's filter forbids it: start it with --security-opt seccomp=unconfined",
        )
    libc.personality(ctypes.c_ulong(now))


def _boot(command: Sequence[str], log: int, core: int) -> subprocess.Popen[bytes]:
    """Start the kernel in a session of its own, on one core, without address randomisation, dying with this thread."""
    require_fixed_addresses()
    libc = ctypes.CDLL(None)
    prctl, personality = libc.prctl, libc.personality
    parent = os.getpid()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        personality(ctypes.c_ulong(PERSONALITY_NO_RANDOMISE))
        os.sched_setaffinity(0, {core})
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    environment = {"PATH": GUEST_ENVIRONMENT["PATH"], "HOME": "/"}
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - plain system calls only, looked up before the fork
        )
    except OSError as error:
        raise MissingCapability(
            f"the guest kernel cannot be started: {error.strerror}",
            where=command[0],
            remedy="the file is damaged: build it again with `fabriclab kernel build`, or correct FABRICLAB_KERNEL",
        ) from error


def _watch(process: subprocess.Popen[bytes], lines: _Lines, wall_limit_s: float) -> bool:
    """Relay until the guest ends (True) or the limit passes (False)."""
    deadline = time.monotonic() + wall_limit_s
    ended = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        while not poll.poll(POLL_MS):
            lines.read()
            if time.monotonic() > deadline:
                return False
        return True
    finally:
        os.close(ended)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the guest's session, kernel and tasks alike, and wait for it; harmless when it has ended by itself."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Lines:
    """What the guest has appended to the channel, cut into lines; the last one carries the exit status."""

    def __init__(self, number: int, offset: int, token: str, on_line: Callable[[str], None]) -> None:
        self.status: int | None = None
        self.last = ""
        self._number = number
        self._offset = offset
        self._mark = f"\0{token} ".encode()
        self._on_line = on_line
        self._rest = b""

    def read(self) -> None:
        """Pass on every whole line that has come since the last call."""
        while block := os.pread(self._number, 1 << 16, self._offset):
            self._offset += len(block)
            *whole, self._rest = (self._rest + block).split(b"\n")
            for line in whole:
                self._take(line)

    def _take(self, line: bytes) -> None:
        text, mark, status = line.partition(self._mark)
        if mark:
            self.status = int(status)
        if text or not mark:
            self.last = text.decode(errors="replace").rstrip("\r")
            self._on_line(self.last)


def _log_tail(log: int, lines: int = 8) -> list[str]:
    """The last lines the guest kernel itself wrote (a panic ends there)."""
    size = os.fstat(log).st_size
    text = os.pread(log, 65536, max(0, size - 65536)).decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()][-lines:]


def _failure(finished: bool, wall_limit_s: float, last: str, log: Sequence[str], status: int) -> RunFailed:
    told = f"the last line it printed: {last!r}" if last else "it printed nothing"
    if not finished:
        return GuestLate(
            f"the guest did not finish within {wall_limit_s:g} s of wall time; {told}",
            where="virtual clock",
            remedy="raise --wall-limit, make the experiment smaller, or look at what it waits for",
        )
    if status == -signal.SIGKILL and not log:
        return RunFailed(
            f"the guest kernel stopped before the program ended: it was ended from outside (SIGKILL); {told}",
            where="virtual clock",
            remedy="a user did it, or the system when memory ran out (`dmesg` tells); run again",
        )
    if not log and VARIABLE in os.environ:
        return RunFailed(
            "it ended without a word, as no guest kernel does",
            where=f"{VARIABLE}={os.environ[VARIABLE]}",
            remedy="name the `linux` of a folder that `fabriclab kernel build` made, or unset it",
        )
    return RunFailed(
        f"the guest kernel stopped before the program ended; {told}; the kernel said: {' | '.join(log) or 'nothing'}",
        where="virtual clock",
        remedy="give the guest more memory if it ran out; otherwise try `fabriclab kernel build` again and report this",
    )
