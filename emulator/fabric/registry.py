"""Who made what: every run has an entry under /run/fabriclab before it makes its first object.

The entry survives a kill -9 of its owner, so `clean` can tell the leftovers of a dead run from the objects of a live one.
The owner stands in a file *name*, which cannot be half written.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emulator.errors import FabricError, MissingCapability, UsageError
from emulator.fabric import kernel

ROOT: Final = Path("/run/fabriclab")
NAMESPACES: Final = Path("/run/netns")
#: Every process of a run carries this variable with the run id as its value.
MARK_VARIABLE: Final = "FABRICLAB_OWNER_RUN"
RUN_ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}"

_OWNER: Final = re.compile(r"owner-(\d+)-(\d+)")
_UNFINISHED: Final = re.compile(r"\.new-(\d+)-(\d+)-.*")
_SCRATCH: Final = re.compile(r"fabriclab-[0-9a-f]{16}")
_NAMESPACE: Final = re.compile(rf"fabriclab\.({RUN_ID_PATTERN})\.([A-Za-z0-9_-]+)")
_ALIAS: Final = re.compile(rf"fabriclab:({RUN_ID_PATTERN}):.+")


def check_run_id(run_id: str) -> str:
    """The run id itself; UsageError if it cannot be part of a namespace's name."""
    if not re.fullmatch(RUN_ID_PATTERN, run_id):
        raise UsageError(
            f'"{run_id}" cannot be a run id',
            remedy="use up to 80 letters, digits, - and _, beginning with a letter or digit",
        )
    return run_id


def new_run_id(what: str) -> str:
    """A run id that nobody else has: when, what, and the process that asks."""
    return check_run_id(f"{time.strftime('%Y%m%d-%H%M%S')}-{what}-{os.getpid()}")


def namespace_name(run_id: str, node: str) -> str:
    """Name of a node's namespace under /run/netns."""
    return f"fabriclab.{run_id}.{node}"


def alias(run_id: str, port: str) -> str:
    """The alias that a port's interface carries."""
    return f"fabriclab:{run_id}:{port}"


def run_of_namespace(name: str) -> str | None:
    """The run a namespace belongs to; None if the name is not ours."""
    found = _NAMESPACE.fullmatch(name)
    return found[1] if found else None


def run_of_alias(text: str | None) -> str | None:
    """The run an interface belongs to; None if the alias is not ours."""
    found = _ALIAS.fullmatch(text or "")
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Process:
    """A process named for good: pid and start time."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return kernel.start_time(self.pid) == self.started


def this_process() -> Process:
    """The caller."""
    return Process(os.getpid(), kernel.start_time(os.getpid()) or 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the registry knows of one run; `owner` is None and `about` empty where the files are damaged."""

    run_id: str
    path: Path
    owner: Process | None
    processes: tuple[Process, ...]
    about: dict[str, Any]

    @property
    def alive(self) -> bool:
        return self.owner is not None and self.owner.alive


class Registration:
    """A run's own entry; made before everything else, removed after everything else."""

    def __init__(self, run_id: str, path: Path) -> None:
        self.run_id = run_id
        self.path = path

    @classmethod
    def create(cls, run_id: str, about: dict[str, Any], root: Path = ROOT) -> Registration:
        """Enter a run owned by this process. `about` is for people: run directory, topology, namespaces.

        Raises FabricError if the run id is taken, MissingCapability without the right to write there.
        """
        check_run_id(run_id)
        me = this_process()
        new = root / f".new-{me.pid}-{me.started}-{run_id}"
        try:
            new.mkdir(parents=True)
        except PermissionError as error:
            raise MissingCapability(
                f"cannot write {root}", remedy="run with sudo, or use --clock virtual, which needs no root"
            ) from error
        (new / f"owner-{me.pid}-{me.started}").touch()
        (new / "about.json").write_text(json.dumps(about, indent=1))
        path = root / run_id
        try:
            # A rename over a non-empty directory fails: the name is taken, and an entry is there whole or not at all.
            new.rename(path)
        except OSError as error:
            shutil.rmtree(new)
            taken = read_entry(path)
            state = "is running now" if taken.alive else "left something behind"
            remedy = "choose another run id" if taken.alive else "run `fabriclab clean`"
            raise FabricError(f'a run "{run_id}" {state}', where=str(path), remedy=remedy) from error
        return cls(run_id, path)

    def add_process(self, pid: int) -> None:
        """Record a process of the run, so that `clean` ends it when the owner has died."""
        started = kernel.start_time(pid)
        if started is not None:
            (self.path / f"process-{pid}-{started}").touch()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary folder for the block; it is entered before it is made, so `clean` finds it after a kill -9."""
        path = Path(tempfile.gettempdir(), f"fabriclab-{secrets.token_hex(8)}")
        link = self.path / path.name
        link.symlink_to(path)
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path)
            link.unlink(missing_ok=True)

    def environment(self) -> dict[str, str]:
        """This process's environment with the run's mark, for every process of the run."""
        return {**os.environ, MARK_VARIABLE: self.run_id}

    def remove(self) -> None:
        """The run has left nothing behind."""
        remove_entry(self.path)


def _processes(path: Path, prefix: str) -> tuple[Process, ...]:
    found = (re.fullmatch(rf"{prefix}-(\d+)-(\d+)", entry.name) for entry in path.iterdir())
    return tuple(Process(int(m[1]), int(m[2])) for m in found if m)


def read_entry(path: Path) -> Entry:
    """One entry, as far as it can be read."""
    about: dict[str, Any] = {}
    owners: tuple[Process, ...] = ()
    processes: tuple[Process, ...] = ()
    try:
        owners, processes = _processes(path, "owner"), _processes(path, "process")
        loaded = json.loads((path / "about.json").read_text())
        about = loaded if isinstance(loaded, dict) else {}
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass  # damaged, or removed by its owner just now: the names read so far are what is known
    return Entry(path.name, path, owners[0] if owners else None, processes, about)


def entries(root: Path = ROOT) -> list[Entry]:
    """All runs that are entered, live and dead."""
    if not root.exists():
        return []
    return [read_entry(path) for path in sorted(root.iterdir()) if not path.name.startswith(".")]


def unfinished(root: Path = ROOT) -> list[Path]:
    """Entries whose making was cut off by the death of their maker."""
    if not root.exists():
        return []
    found = ((path, _UNFINISHED.fullmatch(path.name)) for path in sorted(root.iterdir()))
    return [path for path, m in found if m and not Process(int(m[1]), int(m[2])).alive]


def mounts_below(path: Path) -> list[Path]:
    """Mount points below a directory, deepest first."""
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    inside = {Path(p) for p in points if p.startswith(f"{path}/")}
    return sorted(inside, key=lambda p: len(p.parts), reverse=True)


def remove_entry(path: Path) -> list[Path]:
    """Remove an entry with what is mounted below it; the mounts removed."""
    mounts = mounts_below(path)
    for point in mounts:
        kernel.unmount(point)
    if path.is_dir() and not path.is_symlink():
        # The owner's name goes last: an entry half removed must still tell whose it is.
        for child in path.iterdir():
            if child.is_symlink():
                _remove_scratch(child)
            elif not _OWNER.fullmatch(child.name):
                with suppress(FileNotFoundError):
                    shutil.rmtree(child) if child.is_dir() else child.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # another `clean` was faster
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return mounts


def _remove_scratch(link: Path) -> None:
    """Remove a temporary folder that a run entered, and nothing that merely has its place."""
    folder = link.readlink()
    if _SCRATCH.fullmatch(link.name) and folder.name == link.name and not folder.is_symlink():
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
    link.unlink(missing_ok=True)
