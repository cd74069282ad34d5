"""`fabriclab clean`: remove everything that carries our mark and nothing else."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from emulator.cli.session import tell, verbosity_options
from emulator.errors import MissingCapability

if TYPE_CHECKING:
    from emulator.fabric.clean import Cleaned


@click.command()
@click.option("--json", "as_json", is_flag=True, help="What was removed, as JSON.")
@click.option(
    "--all", "everything", is_flag=True, help="Living runs too: ask them to end, then remove what they leave."
)
@verbosity_options
@click.pass_context
def clean(ctx: click.Context, as_json: bool, everything: bool) -> None:
    """Remove the namespaces, interfaces, processes and mounts of runs that died; living runs stay untouched."""
    from emulator.cli.session import session_of
    from emulator.fabric.clean import clean as clean_up

    if os.geteuid() != 0:
        raise MissingCapability("removing network namespaces needs root", remedy="run `sudo fabriclab clean`")
    done = clean_up(include_live=everything, say=tell)
    if as_json:
        click.echo(json.dumps(done.to_dict()))
    elif not session_of(ctx).quiet:
        click.echo("\n".join(_lines(done)))


def _lines(done: Cleaned) -> list[str]:
    lines = []
    for name, items in done.to_dict().items():
        if items and name not in ("runs", "spared"):
            lines.append(
                f"{'ended' if name in ('processes', 'stopped') else 'removed'} {name}: {', '.join(map(str, items))}"
            )
    if done.runs:
        lines.append(f"runs cleaned: {', '.join(done.runs)}")
    if done.nothing:
        lines.append("nothing to clean")
    if done.spared:
        lines.append(f"alive and left alone: {', '.join(done.spared)} (`fabriclab clean --all` ends them)")
    return lines
