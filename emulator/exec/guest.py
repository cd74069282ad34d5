"""What the guest of the virtual clock needs for a program: memory, the folders it lives in, its variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from emulator.exec import dice
from emulator.exec.program import Program

RUN_AT: Final = Path("/run/program")
"""Where the guest sees the run directory of a program. Its own name differs from run to run and would stand in the ranks'
environment: libraries read that in blocks, ranks take turns by counted system calls, and a block more moves what follows."""
_BASE_MB: Final = 2048
_RANK_MB: Final = 768
_CARRIED: Final = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")


def guest_options(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Further arguments of `run_guest` for a program.

    The guest sees the host's files; of its environment it gets what finds programs and libraries, all else with `--env`.
    Its memory is a limit: what nobody touches is not taken.
    """
    program = Program.from_dict(workload)
    env = {name: os.environ[name] for name in _CARRIED if name in os.environ}
    folders = visible(program)
    library = dice.ensure_library()
    if library is not None:
        env[dice.VARIABLE] = str(library.resolve())
        folders.append(library.resolve().parent)
    return {
        "memory": f"{_BASE_MB + _RANK_MB * program.ranks}M",
        "env": {**env, "PATH": program_path(os.environ.get("PATH", ""))},
        "visible": folders,
        "run_at": RUN_AT,
        "measured": program.compute == "measured",
    }


def program_path(path: str) -> str:
    """Where commands are looked for: first beside this Python, so that `python` is one that knows this product."""
    own = str(Path(sys.executable).parent)
    return ":".join(dict.fromkeys([own, *filter(None, path.split(":"))]))


def visible(program: Program) -> list[Path]:
    """Folders that must be seen in the guest although scratch space lies there: the working folder, and files of the command."""
    words = [Path(word) for word in program.command if word.startswith("/")]
    folders = [Path(program.cwd), *(word.parent for word in words if word.exists())]
    return list(dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir()))
