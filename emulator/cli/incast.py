"""`fabriclab incast`: N senders to one receiver."""

from __future__ import annotations

from typing import Any

import click

from emulator.cli.params import SIZE
from emulator.cli.runs import experiment_of, run_and_print, run_options


@click.command(
    epilog="Example: fabriclab incast topologies/leaf-spine-2x2x4.yaml --senders 7 --cc dcqcn --clock virtual"
)
@click.argument("topo")
@click.option("--senders", type=click.IntRange(min=1), required=True, help="How many hosts send.")
@click.option("--receiver", default="0", help="The receiving host: its rank or its name.")
@click.option("--bytes", "size", type=SIZE, default="1MB", help="Bytes of each sender and round.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=1, help="Rounds; each begins when the one before has ended."
)
@run_options
@click.pass_context
def incast(ctx: click.Context, /, topo: str, senders: int, receiver: str, size: int, rounds: int, **flags: Any) -> int:
    """Send from N hosts of TOPO to one at the same time, and say which queue filled, how high, what was marked and lost."""
    workload = {
        "kind": "incast",
        "bytes": size,
        "params": {"senders": senders, "receiver": rank_of(receiver), "rounds": rounds},
    }
    return run_and_print(ctx, experiment_of(topo, workload, flags), flags)


def rank_of(host: str) -> int:
    """The rank of `3` or `host3`. Raises UsageError for anything else."""
    from emulator.errors import UsageError

    number = host.removeprefix("host")
    if not number.isdecimal():
        raise UsageError(f'"{host}" is no host', where="--receiver", remedy="write a rank such as 3, or host3")
    return int(number)
