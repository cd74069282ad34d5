"""What a topology may not ask for: counts that miss, thresholds that contradict, overrides that go wrong.

Every rule returns its problems, so one pass shows them all. An `Issue` names keys, not lines; the loader knows lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from emulator.topology.limits import (
    MAX_HOSTS,
    MAX_INFLIGHT_BYTES,
    MAX_LINKS,
    MAX_SWITCHES,
    MIN_MTU,
    WIRE_OVERHEAD_BYTES,
    frame_bytes,
)
from emulator.topology.network import Link, Network, Port
from emulator.topology.shapes import LINK_CLASSES, SHAPES, apply_override, base_network, find_link, overridden_ports
from emulator.topology.suggest import nearest
from emulator.topology.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from emulator.topology.model import Override, Topology

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Issue:
    """A problem at the first of `locs` that the file sets, at the key itself with `at_key`.

    `also` is a second place worth naming. A problem with any of the places silences the issue.
    """

    locs: tuple[Loc, ...]
    what: str
    remedy: str
    also: Loc | None = None
    at_key: bool = False


class ImpossibleError(ValueError):
    """All impossible demands of one topology."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        super().__init__("\n".join(f"{issue.what}; {issue.remedy}" for issue in issues))
        self.issues = tuple(issues)


def key_text(loc: Loc) -> str:
    """A key as messages spell it: `overrides[0].ecn.kmin`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def find_issues(topology: Topology) -> list[Issue]:
    """Every impossible demand of a topology; counts first, since the rest needs a network to speak of."""
    missing = list(_count_issues(topology))
    issues = [*missing, *_class_issues(topology)]
    if not missing:
        too_many = list(_size_issues(topology))
        issues += too_many or _override_issues(topology, base_network(topology))
    return list(dict.fromkeys(issues))


def _count_issues(topology: Topology) -> Iterator[Issue]:
    shape = SHAPES[topology.shape]
    counts = {key: getattr(topology, key) for kind in SHAPES.values() for key in kind.counts}
    for key, value in counts.items():
        if key in shape.counts and value is None:
            example = {"hosts_per_leaf": 4, "hosts": 8}.get(key, 2)
            yield Issue(
                ((key,), ("shape",), ()),
                f"{key} is missing: shape {topology.shape} needs it",
                f'add "{key}: {example}"',
            )
        if key not in shape.counts and value is not None:
            needs = ", ".join(shape.counts)
            what = f"{key} has no meaning for shape {topology.shape}"
            yield Issue(((key,), ("shape",)), what, f"remove it; this shape counts {needs}", at_key=True)
    for name in LINK_CLASSES:
        if name in topology.model_fields_set and name not in shape.link_classes:
            yield Issue(
                ((name,), ("shape",)), f"{name} has no meaning for shape {topology.shape}", "remove it", at_key=True
            )


def _size_issues(topology: Topology) -> Iterator[Issue]:
    shape = SHAPES[topology.shape]
    locs = tuple((key,) for key in shape.counts)
    if topology.shape != "leaf-spine":
        return
    leaves, spines, per_leaf = topology.leaves or 0, topology.spines or 0, topology.hosts_per_leaf or 0
    hosts, switches, links = leaves * per_leaf, leaves + spines, leaves * (per_leaf + spines)
    for number, most, word in (
        (hosts, MAX_HOSTS, "hosts"),
        (switches, MAX_SWITCHES, "switches"),
        (links, MAX_LINKS, "links"),
    ):
        if number > most:
            what = (
                f"{leaves} leaves, {spines} spines and {per_leaf} hosts a leaf make {number} {word}, more than {most}"
            )
            yield Issue(locs, what, "lower leaves, spines or hosts_per_leaf")


@dataclass(frozen=True)
class _Demand:
    """The values that must fit together, and the key that set each."""

    rate: int
    delay: int
    limit: int
    kmin: int
    kmax: int
    marks: bool
    mtu: int
    keys: Mapping[str, Loc]

    def locs(self, *names: str) -> tuple[Loc, ...]:
        return tuple(self.keys[name] for name in names)

    def named(self, name: str, value: str) -> str:
        return f"{key_text(self.keys[name])} ({value})"


_MTU: Final[Loc] = ("mtu",)


def _class_issues(topology: Topology) -> Iterator[Issue]:
    shape = SHAPES[topology.shape]
    for name in shape.link_classes:
        spec = getattr(topology, name)
        demand = _Demand(
            spec.rate, spec.delay, topology.queue.limit, topology.ecn.kmin, topology.ecn.kmax, topology.ecn.enabled,
            topology.mtu, _class_keys(name),
        )  # fmt: skip
        yield from _demand_issues(demand, set(demand.keys))


def _class_keys(link_class: str) -> dict[str, Loc]:
    return {
        "rate": (link_class, "rate"), "delay": (link_class, "delay"), "limit": ("queue", "limit"),
        "kmin": ("ecn", "kmin"), "kmax": ("ecn", "kmax"), "mtu": _MTU,
    }  # fmt: skip


def _demand_issues(demand: _Demand, changed: Iterable[str]) -> Iterator[Issue]:
    """Contradictions among the values; a rule speaks only if one of `changed` takes part in it."""
    keys = set(changed)
    frame = frame_bytes(demand.mtu)
    kmin, kmax, limit = format_size(demand.kmin), format_size(demand.kmax), format_size(demand.limit)
    if keys & {"limit", "mtu"} and demand.limit < 2 * frame:
        what = (
            f"{demand.named('limit', limit)} holds less than two frames of mtu {demand.mtu}, {format_size(2 * frame)}"
        )
        yield Issue(demand.locs("limit", "mtu"), what, f"write at least {format_size(2 * frame)}")
    if demand.marks and keys & {"kmin", "kmax"} and demand.kmin >= demand.kmax:
        what = f"{demand.named('kmin', kmin)} is not below {demand.named('kmax', kmax)}"
        remedy = f"write a kmax above {kmin}; one byte more makes a step"
        yield Issue(demand.locs("kmin", "kmax"), what, remedy)
    if demand.marks and keys & {"kmax", "limit"} and demand.kmax > demand.limit:
        what = (
            f"{demand.named('kmax', kmax)} is above {demand.named('limit', limit)}: the queue drops before it marks all"
        )
        yield Issue(demand.locs("kmax", "limit"), what, f"write a kmax of at most {limit}, or a larger limit")
    if demand.marks and keys & {"kmin", "mtu"} and demand.kmin // 4 < frame:
        what = (
            f"{demand.named('kmin', kmin)} is too small for mtu {demand.mtu}: the shaper's burst is the smaller of two "
            f"frames ({format_size(2 * frame)}) and kmin/4 ({format_size(demand.kmin // 4)}), here less than one frame"
        )
        mtu = demand.kmin // 4 - WIRE_OVERHEAD_BYTES
        lower = f", or an mtu of at most {mtu}" if mtu >= MIN_MTU else ""
        yield Issue(demand.locs("kmin", "mtu"), what, f"write a kmin of at least {format_size(4 * frame)}{lower}")
    inflight = demand.rate * demand.delay // (8 * 10**9)
    if keys & {"rate", "delay"} and inflight > MAX_INFLIGHT_BYTES:
        delay, rate = format_duration(demand.delay), format_rate(demand.rate)
        most = format_duration(MAX_INFLIGHT_BYTES * 8 * 10**9 // demand.rate // 1000 * 1000)
        what = (
            f"{demand.named('delay', delay)} at {rate} keeps {inflight // 10**6} MB on the wire, "
            f"more than {format_size(MAX_INFLIGHT_BYTES)}"
        )
        yield Issue(demand.locs("delay", "rate"), what, f"write a delay of at most {most}, or a lower rate")


def _override_issues(topology: Topology, base: Network) -> list[Issue]:
    issues: list[Issue] = []
    links = {link.name: link for link in base.links}
    keys = {port.name: _class_keys("host_link" if _to_host(base, port) else "uplink") for port in base.ports}
    claimed: dict[tuple[str, Loc], int] = {}
    downs: dict[str, int] = {}
    for index, override in enumerate(topology.overrides):
        at: Loc = ("overrides", index)
        link = find_link(links, override.link)
        if link is None:
            what = f'{key_text(at)}.link: no link "{override.link}" in this fabric'
            issues.append(Issue(((*at, "link"),), what, nearest(override.link, list(keys))))
            continue
        settings = _settings(override)
        issues += _own_issues(override, at, settings)
        changed = apply_override(base, link, override)
        links[link.name] = changed
        ports = overridden_ports(changed, override)
        names = [port.name for port in ports]
        issues += _claim_issues(names, at, settings, claimed, index)
        for port in ports:
            own = {loc[-1]: (*at, *loc) for loc in settings if loc[-1] in keys[port.name]}
            keys[port.name] = {**keys[port.name], **own}
            issues += _demand_issues(_port_demand(port, topology.mtu, keys[port.name]), own)
        if override.ecn is not None and override.ecn.enabled is not False and not any(port.ecn for port in ports):
            issues.append(_silent_issue((*at, "ecn"), names, "mark", "with enabled: true"))
        if override.trim and not any(port.trim for port in ports):
            issues.append(_silent_issue((*at, "trim"), names, "trim", "if told to"))
        if not changed.up:
            downs[link.name] = index
    return issues + list(_cut_issues(base, links, downs))


def _to_host(network: Network, port: Port) -> bool:
    return port.last_hop or network.node(port.node).kind == "host"


def _port_demand(port: Port, mtu: int, keys: Mapping[str, Loc]) -> _Demand:
    return _Demand(
        port.rate_bps, port.delay_ns, port.limit_bytes, port.kmin_bytes, port.kmax_bytes, port.ecn, mtu, keys
    )  # fmt: skip


def _settings(override: Override) -> list[Loc]:
    """The keys an override sets, below its own."""
    found: list[Loc] = [
        (key,) for key in ("rate", "delay", "loss", "limit", "trim", "state") if getattr(override, key) is not None
    ]
    if override.ecn is not None:
        keys = ("enabled", "kmin", "kmax", "pmax")
        found += [("ecn", key) for key in keys if getattr(override.ecn, key) is not None]
    return found


def _own_issues(override: Override, at: Loc, settings: Sequence[Loc]) -> Iterator[Issue]:
    if not settings:
        what = f"{key_text(at)} changes nothing about {override.link}"
        yield Issue((at,), what, "set rate, delay, loss, limit, ecn, trim or state, or remove the entry")
    if override.state is not None and override.direction == "forward":
        what = f"{key_text(at)}: a link goes {override.state} in both directions, not forward only"
        yield Issue(
            ((*at, "direction"), (*at, "state")), what, "remove direction; for a one-way failure write loss: 100%"
        )


def _silent_issue(at: Loc, ports: Sequence[str], verb: str, when: str) -> Issue:
    what = f"{key_text(at)} changes nothing: {' and '.join(ports)} never {verb}{'s' if len(ports) == 1 else ''}"
    return Issue((at,), what, f"remove it; a host's port does not {verb}, a switch port does {when}")


def _claim_issues(
    ports: Sequence[str], at: Loc, settings: Sequence[Loc], claimed: dict[tuple[str, Loc], int], index: int
) -> Iterator[Issue]:
    for loc in settings:
        for port in ports:
            earlier = claimed.setdefault((port, loc), index)
            if earlier != index:
                key = key_text(loc)
                what = f"{key_text(at)} sets {key} of port {port}, which overrides[{earlier}] sets already"
                yield Issue(((*at, *loc),), what, "keep one of the two", also=("overrides", earlier, *loc))
                break


def _cut_issues(base: Network, links: Mapping[str, Link], downs: Mapping[str, int]) -> Iterator[Issue]:
    """Hosts that no up link joins to the others, at the last override that took part in cutting them off."""
    if not downs:
        return
    network = Network(
        name=base.name, shape=base.shape, mtu=base.mtu, hosts=base.hosts, leaves=base.leaves, spines=base.spines,
        links=tuple(links.values()),
    )  # fmt: skip
    islands: list[frozenset[str]] = []
    for host in network.hosts:
        if not any(host.name in island for island in islands):
            islands.append(network.reachable(host.name))
    main = max(islands, key=lambda island: sum(name.startswith("host") for name in island))
    for island in islands:
        if island is main:
            continue
        cut = [host.name for host in network.hosts if host.name in island]
        crossing = [name for name in downs if len(_ends(network, name) & island) == 1]
        guilty = [name for name in crossing if _ends(network, name) & main] or crossing
        at: Loc = ("overrides", max(downs[name] for name in guilty))
        hosts = ", ".join(cut[:4]) + (f" and {len(cut) - 4} more" if len(cut) > 4 else "")
        verb = "is" if len(guilty) == 1 else "are"
        what = f"{key_text(at)} cuts off {hosts}: {', '.join(guilty)} {verb} down"
        yield Issue(((*at, "state"), at), what, "keep a link up on the way to every host")


def _ends(network: Network, link_name: str) -> frozenset[str]:
    port = network.port(link_name)
    return frozenset((port.node, port.peer))
