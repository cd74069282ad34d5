"""`python -m emulator.exec.mpi_agent MAP HOST COMMAND...`: what mpirun takes for a remote shell; enters a host of the fabric.

MAP is the file that `emulator.exec.mpi.write_map` wrote. Like any remote shell it gives COMMAND to a shell on the host.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NoReturn

from emulator.exec.enter import Door


def main() -> NoReturn:
    """Enter and run."""
    _, path, host, *command = sys.argv
    known = json.loads(Path(path).read_text(encoding="utf-8"))
    pid = known["pids"].get(host)
    if pid is None:
        sys.exit(f"there is no host {host} on this fabric")
    binds = tuple((Path(source), str(target)) for source, target in known["binds"])
    with Door(host, pid, known["cwd"], binds, mortal=False).opened() as way:
        way.enter()
        os.execv("/bin/sh", ["sh", "-c", " ".join(command)])


if __name__ == "__main__":
    main()
