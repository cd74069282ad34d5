"""A node's shell that does not come up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from emulator.errors import FabricError, MissingCapability
from emulator.fabric import mininet
from emulator.fabric.plan import PlanNode


def _node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> mininet.FabricHost:
    helper = tmp_path / "mnexec"
    helper.write_text(f"#!/bin/sh\n{script}\n")
    helper.chmod(0o755)
    monkeypatch.setattr(mininet, "mnexec", lambda: str(helper))
    node = PlanNode.__new__(PlanNode)
    object.__setattr__(node, "short", "x1")
    return mininet.FabricHost(node, {"PATH": "/usr/bin:/bin"})


def test_what_mnexec_says_when_it_fails_reaches_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host = _node(monkeypatch, tmp_path, "echo 'mnexec: unshare: Operation not permitted' >&2; exit 1")
    try:
        with pytest.raises(FabricError, match="unshare: Operation not permitted"):
            host.await_prompt(time.monotonic() + 20)
    finally:
        host.terminate()


def test_a_machine_without_terminals_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError("out of pty devices")

    monkeypatch.setattr("emulator.fabric.mininet.pty.openpty", none_left)
    with pytest.raises(MissingCapability, match="out of pty devices") as caught:
        _node(monkeypatch, tmp_path, "exit 0")
    assert "mount devpts" in str(caught.value.remedy)


def test_a_shell_that_says_nothing_is_given_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host = _node(monkeypatch, tmp_path, "exec sleep 600")
    try:
        with pytest.raises(FabricError, match="it said nothing"):
            host.await_prompt(time.monotonic() + 0.3)
    finally:
        host.terminate()
