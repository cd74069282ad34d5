"""`fabriclab report`: the HTML page of a run."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write; report.html in RUN_DIR if left out.",
)
@click.option("--open", "show", is_flag=True, help="Open the page in the browser.")
def report(run_dir: Path, output: Path | None, show: bool) -> None:
    """Write the page of a run: one HTML file that needs no network."""
    from emulator.report.page import make_page

    path = make_page(run_dir, output)
    click.echo(f"{path} ({path.stat().st_size / 1e6:.2f} MB)")
    if show and not _open(path):
        click.echo("no browser could be started; open the file by hand", err=True)


def _open(path: Path) -> bool:
    import webbrowser

    return webbrowser.open(path.resolve().as_uri())
