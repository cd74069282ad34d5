"""Load a student's algorithm from a file of theirs: `./mine.py:MyRate`."""

from __future__ import annotations

import difflib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from traffic.congestion.base import CongestionControl
from traffic.errors import TrafficError

_REMEDY = "name it as FILE.py:Class; `fabriclab cc new FILE.py` writes one to start from"


def is_plugin(name: str) -> bool:
    """Whether a `--cc` value names a file rather than a built-in algorithm."""
    return name.partition(":")[0].endswith(".py")


def load_plugin(reference: str) -> type[CongestionControl]:
    """The class that `FILE.py:Class` names; without `:Class`, the only algorithm in the file.

    The file is executed, once a call. Raises TrafficError that names file and line.
    """
    text, _, wanted = reference.partition(":")
    path = Path(text)
    if not path.is_file():
        raise TrafficError(f"there is no file {text}", where=reference, remedy=_REMEDY)
    module_name = f"student_{path.stem}_{crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise TrafficError(f"{text} is no Python file", where=reference, remedy=_REMEDY)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and typing look the module up by name
    try:
        spec.loader.exec_module(module)
    except SyntaxError as exc:
        raise TrafficError(exc.msg, where=f"{text}:{exc.lineno}", remedy="correct the file") from exc
    except Exception as exc:
        where = student_line(exc, path) or text
        raise TrafficError(f"{type(exc).__name__}: {exc}", where=where, remedy="correct the file") from exc
    found = {
        name: item
        for name, item in vars(module).items()
        if isinstance(item, type) and issubclass(item, CongestionControl) and item.__module__ == module_name
    }
    return _pick(found, wanted, reference)


@contextmanager
def blamed(reference: str) -> Iterator[None]:
    """Turn an exception that a user's algorithm raises in here into a TrafficError that names its file and line."""
    try:
        yield
    except TrafficError:
        raise
    except Exception as exc:
        where = student_line(exc, Path(reference.partition(":")[0])) if is_plugin(reference) else None
        if where is None:
            raise
        remedy = "correct the file; `fabriclab cc check FILE.py` finds such things without a run"
        raise TrafficError(f"{type(exc).__name__}: {exc}", where=where, remedy=remedy) from exc


def student_line(exc: BaseException, path: Path) -> str | None:
    """`file:line` of the innermost frame of an exception that lies in the student's file."""
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if Path(f.filename).resolve() == path.resolve()]
    return f"{path}:{frames[-1].lineno}" if frames else None


def _pick(found: dict[str, type[CongestionControl]], wanted: str, reference: str) -> type[CongestionControl]:
    if not found:
        raise TrafficError("no subclass of CongestionControl in it", where=reference, remedy=_REMEDY)
    if not wanted:
        if len(found) > 1:
            raise TrafficError(f"several algorithms in it: {', '.join(found)}", where=reference, remedy=_REMEDY)
        return next(iter(found.values()))
    if wanted not in found:
        near = difflib.get_close_matches(wanted, found, n=1)
        hint = f"nearest is {near[0]}" if near else f"there is {', '.join(found)}"
        raise TrafficError(f"no algorithm {wanted} in it, {hint}", where=reference, remedy=_REMEDY)
    return found[wanted]
