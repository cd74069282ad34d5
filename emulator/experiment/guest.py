"""`python -m emulator.experiment.guest RUN_DIR`: the inside of a virtual run, with compiled modules where they are built."""

from __future__ import annotations

import sys
from pathlib import Path

from traffic import native


def main() -> int:
    """Run the manifest of the run directory named on the command line."""
    native.enable()
    from emulator.experiment.run import guest_main

    return guest_main(Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
