"""The prompt of `fabriclab up`: real commands on the nodes, and a few questions to the fabric."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from emulator.errors import FabricError
from emulator.fabric.describe import picture, table
from emulator.fabric.fabric import Fabric
from emulator.topology.suggest import nearest
from emulator.topology.units import format_duration, format_rate

PROMPT = "fabriclab> "

HELP = """\
NODE COMMAND...   run a command on a node, such as: host0 ip route · host1 ping -c 3 host6 · host2 bash
                  a host's name among the arguments becomes its address; & at the end leaves it running
pingall           echo between all pairs of hosts
hosts             the hosts, their addresses and namespaces
links             every link: both ports, their interfaces, rate, delay, state
queues [all]      every port that has seen a packet: backlog, highest backlog, packets, drops, marks
help              this
exit              leave and take everything away (also Ctrl-D)"""


class Prompt:
    """Reads commands from standard input until it ends; one that fails does not end it."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.plan = fabric.plan
        self.tty = sys.stdin.isatty()
        self.commands: dict[str, Callable[[list[str]], None]] = {
            "help": lambda _: click.echo(HELP),
            "hosts": lambda _: self.hosts(),
            "links": lambda _: self.links(),
            "pingall": lambda _: self.pingall(),
            "queues": lambda words: self.queues(everything=words == ["all"]),
        }
        self.nodes = {node.name for node in self.plan.nodes}

    def greet(self, why: str) -> None:
        """What has been built."""
        plan = self.plan
        click.echo("\n".join(picture(plan)))
        click.echo(
            f"{plan.name}: {len(plan.nodes)} nodes and {len(plan.ports) // 2} links built in "
            f"{self.fabric.build_ns / 1e9:.1f} s; tdf {plan.tdf} ({why}), marking by {self.fabric.ports.marking}, "
            f"delay by {plan.delay_mode}"
        )
        for note in plan.notes:
            click.echo(f"note: {note}")
        click.echo("help lists the commands; exit leaves")

    def run(self) -> None:
        """Until the input ends or says exit. Ctrl-C at the prompt leaves as well."""
        for line in self._lines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError as error:
                click.echo(f"{error}: {line.strip()}", err=True)
                continue
            if words and words[0] in ("exit", "quit"):
                return
            if words:
                self._one(words)

    def _one(self, words: list[str]) -> None:
        try:
            if words[0] in self.commands:
                self.commands[words[0]](words[1:])
            elif words[0] in self.nodes:
                self.command(words[0], words[1:])
            else:
                known = nearest(words[0], [*self.commands, *sorted(self.nodes)])
                click.echo(f'no command or node "{words[0]}"; {known}', err=True)
        except FabricError as error:
            click.echo(f"error: {error}", err=True)

    def _lines(self) -> Iterator[str]:
        if not self.tty:
            yield from sys.stdin
            return
        self._prepare_completion()
        while True:
            try:
                yield input(PROMPT)
            except EOFError:
                click.echo()
                return

    def _prepare_completion(self) -> None:
        import readline

        words = sorted([*self.commands, "exit", *self.nodes])

        def complete(text: str, state: int) -> str | None:
            return next((w + " " for i, w in enumerate(w for w in words if w.startswith(text)) if i == state), None)

        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")

    def command(self, node: str, argv: list[str]) -> None:
        """A command on a node with live output; Ctrl-C reaches the command and not this prompt."""
        background = argv[-1:] == ["&"]
        argv = argv[:-1] if background else argv
        if not argv:
            raise FabricError(f"no command for {node}", where="prompt", remedy=f"write for example: {node} ip addr")
        if shutil.which(argv[0]) is None:
            raise FabricError(f"there is no program {argv[0]} on this machine", where="prompt", remedy="install it")
        hosts = {host.name for host in self.plan.hosts}
        argv = [argv[0], *(self.plan.address(word) if word in hosts else word for word in argv[1:])]
        options: dict[str, Any] = {} if self.tty and not background else {"stdin": subprocess.DEVNULL}
        sys.stdout.flush()
        # A handler of our own, not SIG_IGN: that one the command would inherit.
        before = signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            process = self.fabric.popen(node, argv, start_new_session=background, **options)
            code = 0 if background else process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        if code:
            click.echo(f"(exit code {code})")

    def pingall(self) -> None:
        """All ordered pairs, a row a source."""
        checks = self.fabric.check_paths()
        names = [host.name for host in self.plan.hosts]
        answered = {(check.src, check.dst): check.rtt_ns for check in checks}
        for src in names:
            reached = [dst if answered.get((src, dst)) is not None else "X" for dst in names if dst != src]
            click.echo(f"{src} -> {' '.join(reached)}")
        times = sorted(rtt for rtt in answered.values() if rtt is not None)
        lost = len(checks) - len(times)
        spread = f", {times[0] / 1e6:.3f} to {times[-1] / 1e6:.3f} ms of wall time" if times else ""
        click.echo(f"{len(times)} of {len(checks)} pairs answered{spread}" + (f"; {lost} did not" if lost else ""))

    def hosts(self) -> None:
        """The hosts by rank."""
        rows = [[h.index, h.name, self.plan.address(h.name), f"ip netns exec {h.namespace}"] for h in self.plan.hosts]
        click.echo("\n".join(table(["rank", "host", "address", "from another terminal"], rows)))

    def links(self) -> None:
        """The links as the kernel has them now."""
        found = self.fabric.readback()["nodes"]
        rows = []
        for a, b in self.plan.links():
            carriers = [found[p.node]["interfaces"].get(p.ifname, {}).get("carrier", False) for p in (a, b)]
            rows.append(
                [
                    a.name,
                    "up" if all(carriers) else "down",
                    format_rate(a.fabric_rate_bps),
                    format_duration(a.fabric_delay_ns),
                    f"{a.ifname} {a.ip}",
                    f"{b.ifname} {b.ip}",
                ]
            )
        click.echo("\n".join(table(["link", "state", "rate", "delay", "this end", "that end"], rows)))

    def queues(self, *, everything: bool) -> None:
        """The ports' counters now; `-` is what this kernel cannot tell."""
        rows = []
        counters = self.fabric.ports.counters()
        for name, port in counters.items():
            data = port.classes["data"]
            sent = sum(one.tx_packets for one in port.classes.values())
            dropped = sum(one.dropped for one in port.classes.values())
            if everything or sent or dropped:
                rows.append(
                    [
                        name,
                        data.backlog_bytes,
                        _known(port.max_bytes),
                        sent,
                        dropped,
                        _known(port.marked),
                        _known(port.lost),
                    ]
                )
        if rows:
            click.echo(
                "\n".join(table(["port", "backlog B", "highest B", "packets", "dropped", "marked", "lost"], rows))
            )
        if len(rows) < len(counters):
            click.echo(f"{len(counters) - len(rows)} ports have seen no packet")


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)
