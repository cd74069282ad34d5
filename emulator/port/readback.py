"""What the kernel holds at a port, asked anew, in the form that `shaper.compare` sets against the plan."""

from __future__ import annotations

import struct
from typing import Any

from emulator.port import delay, shaper, tc
from emulator.port.model import PortLike
from emulator.port.netlink import Netlink, attrs

IFLA_STATS64 = 23
DROP_CLASSID = 0xFFF0
"""Class id of the filter that drops RoCE frames at a host's ingress; above every port number in use."""


def links(netlink: Netlink) -> dict[str, int]:
    """Interface index by name, in the socket's namespace."""
    return {name: index for name, (index, _) in link_table(netlink).items()}


def link_table(netlink: Netlink) -> dict[str, tuple[int, dict[int, bytes]]]:
    """Interface index and attributes by name."""
    return tc.links(netlink.dump(tc.RTM_GETLINK, tc.IFINFO.pack(0, 0, 0, 0, 0)))


def tx_dropped(found: dict[int, bytes]) -> int:
    """Packets a device dropped behind its queue (rtnl_link_stats64.tx_dropped): for veth, refused by the other end."""
    return int(struct.unpack_from("=8Q", found[IFLA_STATS64])[7])


def qdiscs(netlink: Netlink) -> list[tc.Answer]:
    """All queueing disciplines of the namespace."""
    return [tc.parse(data) for data in netlink.dump(tc.RTM_GETQDISC, tc.message(0))]


def _filters(netlink: Netlink, index: int, parent: int) -> list[tc.Answer]:
    found = [tc.parse(data) for data in netlink.dump(tc.RTM_GETTFILTER, tc.message(index, parent=parent))]
    # the first answer of a chain describes the classifier itself and has no options
    return [answer for answer in found if answer.handle and tc.TCA_OPTIONS in answer.attributes]


def _filter_fields(answer: tc.Answer) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": answer.kind}
    options = attrs(answer.attributes[tc.TCA_OPTIONS])
    if answer.kind == "bpf":
        out["classid"] = struct.unpack("=I", options[3])[0] if 3 in options else 0
        out["program"] = struct.unpack("=I", options[11])[0] if 11 in options else 0
    elif answer.kind == "u32" and 1 in options:
        out["classid"] = struct.unpack("=I", options[1])[0]
    return out


def _is_rule(answer: tc.Answer) -> bool:
    """Not the hash tables that u32 keeps beside its rules (their handle has no node)."""
    return answer.kind != "u32" or bool(answer.handle & 0xFFF)


def egress(
    netlink: Netlink, index: int, all_qdiscs: list[tc.Answer], *, with_ingress: bool
) -> dict[str, dict[str, Any]]:
    """Queues, classes and filters of one interface by readable key."""
    out: dict[str, dict[str, Any]] = {}
    here = [answer for answer in all_qdiscs if answer.ifindex == index]
    for answer in here:
        out[f"qdisc {answer.handle >> 16:x}:"] = shaper.describe_qdisc(answer)
    for data in netlink.dump(tc.RTM_GETTCLASS, tc.message(index)):
        answer = tc.parse(data)
        if answer.kind == "htb":
            out[f"class {answer.handle >> 16:x}:{answer.handle & 0xFFFF:x}"] = shaper.describe_class(answer)
    places = {"root": shaper.ROOT_HANDLE}
    if any(answer.kind == "clsact" for answer in here):
        places |= {"egress": tc.EGRESS} | ({"ingress": tc.INGRESS} if with_ingress else {})
    for place, parent in places.items():
        if place == "root" and not any(answer.handle == parent for answer in here):
            continue
        for answer in _filters(netlink, index, parent):
            if _is_rule(answer):
                out[f"filter {place} {answer.info >> 16}"] = _filter_fields(answer)
    return out


def way(
    netlink: Netlink, at: int | None, ifb: int | None, all_qdiscs: list[tc.Answer]
) -> dict[str, dict[str, Any]] | None:
    """The delay of what arrives at interface `at`: the redirect and the netem on the IFB; `None` where there is no IFB."""
    if at is None or ifb is None:
        return None
    out: dict[str, dict[str, Any]] = {}
    for answer in all_qdiscs:
        if answer.ifindex == ifb and answer.parent == tc.ROOT:
            out[answer.kind] = shaper.describe_qdisc(answer)
    for answer in _filters(netlink, at, tc.INGRESS):
        target = _redirect_target(answer) if _is_rule(answer) else None
        if target is not None:
            out["redirect"] = {"to": target == ifb}
    return out


def _redirect_target(answer: tc.Answer) -> int | None:
    actions = attrs(attrs(answer.attributes[tc.TCA_OPTIONS]).get(7, b""))
    parms = attrs(attrs(actions.get(1, b"")).get(2, b"")).get(2)
    return int(struct.unpack_from("=IIiiiiI", parms)[6]) if parms else None


def want_egress(
    port: PortLike, *, red: bool, netem: bool, host: bool, programs: dict[str, int]
) -> dict[str, dict[str, Any]]:
    """What `egress` should find; `programs` maps part to the kernel's program number, empty without BPF."""
    want = dict(shaper.plan_tree(port, red=red).objects)
    if programs or netem:
        want["qdisc ffff:"] = {"kind": "clsact"}
    if programs:
        want["filter egress 1"] = {"kind": "bpf", "classid": port.number + 1, "program": programs["port_egress"]}
        if host and not netem:
            want["filter ingress 1"] = {"kind": "bpf", "classid": DROP_CLASSID, "program": programs["drop_roce"]}
    else:
        for priority, (_, classid, _) in enumerate(shaper.DSCP_CLASSES, 1):
            want[f"filter root {priority}"] = {"kind": "u32", "classid": classid}
    return want


def want_way(port: PortLike) -> dict[str, dict[str, Any]]:
    """What `way` should find."""
    return {"netem": delay.plan_netem(port), "redirect": {"to": True}}
