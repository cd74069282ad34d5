"""Runs what was handed in once more: on the virtual clock equal inputs give equal bytes, so an edited run directory shows itself."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from emulator.collect.capture_file import FILE as CAPTURE
from emulator.experiment.manifest import resolved_of
from emulator.experiment.run import run_resolved
from emulator.lab.grade import Graded
from emulator.lab.runs import LabRun

SAME_BYTES: Final = (
    "flows.parquet", "queues.parquet", "histogram.parquet", "rates.parquet", "events.jsonl",
)  # fmt: skip


def repeat_runs(graded: Graded, tell: Callable[[str], None]) -> list[str]:
    """Makes each virtual run that the grade used again, and says which are not what comes out; `tell` hears what is going on.

    A run on the real clock never repeats to the byte, and is named as not repeated.
    """
    found = []
    good = 0
    for name, run in graded.work.used.items():
        if run.setup["clock"] != "virtual":
            found.append(f"{name} was not made again: it is on the real clock")
            continue
        tell(f"making {name} again …")
        with tempfile.TemporaryDirectory(prefix="fabriclab-lab-") as folder:
            differ = _differing(run, Path(folder))
        if differ:
            found.append(f"{name} is not what this run gives when it is made again: {', '.join(differ)}")
        else:
            good += 1
    total = sum(run.setup["clock"] == "virtual" for run in graded.work.used.values())
    return [f"made again: {good} of {total} runs on the virtual clock came out the same", *found]


def _differing(run: LabRun, folder: Path) -> list[str]:
    """The files of a run that its repetition in `folder` does not have the same."""
    again = run_resolved(
        resolved_of(run.manifest, run.path),
        out=folder,
        argv=run.manifest["command"],
        watch=_Nobody(),
        why="graded",
    ).run_dir
    differ = [name for name in SAME_BYTES if _bytes(again / name) != _bytes(run.path / name)]
    if _result(again) != _result(run.path):
        differ.append("summary.json")
    if _packets(again) != _packets(run.path):
        differ.append(str(CAPTURE))
    return differ


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _result(run_dir: Path) -> dict[str, Any]:
    """The summary without its name and the time on the wall."""
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    summary.pop("run_id", None)
    summary["clock"] = {k: v for k, v in summary["clock"].items() if k != "wall_s"}
    return summary


def _packets(run_dir: Path) -> list[tuple[bytes, int, int, bytes | None]] | None:
    """Bytes, time and port of every captured packet; None without a capture. The head of the file names the run."""
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    if not (run_dir / CAPTURE).is_file():
        return None
    try:
        with RawPcapReader(str(run_dir / CAPTURE)) as reader:
            packets: Iterator[tuple[bytes, Any]] = iter(reader)
            return [(bytes(data), meta.tshigh, meta.tslow, meta.ifname) for data, meta in packets]
    except Scapy_Exception:
        return None


class _Nobody:
    """Watches nothing."""

    def step(self, text: str, done: int, total: int) -> None:
        """Not shown."""

    def progress(self, state: Any) -> None:
        """Not shown."""

    def note(self, text: str) -> None:
        """Not shown."""
