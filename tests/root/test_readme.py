"""Every command of the README runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line]
COMMANDS += re.findall(r"\| `(scripts/[^`]+)` \|", TEXT)
SELF = "scripts/test"
"""It runs this test."""


def test_the_two_commands_are_there() -> None:
    assert COMMANDS[:2] == ["scripts/fabriclab incast topologies/leaf-spine-2x2x4.yaml --senders 7", SELF]
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != SELF])
def test_command(command: str, tmp_path: Path) -> None:
    """In a folder of links to the checkout, so that what a command writes stays out of it. 3 is a result, too, on a busy machine."""
    for entry in ROOT.iterdir():
        if entry.name != "runs":
            (tmp_path / entry.name).symlink_to(entry)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FABRICLAB_")}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment,
        input="",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in ((0, 3) if re.search(r"incast|allreduce", command) else (0,)), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    written = [path.name for path in tmp_path.iterdir() if not path.is_symlink()]
    assert done.stdout or written
