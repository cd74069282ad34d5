"""The system calls Python 3.11 has no name for: mounting; and who a process is."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SHARED: Final = 1 << 20
MNT_DETACH: Final = 2


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> None:
    if getattr(_libc(), name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def mount(source: str, target: Path, flags: int, kind: str = "none") -> None:
    """mount(2); raises OSError."""
    _call("mount", source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)


def unmount(target: Path) -> None:
    """umount2(2), lazily: what still uses the mount keeps it; raises OSError."""
    _call("umount2", os.fsencode(target), MNT_DETACH)


def write_file(path: str, text: str) -> None:
    """Write a file of /proc in three system calls, where Path.write_text takes six; in the guest kernel each is dear."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def read_file(path: str) -> str:
    """Read a short file of /proc."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).decode()
    finally:
        os.close(fd)


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks after boot (field 22 of /proc/PID/stat); None if there is none.

    With the pid it names a process for ever: a pid that came round again has another start time. A zombie counts as gone.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def all_pids() -> list[int]:
    """Every process there is."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


NamespaceId = tuple[int, int]


def namespace_id(path: Path) -> NamespaceId | None:
    """Device and inode of a namespace file, /proc/PID/ns/net or a name under /run/netns; None if it is gone."""
    try:
        status = path.stat()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return status.st_dev, status.st_ino


def namespace_of(pid: int) -> NamespaceId | None:
    """The network namespace a process lives in."""
    return namespace_id(Path(f"/proc/{pid}/ns/net"))
