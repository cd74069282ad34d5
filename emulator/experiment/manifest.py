"""Run directories and their manifest: everything needed to repeat a run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emulator.collect.environment import versions
from emulator.errors import UsageError
from emulator.experiment.formats import FORMAT, upgrade
from emulator.experiment.resolve import Resolved
from emulator.fabric.registry import ROOT as RUNNING

SPOILED = "spoiled"
"""Where in a run directory the attempt lies that the machine spoiled and that this run was made instead of."""


def new_run_dir(out: Path, name: str) -> Path:
    """A fresh directory `YYYYMMDD-HHMMSS-NAME` in `out`; two runs in one second get a number."""
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "run"
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for attempt in range(1, 1000):
        path = out / (f"{stamp}-{clean}"[:60] + ("" if attempt == 1 else f"-{attempt}"))
        if (RUNNING / path.name).exists():
            continue  # a run of another folder has this name, and names what it makes in the kernel by it
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.is_dir():
                break
            continue
        except OSError as error:
            raise UsageError(
                f"cannot make a run directory: {error.strerror}", where=str(path), remedy="choose another --out"
            ) from error
        return path
    raise UsageError("no free name for a run directory", where=str(out), remedy="choose another --out")


def make_manifest(run_dir: Path, resolved: Resolved, *, argv: Sequence[str], why: str) -> dict[str, Any]:
    """The manifest of a run, written to `manifest.json`."""
    manifest = {
        "format": FORMAT,
        "run_id": run_dir.name,
        "command": list(argv),
        "versions": versions(),
        "experiment": {"name": resolved.name, "workload": resolved.workload, "transport": resolved.transport},
        "topology": resolved.topology,
        "clock": {"mode": resolved.clock, "tdf": resolved.tdf, "why": why},
        "seed": resolved.seed,
        "resolved": resolved.to_dict(),
    }
    write_json(run_dir / "manifest.json", manifest)
    return manifest


def keep_plugin(run_dir: Path, transport: Mapping[str, Any]) -> None:
    """Write a user's congestion control beside the results, from where the run (in either kernel) and a rerun take it."""
    if transport.get("cc_source") is not None:
        name = transport["cc"].partition(":")[0]
        (run_dir / name).write_text(transport["cc_source"], encoding="utf-8")


def read_manifest(run_dir: Path) -> dict[str, Any]:
    """The manifest of an earlier run, brought to this program's format. Raises UsageError where it is none."""
    path = run_dir / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no readable manifest: {error}", where=str(path), remedy="name a run directory as fabriclab made it"
        ) from error
    if not isinstance(manifest, dict):
        raise UsageError(
            "the manifest holds no object", where=str(path), remedy="name a run directory as fabriclab made it"
        )
    return upgrade(manifest, path)


def write_json(path: Path, data: object) -> None:
    """JSON for people: indented, with a final line end."""
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def resolved_of(manifest: dict[str, Any], run_dir: Path) -> Resolved:
    """What an earlier run ran. Raises UsageError where the manifest does not tell."""
    try:
        return Resolved(**manifest["resolved"])
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"the manifest does not say what was run: {error}", where=str(run_dir), remedy="run the experiment anew"
        ) from error
