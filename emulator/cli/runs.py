"""What all run commands share: their flags, the progress line, how a result is printed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from emulator.cli.params import DURATION, SIZE, json_option, set_option
from emulator.cli.session import session_of, tell, verbosity_options
from emulator.report.text import size

if TYPE_CHECKING:
    from emulator.cli.session import Session
    from emulator.experiment.run import Finished
    from emulator.experiment.spec import Experiment
    from emulator.experiment.watch import LiveWatch

F = TypeVar("F", bound=Callable[..., Any])

OUT = click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    envvar="FABRICLAB_OUT",
    help="Folder of run directories.",
)
PCAP = click.option(
    "--pcap",
    multiple=True,
    metavar="PORT|all",
    help="Capture what leaves a port (leaf0:host0, leaf0:*, all) to capture/run.pcapng. Repeatable.",
)
PCAP_SNAP = click.option(
    "--pcap-snap",
    type=SIZE,
    default=None,
    show_default=False,
    help="Bytes kept of a captured packet; left out, 256 on the real clock and all on the virtual one.",
)
LIVE = click.option(
    "--live", is_flag=True, help="Show queues, rates, marks and progress while it runs; plain lines if no terminal."
)
REPEAT = click.option("--repeat", type=click.IntRange(1, 1000), default=1, help="Runs; more give median and spread.")
SAVE_SPEC = click.option(
    "--save-spec", type=click.Path(path_type=Path, dir_okay=False), help="Write the experiment as a file for `run`."
)

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--clock",
        type=click.Choice(["auto", "real", "virtual"]),
        default="auto",
        help="real: namespaces, slowed, root. virtual: guest kernel, exact, no root. auto: chooses and says why.",
    ),
    click.option("--tdf", default="auto", metavar="auto|N", help="Time dilation factor of the real clock."),
    click.option("--seed", type=click.IntRange(min=0), default=1, help="Seed of everything random."),
    click.option(
        "--transport", type=click.Choice(["roce", "mrc", "tcp"]), default="roce", help="roce: one path; mrc: sprayed."
    ),
    click.option("--cc", metavar="NAME|FILE.py:CLASS", help="Congestion control; see `fabriclab cc list`."),
    click.option("--cc-preset", metavar="NAME", help="Published parameters of it; see `fabriclab cc show NAME`."),
    click.option("--cc-set", multiple=True, metavar="KEY=VALUE", help="One parameter of it. Repeatable."),
    click.option(
        "--mtu", type=click.Choice(["256", "512", "1024", "2048", "4096"]), default="4096", help="Payload bytes."
    ),
    click.option(
        "--ecn/--no-ecn", default=None, help="tcp: negotiate ECN (RFC 3168); left out, with --cc dctcp alone."
    ),
    click.option(
        "--recovery", type=click.Choice(["gbn", "selective"]), default=None, help="roce: loss recovery.  [default: gbn]"
    ),
    click.option("--qps", type=click.IntRange(1, 64), default=1, help="Queue pairs between two hosts."),
    click.option(
        "--spray",
        type=click.Choice(["oblivious", "bitmap", "reps", "flowlet", "ecmp"]),
        default=None,
        help="mrc: how paths are picked.  [default: bitmap]",
    ),
    click.option(
        "--trim",
        type=click.Choice(["on", "off", "topology"]),
        default="topology",
        help="mrc: switches trim what their queues cannot hold.",
    ),
    click.option("--deny", multiple=True, metavar="SWITCH|PORT", help="mrc: paths not to use. Repeatable."),
    click.option("--time-limit", type=DURATION, default="1s", help="Longest fabric time of the traffic."),
    click.option("--wall-limit", type=click.FloatRange(min=1), default=300.0, help="Longest wall time, seconds."),
    click.option("--sample", type=DURATION, default=None, help="Queue sampling period (fabric time)."),
    PCAP,
    PCAP_SNAP,
    LIVE,
    OUT,
    REPEAT,
    SAVE_SPEC,
    set_option,
    json_option("Print the summary as JSON on standard output."),
    verbosity_options,
)


def run_options(command: F) -> F:
    """Gives a command the flags common to all runs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def experiment_of(topology: str, workload: Mapping[str, Any], flags: Mapping[str, Any]) -> Experiment:
    """The experiment that a run command's flags describe."""
    from pydantic import ValidationError

    from emulator.errors import UsageError
    from emulator.experiment.spec import Experiment

    tdf = flags["tdf"]
    if tdf != "auto":
        if not tdf.isdecimal() or int(tdf) < 1:
            raise UsageError(
                f'"{tdf}" is no time dilation factor', where="--tdf", remedy="write auto or a whole number from 1"
            )
        tdf = int(tdf)
    try:
        return Experiment.model_validate(
            {
                "topology": topology,
                "topology_set": flags["settings"],
                "workload": workload,
                "transport": {
                    "kind": flags["transport"],
                    "cc": flags["cc"],
                    "cc_preset": flags["cc_preset"],
                    "cc_params": key_values(flags["cc_set"], "--cc-set"),
                    "mtu": int(flags["mtu"]),
                    "ecn": flags["ecn"],
                    "recovery": flags["recovery"],
                    "qps": flags["qps"],
                    "spray": flags["spray"],
                    "trim": flags["trim"],
                    "deny": [{"via": via} for via in flags["deny"]],
                },
                "clock": flags["clock"],
                "tdf": tdf,
                "seed": flags["seed"],
                "sample": None if flags["sample"] is None else DURATION.spell(flags["sample"]),
                "pcap": flags["pcap"],
                "pcap_snap": flags["pcap_snap"],
                "time_limit": DURATION.spell(flags["time_limit"]),
                "wall_limit_s": flags["wall_limit"],
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")  # pydantic's, before the words of a validator of ours
        raise UsageError(what[:1].lower() + what[1:], where=place, remedy="see --help for what it takes") from error


def key_values(words: tuple[str, ...], option: str) -> dict[str, Any]:
    """`KEY=VALUE` words as a mapping; numbers become numbers, the rest stays text."""
    from emulator.errors import UsageError

    out: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f'"{word}" is no setting', where=option, remedy="write KEY=VALUE")
        try:
            out[key] = json.loads(value)
        except ValueError:
            out[key] = value
    return out


class ProgressLine:
    """One line on standard error that says what goes on; silent when asked or when nobody looks."""

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        self.quiet = quiet
        self.verbose = verbose
        self.terminal = sys.stderr.isatty()
        self._shown = ""
        self._last = 0.0

    def step(self, text: str, done: int, total: int) -> None:
        """Building or taking away."""
        self._line(f"{text} …" if done < total else text)

    def progress(self, state: Mapping[str, Any]) -> None:
        """Traffic."""
        if "bytes_total" not in state:
            self._line(f"{state['time_ns'] / 1e3:.0f} us of fabric time")
            return
        total = max(1, state["bytes_total"])
        share = state["bytes_done"] / total
        self._line(
            f"{share:4.0%} of {size(total)} acknowledged, {state['packets']} packets, "
            f"{state['time_ns'] / 1e3:.0f} us of fabric time",
        )

    def note(self, text: str) -> None:
        """A sentence for the user, kept on the screen."""
        if not self.quiet and text:
            with suppress(OSError):  # whoever watches may leave; the run goes on
                self._clear()
                click.echo(text, err=True)

    def _line(self, text: str) -> None:
        if self.quiet:
            return
        with suppress(OSError):
            self._show(text)

    def _show(self, text: str) -> None:
        if self.terminal:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
            self._shown = text
        elif self.verbose or time.monotonic() - self._last > 5:
            self._last = time.monotonic()
            click.echo(text, err=True)

    def _clear(self) -> None:
        if self.terminal and self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = ""

    def close(self) -> None:
        """Leave a clean line."""
        with suppress(OSError):
            self._clear()


def watcher(title: str, *, live: bool, session: Session) -> ProgressLine | LiveWatch:
    """Who is told how a run goes: the live view, or one line."""
    if live:
        from emulator.experiment.watch import LiveWatch

        return LiveWatch(title, quiet=session.quiet)
    return ProgressLine(quiet=session.quiet, verbose=session.verbosity > 0)


def run_and_print(
    ctx: click.Context, experiment: Experiment, flags: Mapping[str, Any], *, base: Path | None = None
) -> int:
    """Run (as often as `--repeat` says), print the summary (text or JSON), and return the verdict's exit code."""
    from emulator.experiment.run import run

    session = session_of(ctx)
    if flags["save_spec"] is not None:
        from emulator.experiment.load import save_experiment

        save_experiment(experiment, flags["save_spec"])
    title = f"{experiment.name or experiment.workload.kind} on {Path(experiment.topology).stem}, {experiment.transport.kind}"
    watch = watcher(title, live=flags.get("live", False), session=session)
    argv = ["fabriclab", *sys.argv[1:]]
    try:
        if flags["repeat"] > 1:
            from emulator.experiment.repeat import run_repeats

            repeats = run_repeats(experiment, flags["repeat"], out=flags["out"], argv=argv, watch=watch, base=base)
            watch.close()
            click.echo(json.dumps(repeats.to_json(), indent=1) if flags["as_json"] else repeats.text())
            return repeats.exit_code
        finished = run(experiment, out=flags["out"], argv=argv, watch=watch, base=base)
    finally:
        watch.close()
    return print_finished(finished, as_json=flags["as_json"])


def print_finished(finished: Finished, *, as_json: bool) -> int:
    """The result on standard output; where it lies on standard error."""
    if as_json:
        click.echo(json.dumps(finished.summary, indent=1, ensure_ascii=False))
    else:
        click.echo((finished.run_dir / "summary.txt").read_text(encoding="utf-8").rstrip("\n"))
    tell(f"results: {finished.run_dir}   page: {finished.run_dir / 'report.html'}")
    return finished.exit_code
