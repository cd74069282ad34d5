"""A workload from a file: every parameter is what it must be, or it is named."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.errors import UsageError
from emulator.experiment.resolve import make_workload
from emulator.experiment.spec import Experiment
from emulator.topology.load import load_topology
from tests.experiments import TOPOLOGIES

NETWORK = load_topology(TOPOLOGIES / "leaf-spine-2x2x4.yaml").network()


def experiment(kind: str, **params: Any) -> Experiment:
    return Experiment.model_validate({"topology": "x.yaml", "workload": {"kind": kind, "params": params}})


@pytest.mark.parametrize(
    ("kind", "params", "where"),
    [
        ("icast", {}, "workload"),
        ("incast", {"senders": "seven"}, "senders"),
        ("incast", {"senders": True}, "senders"),
        ("incast", {"senders": None}, "senders"),
        ("incast", {"senders": 7, "rounds": 1.5}, "rounds"),
        ("incast", {"senders": 7, "receiver": "host9"}, "receiver"),
        ("incast", {"senders": 7, "ranks": "8"}, "ranks"),
        ("pairs", {"pairs": 3}, "pairs"),
        ("pairs", {"pairs": [[0]]}, "pairs"),
        ("pairs", {"pairs": [[0, "a"]]}, "pairs"),
        ("pairs", {"both_ways": 1}, "both_ways"),
        ("victim", {"senders": 2, "victim_src": "x"}, "victim_src"),
    ],
)
def test_a_parameter_of_another_type_is_named(kind: str, params: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as error:
        make_workload(experiment(kind, **params), NETWORK)
    assert error.value.where == where and error.value.remedy


def test_parameters_that_fit() -> None:
    schedule, shown = make_workload(experiment("pairs", pairs=[[0, 4]], both_ways=True), NETWORK)
    assert [(m.src, m.dst) for m in schedule.moves] == [(0, 4), (4, 0)] and shown["pairs"] == [[0, 4]]
    assert make_workload(experiment("victim", senders=2, victim_src=None), NETWORK)[0].moves
