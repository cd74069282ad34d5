"""The packet loop as machine code, where it was built: the same source, compiled by mypyc, with the same results.

Pure Python is the reference and what runs without a build. Compiled modules are kept in a folder named after the digest of
their source and of the interpreter, so a build never outlives the source it was made from. FABRICLAB_NATIVE is `off`, or a
folder to take as it is (the guest of the virtual clock is told its host's).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

VARIABLE: Final = "FABRICLAB_NATIVE"
OFF: Final = "off"
MACHINE_CACHE: Final = Path("/var/cache/fabriclab/native")
"""Where root keeps builds, so that every user of the machine has them."""
MODULES: Final = (
    *(f"traffic.packet.{name}" for name in ("headers", "mrc_headers", "opcodes", "parse", "template")),
    *(f"traffic.transport.{name}" for name in ("base", "credit", "message", "mrc", "mrc_probes", "mrc_receiver")),
    *(f"traffic.transport.{name}" for name in ("mrc_sender", "options", "paths", "rc", "rc_requester", "rc_responder")),
    *(f"traffic.transport.{name}" for name in ("receiving", "spray", "uc", "ud")),
    *(f"traffic.agent.{name}" for name in ("nic", "recorder", "worker")),
)
"""What is compiled: what runs for each packet. Congestion control is not, so that a user's own algorithm fits in."""
ROOMS: Final = ("agent", "collective", "congestion", "packet", "transport")
"""Folders of `traffic` whose source makes the digest: what is compiled, and what it was checked against."""
FLAGS: Final = ("-O2", "-ffp-contract=off")
"""No fused multiply-add: it would round otherwise than the interpreter."""


def own_cache() -> Path:
    """This user's folder of builds."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fabriclab" / "native"


def digest() -> str:
    """Names the build that fits this source and this interpreter."""
    found = hashlib.sha256(f"{sys.version} {EXTENSION_SUFFIXES[0]} {MODULES} {FLAGS}".encode())
    here = Path(__file__).parent
    for path in sorted(path for room in ROOMS for path in (here / room).glob("*.py")):
        found.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def find() -> Path | None:
    """The build to use, or None where there is none or it is switched off."""
    wanted = os.environ.get(VARIABLE)
    if wanted == OFF:
        return None
    if wanted:
        return Path(wanted)
    key = digest()
    return next((path for path in (own_cache() / key, MACHINE_CACHE / key) if path.is_dir()), None)


def environment() -> dict[str, str]:
    """What makes another process use what this one would."""
    return {VARIABLE: str(find() or OFF)}


def in_use() -> bool:
    """Whether this process imports the compiled modules."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def enable() -> bool:
    """Import compiled modules from now on, where there is a build; whether it is so.

    Nothing is done once one of them has been imported: compiled modules know each other's insides, and a mixture would not.
    """
    if in_use():
        return True
    if any(name in sys.modules for name in MODULES):
        return False
    folder = find()
    finder = None if folder is None else _Finder(folder)
    if finder is None or not finder.complete:
        return False
    sys.meta_path.insert(0, finder)
    return True


class _Finder(MetaPathFinder):
    """Finds the modules of one build by their full names."""

    def __init__(self, folder: Path) -> None:
        self._paths = {
            path.name[: -len(EXTENSION_SUFFIXES[0])]: path for path in folder.glob("*" + EXTENSION_SUFFIXES[0])
        }

    @property
    def complete(self) -> bool:
        """Whether every module is there; a folder that the guest cannot see has none."""
        return all(name in self._paths for name in MODULES)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = self._paths.get(fullname)
        return None if found is None else spec_from_file_location(fullname, found)
