"""Processes of a run: which they are, and ending them without ever hitting a stranger who got an old pid."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from emulator.fabric import kernel
from emulator.fabric.registry import MARK_VARIABLE, Process

WAIT_S = 5.0


def by_run(namespaces: Mapping[kernel.NamespaceId, str]) -> dict[str, set[Process]]:
    """Run id → processes that carry its mark or live in one of its namespaces (`namespaces` → run id).

    This process and its ancestors are left out: whoever clears away from a shell inside a namespace must not end itself.
    So are the namespaces of this and of the first process: a name of ours bound to one of them must not end the machine.
    """
    found: dict[str, set[Process]] = {}
    spared = own_line()
    sacred = {kernel.namespace_of(1), kernel.namespace_of(os.getpid())}
    for pid in kernel.all_pids():
        if pid in spared:
            continue
        where = kernel.namespace_of(pid)
        run_id = (namespaces.get(where) if where and where not in sacred else None) or _marked(pid)
        started = kernel.start_time(pid) if run_id else None
        if run_id and started is not None:
            found.setdefault(run_id, set()).add(Process(pid, started))
    return found


def end(process: Process, number: signal.Signals = signal.SIGKILL, wait_s: float = WAIT_S) -> bool:
    """Signal a process and wait for its end; true once it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        # The handle stays with this process, so what is checked now is what the signal reaches.
        if not process.alive:
            return True
        signal.pidfd_send_signal(handle, number)
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        deadline = time.monotonic() + wait_s
        while process.alive and (left := deadline - time.monotonic()) > 0:
            poller.poll(left * 1000)
        return not process.alive
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def own_line() -> set[int]:
    """This process and its ancestors."""
    line: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            break
        pid = int(text[text.rindex(")") + 2 :].split()[1])
    return line


def _marked(pid: int) -> str | None:
    """The run id in a process's environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    prefix = f"{MARK_VARIABLE}=".encode()
    values = (item[len(prefix) :] for item in environment.split(b"\0") if item.startswith(prefix))
    return next(values, b"").decode(errors="replace") or None
