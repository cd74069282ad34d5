"""`fabriclab kernel`: build and show the guest kernel of the virtual clock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from emulator.cli.session import tell, verbosity_options
from emulator.errors import MissingCapability


@click.group()
def kernel() -> None:
    """The kernel for the virtual clock: build it once, look at it."""


@kernel.command()
@click.option(
    "--source", type=click.Path(path_type=Path), help="A kernel source tarball instead of the distribution's package."
)
@click.option("--with-rxe", is_flag=True, help="With Linux's own Soft-RoCE, as a peer to test against.")
@click.option("--jobs", type=click.IntRange(1), help="Compilers at once.  [default: cores allowed]", show_default=False)
@verbosity_options
@click.pass_context
def build(ctx: click.Context, source: Path | None, with_rxe: bool, jobs: int | None) -> None:
    """Build the guest kernel; needs no root once the source package and the compiler are there.

    The result is kept, and the same source, configuration and patches are not built again. Its path is printed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from emulator.cli.session import session_of
    from emulator.clock.kernel import build_kernel

    begun = time.monotonic()
    quiet = session_of(ctx).quiet
    console = Console(stderr=True)
    lines = Lines() if not quiet and not console.is_terminal else None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet or lines is not None) as bar:
        task = bar.add_task("looking for the source", total=None)

        def show(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total if total > 1 else None)
            if lines is not None:
                lines.show(stage, done, total)

        path = build_kernel(source=source, with_rxe=with_rxe, jobs=jobs, progress=show)
        bar.update(task, visible=False)
    tell(f"guest kernel ready after {time.monotonic() - begun:.0f} s")
    click.echo(path)


class Lines:
    """Progress where nobody watches a bar: a line for each stage and each tenth of a long one."""

    def __init__(self) -> None:
        self._last = ("", 0)

    def show(self, stage: str, done: int, total: int) -> None:
        """Called at every step; prints what is new."""
        now = (stage, 10 * done // total if total > 1 else 0)
        if now != self._last:
            self._last = now
            click.echo(f"{stage} {10 * now[1]} %" if total > 1 else stage, err=True)


@kernel.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@verbosity_options
def info(as_json: bool) -> None:
    """Version, features and place of the guest kernel that runs would use."""
    from emulator.clock.kernel import cache_folder, find_kernel, kernel_info

    path = find_kernel() or find_kernel(with_rxe=True)
    if path is None:
        raise MissingCapability(
            f"there is no guest kernel (cache: {cache_folder()})",
            where="kernel info",
            remedy="`fabriclab kernel build` makes one in a few minutes",
        )
    facts = kernel_info(path)
    click.echo(json.dumps(facts) if as_json else "\n".join(_lines(facts)))


def _lines(facts: dict[str, Any]) -> list[str]:
    have = [name for name, present in facts["features"].items() if present]
    lack = [name for name, present in facts["features"].items() if not present]
    lines = [
        f"kernel    Linux {facts['version']} (user mode), {facts['size_bytes'] / 1e6:.1f} MB",
        f"path      {facts['path']} (from {facts['from']})",
        f"features  {', '.join(have)}" + (f"; not: {', '.join(lack)}" if lack else ""),
        f"cache     {facts['cache']}",
    ]
    if facts["source"]:
        lines.append(
            f"source    {facts['source']['tarball']}, built in {facts['build_s']:.0f} s with {facts['compiler']}"
        )
    if facts["recipe_current"] is False:
        lines.append("warning   it was built with another recipe; `fabriclab kernel build` makes the present one")
    return lines
