"""Which guest kernel is right, what is said when one cannot be built, and that a build never leaves half a kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from emulator.cli.main import main
from emulator.clock import kernel, kernel_build, kernel_source, virtual
from emulator.clock.kernel import find_kernel
from emulator.clock.kernel_source import Recipe, check_tools, find_source, recipe, source_folder, source_version
from emulator.errors import MissingCapability, RunFailed, UsageError


@pytest.fixture(autouse=True)
def no_kernel_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Both caches under the test's own folder; gives the user's."""
    monkeypatch.delenv("FABRICLAB_KERNEL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel, "MACHINE_CACHE", tmp_path / "machine")
    return tmp_path / "cache" / "fabriclab" / "kernels"


def put(root: Path, key: str, **info: Any) -> Path:
    """A kernel in a cache folder."""
    folder = root / key
    folder.mkdir(parents=True)
    (folder / "linux").write_text("#!/bin/sh\n")
    (folder / "linux").chmod(0o755)
    (folder / "info.json").write_text(json.dumps({"version": "6.12.1", "recipe": recipe().digest, **info}))
    return folder / "linux"


def test_no_kernel_anywhere() -> None:
    assert find_kernel() is None


def test_the_variable_wins_and_must_name_a_program(
    monkeypatch: pytest.MonkeyPatch, no_kernel_of_this_machine: Path, tmp_path: Path
) -> None:
    put(no_kernel_of_this_machine, "k")
    monkeypatch.setenv("FABRICLAB_KERNEL", "/bin/sh")
    assert find_kernel() == Path("/bin/sh").resolve()
    for wrong in (tmp_path / "none", tmp_path):
        monkeypatch.setenv("FABRICLAB_KERNEL", str(wrong))
        with pytest.raises(MissingCapability) as caught:
            find_kernel()
        assert str(wrong) in caught.value.where


def test_the_newest_kernel_of_the_present_recipe_counts(no_kernel_of_this_machine: Path, tmp_path: Path) -> None:
    put(no_kernel_of_this_machine, "other-recipe", version="6.12.999", recipe="0" * 64)
    put(no_kernel_of_this_machine, "old", version="6.12.9")
    new = put(tmp_path / "machine", "new", version="6.12.10")
    (tmp_path / "machine" / "half").mkdir()
    assert find_kernel() == new, "the machine's cache serves every user; 6.12.10 is newer than 6.12.9"


def test_soft_roce_is_another_kernel(no_kernel_of_this_machine: Path) -> None:
    put(no_kernel_of_this_machine, "plain")
    assert find_kernel(with_rxe=True) is None
    other = put(no_kernel_of_this_machine, "rxe", recipe=recipe(with_rxe=True).digest)
    assert find_kernel(with_rxe=True) == other


def test_the_key_follows_the_source_and_every_change_of_the_recipe() -> None:
    base = Recipe("CONFIG_A=y\n", (("p", "why\n---\n+x\n"),), ())
    same = Recipe("# comment\nCONFIG_A=y\n", (("q", "other words\n---\n+x\n"),), ())
    assert base.key("s") == same.key("s"), "comments change nothing"
    others = [
        Recipe("CONFIG_A=n\n", base.patches, ()),
        Recipe(base.config, (("p", "why\n---\n+y\n"),), ()),
        Recipe(base.config, (), ()),
        Recipe(base.config, base.patches, ("rxe",)),
    ]
    assert len({made.key("s") for made in (base, *others)} | {base.key("t")}) == 6


def test_every_patch_says_why_before_what() -> None:
    patches = recipe().patches
    assert len(patches) == 9
    for name, text in patches:
        why, _, what = text.partition("\n---\n")
        assert len(why.splitlines()[0]) > 20 and why.splitlines()[0].endswith("."), name
        assert what.startswith("--- a/"), name


def test_a_machine_without_the_source_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_source, "SOURCE_FOLDER", tmp_path)
    with pytest.raises(MissingCapability) as caught:
        find_source()
    assert caught.value.exit_code == 4
    assert "apt-get install linux-source-6.12" in caught.value.remedy


def test_a_machine_without_tools_names_all_packages_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in ("pahole", "flex") else f"/usr/bin/{tool}")
    monkeypatch.setattr(kernel_source, "HEADERS", {"no-such-header.h": "libelf-dev"})
    with pytest.raises(MissingCapability, match="dwarves, flex, libelf-dev") as caught:
        check_tools()
    assert "`apt-get install dwarves flex libelf-dev`" in caught.value.remedy


def test_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(MissingCapability, match="aarch64"):
        check_tools()


def tree(folder: Path, version: str = "6.12.7", rules: str = "") -> Path:
    """A source tree that is small: as much of a kernel as the build asks for."""
    (folder / "arch" / "um").mkdir(parents=True)
    parts = dict(zip(("VERSION", "PATCHLEVEL", "SUBLEVEL"), version.split("."), strict=False))
    (folder / "Makefile").write_text("".join(f"{name} = {value}\n" for name, value in parts.items()) + rules)
    (folder / "arch" / "um" / "Makefile").write_text("# here\n")
    return folder


def pack(folder: Path) -> Path:
    packed = folder.with_suffix(".tar.xz")
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(folder, arcname="linux-6.12.7")
    return packed


@pytest.mark.parametrize(("version", "said"), [("6.1.2", "Linux 6.1.2"), ("6.13.0", "Linux 6.13.0")])
def test_a_source_of_another_series_is_refused(tmp_path: Path, version: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"{said}; the patches are for 6.12"):
        source_version(tree(tmp_path / "linux", version))
    assert source_version(tree(tmp_path / "right")) == "6.12.7"


def test_no_tarball_and_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a kernel source tarball"):
        find_source(tmp_path / "none.tar.xz")
    with pytest.raises(UsageError, match="no Linux kernel"):
        source_version(tmp_path)
    assert source_folder(pack(tree(tmp_path / "x"))) == "linux-6.12.7"


GOOD = """
allnoconfig:
\tcp $(KCONFIG_ALLCONFIG) .config
linux:
\t@echo '  CC      one.o'
\t@echo '  CC      two.o'
\tcp /bin/true linux
"""
BAD = GOOD.replace("cp /bin/true linux", "echo 'two.c:1: error: no such thing'; exit 1")
REFUSING = GOOD.replace("cp $(KCONFIG_ALLCONFIG) .config", "touch .config")
PLAIN = Recipe("CONFIG_A=y\n", (("0001-note", "why\n---\n--- /dev/null\n+++ b/note\n@@ -0,0 +1 @@\n+applied\n"),), ())


def built(source: Path, root: Path, said: list[tuple[str, int, int]]) -> Path:
    return kernel_build.build(
        tarball=source, source_digest="d", recipe=PLAIN, root=root, jobs=1, progress=lambda *step: said.append(step)
    )


needs_compiler = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("make", "gcc", "patch", "strip", "xz")), reason="needs build tools"
)


@needs_compiler
def test_a_build_puts_a_kernel_in_place_and_is_not_done_twice(tmp_path: Path) -> None:
    source = pack(tree(tmp_path / "s", rules=GOOD))
    root = tmp_path / "kernels"
    stale = root / f".building-{PLAIN.key('d')}" / "source"
    stale.mkdir(parents=True)
    said: list[tuple[str, int, int]] = []
    before = os.umask(0o077)
    try:
        path = built(source, root, said)
    finally:
        os.umask(before)
    assert [oct(place.stat().st_mode & 0o777) for place in (path.parent, path)] == ["0o755", "0o755"], "for every user"
    assert subprocess.run([path], check=False).returncode == 0
    info = json.loads((path.parent / "info.json").read_text())
    assert (info["version"], info["recipe"]) == ("6.12.7", PLAIN.digest)
    assert "CC      two.o" in (path.parent / "build.log").read_text()
    assert sorted(found.name for found in path.parent.iterdir()) == ["build.log", "config", "info.json", "linux"]
    assert [name for name in root.iterdir() if name.name.startswith((".building", "build-"))] == []
    assert {"unpacking", "configuring", "compiling"} <= {stage for stage, _, _ in said}
    assert ("compiling", 2, kernel_build.STEPS[False]) in said
    made = path.stat().st_mtime_ns
    assert built(source, root, []) == path and path.stat().st_mtime_ns == made


@needs_compiler
@pytest.mark.parametrize(
    ("rules", "stage", "word"), [(BAD, "compiling", "error: no such thing"), (REFUSING, "configuring", "CONFIG_A=y")]
)
def test_a_failing_build_leaves_its_log_and_nothing_else(tmp_path: Path, rules: str, stage: str, word: str) -> None:
    source = pack(tree(tmp_path / "s", rules=rules))
    root = tmp_path / "kernels"
    with pytest.raises(RunFailed, match=f"while {stage}") as caught:
        built(source, root, [])
    assert word in caught.value.what
    assert "applying" not in caught.value.what
    log = Path(caught.value.where)
    assert {found.name for found in root.iterdir()} == {log.name, f".lock-{PLAIN.key('d')}"}


@needs_compiler
def test_a_patch_that_does_not_fit(tmp_path: Path) -> None:
    folder = tree(tmp_path / "s", rules=GOOD)
    (folder / "lib").mkdir()
    (folder / "lib" / "x").write_text("another line\n")
    wrong = Recipe("", (("0001-x", "why\n---\n--- a/lib/x\n+++ b/lib/x\n@@ -1 +1 @@\n-line\n+other\n"),), ())
    with pytest.raises(RunFailed, match="while applying 0001-x"):
        kernel_build.build(
            tarball=pack(folder), source_digest="d", recipe=wrong, root=tmp_path / "k", jobs=1, progress=lambda *_: None
        )


def test_a_cache_folder_that_make_cannot_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="space or a colon"):
        built(tmp_path / "any.tar", tmp_path / "my cache", [])


def test_a_run_without_a_kernel_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(MissingCapability) as caught:
        virtual.run_guest(["/bin/true"], run_dir=tmp_path, wall_limit_s=1, on_line=print)
    assert "fabriclab kernel build" in caught.value.remedy


def test_the_core_is_one_of_those_allowed() -> None:
    assert virtual.quiet_core() in os.sched_getaffinity(0)


def test_the_command_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["kernel", "info"]) == 4
    assert "`fabriclab kernel build`" in capsys.readouterr().err
    monkeypatch.setattr(kernel_source, "SOURCE_FOLDER", tmp_path)
    assert main(["-q", "kernel", "build"]) == 4
    assert "apt-get install linux-source-6.12" in capsys.readouterr().err
    assert main(["kernel", "build", "--source", str(tmp_path / "none")]) == 2
    assert "not a kernel source tarball" in capsys.readouterr().err
