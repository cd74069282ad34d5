"""The library that gives C++ programs random numbers of the run's seed: made once, found again, done without where nothing makes it."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from emulator.exec import dice


def test_the_library_is_made_once_and_has_the_name_that_programs_call(tmp_path: Path) -> None:
    library = dice.ensure_library(tmp_path)
    assert library is not None
    made_at = library.stat().st_mtime_ns
    assert dice.ensure_library(tmp_path) == library
    assert library.stat().st_mtime_ns == made_at
    assert list(tmp_path.iterdir()) == [library]
    draw = ctypes.CDLL(str(library))._ZNSt13random_device9_M_getvalEv
    assert len({draw(None) for _ in range(100)}) > 90


def test_without_a_compiler_runs_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dice.ensure_library(tmp_path / "cache") is None


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cc").symlink_to(str(shutil.which("false")))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dice.ensure_library(tmp_path / "cache") is None
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert dice.ensure_library(tmp_path / "file" / "cache") is None


def test_what_the_user_preloads_stays() -> None:
    library = Path("/run/x.so")
    assert dice.preloaded({"A": "1"}, None) == {"A": "1"}
    assert dice.preloaded({"A": "1"}, library) == {"A": "1", "LD_PRELOAD": "/run/x.so"}
    assert dice.preloaded({"LD_PRELOAD": "/lib/y.so"}, library) == {"LD_PRELOAD": "/run/x.so:/lib/y.so"}


def test_a_guest_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(dice.VARIABLE, raising=False)
    assert dice.put_in_place() is None
