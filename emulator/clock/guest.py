"""Inside of the virtual clock: process 1 of the guest. Makes the world a program expects, runs it, powers off.

Started by the guest kernel as `python -I -S guest.py CHANNEL`, before any writable file system exists, so it uses the
standard library only and imports nothing of the project. CHANNEL is a file in the run directory: the host wrote the
order (JSON) into it, everything the program prints is appended to it, then the exit status. Its name is removed as soon
as it is open, so that no ending leaves it behind (and /dev/stdout cannot be opened anew in there).
"""

# ruff: noqa: PTH103, PTH108, PTH112, PTH114, PTH118, PTH119, PTH123, PTH211
# pathlib would be a tenth of the guest's start-up time.

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
import time
from typing import Any

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
PR_SET_TIMERSLACK = 29
POWER_OFF = 0x4321FEDC
TIMER_ABSTIME = 1
RNDRESEEDCRNG = 0x5207
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

SCRATCH = ("/tmp", "/run", "/var/tmp")
PROGRAM_START_NS = 50_000_000
"""When the program starts. The kernel turns to high-resolution timers in its first tick, at 1 ms; before that every timer
waits for that tick."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


SETTLE_S = 0.03
"""Until the kernel has its high-resolution timers (10 ms), and as much again."""


def align(at_ns: int) -> None:
    """Wait until the guest's monotonic clock reads `at_ns`, and seed the kernel's random numbers afresh.

    What ran before may have taken a little more or less virtual time and random numbers (a system call that fails costs
    20 ns, and what fails depends on paths and users); nothing of that shows afterwards. A program whose results must
    not depend on how it was started calls this once it is ready. Raises TimeoutError when `at_ns` is past.
    """
    if time.monotonic_ns() >= at_ns:
        raise TimeoutError(f"the guest's clock is past {at_ns} ns already")
    moment = (ctypes.c_long * 2)(*divmod(at_ns, 10**9))
    _libc().clock_nanosleep(time.CLOCK_MONOTONIC, TIMER_ABSTIME, ctypes.byref(moment), None)
    with open("/dev/urandom", "rb") as source:
        fcntl.ioctl(source, RNDRESEEDCRNG)


def _mount(kind: str, target: str, options: str = "", flags: int = 0) -> None:
    """mount(2); raises OSError with the target."""
    code = _libc().mount(
        b"none", os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options) or None
    )
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _mount_all(order: dict[str, Any]) -> None:
    """Kernel file systems, scratch space, and the host folders that scratch space would hide."""
    _mount("proc", "/proc", flags=MS_NOSUID | MS_NODEV)
    _mount("sysfs", "/sys", flags=MS_NOSUID | MS_NODEV)
    if os.path.isdir("/sys/fs/cgroup"):
        _mount("cgroup2", "/sys/fs/cgroup")
    if os.path.isdir("/sys/fs/bpf"):
        _mount("bpf", "/sys/fs/bpf", "mode=0700")
    for place in ("/dev/pts", "/dev/shm", "/dev/mqueue"):
        os.makedirs(place, exist_ok=True)
    _mount("devpts", "/dev/pts", "mode=0620,ptmxmode=0666")
    _mount("tmpfs", "/dev/shm", "mode=1777")
    _mount("mqueue", "/dev/mqueue")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        if not os.path.lexists(f"/dev/{name}"):
            os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")
    for place in SCRATCH:
        if os.path.isdir(place) and not os.path.islink(place):
            _mount("tmpfs", place, "mode=1777")
    os.makedirs("/run/home", exist_ok=True)
    for place in order["visible"]:
        os.makedirs(place, exist_ok=True)
        _mount("hostfs", place, place, MS_RDONLY)
    os.makedirs(order["run_at"], exist_ok=True)
    _mount("hostfs", order["run_at"], order["run_dir"])


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def _large_memory() -> None:
    """Give freed pages back at once, so that the next ones come in order.

    The host maps each run of neighbouring pages of a program on its own, and a process has 65,530 maps there
    (vm.max_map_count). Pages that the kernel keeps at hand come in the order in which they were freed, backwards: some 250 MB of
    them then end the program with a segmentation fault.
    """
    with open("/proc/sys/vm/percpu_pagelist_high_fraction", "w", encoding="ascii") as file:
        file.write("1000000")


def _standard_files() -> None:
    """The kernel gives process 1 no console here: 0, 1 and 2 must not become something else's numbers."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        if number != null:
            os.dup2(null, number)
    if null > 2:
        os.close(null)


def _start(order: dict[str, Any], channel: int) -> int:
    """Fork the program; it prints straight into the channel, so that its lines are out even if it never waits again."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.dup2(channel, 1)
        os.dup2(channel, 2)
        os.chdir(order["cwd"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(2, f"cannot start {order['argv'][0]}: {error.strerror} ({error.filename or order['cwd']})\n".encode())
    os._exit(127)


def _wait_for(program: int) -> int:
    """Reap what ends until the program does; its exit status, or 128 + n for signal n."""
    while True:
        child, raw = os.waitpid(-1, 0)
        if child == program:
            code = os.waitstatus_to_exitcode(raw)
            return code if code >= 0 else 128 - code


def run(channel_path: str) -> None:
    """Everything process 1 does, up to the exit status in the channel."""
    _standard_files()
    with open(channel_path, encoding="utf-8") as file:
        order = json.loads(file.readline())
    _mount_all(order)
    channel_path = os.path.join(order["run_at"], os.path.basename(channel_path))
    channel = os.open(channel_path, os.O_WRONLY | os.O_CLOEXEC)
    os.unlink(channel_path)
    os.lseek(channel, 0, os.SEEK_END)
    status = 126
    try:
        socket.sethostname("guest")
        _loopback_up()
        _large_memory()
        _libc().prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
        if order.get("measured"):
            # Here booting took CPU time, so there is no instant that every boot meets; the timers still need their first tick.
            time.sleep(SETTLE_S)
        else:
            align(PROGRAM_START_NS)
        status = _wait_for(_start(order, channel))
    except OSError as error:
        os.write(channel, f"guest: {error.strerror} ({error.filename or 'set-up'})\n".encode())
    os.write(channel, f"\0{order['token']} {status}\n".encode())


def main() -> None:
    """Run the order and switch the guest off. An error here ends process 1, and the kernel's panic tells the host its cause."""
    try:
        run(sys.argv[1])
    except Exception as error:
        with open("/dev/kmsg", "w", encoding="utf-8") as log:
            log.write(f"guest set-up failed: {error!r}\n")
        raise
    os.sync()
    _libc().reboot(ctypes.c_uint(POWER_OFF))


if __name__ == "__main__":
    main()
