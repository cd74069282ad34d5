"""`fabriclab topo`: look at a topology file without touching the machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from emulator.cli.lazy import Lazy, LazyGroup
from emulator.cli.params import json_option, set_option
from emulator.cli.session import tell
from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.topology.model import Topology


@click.group(
    cls=LazyGroup,
    lazy={
        "plan": Lazy("emulator.cli.plan:plan", "Every namespace, link, address, route and shaper that would be made.")
    },
)
def topo() -> None:
    """Check, show, plan or draw a topology file. None of these changes the machine or needs a privilege."""


@topo.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@set_option
def check(files: Sequence[str], settings: Sequence[str]) -> int:
    """All problems of each file, with file, line and column; exit code 2 if there is one."""
    from emulator.topology.load import TopologyError, load_topology

    failed = False
    for file in files:
        try:
            topology = load_topology(file, settings)
        except TopologyError as error:
            failed = True
            click.echo(str(error), err=True)
        else:
            click.echo(f"{file}: ok: {_one_line(topology)}")
    return UsageError.exit_code if failed else 0


@topo.command()
@click.argument("file")
@json_option("Everything as JSON.")
@set_option
def show(file: str, as_json: bool, settings: Sequence[str]) -> None:
    """Counts, rates, queues in bytes, packets and time, round trips, oversubscription."""
    from emulator.topology.describe import describe
    from emulator.topology.load import load_topology

    topology = load_topology(file, settings)
    if as_json:
        click.echo(json.dumps(describe(topology), indent=2))
        return
    from emulator.cli.topo_tables import print_topology

    print_topology(topology)


@topo.command()
@click.argument("file")
@click.option(
    "-o", "--output", required=True, metavar="X.svg", help="Where to write the picture; - for standard output."
)
@set_option
def draw(file: str, output: str, settings: Sequence[str]) -> None:
    """The fabric as an SVG picture: link colour by rate, dashed if down."""
    from emulator.topology.draw import draw_svg
    from emulator.topology.load import load_topology

    picture = draw_svg(load_topology(file, settings).network())
    if output == "-":
        click.echo(picture, nl=False)
        return
    if Path(output).suffix != ".svg":
        raise UsageError(f'"{output}" is not the name of an SVG file', where="--output", remedy="let it end in .svg")
    try:
        Path(output).write_text(picture, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "cannot be written").lower()
        raise UsageError(f"cannot write the picture: {reason}", where=output, remedy="choose another place") from error
    tell(f"wrote {output}")


@topo.command()
def schema() -> None:
    """JSON Schema of topology files, for editors."""
    from emulator.topology.schema import topology_schema

    click.echo(json.dumps(topology_schema(), indent=2))


def _one_line(topology: Topology) -> str:
    """Counts, and how long the deepest queue takes to drain: a queue of many milliseconds is rarely meant."""
    from emulator.topology.describe import port_groups
    from emulator.topology.units import format_rate, format_size

    network = topology.network()
    deepest = max(port_groups(network), key=lambda group: group.limit.us)
    counts = [(len(network.hosts), "host", "hosts"), (len(network.leaves), "leaf", "leaves")]
    counts += [(len(network.spines), "spine", "spines"), (len(network.links), "link", "links")]
    listed = ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in counts if number)
    queue = f"{format_size(deepest.limit.bytes)} drain in {deepest.limit.us:g} us at {format_rate(deepest.rate_bps)}"
    return f"{listed}; queues of {queue}"
