"""Run directories: each has a name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.experiment import manifest


def test_a_name_that_runs_elsewhere_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that begin in one second with different --out: what they make in the kernel carries the name."""
    monkeypatch.setattr(manifest, "RUNNING", tmp_path / "running")
    first = manifest.new_run_dir(tmp_path / "a", "incast")
    (tmp_path / "running" / first.name).mkdir(parents=True)
    names = {manifest.new_run_dir(tmp_path / f"b{k}", "incast").name for k in range(3)}
    assert first.name not in names
