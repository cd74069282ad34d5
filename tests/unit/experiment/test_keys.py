"""No key that parses and does nothing: another value of any key of an experiment gives another resolved run, or another choice."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.experiment.planner import choose
from emulator.experiment.resolve import make_workload, resolve
from emulator.experiment.run import run
from emulator.experiment.spec import Experiment, Workload
from emulator.topology.load import load_topology
from tests.experiments import TOPOLOGIES, Silent

FILE = str(TOPOLOGIES / "leaf-spine-2x2x4.yaml")
NETWORK = load_topology(FILE)
BASE: dict[str, Any] = {"topology": FILE, "workload": {"kind": "allreduce", "bytes": 4000}, "pcap": ["leaf0:host0"]}
OTHER: dict[str, Any] = {
    "name": "other",
    "workload.kind": "all_to_all",
    "workload.algorithm": "tree",
    "workload.bytes": 8000,
    "workload.params": {"ranks": 4},
    "workload.values": [1.0, 2.0],
    "seed": 2,
    "sample": "7us",
    "pcap": ["leaf0:host1"],
    "pcap_snap": 100,
    "time_limit": "5s",
    "wall_limit_s": 9.0,
}
ELSEWHERE = {"topology", "topology_set", "transport", "clock", "tdf"}
"""`transport` has tests of its own (unit/transport/test_options.py), the others are below."""


def resolved(**keys: Any) -> dict[str, Any]:
    return resolve(Experiment.model_validate(BASE | keys), NETWORK, clock="virtual", tdf=1).to_dict()


def test_no_key_is_left_out() -> None:
    keys = {f"workload.{key}" for key in Workload.model_fields} | set(Experiment.model_fields) - {"workload"}
    assert keys == set(OTHER) | ELSEWHERE


@pytest.mark.parametrize("key", OTHER)
def test_another_value_of_a_key_gives_another_run(key: str) -> None:
    above, _, last = key.rpartition(".")
    given = {"workload": BASE["workload"] | {last: OTHER[key]}} if above else {last: OTHER[key]}
    assert resolved(**given) != resolved()


def test_the_factor_is_the_one_asked_for_and_the_virtual_clock_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("emulator.clock.kernel.find_kernel", lambda: FILE)
    network = NETWORK.network()

    def chosen(**keys: Any) -> tuple[str, int]:
        experiment = Experiment.model_validate(BASE | keys)
        choice = choose(experiment, network, make_workload(experiment, network)[0], budget=10**9)
        return choice.clock, choice.tdf

    assert chosen(clock="real", tdf=7) == ("real", 7)
    assert chosen(clock="real")[1] != 7
    assert chosen(clock="virtual") == chosen() == ("virtual", 1)


def test_the_topology_and_what_is_put_over_it_are_read() -> None:
    with pytest.raises(Exception, match="no-such"):
        run(Experiment.model_validate(BASE | {"topology": "no-such.yaml"}), out=TOPOLOGIES, argv=[], watch=Silent())
    with pytest.raises(Exception, match="leavs"):
        run(Experiment.model_validate(BASE | {"topology_set": ["leavs=3"]}), out=TOPOLOGIES, argv=[], watch=Silent())
