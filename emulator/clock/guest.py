"""Inside of the virtual clock: process 1 of the guest. Makes the world a program expects, runs it, powers off.

Started by the guest kernel as `python -I -S guest.py CHANNEL`, before any writable file system exists, so it uses the
standard library only and imports nothing of the project. CHANNEL is a file in the run directory: the host wrote the
order (JSON) into it, everything the program prints is appended to it, then the exit status. Its name is removed as soon
as it is open, so that no ending leaves it behind.
"""

# ruff: noqa: PTH103, PTH108, PTH112, PTH114, PTH123, PTH211
# pathlib would be a tenth of the guest's start-up time.

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
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
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

SCRATCH = ("/tmp", "/run", "/var/tmp")
SETTLE_S = 0.03
"""The kernel turns to high-resolution timers in its first tick, at 10 ms; before that every timer waits for that tick."""

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(kind: str, target: str, options: str = "", flags: int = 0) -> None:
    """mount(2); raises OSError with the target."""
    code = _libc.mount(b"none", os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options) or None)
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
    os.makedirs(order["run_dir"], exist_ok=True)
    _mount("hostfs", order["run_dir"], order["run_dir"])


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def _standard_files() -> None:
    """The kernel gives process 1 no console here: 0, 1 and 2 must not become something else's numbers."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        if number != null:
            os.dup2(null, number)
    if null > 2:
        os.close(null)


def _start(order: dict[str, Any]) -> tuple[int, int]:
    """Fork the program with its output in a pipe; gives its process id and the reading end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.setsid()
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.closerange(3, 64)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.chdir(order["cwd"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(2, f"cannot start {order['argv'][0]}: {error.strerror} ({error.filename or order['cwd']})\n".encode())
    os._exit(127)


def _relay(pid: int, reading: int, channel: int) -> int:
    """Copy what the program prints until it ends; reaps whatever else dies. Gives its exit status, 128+n for signal n."""
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    os.set_blocking(reading, False)
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(woken, select.POLLIN)
    status: int | None = None
    while status is None:
        for number, _ in poll.poll():
            if number == reading and not _copy(reading, channel):
                poll.unregister(reading)
            elif number == woken:
                os.read(woken, 4096)
        status = _reap(pid)
    while _copy(reading, channel):
        pass
    return status


def _copy(reading: int, channel: int) -> bool:
    """One block from the pipe to the host; False when there is none left."""
    try:
        block = os.read(reading, 65536)
    except BlockingIOError:
        return False
    if block:
        os.write(channel, block)
    return bool(block)


def _reap(pid: int) -> int | None:
    found: int | None = None
    while True:
        try:
            child, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if child == 0:
            return found
        if child == pid:
            code = os.waitstatus_to_exitcode(raw)
            found = code if code >= 0 else 128 - code


def run(channel_path: str) -> None:
    """Everything process 1 does, up to the exit status in the channel."""
    _standard_files()
    with open(channel_path, encoding="utf-8") as file:
        order = json.loads(file.readline())
    _mount_all(order)
    channel = os.open(channel_path, os.O_WRONLY | os.O_CLOEXEC)
    os.unlink(channel_path)
    os.lseek(channel, 0, os.SEEK_END)
    status = 126
    try:
        socket.sethostname("guest")
        _loopback_up()
        _libc.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
        time.sleep(SETTLE_S)
        pid, reading = _start(order)
        status = _relay(pid, reading, channel)
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
    _libc.reboot(ctypes.c_uint(POWER_OFF))


if __name__ == "__main__":
    main()
