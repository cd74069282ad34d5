"""Old run directories stay readable: a folder that an earlier program really wrote is kept in tests/data/format-1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.errors import UsageError
from emulator.experiment.formats import FORMAT, STEPS, upgrade
from emulator.experiment.manifest import read_manifest, resolved_of
from emulator.report.api import Run

OLD = Path(__file__).parents[2] / "data" / "format-1" / "incast-7to1"


def test_a_folder_of_format_one_is_read_and_can_be_run_again() -> None:
    assert json.loads((OLD / "manifest.json").read_text())["format"] == 1
    manifest = read_manifest(OLD)
    assert manifest["format"] == FORMAT
    resolved = resolved_of(manifest, OLD)
    assert (resolved.clock, resolved.tdf, resolved.seed) == ("virtual", 1, 1)
    assert resolved.transport["options"]["timeout_ns"] == 667_696
    assert resolved.transport["cc_params"]["cnp_interval_ns"] == 50_000
    run = Run(OLD)
    assert len(run.flows) == 7 and run.summary["packets"]["dropped"] == 163


def test_every_version_has_a_step_to_the_next() -> None:
    assert sorted(STEPS) == list(range(1, FORMAT))


@pytest.mark.parametrize("version", [0, 99, None, "2"])
def test_an_unknown_version_is_refused_and_the_supported_ones_are_named(version: object) -> None:
    with pytest.raises(UsageError) as caught:
        upgrade({"format": version}, Path("manifest.json"))
    assert caught.value.what == f"format {version!r} of this run directory is not supported"
    assert caught.value.remedy.startswith("supported: 1, 2")
    assert ("a newer fabriclab made it" in caught.value.remedy) == (version == 99)
