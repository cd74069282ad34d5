"""The compiled BPF program: built once with clang, kept in the user's cache under the hash of its source.

CO-RE makes one object serve every kernel, so the guest of the virtual clock uses the object its host compiled.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

from emulator.errors import FabricError, MissingCapability

SOURCE = Path(__file__).with_name("port.bpf.c")
VARIANTS: dict[str, tuple[str, ...]] = {"bpf": (), "virtual-queue": ("-DVIRTUAL_QUEUE",)}
_FLAGS = ("-O2", "-g", "-target", "bpf", "-Wall", "-Wno-unused-function")
_ELF = struct.Struct("<4s36xQ10xHH2x")  # e_ident, e_shoff at 40, e_shentsize at 58, e_shnum at 60
_REMEDY = "apt-get install clang libbpf-dev linux-libc-dev"


def cache_dir() -> Path:
    """Where compiled objects are kept: `FABRICLAB_BPF_DIR`, else the user's cache folder."""
    own = os.environ.get("FABRICLAB_BPF_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fabriclab" / "bpf"


def object_name(variant: str) -> str:
    """File name of one variant: it changes with the source and the flags."""
    text = SOURCE.read_bytes() + " ".join((*_FLAGS, *VARIANTS[variant])).encode()
    return f"port-{variant}-{hashlib.sha256(text).hexdigest()[:16]}.o"


def find_object(variant: str, cache: Path | None = None) -> Path | None:
    """The compiled object if there is a whole one that may be read."""
    path = (cache or cache_dir()) / object_name(variant)
    return path if _is_whole(path) else None


def _is_whole(path: Path) -> bool:
    """Whether a file is a 64-bit ELF object up to its section table, which the linker writes last (elf(5))."""
    try:
        with path.open("rb") as file:
            head = file.read(_ELF.size)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if len(head) < _ELF.size:
        return False
    magic, table, entry, count = _ELF.unpack(head)
    return bool(magic == b"\x7fELF") and size >= table + entry * count > table


def ensure_object(variant: str, *, cache: Path | None = None, log: Callable[[str], None] | None = None) -> Path:
    """The compiled object of a variant, compiled now (about half a second) where it is not in the cache.

    Raises `MissingCapability` without clang or the headers of libbpf, `FabricError` where the compiler refuses.
    """
    found = find_object(variant, cache)
    if found is not None:
        return found
    folder = cache or cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".o", dir=folder)
    except OSError as exc:
        raise FabricError(
            f"cannot keep the compiled BPF program: {exc.strerror}",
            where=str(folder),
            remedy="set FABRICLAB_BPF_DIR to a folder that can be written",
        ) from exc
    os.close(handle)
    made = Path(name)
    try:
        _compile(variant, made, log)
        made.chmod(0o644)
        made.replace(folder / object_name(variant))
    finally:
        made.unlink(missing_ok=True)
    return folder / object_name(variant)


def _compile(variant: str, out: Path, log: Callable[[str], None] | None) -> None:
    clang = shutil.which("clang")
    if clang is None:
        raise MissingCapability(
            "the BPF program cannot be compiled: clang is not installed", where=SOURCE.name, remedy=_REMEDY
        )
    argv = [clang, *_FLAGS, *VARIANTS[variant]]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if multiarch:
        argv.append(f"-I/usr/include/{multiarch}")
    argv += ["-c", str(SOURCE), "-o", str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if log is not None:
        log(f"{' '.join(argv)} -> {done.returncode} {done.stderr.strip()}")
    if done.returncode != 0:
        missing = "file not found" in done.stderr
        kind = MissingCapability if missing else FabricError
        raise kind(
            f"clang ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}",
            where=SOURCE.name,
            remedy=_REMEDY if missing else "check the version of clang (14 or later)",
        )
