"""`fabriclab bench`: what this machine can carry, as ratios to baselines of the same run."""

from __future__ import annotations

import json

import click

from emulator.cli.params import DURATION, RATE, json_option
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
    from traffic import native

    native.enable()
    from emulator.bench.datapath import measure, profile

    found = measure(transport=transport, mtu=int(mtu), packets=packets)
    where = None
    if with_profile:
        where = profile(lambda: measure(transport=transport, mtu=int(mtu), packets=packets, baselines=False))
    if as_json:
        click.echo(json.dumps({**found.to_dict(), **({} if where is None else {"profile": where})}, indent=1))
    else:
        click.echo(f"full loop        {found.loop_pps:>12,.0f} packets/s of one core  ({found.cpu_us:.1f} us a packet)")
        click.echo(f"bare sendmmsg    {found.sendmmsg_pps:>12,.0f} packets/s  (ready frames, nothing received)")
        click.echo(f"Scapy            {found.scapy_pps:>12,.0f} packets/s  (building and sending)")
        how = "compiled" if found.compiled else "pure Python (`fabriclab native build` compiles it)"
        click.echo(f"full loop over Scapy: {found.loop_ratio:.0f} times, {transport}, {mtu} bytes of payload")
        click.echo(f"packet loop: {how}, {found.batch:.0f} packets a turn")
        if where is not None:
            click.echo(where)


@bench.command()
@click.option("--rounds", type=click.IntRange(1, 100), default=5, help="Rounds of 8 MiB for each transport.")
@click.option("--rate", type=RATE, default="400Gbit", help="Rate of each link.")
@click.option("--delay", type=DURATION, default="500ns", help="Delay of each link.")
@json_option("Print the figures as JSON.")
@verbosity_options
def virtual(rounds: int, rate: float, delay: float, as_json: bool) -> None:
    """Whole transports on the virtual clock over four shaped, delayed links, beside ready frames alone.

    Agents look at their sockets every sixteenth of a round trip: the more packets pass in that time, the fewer turns a packet.
    """
    from emulator.bench.virtual import measure

    found = measure(rounds=rounds, rate_bps=int(rate), delay_ns=int(delay))
    if as_json:
        click.echo(json.dumps([loop.to_dict() for loop in found], indent=1))
        return
    click.echo(
        "loop          data-hops/wall s   /core s   us a packet: wall    cpu =  tasks + kernel +   host   a turn       goodput"
    )
    for x in found:
        click.echo(
            f"{x.what:<13}{x.hops_per_wall_s:>17,.0f}{x.hops_per_cpu_s:>10,.0f}{x.wall_us:>20.1f}{x.cpu_us:>7.1f}"
            f"{x.task_us:>9.1f}{x.kernel_us:>9.1f}{x.host_us:>9.1f}{x.packets_per_turn:>9.1f}"
            f"{x.goodput_gbps:>8.1f} Gbit/s"
        )
    bound = max(
        (
            ("tasks (Python)", found[0].task_us),
            ("the guest's kernel", found[0].kernel_us),
            ("the host's hand-overs", found[0].host_us),
        ),
        key=lambda part: part[1],
    )
    click.echo(
        f"packet loop {'compiled' if found[0].compiled else 'pure Python'}; {found[0].what} is bound by {bound[0]}"
    )


@bench.command()
@click.option("--large", is_flag=True, help="Also 8 leaves, 8 spines and 128 hosts.")
@json_option("Print the figures as JSON.")
@verbosity_options
def build(large: bool, as_json: bool) -> None:
    """Planning, building, reading back and taking away a fabric, beside plain Mininet hosts and links. Needs root."""
    from emulator.bench.build import SIZES, measure

    found = [measure(size) for size in (SIZES if large else SIZES[:2])]
    if as_json:
        click.echo(json.dumps([one.to_dict() for one in found], indent=1))
        return
    click.echo("fabric               nodes links   plan  build  read back  destroy   Mininet build + stop   ratio")
    for x in found:
        click.echo(
            f"{x.name:<20}{x.nodes:>6}{x.links:>6}{x.plan_s:>7.2f}{x.build_s:>7.2f}{x.readback_s:>11.2f}{x.destroy_s:>9.2f}"
            f"{x.mininet_build_s:>16.2f} + {x.mininet_stop_s:.2f}{x.ratio:>8.2f}"
        )
