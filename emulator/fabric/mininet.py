"""Mininet nodes and links, each node in a namespace of its own; nothing ever appears in the root namespace.

Only Mininet's `Host`, `Link` and `Intf` are used. Its network object is not: that one raises limits and sysctls of the
whole machine. A node is the shell Mininet makes, but started with all others at once and without helper programs.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from mininet.link import Intf, Link
from mininet.log import setLogLevel
from mininet.node import Host

from emulator.errors import FabricError, MissingCapability
from emulator.fabric.plan import FabricPlan, PlanNode, PlanPort

PROMPT = chr(127)
_START_S = 20.0
_END_S = 3.0


@cache
def mnexec() -> str:
    """Mininet's helper that enters and makes namespaces; MissingCapability without it."""
    found = shutil.which("mnexec")
    if found is None:
        raise MissingCapability("mnexec is not installed", remedy="install Debian's package mininet")
    return found


class FabricHost(Host):  # type: ignore[misc]
    """A shell in its own network and mount namespace."""

    def __init__(self, node: PlanNode, environment: Mapping[str, str]) -> None:
        self.environment = {**environment, "PS1": PROMPT}
        self.environment.pop("ENV", None)  # an interactive sh would run that file
        self.mnexec = mnexec()
        super().__init__(node.short)

    @classmethod
    def setup(cls) -> None:
        """Nothing: Mininet would look for ifconfig, which is not used here, and end the process without it."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        """Start the shell; `await_prompt` waits for it, so that many can start at once."""
        try:
            self.master, self.slave = pty.openpty()
        except OSError as error:
            raise MissingCapability(
                f"a node has no terminal for its shell ({error.strerror or error})",
                where="/dev/pts",
                remedy="mount devpts there (`mount -t devpts devpts /dev/pts`), or raise /proc/sys/kernel/pty/max",
            ) from error
        settings = termios.tcgetattr(self.slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.slave, termios.TCSANOW, settings)
        # -d leaves our terminal and its Ctrl-C, -n makes the namespaces. Mininet's -c would close every descriptor there
        # could be, half a million calls on some machines; Popen has closed those that are.
        self.shell: subprocess.Popen[bytes] | None = subprocess.Popen(
            [self.mnexec, mnopts or "-dn", "/bin/sh", "+m", "-is", f"mininet:{self.name}"],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=self.environment,
        )
        self.stdin = os.fdopen(self.master, "r")
        self.stdout = self.stdin
        self.pid = self.shell.pid
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout, select.POLLIN)
        self.outToNode[self.stdout.fileno()] = self
        self.inToNode[self.stdin.fileno()] = self
        self.execed = False
        self.lastCmd = self.lastPid = None
        self.readbuf = ""
        self.waiting = True

    def await_prompt(self, deadline: float) -> None:
        """Wait until the shell is ready, and with it its namespace; FabricError after the deadline (monotonic)."""
        seen = ""
        shell = self.shell
        while not seen.endswith(PROMPT):
            # What a shell that ended had to say is still to be read.
            left = 0.0 if shell is None or shell.poll() is not None else max(0.0, deadline - time.monotonic())
            if not self.pollOut.poll(left * 1000):
                raise FabricError(
                    f"the shell did not start: {seen.strip() or 'it said nothing'}",
                    where=str(self.name), remedy="see whether `mnexec -n true` works as root",
                )  # fmt: skip
            seen += os.read(self.master, 1024).decode(errors="replace")
        self.waiting = False

    def hang_up(self) -> None:
        """Tell the shell and its children to end."""
        if self.shell is not None and self.shell.poll() is None:
            try:
                os.killpg(self.shell.pid, signal.SIGHUP)
            except ProcessLookupError:
                self.shell.send_signal(signal.SIGHUP)  # not yet a session of its own

    def terminate(self) -> None:
        """End the shell, the hard way if need be, and close its terminal."""
        if self.shell is None:
            return
        self.hang_up()
        self.outToNode.pop(self.stdout.fileno(), None)
        self.inToNode.pop(self.stdin.fileno(), None)
        self.stdin.close()
        os.close(self.slave)
        try:
            self.shell.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.shell.kill()
            self.shell.wait()
        self.shell = None


class FabricIntf(Intf):  # type: ignore[misc]
    """An interface; its settings are the work of `apply`."""

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}


class FabricLink(Link):  # type: ignore[misc]
    """A veth pair whose ends are made where they belong."""

    def __init__(
        self, ip: Any, ends: tuple[FabricHost, FabricHost], ports: tuple[PlanPort, PlanPort], mtu: int
    ) -> None:
        self.ip = ip
        self.mtu = mtu
        super().__init__(
            *ends, intfName1=ports[0].ifname, intfName2=ports[1].ifname, addr1=ports[0].mac, addr2=ports[1].mac,
            intf=FabricIntf, fast=True,
        )  # fmt: skip

    def makeIntfPair(  # noqa: N802
        self, name1: str, name2: str, addr1: str, addr2: str, node1: FabricHost, node2: FabricHost, **_: Any
    ) -> None:
        """One netlink message. One queue, since a port has one; no segmentation offload, also not TCP's own:
        a kernel socket makes large packets whatever the device says, unless the device's limit is one segment."""
        common = {"mtu": self.mtu, "num_tx_queues": 1, "num_rx_queues": 1, "gso_max_segs": 1}
        self.ip.link(
            "add", kind="veth", ifname=name1, address=addr1, net_ns_pid=node1.pid, **common,
            peer={"ifname": name2, "address": addr2, "net_ns_pid": node2.pid, **common},
        )  # fmt: skip


def start_nodes(plan: FabricPlan, environment: Mapping[str, str], nodes: dict[str, FabricHost]) -> None:
    """Start the shells of all nodes, put into `nodes` one by one, and wait until all are ready (20 seconds at most)."""
    setLogLevel("critical")
    for node in plan.nodes:
        nodes[node.name] = FabricHost(node, environment)
    deadline = time.monotonic() + _START_S
    for host in nodes.values():
        host.await_prompt(deadline)


def make_links(plan: FabricPlan, nodes: Mapping[str, FabricHost]) -> list[FabricLink]:
    """Make all veth pairs."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        return [FabricLink(ip, (nodes[a.node], nodes[b.node]), (a, b), plan.mtu) for a, b in plan.links()]


def end_nodes(nodes: Mapping[str, FabricHost]) -> None:
    """End all shells: tell all, then wait for each."""
    for node in nodes.values():
        node.hang_up()
    for node in nodes.values():
        node.terminate()
