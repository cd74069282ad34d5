"""What the whole command line shares in one invocation: how much to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Session:
    """Verbosity of one invocation: 1 says more, 2 shows tracebacks; `quiet` leaves results and errors only."""

    verbosity: int = 0
    quiet: bool = False


def session_of(ctx: click.Context) -> Session:
    """The session of the invocation a context belongs to."""
    return ctx.find_root().ensure_object(Session)


def tell(text: str) -> None:
    """A sentence beside the result, on standard error; nothing with `-q`."""
    if not session_of(click.get_current_context()).quiet:
        click.echo(text, err=True)


def verbosity_options(command: F) -> F:
    """Gives a command `-v/--verbose` and `-q/--quiet`; both also work before the command's name."""
    quiet = click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_set_quiet, help="Print results and errors only."
    )
    verbose = click.option(
        "-v", "--verbose", count=True, expose_value=False, callback=_add_verbosity,
        help="Say more; -vv shows tracebacks.", show_default=False,
    )  # fmt: skip
    return verbose(quiet(command))


def _add_verbosity(ctx: click.Context, _: click.Parameter, value: int) -> None:
    session_of(ctx).verbosity += value


def _set_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    session = session_of(ctx)
    session.quiet = session.quiet or value
