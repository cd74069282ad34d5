"""Build a guest kernel: unpack what the architecture needs, patch, configure, compile, put in place at once."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from emulator.clock.kernel_source import DATA, Recipe, source_folder, source_version
from emulator.errors import RunFailed, UsageError

Progress = Callable[[str, int, int], None]
"""Called with the stage, steps done, steps expected."""

STEPS: Final = {False: 1273, True: 1449}
"""Lines of progress that `make linux` prints, without and with Soft-RoCE (counted)."""

ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "KBUILD_BUILD_TIMESTAMP": "2025-01-01",
    "KBUILD_BUILD_USER": "fabriclab",
    "KBUILD_BUILD_HOST": "guest",
    "KBUILD_BUILD_VERSION": "1",
    "KCFLAGS": "-Wno-frame-larger-than -fno-var-tracking",
}
"""Nothing of this machine or day gets into the kernel: its version string seeds its random numbers. Where variables lie is not
noted for a debugger: the types for BPF do not need it, and it takes a fifth of the compiler's time."""


def build(*, tarball: Path, source_digest: str, recipe: Recipe, root: Path, jobs: int, progress: Progress) -> Path:
    """Build in `root/.building-KEY`, then rename to `root/KEY`; gives the kernel's path.

    A second builder of the same key waits for the first. What an interrupted one left is removed.
    """
    key = recipe.key(source_digest)
    _check_place(root)
    with _only_builder(root, key, progress):
        finished = root / key / "linux"
        if os.access(finished, os.X_OK):
            return finished
        work = root / f".building-{key}"
        _remove(work)
        work.mkdir()
        log_path = root / f"build-{key}.log"
        begun = time.monotonic()
        try:
            with log_path.open("w", encoding="utf-8") as log:
                made = _Build(work, recipe, jobs, log, log_path, progress)
                info = made.run(tarball)
            info |= {
                "key": key,
                "recipe": recipe.digest,
                "options": list(recipe.options),
                "source": {"tarball": tarball.name, "sha256": source_digest},
                "build_s": round(time.monotonic() - begun, 1),
            }
            ready = work / "ready"
            shutil.copy(log_path, ready / "build.log")
            (ready / "info.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
            for item in (ready, *ready.iterdir()):
                item.chmod(0o755 if item.is_dir() or item.name == "linux" else 0o644)
            _remove(root / key)
            ready.rename(root / key)
            log_path.unlink()
        finally:
            _remove(work)
        return finished


def _check_place(root: Path) -> None:
    if any(mark in str(root) for mark in " :"):
        raise UsageError(
            "a kernel cannot be built in a folder whose path has a space or a colon",
            where=str(root),
            remedy="set XDG_CACHE_HOME to another folder",
        )
    try:
        for folder in reversed((root, *root.parents)):
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                folder.chmod(0o755)
        free = shutil.disk_usage(root).free
    except OSError as error:
        raise UsageError(
            f"the kernel cache cannot be written ({error.strerror})", where=str(root), remedy="set XDG_CACHE_HOME"
        ) from error
    if free < 2_000_000_000:
        raise UsageError(
            f"a kernel build needs 2 GB of disk for a while, {free / 1e9:.1f} GB are free",
            where=str(root),
            remedy="make room or set XDG_CACHE_HOME",
        )


@contextlib.contextmanager
def _only_builder(root: Path, key: str, progress: Progress) -> Iterator[None]:
    with (root / f".lock-{key}").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build of the same kernel", 0, 1)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


class _Build:
    """The stages of one build in one folder."""

    def __init__(self, work: Path, recipe: Recipe, jobs: int, log: IO[str], log_path: Path, progress: Progress) -> None:
        self.tree = work / "source"
        self.ready = work / "ready"
        self.recipe = recipe
        self.jobs = jobs
        self.log = log
        self.log_path = log_path
        self.progress = progress
        self.environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(work), **ENVIRONMENT}

    def run(self, tarball: Path) -> dict[str, object]:
        """All stages; gives what is known of the result."""
        self.tree.mkdir()
        self.ready.mkdir()
        self.progress("unpacking", 0, 1)
        self._unpack(tarball)
        version = source_version(self.tree)
        self._patch()
        self.progress("configuring", 0, 1)
        self._configure()
        steps = STEPS["rxe" in self.recipe.options]
        done = 0

        def count(line: str) -> None:
            nonlocal done
            if line.startswith("  "):
                done = min(done + 1, steps)
                self.progress("compiling", done, steps)

        self._run(["make", "ARCH=um", f"-j{self.jobs}", "linux"], "compiling", count)
        self.progress("compiling", steps, steps)
        self._run(["strip", "--strip-debug", "-o", str(self.ready / "linux"), "linux"], "stripping")
        shutil.copy(self.tree / ".config", self.ready / "config")
        compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout
        return {"version": version, "compiler": compiler.splitlines()[0]}

    def _unpack(self, tarball: Path) -> None:
        top = source_folder(tarball)
        wanted = self.tree.parent / "wanted"
        lines = (DATA / "unpack").read_text(encoding="utf-8").splitlines()
        wanted.write_text("".join(line.replace("TOP/", f"{top}/", 1) + "\n" for line in lines), encoding="utf-8")
        # xz takes several threads for its own blocks; -a leaves other compressions to tar.
        unpacker = ["-I", f"xz -d -T{self.jobs}"] if tarball.name.endswith(".xz") else ["-a"]
        command = ["tar", "-C", str(self.tree), "--strip-components=1", *unpacker, "--wildcards", "-T", str(wanted)]
        command += ["-xf", str(tarball)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment)
        # A pattern without a match is no error: releases differ in folders.
        serious = [
            line
            for line in done.stderr.splitlines()
            if "Not found in archive" not in line and "previous err" not in line
        ]
        if serious:
            self.log.write(done.stderr)
            raise self._failed("unpacking", serious)

    def _patch(self) -> None:
        for name, text in self.recipe.patches:
            patch = self.tree.parent / name
            patch.write_text(text, encoding="utf-8")
            self._run(["patch", "-p1", "--batch", "--forward", "-i", str(patch)], f"applying {name}")

    def _configure(self) -> None:
        fragment = self.tree / "fabriclab.config"
        fragment.write_text(self.recipe.config, encoding="utf-8")
        self.environment["KCONFIG_ALLCONFIG"] = str(fragment)
        self._run(["make", "ARCH=um", "allnoconfig"], "configuring")
        got = set((self.tree / ".config").read_text(encoding="utf-8").splitlines())
        lacking = [line for line in self.recipe.wanted() if line not in got]
        if lacking:
            raise self._failed("configuring", [f"this source does not take {', '.join(lacking)}"])

    def _run(self, command: Sequence[str], stage: str, each: Callable[[str], None] = lambda _line: None) -> None:
        """Run a command in the tree, its output into the log; the whole group dies with an interruption."""
        self.log.write(f"$ {' '.join(command)}\n")
        tail: list[str] = []
        process = subprocess.Popen(
            command,
            cwd=self.tree,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                self.log.write(line)
                tail = [*tail[-11:], line.rstrip()]
                each(line)
            code = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code != 0:
            raise self._failed(stage, tail)

    def _failed(self, stage: str, tail: Sequence[str]) -> RunFailed:
        self.log.flush()
        return RunFailed(
            f"the kernel build failed while {stage}: {' | '.join(line for line in tail if line)[-600:]}",
            where=str(self.log_path),
            remedy="read the log; `fabriclab kernel build` starts again from the beginning",
        )
