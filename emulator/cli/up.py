"""`fabriclab up`: build a fabric and give a prompt in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from emulator.cli.params import set_option
from emulator.cli.session import session_of, verbosity_options
from emulator.errors import MissingCapability, UsageError

if TYPE_CHECKING:
    from emulator.topology.network import Network


@click.command()
@click.argument("topo")
@click.option("--tdf", default="auto", metavar="auto|N", help="Time dilation factor: rates / N, delays * N.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, help="Seed of the run; gives each switch its ECMP hash seed."
)
@set_option
@verbosity_options
@click.pass_context
def up(ctx: click.Context, topo: str, tdf: str, seed: int, settings: Sequence[str]) -> None:
    """Build TOPO in network namespaces and read commands: HOST COMMAND, pingall, links, queues, hosts, help, exit.

    Commands also come from a pipe. Leaving takes everything away again.
    """
    from emulator.cli.prompt import Prompt
    from emulator.fabric.fabric import Fabric
    from emulator.fabric.plan import make_plan
    from emulator.fabric.registry import new_run_id
    from emulator.port.features import probe
    from emulator.topology.load import load_topology

    topology = load_topology(topo, settings)
    if os.geteuid() != 0:
        raise MissingCapability(
            "network namespaces need root", where=f"up {topo}", remedy="run with sudo; the virtual clock has no prompt"
        )
    features = probe()
    quiet = session_of(ctx).quiet
    factor, why = _factor(tdf, topology.network())
    plan = make_plan(topology, run_id=new_run_id("up"), seed=seed, tdf=factor, features=features)

    def step(text: str, done: int, total: int) -> None:
        if not quiet and sys.stderr.isatty():
            click.echo(f"\r\x1b[Kbuilding {done}/{total}: {text}", nl=done == total, err=True)

    with Fabric(plan, features, on_step=step, about={"command": "up", "topology": topo}) as fabric:
        prompt = Prompt(fabric)
        if not quiet:
            prompt.greet(why)
        prompt.run()


def _factor(tdf: str, network: Network) -> tuple[int, str]:
    """The factor, and why; `auto` lets all hosts send full frames at line rate within what this machine carries."""
    if tdf.isascii() and tdf.isdigit() and int(tdf) > 0:
        return int(tdf), "asked for"
    if tdf != "auto":
        raise UsageError(
            f'"{tdf}" is no time dilation factor', where="--tdf", remedy="write auto or a whole number from 1"
        )
    from emulator.experiment.budget import packets_per_second
    from emulator.experiment.planner import USE
    from emulator.topology.limits import frame_bytes

    budget = packets_per_second()
    asked = sum(network.ports_of(host.name)[0].rate_bps for host in network.hosts) // (8 * frame_bytes(network.mtu))
    factor = max(1, -(-asked // max(1, int(USE * budget))))
    return factor, f"auto: {asked / 1e6:.3g} M full frames/s at line rate, this machine carries {budget / 1e3:.3g} k/s"
