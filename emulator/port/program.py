"""Loads the ports' BPF program through libbpf (which does the CO-RE relocations) and holds its maps.

No process is started and nothing is pinned: the filters hold the program, the program its maps, this object the descriptors.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Callable, Iterable
from typing import Any

from emulator.errors import FabricError, MissingCapability
from emulator.port.bpf import ArrayMap, Kernel
from emulator.port.layout import CONFIG, STATS
from emulator.port.objects import ensure_object

_LOG_BYTES = 1 << 20
_PROBE_FRAME_BYTES = 777


class _OpenOptions(ctypes.Structure):
    """bpf_object_open_opts of libbpf 1.x."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("object_name", ctypes.c_char_p),
        ("relaxed_maps", ctypes.c_bool),
        ("pin_root_path", ctypes.c_char_p),
        ("reserved", ctypes.c_uint32),
        ("kconfig", ctypes.c_char_p),
        ("btf_custom_path", ctypes.c_char_p),
        ("kernel_log_buf", ctypes.c_void_p),
        ("kernel_log_size", ctypes.c_size_t),
        ("kernel_log_level", ctypes.c_uint32),
    )


def libbpf() -> Any:
    """libbpf with the few prototypes used here; raises `MissingCapability` where it is not installed."""
    name = ctypes.util.find_library("bpf") or "libbpf.so.1"
    try:
        lib = ctypes.CDLL(name, use_errno=True)
    except OSError as exc:
        raise MissingCapability("libbpf is not installed", where=name, remedy="apt-get install libbpf1") from exc
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for function, result, arguments in (
        ("bpf_object__open_file", pointer, (text, pointer)),
        ("bpf_object__load", ctypes.c_int, (pointer,)),
        ("bpf_object__close", None, (pointer,)),
        ("bpf_object__find_program_by_name", pointer, (pointer, text)),
        ("bpf_object__find_map_by_name", pointer, (pointer, text)),
        ("bpf_program__fd", ctypes.c_int, (pointer,)),
        ("bpf_program__set_autoload", ctypes.c_int, (pointer, ctypes.c_bool)),
        ("bpf_map__fd", ctypes.c_int, (pointer,)),
        ("bpf_map__value_size", ctypes.c_uint32, (pointer,)),
        ("bpf_map__set_max_entries", ctypes.c_int, (pointer, ctypes.c_uint32)),
        ("libbpf_set_print", pointer, (pointer,)),
    ):
        entry = getattr(lib, function)
        entry.restype, entry.argtypes = result, arguments
    lib.libbpf_set_print(None)
    return lib


class PortProgram:
    """The program of one run: `fd` of each part, the maps `config` and `stats` with one entry a port.

    `variant` is "bpf" or "virtual-queue"; `parts` the programs to load.
    """

    def __init__(
        self,
        variant: str,
        ports: int,
        *,
        parts: Iterable[str] = ("port_egress", "drop_roce"),
        log: Callable[[str], None] | None = None,
    ) -> None:
        path = ensure_object(variant, log=log)
        self.variant = variant
        self._lib = libbpf()
        self._kernel = Kernel()
        verdict = ctypes.create_string_buffer(_LOG_BYTES)
        options = _OpenOptions(
            sz=ctypes.sizeof(_OpenOptions),
            kernel_log_buf=ctypes.addressof(verdict),
            kernel_log_size=_LOG_BYTES,
            kernel_log_level=0,
        )
        self._object: int | None = self._lib.bpf_object__open_file(str(path).encode(), ctypes.byref(options))
        if not self._object:
            code = ctypes.get_errno()
            raise FabricError(
                f"libbpf cannot open it: {os.strerror(code)}", where=str(path), remedy="delete the file and try again"
            )
        try:
            self._load(max(1, ports), tuple(parts), verdict)
        except BaseException:
            self.close()
            raise

    def _load(self, ports: int, parts: tuple[str, ...], verdict: ctypes.Array[ctypes.c_char]) -> None:
        lib = self._lib
        for name in ("port_egress", "drop_roce", "probe"):
            program = lib.bpf_object__find_program_by_name(self._object, name.encode())
            if program:
                lib.bpf_program__set_autoload(program, name in parts)
        for name in ("port_config", "port_stats"):
            lib.bpf_map__set_max_entries(self._map(name), ports)
        done = lib.bpf_object__load(self._object)
        if done != 0:
            said = [line for line in verdict.value.decode(errors="replace").splitlines() if line][-3:]
            raise MissingCapability(
                f"the kernel did not take the BPF program: {os.strerror(-done)}"
                + ("; " + "; ".join(said) if said else ""),
                where=f"port.bpf.c ({self.variant})",
                remedy="run as root on a kernel with BTF (6.2 or later); `fabriclab doctor` tells which marking this one can do",
            )
        self.fd = {
            name: lib.bpf_program__fd(lib.bpf_object__find_program_by_name(self._object, name.encode()))
            for name in parts
        }
        self.id = {name: self._kernel.program_id(fd) for name, fd in self.fd.items()}
        for name, dtype in (("port_config", CONFIG), ("port_stats", STATS)):
            size = lib.bpf_map__value_size(self._map(name))
            if size != dtype.itemsize:
                raise FabricError(
                    f"{name} has {size} bytes an entry, {dtype.itemsize} expected", where="emulator/port/layout.py"
                )
        self.config = ArrayMap(self._kernel, lib.bpf_map__fd(self._map("port_config")), CONFIG, ports)
        self.stats = ArrayMap(self._kernel, lib.bpf_map__fd(self._map("port_stats")), STATS, ports, locked=True)

    def _map(self, name: str) -> int:
        return int(self._lib.bpf_object__find_map_by_name(self._object, name.encode()))

    def reads_kernel(self) -> bool:
        """Whether loads from kernel structures give real values here (part `probe` must be loaded).

        Some kernels accept such a program and read zeros.
        """
        return self._kernel.test_run(self.fd["probe"], bytes(_PROBE_FRAME_BYTES)) == _PROBE_FRAME_BYTES

    def close(self) -> None:
        """Closes the descriptors; what is attached stays until its interface goes."""
        if self._object:
            self._lib.bpf_object__close(self._object)
        self._object = None
