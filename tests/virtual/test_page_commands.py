"""Every command of the pages under docs/ runs as written, page by page from top to bottom (README and handouts: their own tests)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import ROOT, commands_of, play

pytestmark = pytest.mark.virtual

PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if any(not c.no_ci for c in commands_of(page))]


def test_there_is_something_to_run() -> None:
    assert {"start.md", "incast.md", "capture.md", "congestion-control.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, tmp_path: Path) -> None:
    """In a folder of links to the checkout, so that what a command writes stays out of it."""
    for entry in ROOT.iterdir():
        if entry.name not in ("runs", "site"):
            (tmp_path / entry.name).symlink_to(entry)
    play(commands_of(page), tmp_path)
