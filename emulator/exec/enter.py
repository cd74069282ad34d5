"""Enter a host of the fabric: its network and mount namespace, its host name, its table of names.

`Door.enter` is called between fork and exec, so everything it needs is looked up before.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWNET: Final = 0x40000000
_MS_BIND: Final = 0x1000
_PR_SET_PDEATHSIG: Final = 1
HOSTS: Final = "/etc/hosts"
SWITCH: Final = "/etc/nsswitch.conf"


@dataclass(frozen=True)
class Door:
    """The way into one host. `pid` is a process that lives there; `binds` are files put over others there (its name tables).

    With `mortal` the process dies with the thread that started it.
    """

    host: str
    pid: int
    cwd: str
    binds: tuple[tuple[Path, str], ...] = ()
    mortal: bool = True

    def opened(self) -> Opened:
        """The door with its namespaces held open; close it after the fork."""
        return Opened(self)


class Opened:
    """A context manager around the descriptors of a host's namespaces."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._fds: list[int] = []
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        for name in ("setns", "unshare", "sethostname", "mount", "prctl"):
            getattr(self._libc, name)  # looked up now, not between fork and exec
        self._name = door.host.encode()
        binds = [(source, target) for source, target in door.binds if Path(target).exists()]
        self._binds = [(os.fsencode(source), os.fsencode(target)) for source, target in binds]

    def __enter__(self) -> Opened:
        for kind in ("net", "mnt"):
            self._fds.append(os.open(f"/proc/{self.door.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def enter(self) -> None:
        """Move this process into the host. Raises OSError."""
        net, mnt = self._fds
        if self.door.mortal:
            self._do("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        self._do("setns", net, _CLONE_NEWNET)
        self._do("setns", mnt, _CLONE_NEWNS)
        self._do("unshare", _CLONE_NEWUTS)
        self._do("sethostname", self._name, ctypes.c_size_t(len(self._name)))
        for source, target in self._binds:
            self._do("mount", source, target, b"none", ctypes.c_ulong(_MS_BIND), None)
        os.chdir(self.door.cwd)  # entering a mount namespace leaves the process at its root

    def _do(self, call: str, *arguments: object) -> None:
        if getattr(self._libc, call)(*arguments) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"{call}: {os.strerror(code)}")


def write_tables(folder: Path, addresses: Sequence[tuple[str, str]]) -> tuple[tuple[Path, str], ...]:
    """Name tables for the hosts, written into `folder`: (host, address) of all, found in both families, and no DNS.

    There is no name server on a fabric; a program that asks one would wait for it.
    """
    hosts, switch = folder / "etc-hosts", folder / "etc-nsswitch.conf"
    lines = ["127.0.0.1 localhost", *(f"{address} {host}" for host, address in addresses)]
    lines += [f"::ffff:{address} {host}" for host, address in addresses]
    hosts.write_text("\n".join(lines) + "\n", encoding="ascii")
    try:
        known = Path(SWITCH).read_text(encoding="utf-8").splitlines()
    except OSError:
        known = []
    kept = [line for line in known if not line.startswith(("hosts:", "#")) and line.strip()]
    switch.write_text("\n".join([*kept, "hosts: files"]) + "\n", encoding="utf-8")
    return (hosts, HOSTS), (switch, SWITCH)
