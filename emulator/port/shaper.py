"""The tree of queues behind one port: rate, classes, limits; as data, as requests, and as the kernel tells it back.

Below one root rate sit three classes of strict priority. Each has a tiny rate of its own and the full ceiling, so all it
sends is borrowed from the root class and HTB serves the first in priority; a class with a rate of its own would be served
out of its own tokens and the sum could pass the ceiling (net/sched/sch_htb.c, htb_dequeue).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from emulator.port import tc
from emulator.port.layout import CONTROL, DATA, TRIMMED
from emulator.port.model import PortLike
from emulator.port.netlink import attrs
from traffic.packet import dscp

ROOT_HANDLE = 0x10000
ROOT_CLASS = 0x10001
CLASS_ID = {CONTROL: 0x10010, DATA: 0x10020, TRIMMED: 0x10030}
LEAF_HANDLE = {CONTROL: 0x100000, DATA: 0x200000, TRIMMED: 0x300000}
PRIORITY = {CONTROL: 0, TRIMMED: 1, DATA: 2}

QUANTUM_BYTES = 10_000
"""HTB's turn within one priority: a jumbo frame at least, below the 200,000 at which the kernel warns."""
OWN_RATE = 1
"""Bytes/s a class owns; the least the kernel takes. One packet a minute goes out on it, ahead of priority."""
OTHER_LIMIT_BYTES = 65536
"""Least room for control and for trimmed packets."""

DSCP_CLASSES = tuple(
    (code, CLASS_ID[cls], ipv6)
    for code, cls in ((dscp.CONTROL, CONTROL), (dscp.TRIMMED, TRIMMED), (dscp.TRIMMED_LAST_HOP, TRIMMED))
    for ipv6 in (False, True)
)
"""Code point, class id and IP version of the filters that classify where no BPF program does."""


def rate_bytes(rate_bps: int) -> int:
    """Bytes a second of a line rate, at least 1."""
    return max(1, (rate_bps + 4) // 8)


def burst_ticks(burst_bytes: int, bytes_per_second: int) -> int:
    """HTB's buffer in ticks of 64 ns, rounded up; at least one."""
    return max(1, -(-burst_bytes * 10**9 // (bytes_per_second * tc.TICK_NS)))


def other_limit(port: PortLike) -> int:
    """Bytes of the control and of the trimmed queue."""
    return max(OTHER_LIMIT_BYTES, port.limit_bytes)


@dataclass(frozen=True, slots=True)
class Tree:
    """What should be in the kernel at one interface: objects by a readable key, each a flat mapping."""

    objects: dict[str, dict[str, Any]]


def plan_tree(port: PortLike, *, red: bool) -> Tree:
    """The tree of one port; with `red`, the data class marks by RED at the step `kmin`."""
    rate = rate_bytes(port.rate_bps)
    burst = burst_ticks(port.burst_bytes, rate)
    extra = tc.half_tick_bytes(rate)
    objects: dict[str, dict[str, Any]] = {
        "qdisc 1:": {
            "kind": "htb",
            "parent": tc.ROOT,
            "default": CLASS_ID[DATA] & 0xFFFF,
            "overhead": tc.WIRE_OVERHEAD,
        },
        "class 1:1": _class(tc.ROOT, rate, rate, burst, burst, 0, extra),
    }
    for cls, classid in CLASS_ID.items():
        minor = classid & 0xFFFF
        objects[f"class 1:{minor:x}"] = _class(ROOT_CLASS, OWN_RATE, rate, 1, burst, PRIORITY[cls], extra)
        limit = port.limit_bytes if cls == DATA else other_limit(port)
        leaf: dict[str, Any] = {"kind": "bfifo", "parent": classid, "limit": limit}
        if cls == DATA and red:
            leaf = {
                "kind": "red",
                "parent": classid,
                "limit": limit,
                "low": port.kmin_bytes,
                "high": port.kmin_bytes + 1,
            }
        objects[f"qdisc {LEAF_HANDLE[cls] >> 16:x}:"] = leaf
    return Tree(objects)


def _class(parent: int, rate: int, ceil: int, buffer: int, cbuffer: int, prio: int, extra: int) -> dict[str, Any]:
    return {
        "kind": "htb",
        "parent": parent,
        "rate": rate,
        "ceil": ceil,
        "buffer_ticks": buffer,
        "cbuffer_ticks": cbuffer,
        "prio": prio,
        "quantum": QUANTUM_BYTES,
        "overhead": extra,
    }


def requests(ifindex: int, tree: Tree) -> list[tc.Request]:
    """The messages that make the tree, parents first."""
    return [_request(ifindex, key.split()[1], fields) for key, fields in tree.objects.items()]


def tos_requests(ifindex: int) -> list[tc.Request]:
    """Filters that classify by code point, for a port without the BPF program."""
    return [
        tc.tos_filter(ifindex, ROOT_HANDLE, priority, code, classid, ipv6=ipv6)
        for priority, (code, classid, ipv6) in enumerate(DSCP_CLASSES, 1)
    ]


def _request(ifindex: int, where: str, fields: dict[str, Any]) -> tc.Request:
    major, minor = where.split(":")
    handle = int(major, 16) << 16 | int(minor or "0", 16)
    parent, kind = fields["parent"], fields["kind"]
    if minor:
        return tc.htb_class(
            ifindex,
            handle,
            ROOT_HANDLE if parent == tc.ROOT else parent,
            rate=fields["rate"],
            ceil=fields["ceil"],
            buffer=fields["buffer_ticks"],
            cbuffer=fields["cbuffer_ticks"],
            prio=fields["prio"],
            quantum=fields["quantum"],
        )
    if kind == "htb":
        return tc.htb_root(ifindex, handle, fields["default"])
    if kind == "red":
        return tc.red(
            ifindex, handle, parent, limit=fields["limit"], low=fields["low"], high=fields["high"], max_p=0xFFFFFFFF
        )
    return tc.bfifo(ifindex, handle, parent, fields["limit"])


def describe_qdisc(answer: tc.Answer) -> dict[str, Any]:
    """A qdisc of ours as `plan_tree` writes it; of another kind, its kind and place."""
    out: dict[str, Any] = {"kind": answer.kind, "parent": answer.parent}
    raw = answer.attributes.get(tc.TCA_OPTIONS, b"")
    if answer.kind == "htb":
        out["default"] = struct.unpack_from("=5I", attrs(raw)[2])[2]
        table = attrs(answer.attributes.get(tc.TCA_STAB, b"")).get(1)
        out["overhead"] = tc.SIZE_SPEC.unpack_from(table)[3] if table else 0
    elif answer.kind == "bfifo":
        out["limit"] = struct.unpack_from("=I", raw)[0]
    elif answer.kind == "red":
        out["limit"], out["low"], out["high"] = struct.unpack_from("=III", attrs(raw)[1])
    elif answer.kind == "netem":
        found = attrs(raw, tc.NETEM_OPT.size)
        out["limit"] = tc.NETEM_OPT.unpack_from(raw)[1]
        out["delay_ns"] = struct.unpack_from("=q", found[10])[0] if 10 in found else 0
        wide = found.get(8)
        narrow = struct.unpack_from("=IiIi", found[6]) if 6 in found else (0, 0, 0, 0)
        out["rate"] = struct.unpack_from("=Q", wide)[0] if wide else narrow[0]
        out["overhead"] = narrow[1]
    return out


def describe_class(answer: tc.Answer) -> dict[str, Any]:
    """An HTB class as `plan_tree` writes it."""
    found = attrs(answer.attributes[tc.TCA_OPTIONS])
    rate, ceil, buffer, cbuffer, quantum, _level, prio = tc.HTB_OPT.unpack_from(found[1])
    own, full = tc.RATE.unpack(rate), tc.RATE.unpack(ceil)
    out = _class(answer.parent, own[5], full[5], buffer, cbuffer, prio, full[2])
    out["quantum"] = quantum
    for key, kind in (("rate", 6), ("ceil", 7)):
        if kind in found:
            out[key] = struct.unpack_from("=Q", found[kind])[0]
    return out


def compare(place: str, want: dict[str, dict[str, Any]], have: dict[str, dict[str, Any]]) -> list[str]:
    """Every difference in words: missing, other value, not ours."""
    out = [f"{place}: {key} is missing" for key in want if key not in have]
    out += [f"{place}: {key} ({have[key].get('kind')}) is not in the plan" for key in have if key not in want]
    for key in want:
        for field, value in want[key].items():
            if key in have and have[key].get(field) != value:
                out.append(f"{place}: {key} has {field} {have[key].get(field)}, the plan says {value}")
    return out
