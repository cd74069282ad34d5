"""`fabriclab compare`: several runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import click

from emulator.cli.session import tell


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN_DIR RUN_DIR...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the figures side by side into this HTML file.",
)
@click.option("--each", is_flag=True, help="Every run for itself, by the name of its folder: none is a repeat.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def compare(runs: tuple[Path, ...], output: Path | None, each: bool, as_json: bool) -> None:
    """Tell the difference between runs in three lines, then in a table.

    Runs that differ in nothing but the seed are repeats of each other; with repeats the differences carry their
    significance. The first run is what the others are compared with.
    """
    from emulator.report.compare import compare as compare_runs

    comparison = compare_runs(runs, each=each)
    click.echo(json.dumps(comparison.to_json(), indent=1, ensure_ascii=False) if as_json else comparison.text())
    if output is not None:
        path = comparison.page(output)
        tell(f"{path} ({path.stat().st_size / 1e6:.2f} MB)")
