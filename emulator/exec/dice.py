"""Random numbers of C++ programs on the virtual clock: a library preloaded into the ranks has them drawn from the run's seed.

`std::random_device` executes `rdseed` or `rdrand`, which no kernel sees. PyTorch takes from there how long a rank waits before
it tries again to reach one that does not listen yet.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from emulator.port.objects import cache_dir

VARIABLE: Final = "FABRICLAB_DICE"
"""What tells the guest where the host keeps the library."""
SOURCE: Final = Path(__file__).with_name("dice.c")
_FLAGS: Final = ("-O2", "-Wall", "-shared", "-fPIC")
_PLACE: Final = Path("/run/fabriclab-dice.so")
_COMPILERS: Final = ("cc", "gcc", "clang")


def ensure_library(cache: Path | None = None) -> Path | None:
    """The library, compiled now (a tenth of a second) where it is not in the cache; None where no compiler makes it."""
    folder = cache or cache_dir()
    text = SOURCE.read_bytes() + " ".join(_FLAGS).encode()
    path = folder / f"dice-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if path.is_file():
        return path
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch, path.name)
            argv = [compiler, *_FLAGS, "-o", str(made), str(SOURCE)]
            done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
            if done.returncode != 0:
                return None
            made.chmod(0o644)
            made.replace(path)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path


def put_in_place() -> Path | None:
    """In the guest: the library under a name that is the same in every run; None where the host has none."""
    source = os.environ.get(VARIABLE)
    if not source:
        return None
    shutil.copyfile(source, _PLACE)
    return _PLACE


def preloaded(environment: Mapping[str, str], library: Path | None) -> dict[str, str]:
    """A rank's environment with the library, before what the user has preloaded."""
    if library is None:
        return dict(environment)
    own = environment.get("LD_PRELOAD")
    return {**environment, "LD_PRELOAD": f"{library}:{own}" if own else str(library)}
