"""One seed, one result, to the byte (as Shadow's determinism tests compare whole runs)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.experiments import fresh
from traffic import native

pytestmark = pytest.mark.virtual
FILES = ("flows.parquet", "queues.parquet", "histogram.parquet", "rates.parquet", "events.jsonl")


def _run(seed: int, transport: str = "mrc") -> tuple[dict[str, bytes], dict[str, Any]]:
    finished = fresh(
        topology="leaf-spine-2x2x4",
        workload={"kind": "incast", "bytes": "1MB", "params": {"senders": 7}},
        transport={"kind": transport, "cc": "none"} if transport == "roce" else {"kind": transport},
        clock="virtual",
        seed=seed,
    )
    files = {name: (finished.run_dir / name).read_bytes() for name in FILES}
    summary = json.loads((Path(finished.run_dir) / "summary.json").read_text())
    del summary["run_id"], summary["clock"]["wall_s"]
    return files, summary


def test_three_runs_with_seed_zero_are_equal_and_another_seed_is_not() -> None:
    first, second, third = _run(0), _run(0), _run(0)
    assert first == second == third
    other = _run(5)
    assert other[0]["flows.parquet"] != first[0]["flows.parquet"]
    assert other[1]["seed"] == 5


def test_the_compiled_packet_loop_gives_the_bytes_of_the_interpreted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven senders that overflow a queue: marks, losses and what is sent anew on both transports."""
    assert native.find() is not None, "there is no compiled packet loop: fabriclab native build"
    for transport in ("roce", "mrc"):
        compiled = _run(3, transport)
        monkeypatch.setenv(native.VARIABLE, native.OFF)
        assert _run(3, transport) == compiled
        monkeypatch.undo()


def test_rerun_of_a_stored_run_gives_the_stored_result_beside_a_cpu_hog(tmp_path: Path) -> None:
    """The host is busy in the second run: on the virtual clock nothing of that may show, to the byte."""
    import os
    import subprocess
    import sys

    from emulator.experiment.manifest import read_manifest, resolved_of
    from emulator.experiment.run import run_resolved
    from tests.experiments import Silent

    stored = fresh(
        topology="leaf-spine-2x2x4",
        workload={"kind": "incast", "bytes": "500KB", "params": {"senders": 5}},
        transport={"kind": "roce", "cc": "dcqcn"},
        clock="virtual",
        seed=3,
    )
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        manifest = read_manifest(stored.run_dir)
        again = run_resolved(
            resolved_of(manifest, stored.run_dir), out=tmp_path, argv=["tests"], watch=Silent(), why="again"
        )
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    for name in FILES:
        assert (again.run_dir / name).read_bytes() == (stored.run_dir / name).read_bytes(), name
