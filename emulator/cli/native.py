"""`fabriclab native`: the packet loop as machine code."""

from __future__ import annotations

import json
import time

import click

from emulator.cli.params import json_option
from emulator.cli.session import tell, verbosity_options


@click.group()
def native() -> None:
    """The packet loop as machine code: compile it once, runs take less time; results are the same to the bit."""


@native.command()
@verbosity_options
def build() -> None:
    """Compile the packet loop from its own source (mypyc, a C compiler; about a minute). The folder is printed.

    Kept until the source changes; runs use it by themselves. FABRICLAB_NATIVE=off leaves it aside.
    """
    from emulator.native.build import build as make

    begun = time.monotonic()
    path = make()
    tell(f"compiled modules ready after {time.monotonic() - begun:.0f} s")
    click.echo(path)


@native.command()
@json_option("As JSON.")
@verbosity_options
def info(as_json: bool) -> None:
    """Which build runs would use, and what is missing to make one."""
    from emulator.native.build import missing
    from traffic.native import MODULES, VARIABLE, find

    path = find()
    lacking = missing()
    if as_json:
        facts = {
            "path": None if path is None else str(path),
            "modules": list(MODULES),
            "missing": [what for what, _ in lacking],
        }
        click.echo(json.dumps(facts, indent=1))
        return
    click.echo(
        f"in use        {path or 'none: pure Python (`fabriclab native build` compiles, ' + VARIABLE + '=off leaves aside)'}"
    )
    click.echo(f"compiled      {len(MODULES)} modules: {' '.join(name.removeprefix('traffic.') for name in MODULES)}")
    for what, how in lacking:
        click.echo(f"missing       {what}: {how}")
