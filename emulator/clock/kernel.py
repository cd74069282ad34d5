"""The guest kernel of the virtual clock: where it is kept, which one is right, what it is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from emulator.clock.kernel_build import Progress, build
from emulator.clock.kernel_source import Recipe, find_source, recipe, source_digest
from emulator.errors import MissingCapability

VARIABLE: Final = "FABRICLAB_KERNEL"
MACHINE_CACHE: Final = Path("/var/cache/fabriclab/kernels")
"""Where root keeps kernels, so that every user of the machine has them."""

FEATURES: Final[Mapping[str, str]] = {
    "time travel": "CONFIG_UML_TIME_TRAVEL_SUPPORT",
    "bpf with kernel types": "CONFIG_DEBUG_INFO_BTF",
    "netem": "CONFIG_NET_SCH_NETEM",
    "srv6": "CONFIG_IPV6_SEG6_LWTUNNEL",
    "dctcp": "CONFIG_TCP_CONG_DCTCP",
    "bbr": "CONFIG_TCP_CONG_BBR",
    "soft-roce": "CONFIG_RDMA_RXE",
}
"""What users ask about, and the setting that tells."""


def cache_folder() -> Path:
    """Where this user's builds go: root's for the whole machine, unless XDG_CACHE_HOME says otherwise."""
    if os.geteuid() == 0 and not os.environ.get("XDG_CACHE_HOME"):
        return MACHINE_CACHE
    return _own_cache()


def _own_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fabriclab" / "kernels"


def find_kernel(*, with_rxe: bool = False) -> Path | None:
    """The guest kernel to use: FABRICLAB_KERNEL, else one built by the present recipe in the user's or machine's cache.

    The newest source version wins. Raises MissingCapability when FABRICLAB_KERNEL names no program.
    """
    named = os.environ.get(VARIABLE)
    if named:
        path = Path(named)
        if path.is_file() and os.access(path, os.X_OK):
            return path.resolve()
        raise MissingCapability("it names no program", where=f"{VARIABLE}={named}", remedy="correct it or unset it")
    wanted = recipe(with_rxe=with_rxe).digest
    found: list[tuple[tuple[int, ...], Path]] = []
    for root in dict.fromkeys((_own_cache(), MACHINE_CACHE)):
        for info in _infos(root):
            if info["recipe"] == wanted and os.access(info["path"], os.X_OK):
                found.append((tuple(int(part) for part in info["version"].split(".")), Path(info["path"])))
    return max(found, key=lambda item: item[0])[1] if found else None


def _infos(root: Path) -> list[dict[str, Any]]:
    """What each kernel in a cache folder says of itself; folders that are not ours to read are passed over."""
    infos = []
    try:
        folders = sorted(folder for folder in root.iterdir() if not folder.name.startswith("."))
    except OSError:
        return []
    for folder in folders:
        try:
            info = json.loads((folder / "info.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        infos.append({**info, "path": str(folder / "linux")})
    return infos


def kernel_info(path: Path) -> dict[str, Any]:
    """Version, features, size and origin of a guest kernel, asked of the kernel itself; raises MissingCapability."""
    try:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
        config = subprocess.run([path, "--showconfig"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingCapability(
            f"this is no guest kernel that runs here ({error})", where=str(path), remedy="`fabriclab kernel build`"
        ) from error
    set_here = set(config.splitlines())
    known = next((info for info in _infos(path.parent.parent) if Path(info["path"]) == path), {})
    current = known.get("recipe") in (recipe().digest, recipe(with_rxe=True).digest)
    return {
        "path": str(path),
        "version": version.strip(),
        "features": {name: f"{setting}=y" in set_here for name, setting in FEATURES.items()},
        "size_bytes": path.stat().st_size,
        "from": VARIABLE if os.environ.get(VARIABLE) else "cache",
        "cache": str(cache_folder()),
        "key": known.get("key"),
        "recipe_current": current if known else None,
        "source": known.get("source"),
        "compiler": known.get("compiler"),
        "build_s": known.get("build_s"),
    }


def build_kernel(
    *,
    source: Path | None = None,
    with_rxe: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Build the guest kernel, or find it built already: the same source and recipe are never built twice.

    `progress` is called with a stage's name, steps done and steps expected. Raises MissingCapability (a package is
    missing), UsageError (not a kernel source), RunFailed (the build failed; it names the log).
    """
    from emulator.clock.kernel_source import check_tools

    tarball = find_source(source)
    made: Recipe = recipe(with_rxe=with_rxe)
    digest = source_digest(tarball)
    key = made.key(digest)
    for root in dict.fromkeys((_own_cache(), MACHINE_CACHE)):
        binary = root / key / "linux"
        if os.access(binary, os.X_OK):
            return binary
    check_tools()
    return build(
        tarball=tarball,
        source_digest=digest,
        recipe=made,
        root=cache_folder(),
        jobs=jobs or len(os.sched_getaffinity(0)),
        progress=progress or (lambda _stage, _done, _total: None),
    )
