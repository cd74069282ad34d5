"""What a guest kernel is built from: the kernel's source, the tools, and the recipe (configuration and patches)."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emulator.errors import MissingCapability, UsageError

SERIES: Final = "6.12"
"""The kernel series the patches are made for."""

SOURCE_PACKAGE: Final = f"linux-source-{SERIES}"
SOURCE_FOLDER: Final = Path("/usr/src")
ARCHIVES: Final = (".tar.xz", ".tar.zst", ".tar.gz", ".tar.bz2", ".tar")

TOOLS: Final[Mapping[str, str]] = {
    "gcc": "gcc",
    "make": "make",
    "ld": "binutils",
    "bc": "bc",
    "bison": "bison",
    "flex": "flex",
    "pahole": "dwarves",
    "patch": "patch",
    "tar": "tar",
    "xz": "xz-utils",
}
"""Command to Debian package."""

HEADERS: Final[Mapping[str, str]] = {"libelf.h": "libelf-dev", "zlib.h": "zlib1g-dev", "stdlib.h": "libc6-dev"}

DATA: Final = Path(__file__).with_name("kernel")
"""Configuration fragments, patches and the list of source files to unpack."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What we do to a kernel source; its digest decides whether a built kernel is still the right one.

    `patches` are name and text.
    """

    config: str
    patches: tuple[tuple[str, str], ...]
    options: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Over the settings, the patches' changes (not their comments) and the options."""
        settings = "\n".join(line for line in self.config.splitlines() if line and not line.startswith("#"))
        changes = [text.partition("\n---\n")[2] for _, text in self.patches]
        return hashlib.sha256("\0".join((settings, *changes, *self.options)).encode()).hexdigest()

    def key(self, source_digest: str) -> str:
        """Name of the cache folder for a kernel built from that source by this recipe."""
        return hashlib.sha256(f"{source_digest} {self.digest}".encode()).hexdigest()[:16]

    def wanted(self) -> list[str]:
        """The settings that must be there after configuration: `CONFIG_X=y` and values."""
        return [line for line in self.config.splitlines() if line.startswith("CONFIG_")]


def recipe(*, with_rxe: bool = False) -> Recipe:
    """The recipe of this version of the product."""
    names = ("config", "config-rxe") if with_rxe else ("config",)
    return Recipe(
        config="".join((DATA / name).read_text(encoding="utf-8") for name in names),
        patches=tuple((path.name, path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("*.patch"))),
        options=("rxe",) if with_rxe else (),
    )


def find_source(given: Path | None = None) -> Path:
    """The source tarball: `given`, else that of the distribution's source package.

    Raises UsageError for a file that is none, MissingCapability naming the package when there is nothing to find.
    """
    if given is not None:
        if not given.is_file() or not given.name.endswith(ARCHIVES):
            raise UsageError(
                "not a kernel source tarball",
                where=str(given),
                remedy=f"name a linux-{SERIES}.*.tar.xz as kernel.org or Debian packs it",
            )
        return given.resolve()
    for ending in ARCHIVES:
        found = SOURCE_FOLDER / f"{SOURCE_PACKAGE}{ending}"
        if found.is_file():
            return found
    raise MissingCapability(
        f"the kernel source is missing: {SOURCE_FOLDER}/{SOURCE_PACKAGE}.tar.xz",
        where="kernel build",
        remedy=f"`apt-get install {SOURCE_PACKAGE}`, or give a linux-{SERIES} tarball with --source",
    )


def source_digest(tarball: Path) -> str:
    """SHA-256 of the tarball."""
    with tarball.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_folder(tarball: Path) -> str:
    """The one folder at the top of the tarball."""
    with tarfile.open(tarball) as archive:
        first = archive.next()
    if first is None:
        raise UsageError("an empty archive", where=str(tarball), remedy="name another kernel source tarball")
    return first.name.split("/")[0]


def source_version(tree: Path) -> str:
    """Version of an unpacked source, such as 6.12.117; raises UsageError when it is none or of another series."""
    try:
        text = (tree / "Makefile").read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    parts = [re.search(rf"^{name} = *(\d+)$", text, re.MULTILINE) for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
    version = ".".join(part[1] for part in parts if part)
    if version.startswith(f"{SERIES}.") and (tree / "arch" / "um").is_dir():
        return version
    raise UsageError(
        f"the source is {f'Linux {version}' if version else 'no Linux kernel'}; the patches are for {SERIES}",
        where="kernel build --source",
        remedy=f"name a linux-{SERIES}.* tarball",
    )


def check_tools() -> None:
    """All that the build needs is here; raises MissingCapability with every missing package in one command."""
    if platform.machine() != "x86_64":
        raise MissingCapability(
            f"the guest kernel runs on x86-64 only, this machine is {platform.machine()}",
            where="kernel build",
            remedy="use --clock real, or an x86-64 machine",
        )
    lacking = {package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    places = (Path("/usr/include"), Path(f"/usr/include/{platform.machine()}-linux-gnu"), Path("/usr/local/include"))
    lacking |= {name for header, name in HEADERS.items() if not any((place / header).exists() for place in places)}
    if lacking:
        names = " ".join(sorted(lacking))
        raise MissingCapability(
            f"what a kernel build needs is missing: {names.replace(' ', ', ')}",
            where="kernel build",
            remedy=f"`apt-get install {names}` (root), then again",
        )
