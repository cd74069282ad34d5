"""All ports of one run: attach them to the kernel, read them back, compare with the plan, count, take them away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator.errors import FabricError, MissingCapability
from emulator.port import config, delay, readback, shaper, tc
from emulator.port.counters import ClassCounters, PortCounters, class_counters, from_program, red_marked
from emulator.port.features import Features
from emulator.port.layout import CLASS_NAMES, CONFIG, DATA, Records
from emulator.port.model import PlanLike, PortLike
from emulator.port.netlink import Netlink
from emulator.port.program import PortProgram


class PortSet:
    """The ports of a plan. `marking` is how CE is set: bpf, virtual-queue, red or none; `netem` whether the way delays.

    Everything it makes lies in the run's namespaces and goes with them; nothing is pinned. `sockets` holds one netlink
    socket a node, `index` the interface index of each port number.
    """

    def __init__(
        self,
        plan: PlanLike,
        features: Features,
        log: Callable[[str], None] | None = None,
        *,
        trim_keep_bytes: int = config.TRIM_KEEP_BYTES,
    ) -> None:
        self.plan, self.features, self._log = plan, features, log
        self.marking = features.marking
        self.netem = plan.delay_mode == "netem"
        self.program: PortProgram | None = None
        self.sockets: dict[str, Netlink] = {}
        self.index: dict[int, int] = {}
        self._changed: dict[int, dict[str, Any]] = {port.number: {} for port in plan.ports}
        self._trim_keep = trim_keep_bytes
        self._hosts = {node.name for node in plan.nodes if node.kind == "host"}
        self._check()

    def _check(self) -> None:
        """Refuses what this kernel cannot do, before anything is built."""
        bpf = self.marking in ("bpf", "virtual-queue")
        lacks = "; ".join(
            f"{key}: {text}" for key, text in self.features.reasons.items() if key in ("kfunc", "bpf", "red")
        )
        remedy = "use a kernel with BTF and BPF, or --clock virtual" + (f" ({lacks})" if lacks else "")
        if self.marking == "unknown":
            raise MissingCapability(
                "; ".join(self.features.unknown), where="ports", remedy="run as root, or use --clock virtual"
            )
        for port in self.plan.ports:
            for wanted, can, what in (
                (port.mark, self.marking != "none", "ECN marking"),
                (port.trim, bpf, "packet trimming"),
                (port.loss > 0, bpf, "random loss"),
                (
                    port.mark and port.kmax_bytes > port.kmin_bytes,
                    self.marking != "red",
                    "a marking ramp (kmin below kmax)",
                ),
            ):
                if wanted and not can:
                    raise MissingCapability(
                        f"{what} is not possible with marking by {self.marking}", where=port.name, remedy=remedy
                    )
        if self.netem and self.features.delay != "netem":
            reason = self.features.reasons.get("netem", "no IFB or no redirect")
            raise MissingCapability(
                f"delay by netem is not possible: {reason}", where="delay_mode", remedy="use delay mode agent"
            )

    def attach(self, netns_of: Callable[[str], Path]) -> None:
        """Makes every port's queues, filters and delay. The interfaces must be there; `netns_of` gives a node's namespace."""
        if self.marking in ("bpf", "virtual-queue"):
            self.program = PortProgram(self.marking, len(self.plan.ports), log=self._log)
            for port in self.plan.ports:
                self.program.config.write(port.number, self._config(port))
                self.program.stats.write(port.number, config.port_stats(port, self.plan.seed))
        nodes = dict.fromkeys([port.node for port in self.plan.ports] + [port.peer for port in self.plan.ports])
        for node in nodes:
            netlink = self.sockets[node] = Netlink(netns_of(node))
            incoming = [port for port in self.plan.ports if port.peer == node] if self.netem else []
            alias = f"fabriclab:{self.plan.run_id}"
            netlink.batch(tc.new_link(delay.ifb_name(port), "ifb", alias=alias, mtu=delay.MTU) for port in incoming)
            self._attach_node(node, netlink, incoming)

    def _attach_node(self, node: str, netlink: Netlink, incoming: list[PortLike]) -> None:
        links = readback.links(netlink)
        requests: list[tc.Request] = []
        hooked: set[int] = set()

        def index_of(ifname: str, *, hook: bool) -> int:
            if ifname not in links:
                raise FabricError(
                    f"there is no interface {ifname}", where=node, remedy="build the links before the ports"
                )
            if hook and links[ifname] not in hooked:
                requests.append(tc.clsact(links[ifname]))
                hooked.add(links[ifname])
            return links[ifname]

        for port in self.plan.ports:
            if port.node != node:
                continue
            index = self.index[port.number] = index_of(port.ifname, hook=self.program is not None)
            requests += shaper.requests(index, shaper.plan_tree(port, red=self._red(port)))
            if self.program is None:
                requests += shaper.tos_requests(index)
                continue
            requests.append(tc.bpf_filter(index, tc.EGRESS, self.program.fd["port_egress"], "port", port.number + 1))
            if node in self._hosts and not self.netem:
                requests.append(
                    tc.bpf_filter(index, tc.INGRESS, self.program.fd["drop_roce"], "drop", readback.DROP_CLASSID)
                )
        for port in incoming:
            target = links[delay.ifb_name(port)]
            requests.append(delay.netem_request(target, port, self.plan.seed, seeded=bool(self.features.netem_seed)))
            requests.append(tc.redirect_filter(index_of(port.peer_ifname, hook=True), target))
        netlink.batch(requests)

    def _red(self, port: PortLike) -> bool:
        return self.marking == "red" and port.mark

    def _config(self, port: PortLike) -> Records:
        return config.port_config(port, self._trim_keep, self._changed[port.number])

    def change(self, name: str, **fields: Any) -> None:
        """Changes settings of a live port (those of `config.LIVE`); counters and generators go on. Read-back expects the new ones."""
        port = next((p for p in self.plan.ports if p.name == name), None)
        if port is None or self.program is None:
            raise FabricError(
                "a live change needs a port of the plan and the BPF program",
                where=name,
                remedy="see `fabriclab doctor`",
            )
        if not set(fields) <= set(config.LIVE):
            unknown = sorted(set(fields) - set(config.LIVE))
            raise FabricError(f"cannot be changed live: {unknown}", where=name, remedy=f"one of {list(config.LIVE)}")
        self._changed[port.number] |= fields
        self.program.config.write(port.number, self._config(port))

    def readback(self) -> dict[str, Any]:
        """What the kernel holds now, by port: `egress` (queues, classes, filters), `program` (settings), `delay`."""
        out: dict[str, Any] = {port.name: {} for port in self.plan.ports}
        configs = self.program.config.read() if self.program is not None else None
        for node, netlink in self.sockets.items():
            links = readback.links(netlink)
            found = readback.qdiscs(netlink)
            for port in self.plan.ports:
                entry = out[port.name]
                if port.node == node:
                    index = links.get(port.ifname)
                    entry["egress"] = (
                        readback.egress(netlink, index, found, with_ingress=not self.netem)
                        if index is not None
                        else None
                    )
                    if configs is not None:
                        entry["program"] = {key: int(configs[port.number][key]) for key in CONFIG.names or ()}
                if self.netem and port.peer == node:
                    entry["delay"] = readback.way(
                        netlink, links.get(port.peer_ifname), links.get(delay.ifb_name(port)), found
                    )
        return out

    def differences(self, found: dict[str, Any]) -> list[str]:
        """Every way in which a read-back is not what the plan says, in words; empty if it is the same."""
        out: list[str] = []
        programs = self.program.id if self.program is not None else {}
        for port in self.plan.ports:
            entry = found[port.name]
            if entry.get("egress") is None:
                out.append(f"{port.name}: interface {port.ifname} is missing")
                continue
            host = port.node in self._hosts
            want = readback.want_egress(port, red=self._red(port), netem=self.netem, host=host, programs=programs)
            out += shaper.compare(port.name, want, entry["egress"])
            if self.program is not None:
                settings = {key: int(self._config(port)[key][0]) for key in CONFIG.names or ()}
                out += shaper.compare(port.name, {"program": settings}, {"program": entry["program"]})
            if self.netem:
                out += shaper.compare(f"{port.name} (arriving)", readback.want_way(port), entry.get("delay") or {})
        return out

    def counters(self) -> dict[str, PortCounters]:
        """Exact counters of every port, now."""
        stats = self.program.stats.view() if self.program is not None else None
        answers: dict[str, dict[tuple[int, int], tc.Answer]] = {}
        dropped: dict[str, dict[str, int]] = {}
        for node, netlink in self.sockets.items():
            answers[node] = {(answer.ifindex, answer.handle): answer for answer in readback.qdiscs(netlink)}
            dropped[node] = {
                name: readback.tx_dropped(found) for name, (_, found) in readback.link_table(netlink).items()
            }
        out: dict[str, PortCounters] = {}
        for port in self.plan.ports:
            classes: dict[str, ClassCounters] = {}
            for cls, handle in shaper.LEAF_HANDLE.items():
                leaf = answers[port.node].get((self.index[port.number], handle))
                if leaf is None:
                    raise FabricError(
                        f"the {CLASS_NAMES[cls]} queue is gone",
                        where=port.name,
                        remedy="something removed it; run again",
                    )
                classes[CLASS_NAMES[cls]] = class_counters(leaf)
            if stats is not None:
                counted = from_program(port.number, classes, stats[port.number], config.bin_bytes(port.limit_bytes))
            else:
                counted = PortCounters(port.number, classes)
                if self._red(port):
                    counted.marked = red_marked(answers[port.node][self.index[port.number], shaper.LEAF_HANDLE[DATA]])
            counted.link_dropped = dropped[port.node].get(port.ifname)
            out[port.name] = counted
        return out

    def ports_json(self) -> dict[str, Any]:
        """The content of ports.json."""
        return {name: counted.to_dict() for name, counted in self.counters().items()}

    def detach(self) -> None:
        """Takes queues, filters and delays away and closes everything; what is gone already is no error."""
        for node, netlink in self.sockets.items():
            links = readback.links(netlink)
            there = {(answer.ifindex, answer.handle) for answer in readback.qdiscs(netlink)}
            mine = [port.ifname for port in self.plan.ports if port.node == node]
            incoming = [port for port in self.plan.ports if self.netem and port.peer == node]
            for index in dict.fromkeys(
                links[name] for name in mine + [p.peer_ifname for p in incoming] if name in links
            ):
                for handle, parent in ((shaper.ROOT_HANDLE, tc.ROOT), (tc.CLSACT_HANDLE, tc.CLSACT_PARENT)):
                    if (index, handle) in there:
                        netlink.request(*tc.delete_qdisc(index, handle, parent))
            netlink.batch(
                tc.delete_link(links[delay.ifb_name(port)]) for port in incoming if delay.ifb_name(port) in links
            )
        self.close()

    def close(self) -> None:
        """Closes sockets and descriptors and leaves the kernel as it is (its namespaces take the rest with them)."""
        for netlink in self.sockets.values():
            netlink.close()
        self.sockets.clear()
        if self.program is not None:
            self.program.close()
        self.program = None
