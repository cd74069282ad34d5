"""--live on a terminal and without one; it changes nothing of the run."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from emulator.clock.kernel import find_kernel
from emulator.report.api import Run
from tests.experiments import ROOT, TOPOLOGIES, incast

pytestmark = pytest.mark.virtual

COMMAND = [sys.executable, "-m", "emulator.cli", "incast", str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"), "--senders", "7"]
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "FABRICLAB_KERNEL": str(find_kernel()),
        "TERM": "xterm-256color",
        "COLUMNS": "110",
        "LINES": "40",
    }


def on_a_terminal(argv: list[str]) -> str:
    """What a command writes to a terminal of 110 columns; it must end with exit code 0."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 110, 0, 0))
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment())
    os.close(theirs)
    out, limit = b"", time.monotonic() + 200
    while time.monotonic() < limit:
        if select.select([ours], [], [], 1)[0]:
            try:
                block = os.read(ours, 65536)
            except OSError:  # EIO: the other end is closed
                break
            out += block
    os.close(ours)
    assert process.wait(timeout=10) == 0, out.decode()
    return out.decode()


def test_a_terminal_shows_queues_rates_marks_and_progress_and_gets_its_screen_back(tmp_path: Path) -> None:
    text = on_a_terminal([*COMMAND, "--clock", "virtual", "--live", "--out", str(tmp_path)])
    pictures = [COLOURS.sub("", part) for part in text.split("╭")[1:]]
    traffic = [p for p in pictures if "Gbit/s" in p and "queues" in p]
    assert traffic, text
    best = max(traffic, key=lambda p: p.count("█"))
    assert re.search(r"leaf0:host0 [█▏▎▍▌▋▊▉·]{24} +[\d.]+ [kM]?B +\d+ %", best), best
    assert re.search(r"host[1-7] [█▏▎▍▌▋▊▉·]{24} +[\d.]+ Gbit/s", best), best
    for word in (
        "us of fabric time",
        "transfers left",
        "packets sent",
        "marked",
        "dropped 0",
        "retransmitted",
        "late p99",
    ):
        assert word in best, word
    assert "budget" not in best  # the virtual clock has none
    assert "\x1b[?25h" in text  # the cursor is back
    assert "VERDICT: TRUSTED" in pictures[-1]
    (run_dir,) = tmp_path.iterdir()
    for table in ("flows", "queues"):
        assert (run_dir / f"{table}.parquet").read_bytes() == (incast("virtual").path / f"{table}.parquet").read_bytes()


def test_without_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    argv = [*COMMAND, "--clock", "virtual", "--live", "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=True, cwd=ROOT, env=environment())
    assert "\x1b" not in done.stderr and "\r" not in done.stderr
    lines = done.stderr.splitlines()
    told = [lines.index(line) for line in ("the virtual clock was asked for", "24 ports …", "writing results …")]
    assert told == sorted(told)
    traffic = [line for line in lines if line.startswith("traffic; ")]
    assert re.match(r"traffic; [\d.,]+ us of fabric time; \d+ % of 7 MB; \d transfers left; ", traffic[0])
    assert lines.index(traffic[-1]) < lines.index("writing results …")
    (run_dir,) = tmp_path.iterdir()
    assert Run(run_dir).verdict["word"] == "trusted" and "VERDICT: TRUSTED" in done.stdout
