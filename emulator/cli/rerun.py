"""`fabriclab rerun`: an earlier run again, from its own manifest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from emulator.cli.params import json_option
from emulator.cli.runs import LIVE, OUT, print_finished, watcher
from emulator.cli.session import session_of, verbosity_options


@click.command(epilog="Example: fabriclab rerun runs/20261129-161200-incast-7to1")
@click.argument("run_dir", type=click.Path(path_type=Path))
@LIVE
@OUT
@json_option("Print the summary as JSON on standard output.")
@verbosity_options
@click.pass_context
def rerun(ctx: click.Context, /, run_dir: Path, live: bool, out: Path, as_json: bool, **flags: Any) -> int:
    """Run again what RUN_DIR ran: same topology, traffic, seed, clock. On the virtual clock the result is the same to the byte."""
    from emulator.experiment.manifest import read_manifest, resolved_of
    from emulator.experiment.run import run_resolved

    session = session_of(ctx)
    watch = watcher(run_dir.name, live=live, session=session)
    try:
        resolved = resolved_of(read_manifest(run_dir), run_dir)
        finished = run_resolved(
            resolved, out=out, argv=["fabriclab", *sys.argv[1:]], watch=watch, why=f"as {run_dir.name} was run"
        )
    finally:
        watch.close()
    return print_finished(finished, as_json=as_json)
