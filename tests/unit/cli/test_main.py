"""The root command: light to start, errors in three parts, the exit codes of the contract."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from emulator.cli.lazy import Lazy, LazyGroup
from emulator.cli.main import COMMANDS, cli, main
from emulator.cli.params import RATE, SIZE
from emulator.cli.session import verbosity_options
from emulator.errors import MissingCapability, RunFailed, UsageError
from tests.experiments import TOPOLOGIES
from traffic.errors import TrafficError


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Puts a command `boom` that does what the test says into the root."""

    def put(body: Callable[[], object]) -> None:
        monkeypatch.setitem(cli.commands, "boom", click.Command("boom", callback=body))

    return put


def fails(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError("bad", where="--tdf", remedy="say 4"), 2, "error: bad\n  where: --tdf\n  to do: say 4\n"),
        (RunFailed("flow 3 died", where="flow 3"), 1, "error: flow 3 died\n  where: flow 3\n"),
        (MissingCapability("no root", remedy="use sudo"), 4, "error: no root\n  to do: use sudo\n"),
        (TrafficError("bad PSN", where="QP 7", remedy="check"), 1, "error: bad PSN\n  where: QP 7\n  to do: check\n"),
    ],
)
def test_errors_have_three_parts_and_their_exit_code(
    command: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    text: str,
) -> None:
    command(fails(error))
    assert main(["boom"]) == code
    assert capsys.readouterr().err == text


def test_a_defect_shows_its_place_and_a_traceback_only_when_asked(
    command: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command(fails(KeyError("x")))
    assert main(["boom"]) == 1
    plain = capsys.readouterr().err
    assert plain.startswith("error: internal error: KeyError: 'x'\n  where: test_main.py:")
    assert "Traceback" not in plain
    assert main(["-vv", "boom"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("FABRICLAB_DEBUG", "1")
    assert main(["boom"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_verbosity_counts_before_and_after_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = verbosity_options(click.Command("boom", callback=fails(UsageError("bad"))))
    monkeypatch.setitem(cli.commands, "boom", late)
    assert main(["-v", "boom", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("result", [0, 3, None])
def test_a_command_returns_its_exit_code(command: Callable[[Callable[[], object]], None], result: int | None) -> None:
    command(lambda: result)
    assert main(["boom"]) == (result or 0)


def test_interruption_is_130(
    command: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(fails(KeyboardInterrupt()))
    assert main(["boom"]) == 130
    assert capsys.readouterr().err.strip() == "fabriclab: interrupted"


def test_unknown_command_and_flag_name_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tpoo"]) == 2
    expected = 'error: no command "tpoo"; did you mean "topo"?\n  where: fabriclab\n  to do: see fabriclab --help\n'
    assert capsys.readouterr().err == expected
    assert main(["topo", "show", "--jsn", "x"]) == 2
    assert "--json" in capsys.readouterr().err
    assert main(["topo", "check"]) == 2
    assert "FILE" in capsys.readouterr().err


def test_only_commands_that_exist_are_listed() -> None:
    group = LazyGroup(lazy={"here": Lazy("emulator.cli.topo:topo", "x"), "gone": Lazy("emulator.cli.nowhere:x", "y")})
    context = click.Context(group)
    assert group.list_commands(context) == ["here"]
    assert group.get_command(context, "gone") is None


def test_every_listed_command_loads() -> None:
    context = click.Context(cli)
    listed = cli.list_commands(context)
    assert "topo" in listed and set(listed) <= set(COMMANDS)
    for name in listed:
        assert isinstance(cli.get_command(context, name), click.Command), name


def test_version_and_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("fabriclab ")
    monkeypatch.setenv("FABRICLAB_JSON", "1")
    topology = Path(__file__).parents[3] / "topologies" / "single-switch-8.yaml"
    assert main(["topo", "show", str(topology)]) == 0
    assert capsys.readouterr().out.startswith("{")


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    script = tmp_path / "reader.sh"
    topology = Path(__file__).parents[3] / "topologies" / "leaf-spine-4x4x8.yaml"
    root = Path(__file__).parents[3]
    for buffered in ("", "1"):  # a line at a time click finds it, at the end we do
        for form in ("", "--json"):  # rich writes the one, click the other
            call = f"PYTHONUNBUFFERED={buffered} {sys.executable} -m emulator.cli.main topo show {form} {topology}"
            script.write_text(f"set -o pipefail\n{call} | true\n")
            done = subprocess.run(
                ["bash", str(script)], capture_output=True, text=True, timeout=60, check=False, cwd=root
            )
            assert (done.returncode, done.stderr) == (0, "")


def test_flags_share_the_unit_grammar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.option("--bytes", "size", type=SIZE, default="1MB")
    @click.option("--rate", type=RATE)
    def boom(size: int, rate: int | None) -> None:
        click.echo(f"{size} {rate}")

    monkeypatch.setitem(cli.commands, "boom", boom)
    assert main(["boom", "--rate", "25Gbit"]) == 0
    assert capsys.readouterr().out == "1000000 25000000000\n"
    assert main(["boom", "--bytes", "1Mb"]) == 2
    assert "write 1MB, or 125000B if bits were meant" in capsys.readouterr().err


def test_an_option_of_a_program_needs_two_dashes_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    topology = str(TOPOLOGIES / "single-switch-8.yaml")
    assert main(["exec", topology, "iperf3", "-c", "host1"]) == 2
    told = capsys.readouterr().err
    assert "no such option '-c'" in told and "put -- before the program" in told
    assert main(["exec", topology, "--hots", "1", "--", "iperf3", "-c"]) == 2  # a misspelt option of ours
    told = capsys.readouterr().err
    assert "--hosts" in told and "put --" not in told


LEAF_SPINE = str(TOPOLOGIES / "leaf-spine-2x2x4.yaml")


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        (["--senders", "99"], "senders"),
        (["--senders", "7", "--receiver", "99"], "receiver"),
        (["--senders", "7", "--bytes", "0B"], "size"),
        (["--senders", "7", "--bytes", "1000GB"], "workload.bytes"),
        (["--senders", "7", "--rounds", "1000000000"], "rounds"),
        (["--senders", "7", "--sample", "0us"], "sample"),
        (["--senders", "7", "--time-limit", "0s"], "time_limit"),
        (["--senders", "7", "--wall-limit", "inf"], "wall_limit_s"),
    ],
)
def test_absurd_parameters_are_wrong_usage_and_leave_no_folder(
    flags: list[str], where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["incast", LEAF_SPINE, *flags, "--clock", "virtual", "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert f"where: {where}" in error and "to do: " in error and "Value error" not in error
    assert not (tmp_path / "runs").exists()


def test_values_that_no_float32_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["allreduce", LEAF_SPINE, "--clock", "virtual", "--out", str(tmp_path / "runs"), "--values"]
    for values, shown in (("nan,1", "nan"), ("1,inf", "inf"), ("1e39,1", "1e+39")):
        assert main([*argv, values]) == 2
        assert f"{shown} is no finite float32" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [(">/dev/full", 1, "cannot write: No space left on device"), (">&-", 0, ""), (">&- 2>&-", 0, "")],
)
def test_a_full_or_closed_output(redirection: str, code: int, said: str) -> None:
    line = f'unset PYTHONUNBUFFERED; exec "$0" -m emulator.cli.main cc list {redirection}'
    done = subprocess.run(["bash", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == code and said in done.stderr and "internal error" not in done.stderr
    assert bool(said) == bool(done.stderr)


def test_quiet_leaves_results_and_errors_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    draw = ["topo", "draw", str(TOPOLOGIES / "single-switch-8.yaml"), "-o", str(tmp_path / "x.svg")]
    craft = ["packet", "craft", "ack", "--sport", "7"]
    for command, said, out in ((draw, "wrote ", False), (craft, "note: source port 7", True)):
        assert main(command) == 0
        assert capsys.readouterr().err.startswith(said)
        assert main(["-q", *command]) == 0
        told = capsys.readouterr()
        assert (told.err, bool(told.out)) == ("", out)


def test_a_profile_is_part_of_the_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from emulator.bench import datapath
    from traffic import native

    found = datapath.Datapath("roce", 4096, 1000, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, False)
    monkeypatch.setattr(native, "enable", lambda: False)
    monkeypatch.setattr(datapath, "measure", lambda **_: found)
    monkeypatch.setattr(datapath, "profile", lambda _: "where it goes")
    assert main(["bench", "datapath", "--json", "--profile"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"] == "where it goes"
    assert main(["bench", "datapath", "--json"]) == 0
    assert "profile" not in json.loads(capsys.readouterr().out)
