"""Fabric time, and waiting for it: `(CLOCK_MONOTONIC - start) // tdf`."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import time
from collections.abc import Callable

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_TIMERSLACK = 29
_BILLION = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class Clock:
    """Fabric nanoseconds since `start_ns` of CLOCK_MONOTONIC; one fabric nanosecond lasts `tdf` real ones.

    Arrival times come from the kernel on CLOCK_REALTIME; `offset_ns` is that clock minus the monotonic one at the start,
    and `stepped_ns` says by how much somebody has set it since.
    """

    def __init__(self, *, tdf: int, start_ns: int) -> None:
        self.tdf = tdf
        self.start_ns = start_ns
        self.offset_ns = self._offset()

    def now(self) -> int:
        """Fabric time."""
        return (time.monotonic_ns() - self.start_ns) // self.tdf

    def at(self, realtime_ns: int) -> int:
        """Fabric time of a CLOCK_REALTIME stamp of the kernel."""
        return (realtime_ns - self.offset_ns - self.start_ns) // self.tdf

    def monotonic(self, fabric_ns: int) -> int:
        """CLOCK_MONOTONIC of a fabric time."""
        return fabric_ns * self.tdf + self.start_ns

    @staticmethod
    def _offset() -> int:
        best, offset = 1 << 62, 0
        for _ in range(5):
            before = time.monotonic_ns()
            real = time.time_ns()
            after = time.monotonic_ns()
            if after - before < best:
                best, offset = after - before, real - (before + after) // 2
        return offset

    def stepped_ns(self) -> int:
        """How far CLOCK_REALTIME moved against CLOCK_MONOTONIC since the start."""
        return self._offset() - self.offset_ns


def set_timer_slack() -> None:
    """One nanosecond of timer slack for this thread (the default makes each sleep 50 us late)."""
    _LIBC.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def sleep_until(monotonic_ns: int) -> None:
    """Sleep to an absolute CLOCK_MONOTONIC time."""
    spec = _Timespec(monotonic_ns // _BILLION, monotonic_ns % _BILLION)
    while _LIBC.clock_nanosleep(time.CLOCK_MONOTONIC, 1, ctypes.byref(spec), None) == errno.EINTR:
        pass


class Poller:
    """Waits for descriptors with nanosecond time-outs (epoll_pwait2, or epoll's milliseconds where that is missing).

    `masks` says for what (EPOLLIN unless told).
    """

    def __init__(self, descriptors: list[int], masks: list[int] | None = None) -> None:
        self._epoll = select.epoll()
        self._fds = descriptors
        for fd, mask in zip(descriptors, masks or [select.EPOLLIN] * len(descriptors), strict=True):
            self._epoll.register(fd, mask)
        self._events = ctypes.create_string_buffer(12 * max(1, len(descriptors)))
        self._view = memoryview(self._events).cast("B")
        self._spec = _Timespec()
        self._spec_ref = ctypes.byref(self._spec)
        self._wait = self._best_wait()

    def _best_wait(self) -> Callable[[int], int]:
        native = getattr(_LIBC, "epoll_pwait2", None)
        if native is None:
            return self._wait_milliseconds
        fd, events, size = self._epoll.fileno(), self._events, len(self._fds)
        self._spec.sec = self._spec.nsec = 0
        if native(fd, events, size, self._spec_ref, None) < 0 and ctypes.get_errno() == errno.ENOSYS:
            return self._wait_milliseconds

        def wait(timeout_ns: int) -> int:
            self._spec.sec, self._spec.nsec = divmod(timeout_ns, _BILLION)
            count: int = native(fd, events, size, self._spec_ref, None)
            if count < 0:
                code = ctypes.get_errno()
                if code == errno.EINTR:
                    return 0
                raise OSError(code, os.strerror(code))
            return count

        return wait

    def _wait_milliseconds(self, timeout_ns: int) -> int:
        ready = self._epoll.poll(timeout_ns / _BILLION)
        for i, (fd, mask) in enumerate(ready):
            self._view[12 * i : 12 * i + 12] = mask.to_bytes(4, "little") + fd.to_bytes(8, "little")
        return len(ready)

    def wait(self, timeout_ns: int) -> list[int]:
        """Descriptors that can be read, after at most `timeout_ns` of real time."""
        count = self._wait(max(0, timeout_ns))
        if count == 1:
            return [int.from_bytes(self._view[4:8], "little")]
        return [int.from_bytes(self._view[12 * i + 4 : 12 * i + 8], "little") for i in range(count)]

    def change(self, fd: int, mask: int) -> None:
        """Wait for something else of a descriptor (errors come always)."""
        self._epoll.modify(fd, mask)

    def events(self, timeout_ns: int) -> list[tuple[int, int]]:
        """(descriptor, what for) of those that are ready, after at most `timeout_ns` of real time."""
        view, fds = self._view, self.wait(timeout_ns)
        return [(fd, int.from_bytes(view[12 * i : 12 * i + 4], "little")) for i, fd in enumerate(fds)]

    def close(self) -> None:
        """Give the descriptor back."""
        self._epoll.close()
