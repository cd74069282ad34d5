"""Run directories made from the toy model, one of each kind a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.runs import finished


@pytest.fixture(scope="session")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished 7:1 incast with DCQCN, drops, marks and one gap in its samples."""
    return finished(tmp_path_factory.mktemp("incast") / "run", "incast")


@pytest.fixture(scope="session")
def allreduce(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished ring all-reduce over 8 ranks, sprayed."""
    return finished(tmp_path_factory.mktemp("allreduce") / "run", "allreduce", transport="mrc", cc="nscc")
