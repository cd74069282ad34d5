"""The entry point: the table of commands, and one way for every error to reach the user.

Exit codes: 0 finished; 1 the run failed; 2 wrong usage or a wrong file; 3 finished, verdict "do not trust"; 4 a
privilege or a kernel feature is missing; 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Final

import click

from emulator.cli.lazy import Lazy, LazyGroup
from emulator.cli.session import Session, verbosity_options
from emulator.errors import NO_ROOM, FabricError, no_room
from traffic.errors import TrafficError

INTERRUPTED: Final = 130
ENV_PREFIX: Final = "FABRICLAB"


def _entry(name: str, text: str) -> Lazy:
    return Lazy(f"emulator.cli.{name}:{name}", text)


COMMANDS: Final[Mapping[str, Lazy]] = {
    name: _entry(name, text)
    for name, text in {
        "doctor": "What this machine can do, and the remedy for what it cannot.",
        "topo": "Check, show, plan or draw a topology file; needs no privilege.",
        "incast": "N senders to one receiver.",
        "allreduce": "An all-reduce of real vectors, checked by every rank.",
        "train": "Training steps: compute, gradient buckets, exposed communication.",
        "run": "An experiment file.",
        "rerun": "An earlier run again, from its own manifest.",
        "sweep": "A grid of runs with repeats and statistics.",
        "exec": "A real program on every host, measured and judged.",
        "up": "Build a fabric and give a prompt in it.",
        "clean": "Remove everything that carries our mark, and nothing else.",
        "report": "The HTML page of a run.",
        "compare": "Several runs side by side.",
        "capture": "Work with packet captures.",
        "packet": "Build, explain and check one packet.",
        "cc": "Congestion control: list, explain.",
        "bench": "What this machine can carry.",
        "kernel": "The kernel for the virtual clock: build it, look at it.",
        "native": "The packet loop as machine code: compile it, look at it.",
        "lab": "Teaching labs.",
    }.items()
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100},
    epilog="Every flag can be set in the environment: FABRICLAB_COMMAND_FLAG, such as FABRICLAB_INCAST_SENDERS=7.",
)
@click.version_option(package_name="fabriclab", prog_name="fabriclab", message="%(prog)s %(version)s")
@verbosity_options
def cli() -> None:
    """Emulate the network of an AI training cluster on this machine, with real packets."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code; errors go to standard error in three parts."""
    _open_streams()
    output = sys.stdout
    session = Session(verbosity=2 if os.environ.get("FABRICLAB_DEBUG", "0") not in ("", "0") else 0)
    try:
        result = cli.main(
            args=None if argv is None else list(argv),
            prog_name="fabriclab",
            standalone_mode=False,
            obj=session,
            auto_envvar_prefix=ENV_PREFIX,
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (click.Abort, KeyboardInterrupt):
        if argv is None:  # this process ends: a second Ctrl-C must not change its exit code
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        click.echo("fabriclab: interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        _report_click(error)
        return error.exit_code
    except SystemExit as end:
        if sys.stdout is output and not isinstance(end.__context__, BrokenPipeError):
            raise
        return 0  # the reader left: click wrapped the stream for that, or rich ended the process
    except BrokenPipeError:
        _give_up_output()  # the same, found at the last flush
        return 0
    except (FabricError, TrafficError) as error:
        _report(error, session)
        return error.exit_code if isinstance(error, FabricError) else 1
    except OSError as error:
        if error.errno not in NO_ROOM:
            _report_defect(error, session)
            return 1
        _give_up_output()
        _report(no_room(error, "the file system it writes to"), session)
        return 1
    except Exception as error:
        _report_defect(error, session)
        return 1


def _open_streams() -> None:
    """Give a caller's closed output (`>&-`) a place to go: Python has None there, and the first line would fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - as long as the process


def _give_up_output() -> None:
    """Lose what standard output does not take: Python would try again at exit, and answer with an exit code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: FabricError | TrafficError, session: Session) -> None:
    problems = getattr(error, "problems", None)
    if problems:
        # A wrong file: one line a problem, as compilers print them, so that editors can jump there.
        for problem in problems:
            click.echo(str(problem), err=True)
    else:
        _three_parts(error.what, error.where, error.remedy)
    _trace(session)


def _report_click(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fabriclab"
    message = error.format_message()
    _three_parts(message[:1].lower() + message[1:].rstrip("."), path, f"see {path} --help")


def _report_defect(error: Exception, session: Session) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119
    what = f"internal error: {type(error).__name__}: {error}"
    _three_parts(what, where, "run it again with -vv and report what it prints as a defect")
    _trace(session)


def _three_parts(what: str, where: str, remedy: str) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + what, err=True)
    if where:
        click.echo(f"  where: {where}", err=True)
    if remedy:
        click.echo(f"  to do: {remedy}", err=True)


def _trace(session: Session) -> None:
    if session.verbosity >= 2:
        click.echo(traceback.format_exc(), err=True, nl=False)


if __name__ == "__main__":
    sys.exit(main())
