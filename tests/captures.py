"""Reading a capture back with other people's programs."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Sequence
from pathlib import Path

from emulator.report.dissector import dissector_path

SEVERE = "_ws.expert.severity == error"


def tshark(path: Path, fields: Sequence[str], *more: str, ours: bool = True) -> list[dict[str, str]]:
    """The fields of every packet, by tshark, with our dissector unless told otherwise."""
    script = ["-X", f"lua_script:{dissector_path()}"] if ours else []
    argv = ["tshark", "-n", *script, "-r", str(path), "-T", "fields", "-E", "separator=;", "-E", "quote=d", *more]
    for field in fields:
        argv += ["-e", field]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "lua" not in done.stderr.lower(), done.stderr
    return [dict(zip(fields, row, strict=True)) for row in csv.reader(done.stdout.splitlines(), delimiter=";")]


def malformed(path: Path) -> list[dict[str, str]]:
    """Packets that Wireshark calls malformed, or remarks on as errors."""
    return tshark(path, ["frame.number", "frame.protocols", "_ws.col.Info"], "-Y", f"_ws.malformed || {SEVERE}")
