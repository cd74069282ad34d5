"""`fabriclab lab`: list the teaching labs, start one, grade a folder."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import click

from emulator.cli.session import tell

RESULT = "result.json"


@click.group()
def lab() -> None:
    """Teaching labs: list them, start one, grade a folder."""


@lab.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def list_(as_json: bool) -> None:
    """Every lab with its question and the time it takes."""
    from emulator.lab.catalogue import labs

    found = labs()
    if as_json:
        about = [{"number": x.number, "name": x.name, **x.about.model_dump()} for x in found]
        click.echo(json.dumps(about, indent=1, ensure_ascii=False))
        return
    for x in found:
        click.echo(f"{x.number}  {x.about.title} ({x.about.minutes} min)\n   {x.about.question}")
    click.echo("start one: fabriclab lab start 1")


@lab.command()
@click.argument("which", metavar="N")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help="The new folder.  [default: lab-NN-NAME]"
)
def start(which: str, folder: Path | None) -> None:
    """Make a folder with the handout, the experiment files and the answers file of lab N."""
    from emulator.lab.catalogue import find_lab
    from emulator.lab.start import start_lab

    chosen = find_lab(which)
    folder = folder or Path(f"lab-{chosen.name}")
    for path in start_lab(chosen, folder):
        click.echo(path)
    tell(f"go on with: cd {folder}, then read handout.md")
    tell(f"Python, for notebooks and snippets in a handout: {sys.executable}")
    if shutil.which("fabriclab") is None:
        scripts = Path(__file__).resolve().parents[2] / "scripts"
        tell(f'first, so that the shell finds fabriclab anywhere: export PATH="{scripts}:$PATH"')


@lab.command()
@click.argument("which", metavar="N")
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Result file.  [default: result.json in FOLDER]",
)
@click.option(
    "--repeat-runs",
    "repeat",
    is_flag=True,
    help="Make the runs handed in again, and note which come out otherwise: was a run directory edited? Points stay.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
def check(which: str, folder: Path, output: Path | None, repeat: bool, as_json: bool) -> None:
    """Grade lab N in FOLDER (here, if left out) from its runs, answers and code; each lost point comes with its reason.

    Writes result.json: score, max_score, and one test an item, as course platforms read them. Lab 5 runs the student's code:
    grade strangers' folders in a container.
    """
    from emulator.lab.catalogue import find_lab
    from emulator.lab.grade import grade

    graded = grade(find_lab(which), folder)
    if repeat:
        from emulator.lab.again import repeat_runs

        graded.notes.extend(repeat_runs(graded, tell))
    target = output or folder / RESULT
    graded.write(target)
    click.echo(json.dumps(graded.to_json(), indent=1, ensure_ascii=False) if as_json else graded.text())
    tell(f"result: {target}")
