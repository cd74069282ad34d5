"""`fabriclab bench`: what this machine can carry, as ratios to baselines of the same run."""

from __future__ import annotations

import json

import click

from emulator.cli.params import json_option
from emulator.cli.session import verbosity_options


@click.group()
def bench() -> None:
    """Measure this machine; the planner of `--tdf auto` uses the same figures."""


@bench.command()
@click.option("--transport", type=click.Choice(["roce", "mrc"]), default="roce", help="Transport of the flow.")
@click.option("--mtu", type=click.Choice(["256", "512", "1024", "2048", "4096"]), default="4096", help="Payload bytes.")
@click.option("--packets", type=click.IntRange(min=1000), default=20_000, help="Packets of the flow.")
@click.option("--profile", "with_profile", is_flag=True, help="Also say where the time goes.")
@json_option("Print the figures as JSON.")
@verbosity_options
def datapath(transport: str, mtu: str, packets: int, with_profile: bool, as_json: bool) -> None:
    """The full loop over four links and three routers, beside Scapy and beside a bare sendmmsg. Needs root."""
    from emulator.bench.datapath import measure, profile

    found = measure(transport=transport, mtu=int(mtu), packets=packets)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    else:
        click.echo(f"full loop        {found.loop_pps:>12,.0f} packets/s of one core  ({found.cpu_us:.1f} us a packet)")
        click.echo(f"bare sendmmsg    {found.sendmmsg_pps:>12,.0f} packets/s  (ready frames, nothing received)")
        click.echo(f"Scapy            {found.scapy_pps:>12,.0f} packets/s  (building and sending)")
        click.echo(f"full loop over Scapy: {found.loop_ratio:.0f} times, {transport}, {mtu} bytes of payload")
    if with_profile:
        click.echo(profile(lambda: measure(transport=transport, mtu=int(mtu), packets=packets, baselines=False)))
