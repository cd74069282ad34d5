"""Which build of the packet loop is taken, and that a wrong one never is."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from traffic import native

ROOT = Path(__file__).resolve().parents[2]


def _fresh(code: str, **environment: str) -> str:
    """What code prints in an interpreter that has imported nothing of ours yet."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )  # fmt: skip
    return done.stdout.strip()


def test_off_is_pure_python() -> None:
    code = (
        "from traffic import native; a = native.enable(); import traffic.packet.parse as m; print(a, m.__file__[-3:])"
    )
    assert _fresh(code, FABRICLAB_NATIVE="off") == "False .py"


def test_a_folder_that_lacks_modules_is_not_used(tmp_path: Path) -> None:
    """As in a guest that cannot see the folder it was told of."""
    (tmp_path / ("traffic.packet.parse" + EXTENSION_SUFFIXES[0])).touch()
    code = "from traffic import native; print(native.enable(), native.in_use())"
    assert _fresh(code, FABRICLAB_NATIVE=str(tmp_path)) == "False False"


def test_no_mixture_with_modules_that_are_already_imported(tmp_path: Path) -> None:
    for name in native.MODULES:
        (tmp_path / (name + EXTENSION_SUFFIXES[0])).touch()
    code = "import traffic.packet.parse; from traffic import native; print(native.enable())"
    assert _fresh(code, FABRICLAB_NATIVE=str(tmp_path)) == "False"


def test_another_source_is_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    before = native.digest()
    monkeypatch.setattr(native, "FLAGS", ("-O1",))
    assert native.digest() != before
    monkeypatch.undo()
    assert native.digest() == before


def test_every_compiled_module_exists_and_no_interpreted_one_is_built_upon_it() -> None:
    """A compiled class cannot be the base of an interpreted one."""
    compiled = {ROOT / (name.replace(".", "/") + ".py") for name in native.MODULES}
    assert all(path.is_file() for path in compiled)
    bases = ("QueuePair", "PathSet", "Nic", "Worker", "Recorder", "MrcSender", "MrcReceiver")
    for path in set((ROOT / "traffic").rglob("*.py")) - compiled:
        text = path.read_text(encoding="utf-8")
        assert not any(
            f"({base})" in line for base in bases for line in text.splitlines() if line.startswith("class ")
        ), path
