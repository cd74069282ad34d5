"""A worker that ends too early: what is said of it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from emulator.experiment.beside import died


def worker(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ended_from_outside(number: signal.Signals) -> None:
    error = died(worker(f"import os; os.kill(os.getpid(), {int(number)})"))
    assert error.what == f"the worker was ended from outside ({number.name})" and "dmesg" in error.remedy


def test_ended_by_its_own_error() -> None:
    error = died(worker("raise SystemExit('no such device')"))
    assert error.what == "the worker ended with status 1: no such device"


def test_alive_but_silent() -> None:
    process = worker("import time; time.sleep(60)")
    error = died(process)
    assert "does not answer" in error.what and process.returncode == -signal.SIGKILL
