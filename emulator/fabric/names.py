"""Names for namespaces under /run/netns, made the way `ip netns` makes them, so that `ip netns exec` finds them."""

from __future__ import annotations

import errno
from pathlib import Path

from emulator.errors import FabricError
from emulator.fabric import kernel
from emulator.fabric.registry import NAMESPACES


def prepare(folder: Path = NAMESPACES) -> None:
    """Make the folder a shared mount of its own: a name removed here is then removed in other mount namespaces too."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        kernel.mount("", folder, kernel.MS_SHARED | kernel.MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        kernel.mount(str(folder), folder, kernel.MS_BIND | kernel.MS_REC)
        kernel.mount("", folder, kernel.MS_SHARED | kernel.MS_REC)


def bind(pid: int, path: Path) -> None:
    """Give the network namespace of a process a name; FabricError if it is taken."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError as error:
        raise FabricError("a namespace of this name exists", where=path.name, remedy="run `fabriclab clean`") from error
    try:
        kernel.mount(f"/proc/{pid}/ns/net", path, kernel.MS_BIND)
    except OSError as error:
        raise FabricError(
            f"cannot name a namespace: {error.strerror}", where=path.name, remedy="run as root"
        ) from error


def remove(path: Path) -> None:
    """Unmount and remove a named namespace; one that is gone already is fine."""
    try:
        kernel.unmount(path)
    except OSError as error:
        # EINVAL: cut off between making the file and mounting; ENOENT: gone. The file is what counts, below.
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise FabricError(f"cannot unmount: {error.strerror}", where=str(path), remedy="run as root") from error
    path.unlink(missing_ok=True)
