"""Flag types of the command line: the unit grammar of files, on flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from emulator.topology.units import (
    UnitError,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

F = TypeVar("F", bound=Callable[..., Any])


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """A quantity with a unit; the command receives the number. Defaults may be numbers or text."""

    def __init__(self, name: str, parse: Callable[[object], float], spell: Callable[[Any], str]) -> None:
        self.name = name
        self._parse = parse
        self._spell = spell

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; click's usage error names the flag."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        try:
            return self._parse(value)
        except UnitError as error:
            self.fail(f"{error.what}; {error.remedy}", param, ctx)

    def spell(self, value: Any) -> str:
        """The number as a file would say it."""
        return self._spell(value)


RATE: Final = Quantity("rate", parse_rate, format_rate)
SIZE: Final = Quantity("size", parse_size, format_size)
DURATION: Final = Quantity("duration", parse_duration, format_duration)


def json_option(text: str) -> Callable[[F], F]:
    """Gives a command `--json` as the argument `as_json`; `text` is its help."""
    return click.option("--json", "as_json", is_flag=True, envvar="FABRICLAB_JSON", help=text)


def set_option(command: F) -> F:
    """Gives a command `--set path.to.key=value`, repeatable, as the argument `settings`."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        envvar="FABRICLAB_SET",
        metavar="KEY=VALUE",
        help="Put a value over the file's: path.to.key=value, such as --set uplink.rate=25Gbit. Repeatable.",
    )(command)
