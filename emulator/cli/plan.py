"""`fabriclab topo plan`: everything that would be made, without root."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from emulator.cli.params import set_option

PLAN_RUN_ID = "plan"


@click.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
@click.option("--tdf", type=click.IntRange(min=1), default=1, help="Time dilation factor: rates / N, delays * N.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, help="Seed of the run; gives each switch its ECMP hash seed."
)
@set_option
def plan(file: str, as_json: bool, tdf: int, seed: int, settings: Sequence[str]) -> None:
    """Every namespace, link, address, route, sysctl and shaper that would be made on this machine's kernel.

    Names carry the run id; it is "plan" here.
    """
    from emulator.fabric.describe import describe
    from emulator.fabric.plan import make_plan
    from emulator.port.features import probe
    from emulator.topology.load import load_topology

    topology = load_topology(file, settings)
    made = make_plan(topology, run_id=PLAN_RUN_ID, seed=seed, tdf=tdf, features=probe())
    if as_json:
        click.echo(json.dumps(made.to_dict(), indent=1))
    else:
        click.echo("\n".join(describe(made)))
