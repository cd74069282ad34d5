"""`fabriclab allreduce`: an all-reduce of real vectors."""

from __future__ import annotations

from typing import Any

import click

from emulator.cli.params import SIZE
from emulator.cli.runs import experiment_of, run_and_print, run_options


@click.command(
    epilog="Example: fabriclab allreduce topologies/leaf-spine-2x2x4.yaml --values 0.7,0.9,0.6,0.8 --transport mrc"
)
@click.argument("topo")
@click.option("--bytes", "size", type=SIZE, default="4MB", help="Bytes of each rank's float32 vector.")
@click.option(
    "--algorithm",
    type=click.Choice(["ring", "tree", "halving_doubling"]),
    default="ring",
    help="Who sends which chunk when.",
)
@click.option("--ranks", type=click.IntRange(min=2), default=None, help="Ranks, from host0 on.  [default: all hosts]")
@click.option("--values", default=None, metavar="V,V,...", help="One number a rank; prints the agreed average.")
@run_options
@click.pass_context
def allreduce(
    ctx: click.Context, /, topo: str, size: int, algorithm: str, ranks: int | None, values: str | None, **flags: Any
) -> int:
    """All hosts of TOPO (or the first --ranks) add up their vectors, and each checks every element of the sum."""
    workload: dict[str, Any] = {"kind": "allreduce", "algorithm": algorithm, "bytes": size, "params": {}}
    if ranks is not None:
        workload["params"]["ranks"] = ranks
    if values is not None:
        numbers = parse_values(values)
        workload["values"] = numbers
        source = ctx.get_parameter_source("size")
        if source is not None and source.name == "DEFAULT":
            workload["bytes"] = 4 * len(numbers)
    return run_and_print(ctx, experiment_of(topo, workload, flags), flags)


def parse_values(text: str) -> list[float]:
    """`0.7,0.9` as numbers. Raises UsageError naming the one that is none."""
    from emulator.errors import UsageError

    numbers = []
    for word in text.split(","):
        try:
            numbers.append(float(word))
        except ValueError as error:
            raise UsageError(
                f'"{word}" is no number', where="--values", remedy="write numbers with commas, such as 0.7,0.9,0.6,0.8"
            ) from error
    if len(numbers) < 2:
        raise UsageError("an all-reduce needs two values or more", where="--values", remedy="write one for each rank")
    return numbers
