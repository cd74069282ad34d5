"""A YAML file as plain values that remember where they stand.

The parser's events are turned into mappings, lists and scalars here, so nothing in a file is ever constructed or run:
tags, anchors, aliases and further documents are refused, numbers with a point stay text for the unit grammar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from emulator.topology.checks import Loc, key_text
from emulator.topology.problems import Origin
from emulator.topology.suggest import nearest
from emulator.topology.units import shown
from emulator.topology.yamltree import Builder, Document

MAX_FILE_BYTES: Final = 500_000

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def read_document(path: str | Path, *, kind: str = "topology") -> Document:
    """The file's values; whatever stops reading it is in `.problems`, and `.raw` is then None."""
    document = Document(str(path))
    text = _read_text(Path(path), document, kind)
    if text is not None:
        _parse(text, document, kind)
    return document


def apply_settings(document: Document, settings: Sequence[str], *, option: str = "--set") -> None:
    """Puts `path.to.key=value` over the file's values; the option is the place of what it sets."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        origin = Origin(f"{option} {setting}")
        parts = re.sub(r"\[([0-9]+)\]", r".\1", path.strip()).split(".")
        if not equals or not all(parts):
            document.complain(origin, "not a key and a value", f"write {option} path.to.key=value")
            continue
        value = _parse_value(text, document, origin)
        if document.raw is not None:
            loc = tuple(int(part) if part.isdecimal() else part for part in parts)
            _put(document, loc, value, origin)


def _read_text(path: Path, document: Document, kind: str) -> str | None:
    whole = Origin(document.file)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        document.complain(whole, "no such file", _nearest_file(path))
        return None
    except IsADirectoryError:
        document.complain(whole, "is a folder", f"name one {kind} file in it")
        return None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        document.complain(whole, f"cannot be read: {reason}", "check the path and its permissions")
        return None
    if len(data) > MAX_FILE_BYTES:
        document.complain(whole, f"is larger than {MAX_FILE_BYTES} bytes", f"name {_a(kind)} file")
        return None
    if b"\x00" in data and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        document.complain(whole, "is binary, not YAML text", f"name {_a(kind)} file")
        return None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        document.complain(whole, "is UTF-16, not UTF-8", "save the file as UTF-8")
        return None
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8"
        document.complain(Origin(document.file, line, column), what, "save the file as UTF-8")
        return None
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        column = control.start() - text.rfind("\n", 0, control.start())
        what = f"control character 0x{ord(control.group()):02x}"
        document.complain(Origin(document.file, line, column), what, "remove it")
        return None
    return text


def _nearest_file(path: Path) -> str:
    try:
        beside = sorted(entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml"))
    except OSError:
        return f'there is no folder "{path.parent}" either'
    remedy = nearest(path.name, beside)
    return "check the path" if remedy == "there are none" else remedy


def _parse(text: str, document: Document, kind: str) -> None:
    builder = Builder(document)
    try:
        finished = builder.build(YAML(typ="safe", pure=True).parse(text))
    except MarkedYAMLError as error:
        document.complain(*_syntax_problem(error, document.file, text))
        return
    except YAMLError as error:
        document.complain(Origin(document.file), f"is not YAML: {str(error).splitlines()[0]}", "correct the syntax")
        return
    if not finished:
        return
    if builder.root is None and not document.problems:
        document.complain(Origin(document.file), "is empty", f"write the keys of {_a(kind)}")
    elif not isinstance(builder.root, dict):
        what = f"{_a(kind)} file is a mapping of keys to values, this one is {shown(builder.root)}"
        document.complain(document.values.get((), Origin(document.file)), what, 'write lines such as "name: my-fabric"')
    else:
        document.raw = builder.root


def _syntax_problem(error: MarkedYAMLError, file: str, text: str) -> tuple[Origin, str, str]:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    for number in (line, line - 1):
        source = lines[number] if 0 <= number < len(lines) else ""
        indent = source[: len(source) - len(source.lstrip())]
        if "\t" in indent:
            return Origin(file, number + 1, indent.index("\t") + 1), "a tab in the indentation", "indent with spaces"
    what = f"is not YAML: {' '.join(str(error.problem or error.context or 'syntax error').split())}"
    return Origin(file, line + 1, column + 1), what, "check indentation, colons and quotes here and in the line above"


def _parse_value(text: str, document: Document, origin: Origin) -> Any:
    inner = Document(origin.file)
    builder = Builder(inner, fixed=origin)
    try:
        builder.build(YAML(typ="safe", pure=True).parse(text))
    except YAMLError:
        document.complain(origin, f"{shown(text)} is not a value", "write a scalar, or a list or mapping in one line")
    document.problems += inner.problems
    return builder.root


def _put(document: Document, loc: Loc, value: Any, origin: Origin) -> None:
    at = document.raw
    for depth, part in enumerate(loc):
        above = key_text(loc[:depth]) or "the file"
        last = depth == len(loc) - 1
        if isinstance(at, list) and isinstance(part, int):
            if part > len(at):
                document.complain(origin, f"{above} has {len(at)} entries", f"the next free number is {len(at)}")
                return
            if part == len(at):
                at.append(None)
        elif not isinstance(at, dict) or isinstance(part, int):
            document.complain(origin, f"{above} has no key {part}", "write path.to.key=value, list entries by number")
            return
        document.keys.setdefault(loc[: depth + 1], origin)
        if last:
            at[part] = value
            _forget(document, loc)
            document.values[loc] = document.keys[loc] = origin
            return
        inside = at.get(part) if isinstance(at, dict) else at[part]
        if inside is None:
            at[part] = inside = [] if isinstance(loc[depth + 1], int) else {}
            document.values[loc[: depth + 1]] = origin
        at = inside


def _forget(document: Document, loc: Loc) -> None:
    for table in (document.values, document.keys):
        for below in [other for other in table if other[: len(loc)] == loc and other != loc]:
            del table[below]


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
