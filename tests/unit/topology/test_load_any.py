"""Whatever stands in a file, loading ends with a topology or with problems that have a place and a remedy."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from emulator.topology.load import TopologyError, load_topology
from emulator.topology.model import Ecn, LinkSpec, Override, Queue, Topology

KEYS = sorted({key for model in (Topology, LinkSpec, Queue, Ecn, Override) for key in model.model_fields})
WORDS = ["leaf0:spine1", "host0:leaf0", "100Gbit", "4MB", "500ns", "10%", "down", "single-switch", "", "x"]
SCALARS = st.none() | st.booleans() | st.integers(-5, 200) | st.floats(0, 2) | st.sampled_from(WORDS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
)
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)
COUNTS: dict[str, Any] = {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}
OVERRIDES = st.lists(
    st.dictionaries(st.sampled_from(sorted(Override.model_fields)), VALUES, max_size=4) | VALUES, max_size=5
)


def load(text: bytes, *overrides: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "any.yaml"
        path.write_bytes(text)
        try:
            load_topology(path, overrides).network()
        except TopologyError as error:
            assert error.problems
            for problem in error.problems:
                assert problem.what and problem.remedy and problem.where
                assert "defect" not in problem.remedy


@settings(deadline=None)
@given(st.text(max_size=80))
@example("? ")
@example("- - -\n -")
@example("%YAML 1.1\n---\na: 0o7\n")
@example("'")
@example("|\n  a\n b")
@example("{a: b, ? c}")
@example("!!set {a}")
@example("&a [*a]")
@example("<<: {leaves: 2}")
def test_any_text(text: str) -> None:
    load(text.encode("utf-8", "surrogatepass"))


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    load(data)


@settings(deadline=None, max_examples=200)
@given(DOCUMENTS)
def test_any_values_under_known_keys(document: dict[str, Any]) -> None:
    load(json.dumps(document).encode())


@settings(deadline=None, max_examples=200)
@given(OVERRIDES)
def test_any_overrides(overrides: list[Any]) -> None:
    load(json.dumps({**COUNTS, "overrides": overrides}).encode())


@settings(deadline=None)
@given(st.lists(st.text(max_size=30) | st.sampled_from([f"{key}.x=1" for key in KEYS]), max_size=3))
@example(["overrides.0.link=leaf0:spine1", "overrides.0.ecn.kmin=1"])
@example(["leaves.0=1"])
@example(["overrides=x", "overrides.0=1"])
@example(["=", ".=1", "a..b=1", "leaves"])
def test_any_settings(overrides: list[str]) -> None:
    load(json.dumps(COUNTS).encode(), *overrides)
