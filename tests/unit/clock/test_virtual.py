"""What the virtual clock asks of the machine before it boots a guest."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from emulator.cli.kernel import Lines
from emulator.clock.virtual import quiet_core, require_fixed_addresses

FORBIDDEN = """
import ctypes, struct
from emulator.clock.virtual import quiet_core, require_fixed_addresses
from emulator.errors import MissingCapability
libc = ctypes.CDLL(None)
# Number of the system call; personality (135 on x86-64) fails with EPERM, all others are allowed.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 135), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
words = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(words)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
try:
    require_fixed_addresses()
except MissingCapability as error:
    print(error.what, "|", error.remedy)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter names a system call by its number there")
def test_a_container_that_forbids_fixed_addresses_is_named_with_its_remedy() -> None:
    """As a container engine's default filter does."""
    done = subprocess.run([sys.executable, "-c", FORBIDDEN], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == (
        "the virtual clock cannot fix its guest's addresses (Operation not permitted) | "
        "a container's filter forbids it: start it with --security-opt seccomp=unconfined\n"
    )
    require_fixed_addresses()


def test_progress_without_a_terminal_is_a_line_a_stage_and_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.show("unpacking", 0, 1)
    for done in range(101):
        lines.show("compiling", done, 100)
    printed = capsys.readouterr().err.splitlines()
    assert printed[:3] == ["unpacking", "compiling 0 %", "compiling 10 %"] and len(printed) == 12


def test_a_second_guest_gets_the_core_that_the_first_does_not_have() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    first = quiet_core()
    others = [
        subprocess.Popen(
            ["/bin/sleep", "60"],
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {first}),  # noqa: PLW1509
        )
        for _ in range(12)
    ]
    try:
        assert len(allowed) == 1 or quiet_core() != first
    finally:
        for other in others:
            other.kill()
            other.wait()
