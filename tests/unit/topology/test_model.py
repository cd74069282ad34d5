"""Models: defaults, what may not be asked, and that what is written can be read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from emulator.topology import model
from emulator.topology.limits import shaper_burst
from emulator.topology.load import load_topology
from emulator.topology.model import Topology
from emulator.topology.schema import topology_schema

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "topologies").glob("*.yaml"))


def leaf_spine(**changes: Any) -> Topology:
    return Topology.model_validate({"leaves": 2, "spines": 2, "hosts_per_leaf": 4, **changes})


def test_defaults_are_those_of_a_100_gbit_fabric() -> None:
    topology = leaf_spine()
    assert (topology.host_link.rate, topology.uplink.rate) == (100 * 10**9, 100 * 10**9)
    assert (topology.host_link.delay, topology.uplink.delay) == (500, 500)
    assert topology.queue.limit == 4_000_000
    assert (topology.ecn.kmin, topology.ecn.kmax, topology.ecn.pmax) == (100_000, 400_000, 0.2)
    assert (topology.ecn.last_hop, topology.mtu) == (True, 9000)


@pytest.mark.parametrize("topology", [
    leaf_spine(overrides=[{"link": "spine1:leaf0", "rate": "33.333Gbit", "loss": "0.1%", "ecn": {"pmax": 0.1}}]),
    Topology(shape="single-switch", hosts=8),
])  # fmt: skip
def test_what_is_written_can_be_read_again(topology: Topology) -> None:
    assert Topology.model_validate(topology.model_dump()) == topology
    assert Topology.model_validate_json(topology.model_dump_json()) == topology
    assert topology.model_dump()["host_link"]["rate"] == "100Gbit"


def test_python_callers_meet_the_same_rules() -> None:
    with pytest.raises(ValidationError, match=r"ecn.kmin \(400KB\) is not below ecn.kmax \(400KB\)"):
        leaf_spine(ecn={"kmin": "400KB"})
    with pytest.raises(ValidationError, match="frozen"):
        leaf_spine().mtu = 1500


def test_every_key_says_what_it_means() -> None:
    models = [item for item in vars(model).values() if isinstance(item, type) and issubclass(item, BaseModel)]
    assert Topology in models
    for each in models:
        for name, field in each.model_fields.items():
            assert field.description, f"{each.__name__}.{name}"


def test_published_schema_is_the_generated_one() -> None:
    assert json.loads((ROOT / "topologies" / "schema.json").read_text()) == topology_schema()


def test_schema_spells_units_and_defaults_as_files_do() -> None:
    schema = topology_schema()
    link = schema["$defs"]["LinkSpec"]["properties"]
    assert (link["rate"]["default"], link["delay"]["default"]) == ("100Gbit", "500ns")
    assert schema["$defs"]["Rate"]["x-unit"] == "bit/s"
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_topologies_load_and_say_what_they_are_for(path: Path) -> None:
    topology = load_topology(path)
    assert topology.name == path.stem
    assert topology.host_link.rate == 100 * 10**9
    assert path.read_text().startswith("# ")


def test_the_five_topologies_of_the_first_release_are_there() -> None:
    names = {path.stem for path in SHIPPED}
    assert names >= {"single-switch-8", "leaf-spine-2x2x4", "leaf-spine-4x4x8", "oversubscribed", "slow-uplink"}


def test_burst_is_the_smaller_of_two_frames_and_a_quarter_of_kmin() -> None:
    # mininet pull 1252 fixes the burst in time; 50 ms would swamp a small threshold. A frame is 9000 + 38 bytes.
    assert shaper_burst(9000, 100_000, ecn=True) == (18_076, "two frames")
    assert shaper_burst(9000, 40_000, ecn=True) == (10_000, "kmin/4")
    assert shaper_burst(9000, 40_000, ecn=False) == (18_076, "two frames")
