"""No key that parses and does nothing: another value of any key of a topology gives another plan, or another page of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from emulator.fabric.plan import make_plan
from emulator.topology.load import load_topology
from emulator.topology.model import EcnOverride, Override, Topology
from tests.experiments import TOPOLOGIES

BASE: dict[str, Any] = {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}
LINK = "leaf0:spine1"
OTHER: dict[str, Any] = {
    "name": "other",
    "leaves": 3,
    "spines": 3,
    "hosts_per_leaf": 3,
    "host_link.rate": "50Gbit",
    "host_link.delay": "1us",
    "host_link.loss": "1%",
    "uplink.rate": "50Gbit",
    "uplink.delay": "1us",
    "uplink.loss": "1%",
    "queue.limit": "2MB",
    "queue.trim": True,
    "ecn.enabled": False,
    "ecn.kmin": "50KB",
    "ecn.kmax": "300KB",
    "ecn.pmax": 0.5,
    "ecn.last_hop": False,
    "mtu": 5000,
    "overrides.rate": "50Gbit",
    "overrides.delay": "1us",
    "overrides.loss": "1%",
    "overrides.limit": "2MB",
    "overrides.trim": True,
    "overrides.ecn.enabled": False,
    "overrides.ecn.kmin": "50KB",
    "overrides.ecn.kmax": "300KB",
    "overrides.ecn.pmax": 0.5,
    "overrides.state": "down",
}
TOGETHER = {"shape", "hosts", "description", "overrides.link", "overrides.direction"}
"""Keys that have no meaning by themselves, or none for the plan; tests of their own below."""


def plan(**keys: Any) -> dict[str, Any]:
    features = SimpleNamespace(delay="netem", multipath_seed=True, guest=False)
    topology = Topology.model_validate(BASE | keys)
    return make_plan(topology, run_id="run", seed=1, tdf=1, features=features).to_dict()  # type: ignore[arg-type]


def keys_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = [t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type)]
        nested = [t for t in inner if issubclass(t, BaseModel)]
        yield from keys_of(nested[0], f"{above}{name}.") if nested else (f"{above}{name}",)


def test_no_key_is_left_out() -> None:
    assert set(keys_of(Topology)) == set(OTHER) | TOGETHER
    assert {f"overrides.{key}" for key in Override.model_fields} <= {
        key.removesuffix(".enabled") for key in OTHER
    } | TOGETHER
    assert {f"overrides.ecn.{key}" for key in EcnOverride.model_fields} <= set(OTHER)


@pytest.mark.parametrize("key", OTHER)
def test_another_value_of_a_key_gives_another_plan(key: str) -> None:
    *above, last = key.split(".")
    given: Any = {last: OTHER[key]}
    for name in reversed(above):
        given = [{"link": LINK, **given}] if name == "overrides" else {name: given}
    assert plan(**({"overrides": given} if above[:1] == ["overrides"] else given)) != plan()


def test_keys_that_mean_something_together() -> None:
    def slow(link: str, **more: str) -> dict[str, Any]:
        return plan(overrides=[{"link": link, "rate": "50Gbit", **more}])

    plans = [
        slow(LINK), slow("leaf0:spine0"), slow(LINK, direction="forward"), slow("spine1:leaf0", direction="forward"),
    ]  # fmt: skip
    assert all(one != other for i, one in enumerate(plans) for other in plans[:i])
    single = {"shape": "single-switch", "leaves": None, "spines": None, "hosts_per_leaf": None}
    assert plan(**single, hosts=3) != plan(**single, hosts=4) != plan()


def test_a_description_stands_on_the_page_of_a_topology(capsys: pytest.CaptureFixture[str]) -> None:
    from emulator.cli.topo_tables import print_topology

    print_topology(load_topology(TOPOLOGIES / "leaf-spine-2x2x4.yaml", ["description=as wide as it is deep"]))
    assert "as wide as it is deep" in capsys.readouterr().out
