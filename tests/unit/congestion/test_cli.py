"""`fabriclab cc`: what it prints and how it exits."""

import json
from pathlib import Path

import pytest

from emulator.cli.main import main
from emulator.errors import UsageError
from emulator.experiment.cc import resolve_cc
from traffic.congestion.base import PathInfo

LINE = PathInfo(100_000_000_000, 8_000, 4096, 4190)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cc", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in found][:3] == ["none", "fixed", "dcqcn"]
    assert found[2]["presets"] == ["paper", "zhu", "hpcc-paper", "hpcc-mellanox", "deployment"]


def test_show_resolves_for_a_path_with_units(capsys: pytest.CaptureFixture[str]) -> None:
    args = [
        "cc",
        "show",
        "dcqcn",
        "--preset",
        "hpcc-mellanox",
        "--rate",
        "400Gbit",
        "--set",
        "timer_ns=200us",
        "--json",
    ]
    assert main(args) == 0
    found = json.loads(capsys.readouterr().out)
    values = {row["name"]: row["value"] for row in found["parameters"]}
    assert (values["ai_bps"], values["timer_ns"]) == (80e6, 200_000)
    assert found["marking"]["kmin_bytes"] == 1.6e6


def test_show_text_names_default_unit_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cc", "show", "nscc", "--rtt", "12us", "--trimming"]) == 0
    out = capsys.readouterr().out
    assert "target_ns = 9000 ns   (default 0.75 base RTT with trimming, 1 without)" in out
    assert "uet-htsim" in out


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["show", "dcqn"], "nearest is dcqcn"),
        (["show", "dcqcn", "--set", "timr_ns=1"], "nearest is timer_ns"),
        (["show", "dcqcn", "--set", "timer_ns=5"], ""),
        (["show", "dcqcn", "--set", "timer_ns=5x"], "unknown unit x"),
        (["show", "dcqcn", "--set", "timer_ns"], "write it as key=value"),
        (["show", "dcqcn", "--preset", "papr"], "nearest is paper"),
        (["check", "nowhere.py:A"], "there is no file nowhere.py"),
        (["new", "mine.txt"], "no Python file name"),
    ],
)
def test_wrong_usage_exits_2(capsys: pytest.CaptureFixture[str], args: list[str], text: str) -> None:
    assert main(["cc", *args]) == (2 if text else 0)
    assert text in capsys.readouterr().err


def test_new_then_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    assert main(["cc", "new", str(file)]) == 0
    assert main(["cc", "new", str(file)]) == 2
    assert main(["cc", "check", f"{file}:MyRate"]) == 0
    out = capsys.readouterr().out
    assert "no violation in 8 traces" in out
    assert "rate of the first  |" in out
    file.write_text(file.read_text().replace("max(self.rate_bps * self.params.cut, 1e6)", "-1.0"))
    assert main(["cc", "check", f"{file}:MyRate"]) == 1
    captured = capsys.readouterr()
    assert "violation: negative: rate_bps is -1.0 [" in captured.out
    assert "incast event 510, 596000 ns, acked()" in captured.out
    assert "violations" in captured.err


def test_values_for_the_manifest() -> None:
    values = resolve_cc("dcqcn", path=LINE, params={"timer_ns": "55us", "ai_bps": "40Mbit"}, preset="zhu")
    assert (values["timer_ns"], values["ai_bps"], values["fast_recovery"]) == (55_000, 40_000_000, 4)
    with pytest.raises(UsageError, match="unknown congestion control bbr"):
        resolve_cc("bbr", path=LINE, params={})


@pytest.mark.parametrize("flags", [["--rate", "10Gbit"], ["--set", "g=0.1"], ["--trimming"], ["--json"]])
def test_the_table_of_a_page_takes_no_values(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cc", "show", "dcqcn", "--markdown"]) == 0
    assert main(["cc", "show", "dcqcn", "--markdown", *flags]) == 2
    assert f"where: {flags[0]}" in capsys.readouterr().err
