"""The bare bpf system call: reading and writing the ports' array maps in about a microsecond, test runs, ids."""

from __future__ import annotations

import ctypes
import os
import platform

import numpy as np

from emulator.errors import FabricError, MissingCapability
from emulator.port.layout import Records

_NUMBER = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_LOOKUP, _UPDATE, _TEST_RUN, _INFO, _LOOKUP_BATCH = 1, 2, 10, 15, 24
F_LOCK = 4


class _Elem(ctypes.Structure):
    _fields_ = (
        ("map_fd", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("key", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("in_batch", ctypes.c_uint64),
        ("out_batch", ctypes.c_uint64),
        ("keys", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("map_fd", ctypes.c_uint32),
        ("elem_flags", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    )


class _TestRun(ctypes.Structure):
    _fields_ = (
        ("prog_fd", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("data_in", ctypes.c_uint64),
        ("data_out", ctypes.c_uint64),
        ("repeat", ctypes.c_uint32),
        ("duration", ctypes.c_uint32),
        ("rest", ctypes.c_uint64 * 4),
    )


class _Info(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_uint32), ("size", ctypes.c_uint32), ("info", ctypes.c_uint64))


def number() -> int:
    """The system call's number on this machine."""
    machine = platform.machine()
    if machine not in _NUMBER:
        raise MissingCapability(
            f"no bpf system call number is known for {machine}", remedy="use x86_64, aarch64 or riscv64"
        )
    return _NUMBER[machine]


class Kernel:
    """The system call and its errors."""

    def __init__(self) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._number = number()

    def call(self, command: int, attributes: ctypes.Structure) -> int:
        """One bpf(2) call; the result, or minus errno."""
        done: int = self._syscall(
            ctypes.c_long(self._number),
            ctypes.c_int(command),
            ctypes.byref(attributes),
            ctypes.c_uint(ctypes.sizeof(attributes)),
        )
        return done if done >= 0 else -ctypes.get_errno()

    def checked(self, command: int, attributes: ctypes.Structure, what: str) -> int:
        """The same; raises `FabricError` on an error."""
        done = self.call(command, attributes)
        if done < 0:
            raise FabricError(
                f"bpf: {os.strerror(-done)}", where=what, remedy="run as root; `fabriclab doctor` tells what is missing"
            )
        return done

    def test_run(self, prog_fd: int, frame: bytes) -> int:
        """Runs a program once on a frame; its return value."""
        data = ctypes.create_string_buffer(frame, len(frame))
        run = _TestRun(prog_fd=prog_fd, data_size_in=len(frame), data_in=ctypes.addressof(data), repeat=1)
        self.checked(_TEST_RUN, run, "test run")
        return int(run.retval)

    def program_id(self, prog_fd: int) -> int:
        """The kernel's number of a loaded program, as a filter's read-back names it."""
        info = (ctypes.c_uint32 * 64)()
        self.checked(_INFO, _Info(fd=prog_fd, size=ctypes.sizeof(info), info=ctypes.addressof(info)), "program info")
        return int(info[1])


class ArrayMap:
    """An array map of one structure: all entries in one call, single entries written whole."""

    def __init__(
        self, kernel: Kernel, fd: int, dtype: np.dtype[np.void], entries: int, *, locked: bool = False
    ) -> None:
        self._kernel, self.fd, self.entries, self._dtype = kernel, fd, entries, dtype
        self._keys = np.zeros(entries, "u4")
        self._values = np.zeros(entries, dtype)
        self._token = ctypes.c_uint32()
        self._batch = _Batch(
            out_batch=ctypes.addressof(self._token),
            keys=self._keys.ctypes.data,
            values=self._values.ctypes.data,
            map_fd=fd,
            elem_flags=F_LOCK if locked else 0,
        )
        self._flags = F_LOCK if locked else 0
        self._by_key = False

    def view(self) -> Records:
        """All entries, read now into a buffer that the next call reuses."""
        if not self._by_key:
            self._batch.in_batch, self._batch.count = 0, self.entries
            done = self._kernel.call(_LOOKUP_BATCH, self._batch)
            if done >= 0 or done == -2:  # ENOENT: it read to the end
                return self._values
            self._by_key = True
        for key in range(self.entries):
            self._read(key)
        return self._values

    def read(self) -> Records:
        """All entries, a copy of one's own."""
        return self.view().copy()

    def _read(self, key: int) -> None:
        index = ctypes.c_uint32(key)
        where = self._values.ctypes.data + key * self._dtype.itemsize
        elem = _Elem(map_fd=self.fd, key=ctypes.addressof(index), value=where, flags=self._flags)
        self._kernel.checked(_LOOKUP, elem, f"map entry {key}")

    def write(self, key: int, value: Records) -> None:
        """Replaces one entry; `value` is an array of one record."""
        index = ctypes.c_uint32(key)
        whole = np.ascontiguousarray(value, self._dtype)
        elem = _Elem(map_fd=self.fd, key=ctypes.addressof(index), value=whole.ctypes.data, flags=0)
        self._kernel.checked(_UPDATE, elem, f"map entry {key}")
