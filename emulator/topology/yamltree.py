"""From YAML parser events to plain values with their places.

Nothing in a file is ever constructed or run: tags, anchors, aliases and further documents are refused, and numbers
with a point stay text for the unit grammar to read exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from emulator.topology.checks import Loc, key_text
from emulator.topology.problems import Origin, Problem

MAX_DEPTH: Final = 16

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_WORDS: Final = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass
class Document:
    """The values of a file, the place of each value and key, and what is wrong with the file as YAML."""

    file: str
    raw: Any = None
    values: dict[Loc, Origin] = field(default_factory=dict)
    keys: dict[Loc, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    #: Keys whose value was refused already: nothing more is said about them.
    refused: set[Loc] = field(default_factory=set)

    def origin(self, *locs: Loc) -> Origin:
        """The place of the first of several keys that the file has; else of the nearest key above the first."""
        for loc in locs:
            if loc and loc in self.values:
                return self.values[loc]
        for depth in range(len(locs[0]), 0, -1):
            above = locs[0][:depth]
            if above in self.keys or above in self.values:
                return self.keys.get(above) or self.values[above]
        return self.values.get((), Origin(self.file))

    def complain(self, origin: Origin, what: str, remedy: str) -> None:
        self.problems.append(Problem(origin.file, origin.line, origin.column, what, remedy))


@dataclass
class _Frame:
    """An open mapping or list; `key` waits for its value, `twice` marks the second value of a key, read and dropped."""

    container: dict[str, Any] | list[Any]
    loc: Loc
    twice: bool
    key: tuple[str, Origin] | None = None


class Builder:
    """Builds values from events without recursion; with `fixed`, everything stands at that one place."""

    def __init__(self, document: Document, *, fixed: Origin | None = None) -> None:
        self.document = document
        self.root: Any = None
        self._fixed = fixed
        self._stack: list[_Frame] = []

    def build(self, events: Iterator[Event]) -> bool:
        """Reads all events; False if a problem made the rest unreadable."""
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    return self._stop(event, "a second document starts here", "keep one document in a file")
            elif isinstance(event, CollectionEndEvent):
                self._stack.pop()
            elif isinstance(event, NodeEvent):
                refused = self._refuse_extras(event)
                frame = self._stack[-1] if self._stack else None
                if frame is not None and isinstance(frame.container, dict) and frame.key is None:
                    if not isinstance(event, ScalarEvent):
                        return self._stop(event, "a key must be a plain word", "write key: value")
                    frame.key = (str(event.value), self._origin(event))
                elif not self._add(event, refused):
                    return self._stop(event, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
        return True

    def _add(self, event: NodeEvent, refused: bool) -> bool:
        value: Any = None
        if isinstance(event, ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, MappingStartEvent):
            value = {}
        elif isinstance(event, SequenceStartEvent):
            value = []
        origin = self._origin(event)
        if isinstance(event, ScalarEvent) and event.implicit[0] and not event.value and self._stack:
            # The parser puts an absent value where the next one starts; its key is the place to look at.
            key = self._stack[-1].key
            origin = key[1] if key is not None else origin
        loc, twice = self._place(value, origin)
        if refused:
            self.document.refused.add(loc)
        if isinstance(value, dict | list):
            self._stack.append(_Frame(value, loc, twice))
        return len(self._stack) <= MAX_DEPTH

    def _place(self, value: Any, origin: Origin) -> tuple[Loc, bool]:
        values, keys = self.document.values, self.document.keys
        if not self._stack:
            self.root = value
            values[()] = origin
            return (), False
        frame = self._stack[-1]
        loc: Loc
        if isinstance(frame.container, list):
            loc = (*frame.loc, len(frame.container))
            frame.container.append(value)
        else:
            key, key_origin = frame.key or ("", origin)
            frame.key = None
            loc = (*frame.loc, key)
            if key in frame.container:
                first = f", first in line {keys[loc].line}" if loc in keys and keys[loc].line else ""
                self.document.complain(key_origin, f"{key_text(loc)} is set twice{first}", "keep one of the two")
                return loc, True
            frame.container[key] = value
            if not frame.twice:
                keys[loc] = key_origin
        if not frame.twice:
            values[loc] = origin
        return loc, frame.twice

    def _refuse_extras(self, event: NodeEvent) -> bool:
        """Complains about anchors, aliases and tags; true if the value itself cannot be read for it."""
        anchor = event.anchor
        if isinstance(event, AliasEvent):
            what = f"alias *{anchor}: values are not shared in these files"
            self.document.complain(self._origin(event), what, "write the value out")
            return True
        if anchor is not None:
            what = f"anchor &{anchor}: values are not shared in these files"
            self.document.complain(self._origin(event), what, "write the value out")
        tag = getattr(event, "tag", None)
        if tag is None or str(tag) == "!":
            return False
        short = str(tag).replace("tag:yaml.org,2002:", "!!")
        self.document.complain(self._origin(event), f"tag {short} is not allowed", "write the plain value")
        return True

    def _stop(self, event: Event, what: str, remedy: str) -> bool:
        self.document.complain(self._origin(event), what, remedy)
        return False

    def _origin(self, event: Event) -> Origin:
        if self._fixed is not None:
            return self._fixed
        return Origin(self.document.file, event.start_mark.line + 1, event.start_mark.column + 1)


def _scalar(event: ScalarEvent) -> Any:
    """The value of a scalar by the rules of YAML 1.2, except that numbers with a point stay text."""
    text = str(event.value)
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    return int(text) if _INTEGER.fullmatch(text) else text
