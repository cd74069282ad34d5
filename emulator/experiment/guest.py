"""`python -m emulator.experiment.guest RUN_DIR`: the inside of a virtual run."""

from __future__ import annotations

import sys
from pathlib import Path

from emulator.experiment.run import guest_main

if __name__ == "__main__":
    sys.exit(guest_main(Path(sys.argv[1])))
