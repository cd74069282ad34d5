"""`fabriclab cc`: the congestion controls there are, what their parameters mean, and the check of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from emulator.cli.params import DURATION, RATE
from emulator.errors import RunFailed, UsageError
from emulator.experiment.cc import convert_quantity, usage

if TYPE_CHECKING:
    from traffic.congestion.base import CongestionControl, PathInfo
    from traffic.congestion.checker import Report

_WIDTH = 60


@click.group("cc")
def cc() -> None:
    """Congestion control: list, explain, write and check algorithms."""


@cc.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def list_(as_json: bool) -> None:
    """The built-in algorithms, one a line."""
    from emulator.experiment.tcp import KERNEL_CC
    from traffic.congestion import describe
    from traffic.congestion.registry import BUILT_IN

    found = [
        {
            "name": cls.name,
            "summary": describe.summary(cls),
            "needs": describe.needs(cls),
            "presets": list(cls.presets),
            "source": cls.source,
        }
        for cls in BUILT_IN
    ]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for item in found:
        presets = f" (presets: {', '.join(item['presets'])})" if item["presets"] else ""
        click.echo(f"{item['name']:13} {item['summary']}{presets}")
    click.echo("FILE.py:Class your own; `fabriclab cc new FILE.py` writes one to start from")
    click.echo(f"with --transport tcp, the kernel's own: {', '.join(KERNEL_CC)}")


@cc.command("show")
@click.argument("name")
@click.option("--preset", help="Values of this preset instead of the defaults.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter; may be repeated.")
@click.option(
    "--rate", type=RATE, default="100Gbit", show_default=True, help="Line rate that formulas are worked out for."
)
@click.option(
    "--rtt", type=DURATION, default="8us", show_default=True, help="Base round trip that formulas are worked out for."
)
@click.option("--mtu", type=click.IntRange(1), default=4096, show_default=True, help="Payload bytes of a packet.")
@click.option("--trimming/--no-trimming", default=False, help="Whether the switches trim.")
@click.option("--markdown", is_flag=True, help="The table of the algorithm's page in docs/algorithms.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def show(
    name: str,
    preset: str | None,
    settings: tuple[str, ...],
    rate: int,
    rtt: int,
    mtu: int,
    trimming: bool,
    markdown: bool,
    as_json: bool,
) -> None:
    """What NAME does, its formula, and each parameter with its default, value, unit, range and source."""
    from traffic.congestion import describe, registry
    from traffic.congestion.base import PathInfo

    with usage():
        cls = registry.algorithm(name)
    if markdown:
        _refuse_beside_markdown()
        click.echo(describe.markdown(cls))
        return
    path = PathInfo(rate, rtt, mtu, mtu + 94, trimming=trimming)
    given = _settings(settings)
    if name == "fixed" and not given and preset is None:
        preset = "bdp"
    with usage():
        params = registry.parameters(cls, path=path, params=given, preset=preset, convert=convert_quantity)
        marks = registry.marking(cls, preset, path=path) if preset else {}
    rows = describe.rows(cls, params=params)
    if as_json:
        presets = {key: {"text": value.text, "source": value.source} for key, value in cls.presets.items()}
        about = {"name": name, "summary": describe.summary(cls), "formula": describe.formula(cls), "source": cls.source}
        click.echo(json.dumps({**about, "parameters": rows, "presets": presets, "marking": marks}, indent=2))
        return
    _show_text(cls, name, rows, marks, path, preset)


def _refuse_beside_markdown() -> None:
    """Raises UsageError for a flag that the page's table, which is the same for every path, does not heed."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT
        if given and param.name not in ("name", "markdown"):
            raise UsageError("the page's table holds defaults only", where=param.opts[0], remedy="leave --markdown out")


def _show_text(
    cls: type[CongestionControl],
    name: str,
    rows: list[dict[str, Any]],
    marks: dict[str, float],
    path: PathInfo,
    preset: str | None,
) -> None:
    from traffic.congestion import describe

    click.echo(f"{name}: {describe.summary(cls)}")
    click.echo(f"needs: {describe.needs(cls)}")
    if cls.source:
        click.echo(f"source: {cls.source}")
    if describe.formula(cls):
        click.echo(f"\n{describe.formula(cls)}")
    if rows:
        values = f" with preset {preset}" if preset else ""
        click.echo(
            f"\nparameters{values}, for {path.line_rate_bps / 1e9:g} Gbit/s and a round trip of {path.base_rtt_ns / 1e3:g} us"
        )
    for row in rows:
        value = f"{row['value']:.10g}" if isinstance(row["value"], float) else str(row["value"])
        value = value.lower() if value in ("True", "False", "None") else value
        default = f"   (default {row['default']})" if row["default"] != value else ""
        click.echo(f"  {row['name']} = {value}{' ' + row['unit'] if row['unit'] else ''}{default}")
        click.echo(f"      {row['meaning']}; {row['range']}")
        if row["source"]:
            click.echo(f"      default from: {row['source']}")
    if cls.presets:
        click.echo("\npresets")
        for key, found in cls.presets.items():
            click.echo(f"  {key}: {found.text} [{found.source}]")
    if marks:
        click.echo("\nmarking in the source's switches: " + ", ".join(f"{k} {v:g}" for k, v in marks.items()))


@cc.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def new(file: Path, force: bool) -> None:
    """Write an algorithm of about 30 lines to FILE, to start from."""
    from traffic.congestion import template

    if file.suffix != ".py":
        raise UsageError(f"{file} is no Python file name", where="FILE", remedy=f"name it {file.with_suffix('.py')}")
    if file.exists() and not force:
        raise UsageError(f"{file} is there already", where="FILE", remedy="choose another name, or give --force")
    source = Path(str(template.__file__)).read_text(encoding="utf-8")
    try:
        file.write_text(source, encoding="utf-8")
    except OSError as exc:
        raise UsageError(
            f"cannot write {file}: {exc.strerror}", where="FILE", remedy="choose a folder you may write"
        ) from exc
    click.echo(
        f"wrote {file}\n  check it: fabriclab cc check {file}:MyRate\n  run it:   fabriclab incast ... --cc {file}:MyRate"
    )


@cc.command("check")
@click.argument("which", metavar="FILE.py:Class")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def check(which: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Play recorded traces to an algorithm and name each rule it breaks. Exit code 1 if there is a violation."""
    from traffic.congestion.checker import check as run_check
    from traffic.congestion.plugin import is_plugin
    from traffic.congestion.registry import algorithm
    from traffic.congestion.toy import Scene

    file = Path(which.partition(":")[0]) if is_plugin(which) else None
    with usage():
        cls = algorithm(which)
        report = run_check(cls, file=file, params=_converted(cls, _settings(settings)))
    if as_json:
        about = [{name: getattr(f, name) for name in f.__slots__} for f in report.findings]
        click.echo(
            json.dumps({"algorithm": which, "ok": report.ok, "traces": report.traces, "findings": about}, indent=2)
        )
    else:
        _print_report(which, report, Scene())
    if not report.ok:
        count = sum(not f.warning for f in report.findings)
        raise RunFailed(
            f"{count} violation{'s' if count > 1 else ''}",
            where=which,
            remedy="correct what is named above and check again",
        )


def _print_report(which: str, report: Report, scene: Any) -> None:
    from traffic.congestion.toy import sparkline

    for finding in report.findings:
        click.echo(str(finding))
    if report.ok:
        click.echo(f"{which}: no violation in {len(report.traces)} traces ({', '.join(report.traces)})")
    if report.rate_bps:
        names = f"{scene.senders} senders, one link; the others come at {scene.join_ns // 1000} us and go at {scene.leave_ns // 1000} us"
        click.echo(f"toy run of {scene.end_ns // 1000} us: {names}")
        click.echo(f"  rate of the first  |{sparkline(report.rate_bps, scene.line_rate_bps, _WIDTH)}| 0 to line rate")
        queue = [float(value) for value in report.queue_bytes]
        click.echo(
            f"  queue              |{sparkline(queue, scene.limit_bytes, _WIDTH)}| 0 to {scene.limit_bytes // 1000} KB"
        )


def _settings(settings: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"{text} sets nothing", where="--set", remedy="write it as key=value")
        given[key] = value
    return given


def _converted(cls: type[CongestionControl], given: dict[str, str]) -> dict[str, Any]:
    from traffic.congestion.registry import parameters
    from traffic.congestion.toy import Scene

    return parameters(cls, path=Scene().path, params=given, convert=convert_quantity).values()
