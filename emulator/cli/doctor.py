"""`fabriclab doctor`: what this machine can do, and the remedy for what it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from emulator.cli.params import json_option
from emulator.errors import MissingCapability

if TYPE_CHECKING:
    from emulator.port.needs import Diagnosis


@click.command()
@json_option("Everything as JSON.")
def doctor(as_json: bool) -> int:
    """Privileges, kernel features and tools, tried rather than assumed; for what is missing, what needs it and how to get it.

    Exit code 4 if no run is possible on either clock, else 0.
    """
    from emulator.port.features import probe
    from emulator.port.needs import diagnose
    from emulator.port.objects import find_object

    found = diagnose(probe(), guest_kernel(), program_ready=find_object("bpf") is not None)
    if as_json:
        click.echo(json.dumps({**found.to_dict(), "packet_loop": packet_loop()}, indent=2))
    else:
        click.echo(_text(found))
    return MissingCapability.exit_code if found.clock == "none" else 0


def guest_kernel() -> Path | None:
    """The kernel of the virtual clock, if it is built."""
    from emulator.clock.kernel import find_kernel

    return find_kernel()


def packet_loop() -> str:
    """`compiled` or `interpreted`: how the agents of runs work their packets."""
    from traffic.native import find

    return "compiled" if find() else "interpreted"


def _text(found: Diagnosis) -> str:
    from emulator.port.needs import delay_text, marking_text

    features = found.features
    lines = [
        f"kernel        {features.kernel} {features.machine}, clock source {features.clocksource or 'unknown'}"
        + (" (guest of the virtual clock)" if features.guest else ""),
        f"clock         use {found.clock}: {found.why}"
        if found.clock != "none"
        else f"clock         none: {found.why}",
        f"  real        {'yes' if found.real else 'no'}",
        f"  virtual     {found.guest_kernel or 'no guest kernel; run `fabriclab kernel build`'}",
        f"marking       {features.marking}: {marking_text(features.marking)}",
        f"delay         {features.delay}: {delay_text(features.delay)}",
        f"tcp           {' '.join(features.congestion_available) or 'unknown'}",
    ]
    how = "" if packet_loop() == "compiled" else ": slower; run `fabriclab native build`"
    lines.append(f"packet loop   {packet_loop()}{how}")
    lines += [f"not probed    {text}" for text in features.unknown]
    there = [need.name for need in found.needs if need.there]
    lines += ["", "there         " + ", ".join(there)]
    for severity, title in (("blocks", "needed for the real clock"), ("limits", "would add"), ("info", "optional")):
        missing = [need for need in found.needs if need.there is False and need.severity == severity]
        if missing:
            lines += ["", f"missing, {title}:"]
        for need in missing:
            lines.append(f"  {need.name:<14}for {need.needed_for}")
            if need.answer:
                lines.append(f"{'':16}answer: {need.answer}")
            lines.append(f"{'':16}to do: {need.remedy}")
    return "\n".join(lines)
