"""`python -m emulator.cli`: the same as the command `fabriclab`."""

from __future__ import annotations

import sys

from emulator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
