"""`fabriclab exec`: a real program on every host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from emulator.cli.runs import experiment_of, run_and_print, run_options

F = TypeVar("F", bound=Callable[..., Any])


def _defaults(**values: Any) -> Callable[[F], F]:
    """Other defaults for the flags that all runs share: a program's own TCP, and more time."""

    def change(command: F) -> F:
        for param in getattr(command, "__click_params__", ()):
            if param.name in values:
                param.default = values[param.name]
        return command

    return change


class _OfProgram(click.Command):
    """A command that ends with another program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does. Raises UsageError where an option is not ours and nothing says that it is the program's."""
        from emulator.errors import UsageError

        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if "--" in given:
                raise
            raise UsageError(
                f"no such option '{error.option_name}'", where=ctx.command_path,
                remedy="put -- before the program, and what follows is its own; see fabriclab exec --help",
            ) from error  # fmt: skip


@click.command(
    cls=_OfProgram,
    epilog="Example: fabriclab exec topologies/leaf-spine-2x2x4.yaml --ranks 4 -- python examples/ddp.py",
)
@click.argument("topo")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--ranks", type=click.IntRange(min=1), default=None, help="Ranks in all.  [default: one a host]")
@click.option("--hosts", default=None, metavar="A,B,...", help="The hosts that take part, by name or number.")
@click.option("--ranks-per-host", type=click.IntRange(min=1), default=1, help="Ranks of each host.")
@click.option("--mpi", is_flag=True, help="Start the ranks with OpenMPI's mpirun.")
@click.option(
    "--compute",
    default="free",
    metavar="free|fixed[=TIME]|measured",
    help="What a call of emulator.compute takes: nothing, its own time or TIME, or the CPU's (virtual clock).",
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for the program. Repeatable.")
@click.option(
    "--algorithm", "algorithms", multiple=True, metavar="COLLECTIVE=NAME",
    help="Algorithm of a collective of the backend fabriclab, such as allreduce=tree. Repeatable.",
)  # fmt: skip
@_defaults(transport="tcp", time_limit="60s", wall_limit=900.0)
@run_options
@click.pass_context
def exec(  # noqa: A001 - the name of the command
    ctx: click.Context,
    /,
    topo: str,
    command: tuple[str, ...],
    ranks: int | None,
    hosts: str | None,
    ranks_per_host: int,
    mpi: bool,
    compute: str,
    env: tuple[str, ...],
    algorithms: tuple[str, ...],
    **flags: Any,
) -> int:
    """Run COMMAND on the hosts of TOPO, each in its own network, and say what it did to the fabric.

    Every rank finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME in its environment, and
    FABRICLAB_PEERS, the addresses of all hosts. With --transport tcp the program's own sockets carry its traffic; roce and
    mrc start our agents, which carry the torch.distributed backend "fabriclab".
    """
    _refuse_foreign(ctx, flags["transport"])
    params: dict[str, Any] = {
        "command": list(command),
        "ranks_per_host": ranks_per_host,
        "mpi": mpi,
        "compute": compute,
        "env": _pairs(env, "--env"),
        "algorithms": _pairs(algorithms, "--algorithm"),
        "cwd": str(Path.cwd()),
    }
    if ranks is not None:
        params["ranks"] = ranks
    if hosts is not None:
        params["hosts"] = [word.strip() for word in hosts.split(",") if word.strip()]
    return run_and_print(ctx, experiment_of(topo, {"kind": "exec", "bytes": 0, "params": params}, flags), flags)


def _refuse_foreign(ctx: click.Context, transport: str) -> None:
    """Raises UsageError for a flag of our agents' packets where the program's own sockets carry them."""
    from emulator.errors import UsageError

    for name in ("mtu", "qps") if transport == "tcp" else ():
        source = ctx.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise UsageError(
                "the program's own sockets decide on packets and connections", where=f"--{name}",
                remedy="leave it out (the topology's mtu holds), or add --transport roce or mrc",
            )  # fmt: skip


def _pairs(words: tuple[str, ...], option: str) -> dict[str, str]:
    """NAME=VALUE words as a mapping. Raises UsageError."""
    from emulator.errors import UsageError

    out = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f'"{word}" is no setting', where=option, remedy="write NAME=VALUE")
        out[name] = value
    return out
