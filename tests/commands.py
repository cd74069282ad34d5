"""Commands as pages show them: every line of a ```bash or ```console block, run as written, one page in one folder, top to bottom.

Where a block shows prompts (`$ `), only the lines behind them are commands; the rest is what they print.

A block that cannot run in CI has a line `<!-- no-ci: the reason -->` before it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^(?P<indent> *)```(?:bash|console)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_NO_CI = re.compile(r"<!-- no-ci: (.+) -->\s*\Z")
_KEPT = ("FABRICLAB_KERNEL",)


@dataclass(frozen=True)
class Command:
    """One line of a page; `no_ci` is the reason why it does not run in CI, or empty."""

    page: str
    line: int
    text: str
    no_ci: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def commands_of(path: Path) -> list[Command]:
    """The commands of a page; a line that ends in a backslash goes on in the next."""
    text = path.read_text(encoding="utf-8")
    page = path.relative_to(ROOT).as_posix()
    found = []
    for block in _BLOCK.finditer(text):
        reason = _NO_CI.search(text[: block.start()])
        first = text[: block.start("text")].count("\n") + 1
        lines = block["text"].split("\n")
        if any(line.lstrip().startswith("$ ") for line in lines):
            lines = [line.lstrip()[2:] if line.lstrip().startswith("$ ") else "" for line in lines]
        at = 0
        while at < len(lines):
            start, whole = at, lines[at].strip()
            while whole.endswith("\\") and at + 1 < len(lines):
                at += 1
                whole = whole[:-1].rstrip() + " " + lines[at].strip()
            if whole and not whole.startswith("#"):
                found.append(Command(page, first + start, whole, reason[1] if reason else ""))
            at += 1
    return found


def environment() -> dict[str, str]:
    """As a user's: fabriclab on the path, none of its variables set (but where the guest kernel is)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("FABRICLAB_") or k in _KEPT}
    env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH', '')}"
    return env


def play(commands: Sequence[Command], folder: Path, *, timeout: float = 300, accept: Sequence[int] = (0,)) -> list[str]:
    """Runs commands one after the other; `cd` moves for those that follow. The outputs. AssertionError where one fails."""
    here, outputs = folder, []
    for command in commands:
        if command.no_ci:
            continue
        words = shlex.split(command.text)
        if words[0] == "cd":
            here = (here / words[1]).resolve()
            assert here.is_dir(), f"{command}: there is no such folder"
            continue
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=here,
            env=environment(),
            input="",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode in accept, (
            f"{command}: exit code {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        )
        assert "Traceback" not in done.stderr, f"{command}\n{done.stderr[-3000:]}"
        outputs.append(done.stdout)
    return outputs
