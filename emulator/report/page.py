"""`report.html`: one self-contained file, no network, opens in any browser."""

from __future__ import annotations

import html
import json
import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from emulator.errors import NO_ROOM, UsageError, no_room
from emulator.report.api import Run

SCRIPTS = ("base.js", "lines.js", "bars.js", "gantt.js", "fabric.js", "tables.js", "bar.js", "sections.js")


def make_page(run_dir: str | Path, output: str | Path | None = None) -> Path:
    """Write the page of a run and return its path (`report.html` in the run directory unless told otherwise)."""
    from emulator.report.data import page_data

    run = Run(run_dir)
    path = Path(output) if output is not None else run.path / "report.html"
    data = page_data(run)
    return write_page(path, data["title"], data, "run.js")


def write_page(path: Path, title: str, data: dict[str, Any], main: str) -> Path:
    """Write `data` with all styles and scripts into one file; `main` is the script that lays the page out."""
    assets = files("emulator.report").joinpath("assets")

    def asset(name: str) -> str:
        return assets.joinpath(name).read_text(encoding="utf-8")

    # "<" inside the data would end its script element
    plain = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    parts = {
        "<!--title-->": html.escape(title),
        "/*style*/": asset("page.css"),
        "/*script*/": "\n".join(asset(name) for name in (*SCRIPTS, main)),
        "/*data*/": plain,
    }
    # one pass, so that no text of a run is taken for a mark
    content = re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark.group()], asset("page.html"))
    # A page that is there stays until the new one is whole; what is no file (a pipe, /dev/stdout) is written to.
    part = path if path.exists() and not path.is_file() else path.with_name(f".{path.name}.part")
    try:
        part.write_text(content, encoding="utf-8")
        if part != path:
            part.replace(path)
    except OSError as error:
        if part != path:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        if error.errno in NO_ROOM:
            raise no_room(error, str(path)) from error
        raise UsageError(
            f"the page cannot be written: {error.strerror}", where=str(path), remedy="choose another --output"
        ) from error
    return path
