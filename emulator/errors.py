"""Errors of the product: what is wrong, where, and what to do about it."""

from __future__ import annotations

import errno
import os
from typing import Final

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""What a write answers on a full disk."""


class FabricError(Exception):
    """Root of every error the user may meet; three parts, never a bare sentence.

    `what` states the problem, `where` its place (file:line:column, node, port or option),
    `remedy` what to do. `exit_code` is the process's, as docs/reference/interface lists them.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}; {self.remedy}" if self.remedy else head


class UsageError(FabricError):
    """Wrong usage or a wrong file (exit code 2)."""

    exit_code = 2


class RunFailed(FabricError):
    """The run itself failed: a transfer that cannot finish, an agent that died (exit code 1)."""

    exit_code = 1


class MissingCapability(FabricError):
    """A privilege, a tool or a kernel feature is missing (exit code 4)."""

    exit_code = 4


def no_room(error: OSError, where: str) -> RunFailed:
    """A full disk as the user meets it; `where` for errors that name no file."""
    return RunFailed(
        f"cannot write: {os.strerror(error.errno or errno.ENOSPC)}",
        where=str(error.filename or where),
        remedy="free some space there, or write elsewhere (--out, --output, another redirection)",
    )
