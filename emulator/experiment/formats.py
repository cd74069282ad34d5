"""Versions of the run directory: which can be read, and the step from each to the next.

A step takes a manifest of its version and gives one of the next; only what `rerun` and the tables need is filled in, with the
values that the older program worked with. A format from a newer program is refused by name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator.errors import UsageError

FORMAT = 2
"""What this program writes."""


def _one_to_two(manifest: dict[str, Any]) -> dict[str, Any]:
    """Version 2 keeps the congestion control's parameters as numbers, each transport's own options only, and captures."""
    run = manifest["resolved"]
    transport = run["transport"]
    old = transport["options"]
    options = {key: old[key] for key in ("qps", "ack_every", "timeout_ns", "adaptive_timeout", "retry_count")}
    options["trimming"] = False
    params = dict(transport["cc_params"])
    if transport["kind"] == "roce":
        options |= {"recovery": old["recovery"], "timeout_low_ns": old["timeout_ns"], "bdp_cap_packets": None}
        if transport["cc"] == "dcqcn":
            params.setdefault("cnp_interval_ns", old["cnp_interval_ns"])
    else:
        options |= {
            key: old[key] for key in ("spray", "entropy", "reorder_ns", "probe_ns", "probes_needed", "min_active")
        }
        options |= {"entropy_set": "even", "deny": []}
    transport |= {"cc_source": None, "notes": [], "cc_path": None, "cc_params": params, "options": options}
    run |= {"pcap": [], "pcap_snap": 0}
    manifest["experiment"]["transport"] = transport
    return manifest


STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _one_to_two}
"""From a version to the next."""


def upgrade(manifest: dict[str, Any], path: Path) -> dict[str, Any]:
    """The manifest in this program's format. Raises UsageError for a version that no step leads from."""
    version = manifest.get("format")
    if version == FORMAT:
        return manifest
    if version not in STEPS:
        supported = ", ".join(str(v) for v in (*STEPS, FORMAT))
        newer = isinstance(version, int) and version > FORMAT
        raise UsageError(
            f"format {version!r} of this run directory is not supported",
            where=str(path),
            remedy=f"supported: {supported}" + ("; a newer fabriclab made it" if newer else ""),
        )
    manifest = copy.deepcopy(manifest)
    while manifest["format"] != FORMAT:
        step = STEPS[manifest["format"]]
        before = manifest["format"]
        manifest = step(manifest)
        manifest["format"] = before + 1
    return manifest
