"""Loads a topology file: every problem in one pass, each at its line and column. Nothing on the machine changes.

`load_model` does the same for any other model read from YAML.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from emulator.topology.checks import ImpossibleError, Issue, Loc
from emulator.topology.document import apply_settings, read_document
from emulator.topology.explain import explain
from emulator.topology.limits import NAME_PATTERN
from emulator.topology.model import Topology
from emulator.topology.problems import FileError, Origin, Problem, TopologyError
from emulator.topology.yamltree import Document

__all__ = ["FileError", "Problem", "TopologyError", "load_model", "load_topology"]

M = TypeVar("M", bound=BaseModel)

#: Stands in for a list entry that is broken, so that the entries after it keep their number.
_NEUTRAL: Final[Mapping[str, object]] = {"overrides": {"link": "host0:leaf0", "loss": 0}}
_MAX_PASSES: Final = 4


def load_topology(path: str | Path, overrides: Sequence[str] = ()) -> Topology:
    """The topology of a file, with `path.to.key=value` settings put over it.

    Raises TopologyError with every problem of the file and the settings. The file's name is the default name.
    """
    document = read_document(path)
    stem = Path(path).stem
    if isinstance(document.raw, dict) and "name" not in document.raw and re.fullmatch(NAME_PATTERN, stem):
        document.raw["name"] = stem
    apply_settings(document, overrides)
    topology = _validated(Topology, document, _NEUTRAL)
    if document.problems or topology is None:
        raise TopologyError(_in_order(document.problems, str(path)))
    return topology


def load_model(model: type[M], path: str | Path, overrides: Sequence[str] = (), *, kind: str) -> M:
    """A model from a YAML file of another kind (`experiment`, `sweep`), with the same messages; raises FileError."""
    document = read_document(path, kind=kind)
    apply_settings(document, overrides)
    instance = _validated(model, document, {})
    if document.problems or instance is None:
        raise FileError(_in_order(document.problems, str(path)))
    return instance


def _validated(model: type[M], document: Document, neutral: Mapping[str, object]) -> M | None:
    """Validates; what is wrong is noted and taken out, then the rest is validated again for what depends on it."""
    if document.raw is None:
        return None
    raw = copy.deepcopy(document.raw)
    bad: set[Loc] = set(document.refused)
    for loc in document.refused:
        _take_out(raw, loc, neutral)
    for _ in range(_MAX_PASSES):
        try:
            instance = model.model_validate(raw)
        except ValidationError as failure:
            before = len(bad)
            for error in failure.errors(include_url=False):
                cause = error.get("ctx", {}).get("error")
                if isinstance(cause, ImpossibleError):
                    _note_issues(cause.issues, document, bad)
                    return None
                loc = tuple(error["loc"])
                if loc not in bad:
                    what, remedy, at_key = explain(model, error)
                    origin = document.keys.get(loc) if at_key else None
                    document.complain(origin or document.origin(loc), what, remedy)
                bad.add(loc)
                _take_out(raw, loc, neutral)
            if len(bad) == before:
                return None
            continue
        return instance
    return None


def _note_issues(issues: Sequence[Issue], document: Document, bad: set[Loc]) -> None:
    for issue in issues:
        places = [loc for loc in (*issue.locs, issue.also) if loc]
        if any(loc[: len(wrong)] == wrong or wrong[: len(loc)] == loc for loc in places for wrong in bad):
            continue
        what = issue.what
        if issue.also is not None:
            first = document.origin(issue.also)
            what += f" (line {first.line})" if first.line else f" ({first})"
        place = document.keys.get(issue.locs[0]) if issue.at_key else None
        document.complain(place or document.origin(*issue.locs), what, issue.remedy)


def _take_out(raw: Any, loc: Loc, neutral: Mapping[str, object]) -> None:
    at = raw
    for depth, part in enumerate(loc):
        here = at.get(part) if isinstance(at, dict) else None
        if isinstance(at, list) and isinstance(part, int) and part < len(at):
            here = at[part]
        last = depth == len(loc) - 1
        stand_in = neutral.get(str(loc[depth - 1])) if isinstance(at, list) and depth else None
        # An entry that lacks a required key is broken as a whole.
        lacking = isinstance(here, dict) and depth == len(loc) - 2 and loc[-1] not in here
        if isinstance(at, list) and isinstance(part, int) and stand_in is not None and (last or lacking):
            at[part] = copy.deepcopy(stand_in)
            return
        if last and isinstance(at, dict):
            at.pop(part, None)
            return
        at = here


def _in_order(problems: Sequence[Problem], file: str) -> list[Problem]:
    found = sorted(
        problems, key=lambda problem: (problem.line == 0, Origin(problem.file, problem.line, problem.column))
    )
    return found or [Problem(file, 0, 0, "cannot be validated", "report this file as a defect of fabriclab")]
