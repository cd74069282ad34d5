"""The JSON Schema of topology files, for editors; `topologies/schema.json` is this, written out."""

from __future__ import annotations

from typing import Any

from emulator.topology.model import Ecn, LinkSpec, Queue, Topology
from emulator.topology.shapes import SHAPES


def topology_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) with units, examples and defaults spelled as a file spells them."""
    schema = Topology.model_json_schema()
    defaults = {model.__name__: model().model_dump() for model in (LinkSpec, Queue, Ecn)}
    for name, values in defaults.items():
        for key, value in values.items():
            schema["$defs"][name]["properties"][key]["default"] = value
    properties = schema["properties"]
    for key, model in (("host_link", "LinkSpec"), ("uplink", "LinkSpec"), ("queue", "Queue"), ("ecn", "Ecn")):
        properties[key]["default"] = defaults[model]
    schema["allOf"] = [_shape_rule(shape) for shape in SHAPES]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "fabriclab topology"}


def _shape_rule(shape: str) -> dict[str, Any]:
    """Which counts a shape needs and which have no meaning for it."""
    counts = dict.fromkeys(key for kind in SHAPES.values() for key in kind.counts)
    needed = SHAPES[shape].counts
    condition: dict[str, Any] = {"properties": {"shape": {"const": shape}}}
    if Topology.model_fields["shape"].default != shape:
        condition["required"] = ["shape"]
    foreign = {key: {"type": "null"} for key in counts if key not in needed}
    return {"if": condition, "then": {"required": list(needed), "properties": foreign}}
