"""`fabriclab capture`: open or show the packet capture of a run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import click

from emulator.cli.session import tell, verbosity_options


@click.group()
def capture() -> None:
    """Look at what --pcap captured, with MRC's headers dissected."""


_RUN_DIR = click.argument("run_dir", type=click.Path(path_type=Path))


@capture.command("open", epilog="Example: fabriclab capture open runs/20261129-161200-incast-7to1")
@_RUN_DIR
@verbosity_options
def open_(run_dir: Path) -> None:
    """Open the capture of RUN_DIR in Wireshark with our dissector; without Wireshark, print the tshark command."""
    from emulator.collect.capture_text import find_capture, tshark_argv
    from emulator.report.dissector import dissector_path

    path = find_capture(run_dir)
    if shutil.which("wireshark"):
        argv = ["wireshark", "-X", f"lua_script:{dissector_path()}", "-r", str(path)]
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        click.echo(shlex.join(argv))
        return
    tell("Wireshark is not installed here; this reads the capture in the terminal:")
    click.echo(shlex.join(tshark_argv(path, dissector_path())))


@capture.command(
    epilog="Example: fabriclab capture show runs/20261129-161200-incast-7to1 --port leaf0:host0 --limit 20"
)
@_RUN_DIR
@click.option("--port", default=None, help="Packets that left by this port only.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Packets to show, at most.")
@verbosity_options
def show(run_dir: Path, port: str | None, limit: int | None) -> None:
    """One line a packet, by tshark with our dissector, or by our own reading where tshark is not installed."""
    from emulator.collect.capture_text import HEADING, lines
    from emulator.report.dissector import dissector_path

    found = lines(run_dir, dissector_path(), port=port, limit=limit)
    shown = False
    for line in found:
        if not shown:
            click.echo(HEADING)
        shown = True
        click.echo(line.text())
    if not shown:
        tell("no packets" + (f" left by {port}" if port else ""))


@capture.command()
@verbosity_options
def dissector() -> None:
    """Print where the Wireshark dissector is; copy it into Wireshark's folder of personal Lua plugins to have it always."""
    from emulator.report.dissector import dissector_path

    click.echo(dissector_path())
