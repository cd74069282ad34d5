"""`topo plan`: what people and scripts see of a plan, without root."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from emulator.cli.plan import plan as command
from emulator.fabric.describe import describe, table
from tests.unit.fabric.test_plan import NO_NETEM, plan_of

FILE = "topologies/leaf-spine-2x2x4.yaml"


def test_the_text_names_every_object() -> None:
    plan = plan_of(NO_NETEM, tdf=200)
    text = "\n".join(describe(plan))
    for port in plan.ports:
        assert port.name in text and port.ifname in text and f"{port.ip}/31" in text and port.mac in text
    for node in plan.nodes:
        assert node.namespace in text
    for line in (
        "leaf0:spine0  100Gbit  500Mbit      500ns  100us         4MB    18076 B  100KB       400KB, pmax 0.2  0",
        "leaf0   10.0.1.0/24  10.128.0.1 (leaf0:spine0), 10.128.0.3 (leaf0:spine1)",
        "burst 18076 B: two frames of 9038 B, below kmin/4 = 25000 B",
        "sysctl net.ipv4.conf.*.rp_filter = 0 (hosts and switches)",
        "sysctl net.ipv4.ip_forward = 1 (switches)",
        "ping, iperf3 and other programs see none",
    ):
        assert line in text


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command, [FILE, *arguments], catch_exceptions=False)


def test_json_is_the_plan_and_overrides_count() -> None:
    plain = json.loads(run("--json", "--tdf", "10", "--seed", "3", "--set", "uplink.rate=40Gbit").stdout)
    assert (plain["tdf"], plain["seed"], plain["run_id"]) == (10, 3, "plan")
    (port,) = [port for port in plain["ports"] if port["name"] == "leaf0:spine0"]
    assert (port["rate_bps"], port["fabric_rate_bps"]) == (4 * 10**9, 40 * 10**9)


@pytest.mark.parametrize("tdf", ["0", "-3", "fast", "1.5"])
def test_a_wrong_factor_is_refused(tdf: str) -> None:
    assert run("--tdf", tdf).exit_code == 2


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(["a", "bb"], [["xxx", 1], ["y", ""]]) == ["a    bb", "xxx  1", "y"]
