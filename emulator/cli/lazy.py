"""A click group whose commands are imported when they are called, not when they are listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from emulator.topology.suggest import nearest


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command lives, as `package.module:object`, and its line in the help."""

    target: str
    help: str

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    def load(self) -> click.Command:
        """Imports the module; TypeError if the object there is no command."""
        module, _, name = self.target.partition(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a click command")
        return command


class LazyGroup(click.Group):
    """A group with a table of commands to import on demand. An entry whose module is absent is not there at all."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table; commands defined in place come first."""
        own = [name for name in self.commands if name not in self.lazy]
        return own + [name for name, entry in self.lazy.items() if find_spec(entry.module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None if there is none of that name."""
        entry = self.lazy.get(cmd_name)
        if entry is None or find_spec(entry.module) is None:
            return super().get_command(ctx, cmd_name)
        return entry.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, but an unknown name gets the nearest known one."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and name not in self.list_commands(ctx):
            known = nearest(name, self.list_commands(ctx), most=40)
            raise click.UsageError(f'no command "{name}"; {known}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command list, from the table where it has a line."""
        rows = []
        for name in self.list_commands(ctx):
            entry = self.lazy.get(name)
            if entry is not None:
                rows.append((name, entry.help))
            else:
                command = super().get_command(ctx, name)
                if command is not None and not command.hidden:
                    rows.append((name, command.get_short_help_str(limit=100)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
