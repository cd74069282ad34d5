"""The registry of runs: entered whole or not at all, readable when damaged, and dead when its owner is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.errors import FabricError
from emulator.fabric import kernel, registry
from emulator.fabric.registry import Process, Registration, entries, read_entry, unfinished


def test_an_entry_lives_while_its_owner_does(tmp_path: Path) -> None:
    registration = Registration.create("run-1", {"fabric": "f"}, root=tmp_path)
    (entry,) = entries(tmp_path)
    assert (entry.run_id, entry.alive, entry.about) == ("run-1", True, {"fabric": "f"})
    registration.remove()
    assert entries(tmp_path) == []


def test_the_same_pid_with_another_start_time_is_another_process(tmp_path: Path) -> None:
    started = kernel.start_time(os.getpid())
    assert started is not None
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / f"owner-{os.getpid()}-{started + 1}").touch()
    assert not read_entry(tmp_path / "run-1").alive


def test_a_taken_run_id_is_refused(tmp_path: Path) -> None:
    Registration.create("run-1", {}, root=tmp_path)
    with pytest.raises(FabricError) as caught:
        Registration.create("run-1", {}, root=tmp_path)
    assert (caught.value.what, caught.value.remedy) == ('a run "run-1" is running now', "choose another run id")
    assert [path.name for path in tmp_path.iterdir()] == ["run-1"]


@pytest.mark.parametrize("text", ["", '{"fabric": "le', "[1]", "\x00\x00"])
def test_half_written_files_do_not_hide_the_owner(tmp_path: Path, text: str) -> None:
    registration = Registration.create("run-1", {"fabric": "f"}, root=tmp_path)
    (registration.path / "about.json").write_text(text)
    entry = read_entry(registration.path)
    assert (entry.alive, entry.about) == (True, {})


def test_an_entry_without_owner_is_dead(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "stray").write_text("not a directory")
    assert [entry.alive for entry in entries(tmp_path)] == [False, False]
    for entry in entries(tmp_path):
        registry.remove_entry(entry.path)
    assert list(tmp_path.iterdir()) == []


def test_an_entry_cut_off_in_the_making_is_found(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    started = kernel.start_time(gone.pid)
    gone.wait()
    (tmp_path / f".new-{gone.pid}-{started or 1}-run-1").mkdir()
    me = registry.this_process()
    (tmp_path / f".new-{me.pid}-{me.started}-run-2").mkdir()
    assert [path.name.split("-")[-2:] for path in unfinished(tmp_path)] == [["run", "1"]]
    assert entries(tmp_path) == []


def test_a_zombie_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process(child.pid, kernel.start_time(child.pid) or 0)
    assert process.alive
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive
    child.communicate()


def test_names_lead_back_to_their_run() -> None:
    name = registry.namespace_name("20261129-161200-incast-7to1", "leaf0")
    assert name == "fabriclab.20261129-161200-incast-7to1.leaf0"
    assert registry.run_of_namespace(name) == "20261129-161200-incast-7to1"
    assert registry.run_of_alias(registry.alias("r1", "leaf0:spine1")) == "r1"
    for other in ("fabriclab", "fabriclab.x", "xfabriclab.r1.h0", "fabriclab.r1.h0.x", "mn-h0", ""):
        assert registry.run_of_namespace(other) is None
    for other in (None, "", "fabriclab:r1", "uplink to fabriclab:r1:x"):
        assert registry.run_of_alias(other) is None
