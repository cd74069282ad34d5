"""Finished run directories for tests: toy raw results, then the real tables, judge and summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emulator.collect.raw import Raw
from emulator.collect.tables import make_tables
from emulator.report.summary import make_summary, write_summary
from tests.data.make_raw import make

CARE: dict[str, Any] = {
    "word": "care",
    "reasons": ["F9 sampler: one gap of 14 us"],
    "checks": [
        {
            "id": "F1",
            "name": "plan = reality",
            "status": "pass",
            "value": 0,
            "limit": "no difference",
            "reason": "as planned",
        },
        {
            "id": "F9",
            "name": "sampler",
            "status": "warn",
            "value": 7,
            "limit": "3 periods",
            "reason": "one gap of 14 us",
        },
        {"id": "F4", "name": "propagation", "status": "not-modelled", "value": None, "limit": "", "reason": "no probe"},
    ],
    "notes": ["PFC: not modelled"],
}


def finished(
    run_dir: Path, kind: str, *, verdict: dict[str, Any] | None = None, name: str | None = None, **options: Any
) -> Path:
    """A run directory as `finish` leaves it, less the page; the verdict is given, not judged."""
    make(run_dir, kind, **options)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    if name is not None:
        manifest["run_id"] = name
        (run_dir / "manifest.json").write_text(json.dumps(manifest))
    raw = Raw(run_dir / "raw")
    tables = make_tables(raw, manifest)
    tables.write(run_dir)
    write_summary(run_dir, make_summary(tables, raw, manifest, verdict or CARE))
    return run_dir
