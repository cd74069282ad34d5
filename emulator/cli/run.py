"""`fabriclab run`: an experiment file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from emulator.cli.params import json_option, set_option
from emulator.cli.runs import LIVE, OUT, PCAP, PCAP_SNAP, REPEAT, SAVE_SPEC, run_and_print
from emulator.cli.session import verbosity_options


@click.command(
    epilog="Example: fabriclab run labs/03-incast/dcqcn.yaml --set workload.params.senders=4 --set host_link.rate=25Gbit"
)
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--clock", type=click.Choice(["auto", "real", "virtual"]), default=None, help="Instead of the file's.")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Instead of the file's.")
@PCAP
@PCAP_SNAP
@LIVE
@OUT
@REPEAT
@SAVE_SPEC
@set_option
@json_option("Print the summary as JSON on standard output.")
@verbosity_options
@click.pass_context
def run(
    ctx: click.Context, /, spec: Path, clock: str | None, seed: int | None, settings: tuple[str, ...], **flags: Any
) -> int:
    """Run the experiment that SPEC describes. --set overrides any key of it, or of the topology it names."""
    from emulator.experiment.load import load_experiment

    extra = [f"clock={clock}"] if clock else []
    extra += [f"seed={seed}"] if seed is not None else []
    experiment = load_experiment(spec, [*settings, *extra])
    given = {"pcap": flags["pcap"] or None, "pcap_snap": flags["pcap_snap"]}
    experiment = experiment.model_copy(update={key: value for key, value in given.items() if value is not None})
    return run_and_print(ctx, experiment, flags, base=spec.parent)
