"""Pydantic's errors in the product's words: the key, what is wrong with it, what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel

from emulator.topology.checks import Loc, key_text
from emulator.topology.suggest import nearest
from emulator.topology.units import UnitError, shown

#: Words that other tools use for keys of ours.
_SYNONYMS: Final[Mapping[str, str]] = {
    "bandwidth": "rate", "bw": "rate", "speed": "rate", "capacity": "rate", "latency": "delay", "propagation": "delay",
    "buffer": "limit", "qlen": "limit", "drop": "loss", "loss_rate": "loss", "kind": "shape", "topology": "shape",
}  # fmt: skip


def explain(model: type[BaseModel], error: Mapping[str, Any]) -> tuple[str, str, bool]:
    """(what, remedy, whether the key itself rather than its value is wrong) of one of pydantic's errors."""
    loc: Loc = tuple(error["loc"])
    key, value, context = key_text(loc), error.get("input"), error.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, UnitError):
        return f"{key}: {cause.what}", cause.remedy, False
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {key}", _nearest_key(model, loc), True
        case "missing":
            return f"{key} is missing", f"add it: {_description(model, loc)}", True
        case "int_type" | "int_from_float":
            quoted = isinstance(value, str) and value.isdecimal()
            remedy = "write it without quotes" if quoted else "write digits only"
            return f"{key} must be a whole number, not {shown(value)}", remedy, False
        case "bool_type":
            return f"{key} must be true or false, not {shown(value)}", "write true or false", False
        case "string_type":
            remedy = f'put it in quotes: "{value}"' if isinstance(value, int) and value is not True else "write text"
            return f"{key} must be text, not {shown(value)}", remedy, False
        case "string_pattern_mismatch":
            return f"{key}: {shown(value)} does not fit the pattern", f"it must match {context['pattern']}", False
        case "literal_error":
            allowed = [part.strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(", ")]
            return f"{key}: {shown(value)} is not one of {', '.join(allowed)}", _nearest_word(value, allowed), False
        case "greater_than_equal":
            return f"{key}: {shown(value)} is below {context['ge']}", f"write at least {context['ge']}", False
        case "less_than_equal":
            return f"{key}: {shown(value)} is above {context['le']}", f"write at most {context['le']}", False
        case "model_type" | "model_attributes_type" | "dict_type":
            known = ", ".join(_keys(_model_at(model, loc)))
            return f"{key} must be a mapping, not {shown(value)}", f"write keys below it: {known}", False
        case "tuple_type" | "list_type":
            return f"{key} must be a list, not {shown(value)}", 'write one entry a line, each after "- "', False
        case "string_too_long":
            return f"{key} is longer than {context['max_length']} characters", "shorten it", False
        case "too_long":
            return f"{key} has more than {context['max_length']} entries", "write fewer", False
        case _:
            message = str(error["msg"])
            return f"{key}: {message[:1].lower()}{message[1:]}", "correct the value", False


def _nearest_word(value: object, allowed: list[str]) -> str:
    return nearest(value, allowed) if isinstance(value, str) else f"known: {', '.join(allowed)}"


def _nearest_key(model: type[BaseModel], loc: Loc) -> str:
    """The key meant: one like it in the same mapping, our word for it, the same word in another mapping."""
    name, here = str(loc[-1]), _keys(_model_at(model, loc[:-1]))
    ours = _SYNONYMS.get(name.lower())
    if ours in here:
        return f'did you mean "{ours}"?'
    close = get_close_matches(name, here, n=1, cutoff=0.7)
    if close:
        return f'did you mean "{close[0]}"?'
    elsewhere = [key_text(path) for path in _all_keys(model) if path[-1] == (ours or name)]
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere[:3])}?"
    return nearest(name, here)


def _keys(model: type[BaseModel] | None) -> list[str]:
    return list(model.model_fields) if model is not None else []


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    """The model whose keys stand at a place; list numbers in the place are passed over."""
    found: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            continue
        field = found.model_fields.get(part) if found is not None else None
        found = _nested(field.annotation) if field is not None else None
    return found


def _nested(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _nested(inner)
        if found is not None:
            return found
    return None


def _all_keys(model: type[BaseModel], above: Loc = ()) -> Iterator[Loc]:
    for name, field in model.model_fields.items():
        yield (*above, name)
        inner = _nested(field.annotation)
        if inner is not None:
            yield from _all_keys(inner, (*above, name))


def _description(model: type[BaseModel], loc: Loc) -> str:
    holder = _model_at(model, loc[:-1])
    field = holder.model_fields.get(str(loc[-1])) if holder is not None else None
    text = (field.description or "") if field is not None else ""
    return text[:1].lower() + text[1:].split(". ")[0].rstrip(".") if text else "the file needs it"
