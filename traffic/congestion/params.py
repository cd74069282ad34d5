"""How an algorithm declares its parameters, once, for validation, documents, `cc show` and the manifest.

A parameter's name carries its unit (`timer_ns`, `ai_bps`, `byte_counter_bytes`); a default may be a formula of the path.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from traffic.errors import TrafficError

if TYPE_CHECKING:
    from traffic.congestion.base import PathInfo

Convert = Callable[[object, str], object]
"""Turns a user's spelling (`55us`) and a unit (`ns`, `bps`, `bytes`) into a number; raises for a wrong spelling."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A value that depends on the path or on parameters declared before it: how it reads, and how it is computed."""

    text: str
    compute: Callable[[PathInfo, Mapping[str, Any]], float]


@dataclass(frozen=True, slots=True)
class Preset:
    """A published set of values; `marking` is what the source's switches used (bytes and probability), for the topology."""

    text: str
    source: str
    values: Mapping[str, Any]
    marking: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Param:
    """One declared parameter. `low` and `high` are inclusive, `above` exclusive; `words` are names for values."""

    name: str
    kind: str
    default: Any
    text: str
    source: str
    unit: str
    low: float | None
    high: float | None
    above: float | None
    choices: tuple[str, ...]
    words: Mapping[str, Any]

    @property
    def default_text(self) -> str:
        """The default as a document shows it."""
        if isinstance(self.default, Formula):
            return self.default.text
        if self.default is None:
            return "none"
        return _shown(self.default)

    @property
    def range_text(self) -> str:
        """The values allowed."""
        if self.kind == "bool":
            return "true, false"
        parts = [*self.choices, *self.words]
        if self.above is not None:
            parts.append(f"above {_shown(self.above)}")
        if self.low is not None:
            parts.append(f"from {_shown(self.low)}")
        if self.high is not None:
            parts.append(f"to {_shown(self.high)}")
        return ", ".join(parts)


def param(
    default: Any,
    *,
    text: str,
    source: str = "",
    unit: str | None = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    words: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a parameter of a `Params` class; the unit comes from the name's ending unless it is given."""
    about = {
        "default": default, "text": text, "source": source, "unit": unit, "low": low, "high": high, "above": above,
        "choices": choices, "words": words or {},
    }  # fmt: skip
    return field(metadata={"param": about})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(param,))
class Params:
    """Base of every algorithm's parameters; a subclass is made a frozen dataclass by being declared."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def declared(cls) -> tuple[Param, ...]:
        """The parameters in the order of declaration."""
        if cls is Params:
            return ()
        return tuple(_declared(f.name, f.type, f.metadata["param"]) for f in fields(cls) if "param" in f.metadata)  # type: ignore[arg-type]

    def problems(self, path: PathInfo) -> list[str]:
        """What is wrong with the values together; each one alone is already within its range."""
        return []

    def values(self) -> dict[str, Any]:
        """Every parameter as a plain number or word, for the manifest."""
        return {} if type(self) is Params else asdict(self)  # type: ignore[call-overload]


P = TypeVar("P", bound=Params)


def resolve(
    spec: type[P],
    given: Mapping[str, Any],
    *,
    path: PathInfo,
    preset: Mapping[str, Any] | None = None,
    where: str = "",
    convert: Convert | None = None,
) -> P:
    """Parameters of `spec` from what the user gave, then the preset, then the defaults, for one path.

    Resolving what `values()` gave changes nothing. Raises TrafficError that names every unknown key and bad value.
    """
    declared = spec.declared()
    names = [p.name for p in declared]
    problems = [_unknown(key, names) for key in given if key not in names]
    done: dict[str, Any] = {}
    for p in declared:
        raw = given[p.name] if p.name in given else (preset or {}).get(p.name, p.default)
        try:
            done[p.name] = _value(p, raw, path, done, convert)
        except ValueError as exc:
            problems.append(f"{p.name} is {raw!r}: {exc}")
        except KeyError:  # a formula of a value that is wrong itself
            if not problems:
                raise
    if not problems:
        made = spec(**done)
        problems = made.problems(path)
        if not problems:
            return made
    raise TrafficError("; ".join(problems), where=where, remedy="`fabriclab cc show NAME` lists every parameter")


def _value(p: Param, raw: Any, path: PathInfo, done: Mapping[str, Any], convert: Convert | None) -> Any:
    if isinstance(raw, str) and raw in p.words:
        raw = p.words[raw]
    if isinstance(raw, Formula):
        computed = raw.compute(path, done)
        raw = round(computed) if p.kind == "int" else computed
    if raw is None:
        if "none" in p.words:
            return None
        raise ValueError(f"give {p.kind}")
    if p.kind == "str":
        if raw not in p.choices:
            raise ValueError(_unknown(str(raw), list(p.choices), "value"))
        return raw
    if p.kind == "bool":
        return _bool(raw)
    number = _number(p, raw, convert)
    for bad, rule in (
        (p.low is not None and number < p.low, f"the least is {_shown(p.low)}"),
        (p.high is not None and number > p.high, f"the most is {_shown(p.high)}"),
        (p.above is not None and number <= p.above, f"it must be above {_shown(p.above)}"),
    ):
        if bad:
            raise ValueError(rule)
    return number


def _number(p: Param, raw: Any, convert: Convert | None) -> float | int:
    if isinstance(raw, str):
        try:
            raw = float(raw)
        except ValueError:
            if convert is None or p.unit not in ("ns", "bps", "bytes"):
                raise ValueError(f"give a number{f' in {p.unit}' if p.unit else ''}") from None
            raw = convert(raw, p.unit)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise ValueError("give a finite number")
    if p.kind == "int":
        if raw != int(raw):
            raise ValueError("give a whole number")
        return int(raw)
    return float(raw)


def _bool(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    raise ValueError("give true or false")


def _unknown(key: str, known: list[str], what: str = "parameter") -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = (
        f", nearest is {near[0]}" if near else f", known are {', '.join(known)}" if known else ", there is none to set"
    )
    return f"unknown {what} {key}{hint}"


def _declared(name: str, annotation: Any, about: Mapping[str, Any]) -> Param:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    suffix = name.rpartition("_")[2]
    unit = about["unit"] if about["unit"] is not None else suffix if suffix in ("ns", "bps", "bytes") else ""
    return Param(name=name, kind=text.split("|")[0].strip(), **{**about, "unit": unit})


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if value < 1e6 or value != int(value) else f"{int(value)}"
    return str(value)
