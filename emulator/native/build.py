"""Compile the packet loop with mypyc and the C compiler; kept in the cache under the digest of its source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from emulator.errors import FabricError, MissingCapability, RunFailed
from traffic import native

_SETUP: Final = """
from mypyc.build import mypycify
from setuptools import setup

setup(name="native", packages=[], ext_modules=mypycify({files!r}, opt_level="2", debug_level="0"))
"""
_LIMIT_S: Final = 900


def cache_folder() -> Path:
    """Where this user's builds go: root's for the whole machine, unless XDG_CACHE_HOME says otherwise."""
    if os.geteuid() == 0 and not os.environ.get("XDG_CACHE_HOME"):
        return native.MACHINE_CACHE
    return native.own_cache()


def missing() -> list[tuple[str, str]]:
    """(what is not there, how to get it) of what a build needs."""
    found = []
    if find_spec("mypyc") is None:
        found.append(("mypy with its compiler mypyc", f"{sys.executable} -m pip install mypy"))
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        found.append(("a C compiler", "apt-get install gcc libc6-dev"))
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        found.append(("the headers of this Python", "apt-get install python3-dev"))
    return found


def build() -> Path:
    """The folder of compiled modules for this source, built now (about a minute of one core) where it is not there.

    Raises MissingCapability (a tool is missing), RunFailed (a compiler refuses; it names the log).
    """
    root = cache_folder()
    target = root / native.digest()
    if target.is_dir():
        return target
    lacking = missing()
    if lacking:
        raise MissingCapability(
            "the packet loop cannot be compiled: " + ", ".join(what for what, _ in lacking) + " missing",
            where="native build",
            remedy="; ".join(how for _, how in lacking),
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=root))
    except OSError as error:
        raise FabricError(
            f"compiled modules cannot be kept: {error.strerror}",
            where=str(root),
            remedy="set XDG_CACHE_HOME to a folder that can be written",
        ) from error
    try:
        _compile(work, root / "build.log")
        _put(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _compile(work: Path, log: Path) -> None:
    source = Path(native.__file__).parent
    shutil.copytree(source, work / "traffic", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    files = [name.replace(".", "/") + ".py" for name in native.MODULES]
    (work / "setup.py").write_text(_SETUP.format(files=files), encoding="utf-8")
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, "setup.py", "build_ext", "--inplace"],
            cwd=work,
            env={**os.environ, "CFLAGS": " ".join(native.FLAGS), "PYTHONPATH": str(work), native.VARIABLE: native.OFF},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
    if done.returncode != 0:
        tail = "; ".join(line for line in log.read_text(encoding="utf-8").splitlines() if "error" in line)[:400]
        raise RunFailed(
            f"the compiler ended with {done.returncode}: {tail or 'see its log'}",
            where=str(log),
            remedy="runs work without it; report this as a defect",
        )


def _put(work: Path, target: Path) -> None:
    """Collect the modules in one folder, each file named after its module, and put the folder in place at once."""
    made = work / "made"
    made.mkdir(mode=0o755)
    for path in work.rglob("*" + EXTENSION_SUFFIXES[0]):
        inside = path.relative_to(work)
        if inside.parts[0] == "traffic" or len(inside.parts) == 1:
            shutil.copyfile(path, made / ".".join(inside.parts))
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():  # another build may have been quicker
            raise
