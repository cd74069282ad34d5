"""OpenMPI on the fabric: mpirun on the first host, with a launch agent that enters the others' namespaces.

mpirun starts its daemons with what it takes for a remote shell (plm_rsh_agent); ours enters the named host instead. The hosts
share a file system and a process table but no network, and each has its own name, so to OpenMPI they are different nodes.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from emulator.errors import MissingCapability, UsageError
from emulator.exec.launch import KEPT_LINES, Ending
from emulator.exec.program import Program

_TAGGED: Final = re.compile(r"\[\d+,(\d+)\]<(?:stdout|stderr|stddiag)>:? ?(.*)")
_ENDED: Final = "mpi-ended"
_SHELL: Final = """"$@"
code=$?
echo $code >"$0-$OMPI_COMM_WORLD_RANK"
exit $code"""
"""What each rank runs in: it notes the exit code, for mpirun does not always say whose came first, nor who still runs."""
_FABRIC: Final = "10.0.0.0/8"


def require_mpirun() -> str:
    """Where mpirun is; MissingCapability with what to install, UsageError where it is another MPI's."""
    found = shutil.which("mpirun")
    if found is None:
        raise MissingCapability(
            "there is no mpirun", where="--mpi", remedy="install Debian's packages openmpi-bin and libopenmpi-dev"
        )
    if shutil.which("orted") is None:
        raise UsageError("this mpirun is not OpenMPI's", where=found, remedy="install Debian's package openmpi-bin")
    return found


def mpirun_argv(program: Program, map_file: Path) -> list[str]:
    """The command line of mpirun. Nothing of the machine's own network is used, and waiting ranks let others run."""
    slots = ",".join(f"{host}:{program.on_host(host)}" for host in program.hosts)
    agent = f"{sys.executable} -m emulator.exec.mpi_agent {map_file}"
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": agent,
        "plm_rsh_no_tree_spawn": "1",
        "btl": "self,tcp",
        "pml": "ob1",
        "btl_tcp_if_include": _FABRIC,
        "oob_tcp_if_include": _FABRIC,
        "mpi_yield_when_idle": "1",
        "orte_base_help_aggregate": "0",
    }
    words = [require_mpirun(), "--allow-run-as-root", "-np", str(program.ranks), "-H", slots, "--map-by", "slot"]
    words += ["--bind-to", "none", "--tag-output"]
    for name, value in settings.items():
        words += ["--mca", name, value]
    return [*words, "/bin/sh", "-c", _SHELL, str(map_file.with_name(_ENDED)), *program.command]


def write_map(path: Path, pids: Mapping[str, int], cwd: str, binds: tuple[tuple[Path, str], ...]) -> None:
    """What the launch agent needs to find a host."""
    data = {"pids": dict(pids), "cwd": cwd, "binds": [[str(a), b] for a, b in binds]}
    path.write_text(json.dumps(data), encoding="utf-8")


class TaggedOutput:
    """Splits mpirun's output by rank: to a file each, to the live output, and into the last words that errors show."""

    def __init__(self, program: Program, folder: Path, raw: Path, say: Callable[[str], None]) -> None:
        self._hosts = {rank.rank: rank.host for rank in program.placement()}
        self._folder = folder
        self._raw = raw
        self._say = say
        self._files: dict[int, BinaryIO] = {}
        self._last: dict[int, list[str]] = {}

    def line(self, text: str) -> None:
        """One line of mpirun."""
        tagged = _TAGGED.match(text)
        if tagged is None:
            if text.strip():
                self._say(f"[mpirun] {text}")
            return
        rank, words = int(tagged[1]), tagged[2]
        if rank not in self._files:
            self._files[rank] = (self._folder / f"rank{rank}.txt").open("wb", buffering=0)
        self._files[rank].write(words.encode() + b"\n")
        self._last.setdefault(rank, []).append(words)
        del self._last[rank][:-KEPT_LINES]
        self._say(f"[{rank} {self._hosts.get(rank, '?')}] {words}")

    def problem(self) -> dict[str, str] | None:
        """Which rank failed first, as an error; None where none has noted a failure."""
        failed = [(at, rank, code) for rank, (at, code) in self._ended().items() if code != 0]
        if not failed:
            return None
        _, rank, code = min(failed)
        host = self._hosts.get(rank, "?")
        how = Ending(128 - code if code > 128 else code, 0, 0).text  # a shell gives 128 + n for signal n
        return {"what": f"rank {rank} on {host} {how}", "where": host, "remedy": self._said(rank)}

    def running(self) -> list[tuple[str, str, str]]:
        """The ranks that have not ended: name, host, last lines."""
        ended = self._ended()
        return [
            (f"rank {rank} on {host}", host, self._said(rank))
            for rank, host in self._hosts.items()
            if rank not in ended
        ]

    def _said(self, rank: int) -> str:
        name, last = f"rank {rank} on {self._hosts.get(rank, '?')}", self._last.get(rank)
        if not last:
            return f"{name} printed nothing"
        return f"{name} printed last:\n" + "\n".join(f"    {line}" for line in last)

    def _ended(self) -> dict[int, tuple[int, int]]:
        """When each rank ended, and its exit code."""
        found = {}
        for path in self._raw.glob(f"{_ENDED}-*"):
            text = path.read_text(encoding="ascii").strip()
            if text:  # else it is being written
                found[int(path.name.rpartition("-")[2])] = (path.stat().st_mtime_ns, int(text))
        return found

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
