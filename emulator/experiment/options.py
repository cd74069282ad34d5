"""The options of a packet transport with nothing left open: every default a number, every contradiction refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import UsageError
from emulator.experiment.cc import check_fit, resolve_cc, usage
from traffic.congestion.base import Feedback
from traffic.congestion.plugin import is_plugin
from traffic.congestion.registry import algorithm
from traffic.transport.make import path_info

if TYPE_CHECKING:
    from emulator.experiment.spec import Deny, Transport
    from emulator.topology.network import Network
    from traffic.congestion.base import CongestionControl, PathInfo

_BELONGS = {
    "recovery": ("roce",),
    "bdp_cap": ("roce",),
    "timeout_low": ("roce",),
    "spray": ("mrc",),
    "entropy": ("mrc",),
    "entropy_set": ("mrc",),
    "reorder_window": ("mrc",),
    "probe_interval": ("mrc",),
    "probes_needed": ("mrc",),
    "deny": ("mrc",),
    "ack_every": ("roce", "mrc"),
    "adaptive_timeout": ("roce", "mrc"),
    "retry_count": ("roce", "mrc"),
    "ecn": ("tcp",),
}
"""Which transports an option is for, where not for all."""
_SELECTIVE = ("bdp_cap", "timeout_low")
_PROBING = ("probe_interval", "probes_needed")
_MIN_TIMEOUT_NS = 100_000
_RTO_LOW_NS = 100_000
"""IRN's RTO_low (SIGCOMM 2018), about four of its round trips."""


def refuse_foreign(t: Transport) -> None:
    """Raises UsageError for an option that the transport asked for does not have."""
    for name, kinds in _BELONGS.items():
        if getattr(t, name) not in (None, ()) and t.kind not in kinds:
            raise UsageError(
                f"{name} is an option of {' and '.join(kinds)}, not of {t.kind}",
                where=f"transport.{name}",
                remedy="leave it out",
            )
    if t.kind == "roce" and t.recovery != "selective":
        for name in _SELECTIVE:
            if getattr(t, name) is not None:
                raise UsageError(
                    f"{name} belongs to selective repeat", where=f"transport.{name}", remedy="add --recovery selective"
                )
    if t.spray == "ecmp":
        for name in _PROBING:
            if getattr(t, name) is not None:
                raise UsageError(
                    f"{name}: with spray ecmp a queue pair keeps its path whatever happens, so none is probed",
                    where=f"transport.{name}", remedy="leave it out, or choose another --spray",
                )  # fmt: skip


def find_cc(cc: str, base: Path | None) -> tuple[type[CongestionControl], dict[str, Any]]:
    """The algorithm, and what the manifest says of it: its name, and for a file of the user the file's text.

    `base` is the folder that a relative path is relative to.
    """
    name, source = cc, None
    if is_plugin(cc):
        text, colon, wanted = cc.partition(":")
        path = Path(text) if base is None else base / text
        cc = f"{path}{colon}{wanted}"
        name = f"{path.name}{colon}{wanted}"
    with usage():
        cls = algorithm(cc)
    if is_plugin(cc):
        source = path.read_text(encoding="utf-8")
    return cls, {"cc": name, "cc_source": source}


def packet_transport(
    t: Transport,
    cls: type[CongestionControl],
    network: Network,
    pairs: Iterable[tuple[str, str]],
    *,
    wire_bytes: int,
    quantum_ns: int,
) -> dict[str, Any]:
    """`cc_params`, `cc_path` and `options` of the manifest for roce or mrc; `network` is the one that will be built.

    Parameters that depend on the path are worked out for the longest one, which `cc_path` describes; every flow has them, as the
    flows of uet-htsim have those of the network's round trip. A flow's own path still bounds its own window.
    """
    check_fit(t.kind, cls)
    every_ack = t.kind == "roce" and cls.feedback is Feedback.ACK
    ack_every = t.ack_every if t.ack_every is not None else 1 if every_ack else 4
    trimming = any(port.trim for port in network.ports)
    paths = {
        (a, b): path_info(
            cls,
            kind=t.kind,
            mtu=t.mtu,
            rate_bps=network.ports_of(a)[0].rate_bps,
            base_rtt_ns=network.base_rtt_ns(a, b, wire_bytes),
            hops=network.hops(a, b),
            ack_every=ack_every,
            quantum_ns=quantum_ns,
            trimming=trimming,
        )
        for a, b in sorted(set(pairs))
    }
    (src, dst), longest = max(paths.items(), key=lambda item: item[1].base_rtt_ns)
    params = resolve_cc(cls, path=longest, params=t.cc_params, preset=t.cc_preset)
    check_fit(t.kind, cls, params, t.cc_params)
    rtt = network.base_rtt_ns(src, dst, wire_bytes)
    drain = max(p.limit_bytes * 8_000_000_000 // p.rate_bps for p in network.ports)
    timeout = t.timeout if t.timeout is not None else max(_MIN_TIMEOUT_NS, 4 * rtt + 2 * drain)
    options: dict[str, Any] = {
        "qps": t.qps,
        "ack_every": ack_every,
        "timeout_ns": timeout,
        "adaptive_timeout": t.adaptive_timeout is not False,
        "retry_count": 7 if t.retry_count is None else t.retry_count,
        "trimming": trimming,
    }
    options |= _roce(t, longest, timeout, rtt) if t.kind == "roce" else _mrc(t, network, paths, rtt)
    return {
        "cc_params": params,
        "cc_path": {"src": src, "dst": dst, **asdict(longest)},
        "options": options,
    }


def _roce(t: Transport, longest: PathInfo, timeout: int, rtt: int) -> dict[str, Any]:
    recovery = t.recovery or "gbn"
    selective = recovery == "selective"
    low = t.timeout_low if t.timeout_low is not None else min(timeout, max(_RTO_LOW_NS, 4 * rtt))
    bdp = -(-longest.bdp_bytes // longest.wire_mtu_bytes)
    return {
        "recovery": recovery,
        "timeout_low_ns": low if selective else timeout,
        "bdp_cap_packets": max(1, bdp) if selective and t.bdp_cap is not False else None,
    }


def _mrc(t: Transport, network: Network, paths: Iterable[tuple[str, str]], rtt: int) -> dict[str, Any]:
    entropy = 64 if t.entropy is None else t.entropy
    for deny in t.deny:
        _check_via(deny, network)
    for src, dst in paths:
        _check_reachable(t.deny, network, src, dst)
    return {
        "spray": t.spray or "bitmap",
        "entropy": entropy,
        "entropy_set": t.entropy_set or "even",
        "reorder_ns": t.reorder_window if t.reorder_window is not None else _reorder_ns(network, rtt),
        "probe_ns": 100_000 if t.probe_interval is None else t.probe_interval,
        "probes_needed": 3 if t.probes_needed is None else t.probes_needed,
        "min_active": max(1, entropy // 4),
        "deny": [[d.via, d.at, d.until] for d in t.deny],
    }


def _reorder_ns(network: Network, rtt: int) -> int:
    """How much later than another a packet may come and not be lost: two round trips, and the deepest queue of one inner port.

    A queue deeper than kmax marks every packet, so senders leave it; one that does not mark may be full.
    """
    inner = [p for p in network.ports if not p.last_hop and network.node(p.node).kind != "host"]
    deepest = max(((p.kmax_bytes if p.ecn else p.limit_bytes) * 8_000_000_000 // p.rate_bps for p in inner), default=0)
    return max(2 * rtt + deepest, 10_000)


def crosses(ports: Sequence[tuple[str, str, str]], via: str) -> bool:
    """Whether a path, as (port name, node, peer) of each port, crosses a port or a node."""
    return any(via in port for port in ports)


def _check_via(deny: Deny, network: Network) -> None:
    if ":" in deny.via:
        network.port(deny.via)
    elif network.node(deny.via).kind == "host":
        raise UsageError(
            f"{deny.via} is a host, which every path of its own crosses",
            where="transport.deny",
            remedy="name a spine, a leaf or a port such as leaf0:spine1",
        )
    if deny.until is not None and deny.until <= deny.at:
        raise UsageError(
            f"{deny.via} is denied until {deny.until} ns, from {deny.at} ns",
            where="transport.deny",
            remedy="write an `until` after `at`, or leave it out",
        )


def _check_reachable(denied: Sequence[Deny], network: Network, src: str, dst: str) -> None:
    """At every time at least one path is left."""
    routes = [[(p.name, p.node, p.peer) for p in path] for path in network.paths(src, dst)]
    for time in sorted({d.at for d in denied}):
        now = [d.via for d in denied if d.at <= time and (d.until is None or time < d.until)]
        if all(any(crosses(route, via) for via in now) for route in routes):
            raise UsageError(
                f"every path from {src} to {dst} is denied ({', '.join(now)})",
                where="transport.deny",
                remedy="leave one, or deny one after the other",
            )
