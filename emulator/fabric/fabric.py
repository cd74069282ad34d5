"""The fabric itself: built from a plan, read back, and taken away again whatever happens in between."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from emulator.errors import FabricError, MissingCapability
from emulator.fabric import kernel, names, processes
from emulator.fabric.apply import apply
from emulator.fabric.ending import ENDING, EndingSignals
from emulator.fabric.paths import PathCheck, check_paths
from emulator.fabric.plan import FabricPlan
from emulator.fabric.readback import compare_nodes, read_nodes
from emulator.fabric.registry import MARK_VARIABLE, NAMESPACES, Registration

if TYPE_CHECKING:
    from emulator.fabric.mininet import FabricHost
    from emulator.port.features import Features
    from emulator.port.portset import PortSet

Step = Callable[[str, int, int], None]
Log = Callable[[str], None]

#: Two ends of a terminal, a netlink socket, and the agents' own sockets.
_DESCRIPTORS_A_NODE: Final = 8


def _quiet(*_: object) -> None:
    """Tell nobody."""


class Fabric:
    """A context manager: inside the block the fabric exists, after it nothing of it is left.

    `on_step(text, done, total)` hears of progress, `log` of what the port room has to say. `about` goes into the registry
    for people to read. SIGTERM and SIGHUP end the block as Ctrl-C does; none of them interrupts the clearing away.
    """

    ports: PortSet

    def __init__(
        self,
        plan: FabricPlan,
        features: Features,
        log: Log = _quiet,
        *,
        on_step: Step = _quiet,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self.features = features
        self.log = log
        self.on_step = on_step
        self.about = dict(about or {})
        self.build_ns = 0
        self._nodes: dict[str, FabricHost] = {}
        self._attached = False
        self._registration: Registration | None = None
        self._signals = EndingSignals()

    def __enter__(self) -> Fabric:
        self._signals.take()
        try:
            self.build()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def build(self) -> None:
        """Make everything. On failure call `destroy`, as the context manager does.

        Raises MissingCapability without root or a needed tool, FabricError where the kernel refuses something.
        """
        if os.geteuid() != 0:
            raise MissingCapability(
                "network namespaces need root",
                where=f"building {self.plan.name}",
                remedy="run with sudo, or use --clock virtual, which needs no root",
            )
        if self.features.namespaces is False:
            raise MissingCapability(
                f"this system does not allow network namespaces ({self.features.reasons.get('namespaces', 'no reason given')})",
                where=f"building {self.plan.name}",
                remedy="leave the container or give it CAP_SYS_ADMIN, or use --clock virtual",
            )
        from emulator.fabric.mininet import make_links, start_nodes
        from emulator.port.portset import PortSet

        began = time.monotonic_ns()
        plan, total = self.plan, 5
        self._registration = registration = Registration.create(plan.run_id, {"fabric": plan.name, **self.about})
        _allow_descriptors(_DESCRIPTORS_A_NODE * len(plan.nodes))
        self.on_step(f"{len(plan.nodes)} nodes", 0, total)
        start_nodes(plan, registration.environment(), self._nodes)
        names.prepare()
        for name, host in self._nodes.items():
            registration.add_process(host.pid)
            names.bind(host.pid, self.netns(name))
        self.on_step(f"{len(plan.ports) // 2} links", 1, total)
        make_links(plan, self._nodes)
        self.on_step("addresses and routes", 2, total)
        apply(plan, self.netns)
        self.on_step(f"{len(plan.ports)} ports", 3, total)
        self.ports = PortSet(plan, self.features, self.log)
        self._attached = True
        self.ports.attach(self.netns)
        self.on_step("read back", 4, total)
        words = self.differences(plan, self.readback())
        if words:
            more = f" and {len(words) - 5} more" if len(words) > 5 else ""
            raise FabricError(
                "the kernel did not take the plan: " + "; ".join(words[:5]) + more,
                where=plan.name,
                remedy="see `fabriclab doctor` for what this kernel lacks",
            )
        self.build_ns = time.monotonic_ns() - began
        self.on_step("built", total, total)

    def netns(self, node: str) -> Path:
        """The file of a node's network namespace."""
        return NAMESPACES / self.plan.node(node).namespace

    def pid(self, node: str) -> int:
        """The process of a node's shell; FabricError before `build`."""
        host = self._nodes.get(self.plan.node(node).name)
        if host is None:
            raise FabricError("the fabric is not built", where=node, remedy="call build() first")
        return int(host.pid)

    def readback(self) -> dict[str, Any]:
        """What the kernel has, as plain data: `nodes` and `ports`. Raises FabricError where it does not answer."""
        return {"nodes": read_nodes(self.plan, self.netns), "ports": self.ports.readback()}

    def differences(self, plan: FabricPlan, readback: Mapping[str, Any]) -> list[str]:
        """Every difference between a plan and a read-back, in words with node or port and both values."""
        return compare_nodes(plan, readback["nodes"]) + self.ports.differences(readback["ports"])

    def check_paths(self, *, limit_s: float = 10.0) -> list[PathCheck]:
        """Real echoes between all pairs of hosts; the ports count these packets like any others."""
        return check_paths(self.plan, self.netns, limit_s=limit_s)

    def popen(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a node, in its network and mount namespace, with the run's mark in its environment."""
        environment = {**(options.pop("env", None) or os.environ), MARK_VARIABLE: self.plan.run_id}
        return subprocess.Popen(["mnexec", "-a", str(self.pid(node)), *argv], env=environment, **options)

    def adopt(self, pid: int) -> None:
        """Name a process (a worker) as this run's: `clean` ends it if this process dies before it."""
        if self._registration is not None:
            self._registration.add_process(pid)

    def scratch(self) -> AbstractContextManager[Path]:
        """A temporary folder for a block; `clean` removes it if this process dies inside. Only in a built fabric."""
        assert self._registration is not None
        return self._registration.scratch()

    def destroy(self) -> None:
        """Take everything away; may be called at any time and twice. Raises FabricError if something stays."""
        from emulator.fabric.mininet import end_nodes

        problems: list[str] = []
        with _uninterrupted(), ExitStack() as steps:
            # The stack runs the last one first, and the others also when one fails.
            if self._registration is not None:
                steps.callback(self._registration.remove)
            for node in self.plan.nodes if self._registration is not None else ():
                steps.callback(_noted, problems, names.remove, NAMESPACES / node.namespace)
            steps.callback(_noted, problems, self._end_processes)
            steps.callback(_noted, problems, end_nodes, self._nodes)
            if self._attached:
                # Queues, filters and delays go with their namespaces; what must go first is what holds those.
                steps.callback(_noted, problems, self.ports.close)
            self._attached = False
        self._registration = None
        self._nodes = {}
        if problems:
            raise FabricError(
                "could not take everything away: " + "; ".join(problems),
                where=self.plan.run_id,
                remedy="run `fabriclab clean`",
            )

    def _end_processes(self) -> None:
        """End what users left running on the nodes."""
        if self._registration is None:
            return
        run_id = self.plan.run_id
        there = (kernel.namespace_id(NAMESPACES / node.namespace) for node in self.plan.nodes)
        for process in processes.by_run({found: run_id for found in there if found}).get(run_id, ()):
            processes.end(process)

    def _leave(self) -> None:
        try:
            self.destroy()
        finally:
            self._signals.give_back()


def _allow_descriptors(number: int) -> None:
    """Raise this process's own soft limit on open files, within its hard one, for so many more than the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(1024 + number, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _noted(problems: list[str], action: Callable[..., None], *arguments: Any) -> None:
    """One step of clearing away: what fails is noted, the next step comes all the same."""
    try:
        action(*arguments)
    except (FabricError, OSError) as error:
        problems.append(str(error))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back the ending signals until the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
