"""Remove what dead runs left behind: everything that carries our mark, nothing that does not.

A mark is an entry in the registry, a namespace named fabriclab.RUN.NODE, an interface with the alias fabriclab:RUN:PORT,
a process with the run id in its environment or one that lives in such a namespace. A run is dead when its owner is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from emulator.errors import FabricError
from emulator.fabric import kernel, names, processes, registry
from emulator.fabric.registry import NAMESPACES

_ROUNDS: Final = 5
_OWNER_WAIT_S: Final = 15.0


@dataclass
class Cleaned:
    """What `clean` removed, by name; `spared` are the runs it left alone because they live."""

    runs: list[str] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    interfaces: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not (self.runs or self.processes or self.namespaces or self.interfaces or self.mounts or self.stopped)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass
class _Found:
    """What carries a mark, by run id."""

    processes: dict[str, set[registry.Process]] = field(default_factory=dict)
    namespaces: dict[str, set[str]] = field(default_factory=dict)
    interfaces: dict[str, set[str]] = field(default_factory=dict)
    entries: dict[str, registry.Entry] = field(default_factory=dict)

    @property
    def run_ids(self) -> set[str]:
        return set().union(self.processes, self.namespaces, self.interfaces, self.entries)


def clean(*, include_live: bool = False, say: Callable[[str], None] = lambda text: None) -> Cleaned:
    """Remove the leftovers of dead runs; with `include_live` end the living ones first.

    Raises FabricError if something with our mark cannot be removed.
    """
    done = Cleaned()
    if include_live:
        _stop_owners(done, say)
    for path in registry.unfinished():
        registry.remove_entry(path)
        done.runs.append(path.name)
    # A dying process may still be starting another: look again until a round finds nothing.
    for _ in range(_ROUNDS):
        found = _find()
        live = {run_id for run_id, entry in found.entries.items() if entry.alive}
        dead = found.run_ids - live
        done.spared = sorted(live)
        if not dead:
            return done
        for run_id in sorted(dead):
            _remove(run_id, found, done)
    raise FabricError(
        f"leftovers of {', '.join(sorted(dead))} come back as soon as they are removed",
        where=str(registry.ROOT),
        remedy="look for a process that keeps making them: `ps axe | grep " + registry.MARK_VARIABLE + "`",
    )


def _stop_owners(done: Cleaned, say: Callable[[str], None]) -> None:
    """Ask the owners of live runs to end and clean up by themselves; kill those that do not."""
    for entry in registry.entries():
        owner = entry.owner
        if owner is None or not owner.alive or owner.pid == os.getpid():
            continue
        say(f"ending run {entry.run_id} (process {owner.pid}), which is alive")
        if not processes.end(owner, signal.SIGTERM, _OWNER_WAIT_S):
            processes.end(owner)
        done.stopped.append(entry.run_id)


def _find() -> _Found:
    """Everything with our mark. The registry is read last: who makes an object is entered there before."""
    found = _Found()
    where: dict[kernel.NamespaceId, str] = {}
    for path in sorted(NAMESPACES.iterdir()) if NAMESPACES.exists() else []:
        run_id = registry.run_of_namespace(path.name)
        if run_id is None:
            continue
        found.namespaces.setdefault(run_id, set()).add(path.name)
        found_id = kernel.namespace_id(path)
        if found_id is not None:
            where[found_id] = run_id
    found.processes = processes.by_run(where)
    for name, alias in _interfaces():
        run_id = registry.run_of_alias(alias)
        if run_id:
            found.interfaces.setdefault(run_id, set()).add(name)
    spared = processes.own_line()
    for entry in registry.entries():
        found.entries[entry.run_id] = entry
        alive = {process for process in entry.processes if process.alive and process.pid not in spared}
        if alive:
            found.processes.setdefault(entry.run_id, set()).update(alive)
    return found


def _remove(run_id: str, found: _Found, done: Cleaned) -> None:
    for process in sorted(found.processes.get(run_id, ()), key=lambda p: p.pid):
        processes.end(process)
        done.processes.append(process.pid)
    for name in sorted(found.namespaces.get(run_id, ())):
        names.remove(NAMESPACES / name)
        done.namespaces.append(name)
    for name in sorted(found.interfaces.get(run_id, ())):
        if _delete_interface(name):
            done.interfaces.append(name)
    entry = found.entries.get(run_id)
    if entry is not None:
        done.mounts += [str(point) for point in registry.remove_entry(entry.path)]
    if run_id not in done.runs:
        done.runs.append(run_id)


def _interfaces() -> list[tuple[str, str | None]]:
    """Name and alias of the interfaces of this namespace."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        return [(link.get_attr("IFLA_IFNAME"), link.get_attr("IFLA_IFALIAS")) for link in ip.get_links()]


def _delete_interface(name: str) -> bool:
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    with IPRoute() as ip:
        index = ip.link_lookup(ifname=name)
        try:
            return bool(index) and bool(ip.link("del", index=index[0]))
        except NetlinkError as error:
            if error.code == 19:  # ENODEV: its peer took it along
                return False
            raise FabricError(f"cannot delete the interface: {error}", where=name, remedy="run as root") from error
