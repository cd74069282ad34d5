"""Traffic-control messages: the few kinds a port needs, packed by hand.

tc rounds a burst to whole microseconds (9000 bytes at 100 Gbit/s become 0) and starts a process for each command; here the
buffer is set in the kernel's own ticks of 64 ns and rates in 64 bits. Layouts: include/uapi/linux/{pkt_sched,pkt_cls,rtnetlink}.h.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from emulator.port.netlink import NLM_F_CREATE, NLM_F_EXCL, attr, attrs, nest

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
RTM_NEWTFILTER, RTM_GETTFILTER = 44, 46

TCA_KIND, TCA_OPTIONS, TCA_STATS2, TCA_STAB = 1, 2, 7, 8
ROOT, CLSACT_PARENT, CLSACT_HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3

TICK_NS = 64
LINKLAYER_ETHERNET = 1
ETH_P_ALL = 3
WIRE_OVERHEAD = 24
"""Bytes a frame takes on the wire beyond what the kernel counts: preamble 8, FCS 4, gap 12 (IEEE 802.3)."""

MSG = struct.Struct("=BBHiIII")
IFINFO = struct.Struct("=BxHiII")
RATE = struct.Struct("=BBHhHI")
HTB_OPT = struct.Struct("=12s12sIIIII")
SIZE_SPEC = struct.Struct("=BBhiIIII")
NETEM_OPT = struct.Struct("=IIIIII")
NEW = NLM_F_CREATE | NLM_F_EXCL

Request = tuple[int, int, bytes, str]


def message(ifindex: int, handle: int = 0, parent: int = 0, info: int = 0) -> bytes:
    """struct tcmsg."""
    return MSG.pack(0, 0, 0, ifindex, handle, parent, info)


def _named(kind: str, options: bytes, *more: bytes) -> bytes:
    return attr(TCA_KIND, kind.encode() + b"\0") + options + b"".join(more)


def qdisc(ifindex: int, handle: int, parent: int, kind: str, options: bytes = b"", *more: bytes) -> Request:
    """Adds a queueing discipline; it must not be there yet."""
    body = message(ifindex, handle, parent) + _named(kind, options, *more)
    return RTM_NEWQDISC, NEW, body, f"{kind} {handle >> 16:x}: on interface {ifindex}"


def delete_qdisc(ifindex: int, handle: int, parent: int) -> Request:
    """Takes a queueing discipline away."""
    return RTM_DELQDISC, 0, message(ifindex, handle, parent), f"delete qdisc {handle >> 16:x}: on interface {ifindex}"


def htb_root(ifindex: int, handle: int, default: int) -> Request:
    """HTB with a size table that charges true wire length, also to a packet that was trimmed before it was queued."""
    init = attr(2, struct.pack("=IIIII", 3, 10, default, 0, 0))
    table = nest(TCA_STAB, attr(1, SIZE_SPEC.pack(0, 0, 0, WIRE_OVERHEAD, LINKLAYER_ETHERNET, 0, 0, 0)))
    return qdisc(ifindex, handle, ROOT, "htb", nest(TCA_OPTIONS, init), table)


def _rate(rate_bytes: int, overhead: int) -> bytes:
    # a link layer that is set spares the kernel the old rate tables (net/sched/sch_htb.c, htb_change_class)
    return RATE.pack(0, LINKLAYER_ETHERNET, overhead, 0, 0, min(rate_bytes, 0xFFFFFFFF))


def half_tick_bytes(rate_bytes: int) -> int:
    """Bytes of half a nanosecond at a rate: charged on top, they turn the kernel's cut to whole ns into a rounding.

    psched_l2t_ns() (include/net/sch_generic.h) drops the fraction: at 800 Gbit/s a 4182-byte frame would take 41 ns
    instead of 41.8, and the port would run 2 % too fast.
    """
    return min(0xFFFF, (rate_bytes + 10**9) // (2 * 10**9))


def htb_class(
    ifindex: int, classid: int, parent: int, *, rate: int, ceil: int, buffer: int, cbuffer: int, prio: int, quantum: int
) -> Request:
    """An HTB class; `rate` and `ceil` in bytes/s, buffers in ticks of 64 ns."""
    extra = half_tick_bytes(ceil)
    opt = HTB_OPT.pack(_rate(rate, extra), _rate(ceil, extra), buffer, cbuffer, quantum, 0, prio)
    wide = [attr(kind, struct.pack("=Q", value)) for kind, value in ((6, rate), (7, ceil)) if value > 0xFFFFFFFF]
    body = message(ifindex, classid, parent) + _named("htb", nest(TCA_OPTIONS, attr(1, opt), *wide))
    return RTM_NEWTCLASS, NEW, body, f"class {classid >> 16:x}:{classid & 0xFFFF:x} on interface {ifindex}"


def bfifo(ifindex: int, handle: int, parent: int, limit_bytes: int) -> Request:
    """A FIFO with a limit in bytes."""
    return qdisc(ifindex, handle, parent, "bfifo", attr(TCA_OPTIONS, struct.pack("=I", limit_bytes)))


def tbf(ifindex: int, handle: int, *, rate: int, buffer_ticks: int, limit_bytes: int) -> Request:
    """A token bucket; only probed for, ports use HTB."""
    parms = _rate(rate, 0) + bytes(12) + struct.pack("=III", limit_bytes, buffer_ticks, 0)
    return qdisc(ifindex, handle, ROOT, "tbf", nest(TCA_OPTIONS, attr(1, parms)))


def red(ifindex: int, handle: int, parent: int, *, limit: int, low: int, high: int, max_p: int) -> Request:
    """RED on the instantaneous queue: weight 1 and an idle table that forgets at once (tc can do neither); marks, never drops early."""
    ecn = 1
    parms = struct.pack("=IIIBBBB", limit, low, high, 0, 0, 0, ecn)
    options = nest(TCA_OPTIONS, attr(1, parms), attr(2, b"\x1f" * 256), attr(3, struct.pack("=I", max_p)))
    return qdisc(ifindex, handle, parent, "red", options)


def clsact(ifindex: int) -> Request:
    """The hook for programs at both directions."""
    return qdisc(ifindex, CLSACT_HANDLE, CLSACT_PARENT, "clsact")


def _filter(ifindex: int, parent: int, priority: int, protocol: int, kind: str, options: bytes, label: str) -> Request:
    body = message(ifindex, 0, parent, priority << 16 | socket.htons(protocol)) + _named(kind, options)
    return RTM_NEWTFILTER, NEW, body, f"{label} on interface {ifindex}"


def bpf_filter(ifindex: int, parent: int, fd: int, name: str, classid: int) -> Request:
    """A BPF program in direct-action mode; the lower half of `classid` is what it finds in tc_classid."""
    options = nest(
        TCA_OPTIONS,
        attr(3, struct.pack("=I", classid)),
        attr(6, struct.pack("=I", fd)),
        attr(7, name.encode() + b"\0"),
        attr(8, struct.pack("=I", 1)),
    )
    return _filter(ifindex, parent, 1, ETH_P_ALL, "bpf", options, f"BPF filter {name}")


def classic_filter(ifindex: int) -> Request:
    """The least BPF filter (classic, one instruction), to find out whether this kernel has the classifier."""
    accept = struct.pack("=HBBI", 6, 0, 0, 0xFFFFFFFF)
    options = nest(TCA_OPTIONS, attr(4, struct.pack("=H", 1)), attr(5, accept), attr(8, struct.pack("=I", 1)))
    return _filter(ifindex, EGRESS, 1, ETH_P_ALL, "bpf", options, "BPF filter")


def _u32(mask: int, value: int, *more: bytes) -> bytes:
    """Options of a u32 filter on the first word behind the link header."""
    terminal = 1
    selector = struct.pack("=BBBxHHhhI", terminal, 0, 1, 0, 0, 0, 0, 0) + struct.pack("!II", mask, value) + bytes(8)
    return nest(TCA_OPTIONS, attr(5, selector), *more)


def redirect_filter(ifindex: int, target: int) -> Request:
    """Everything that comes in here goes out at `target` (u32 that matches all, mirred egress redirect)."""
    stolen, egress_redirect = 4, 1
    mirred = struct.pack("=IIiiiiI", 0, 0, stolen, 0, 0, egress_redirect, target)
    action = nest(1, attr(1, b"mirred\0"), nest(2, attr(2, mirred)))
    return _filter(ifindex, INGRESS, 1, ETH_P_ALL, "u32", _u32(0, 0, nest(7, action)), "redirect")


def tos_filter(ifindex: int, parent: int, priority: int, dscp: int, classid: int, *, ipv6: bool) -> Request:
    """Sends one code point to one class without BPF."""
    mask, value = (0x0FC00000, dscp << 22) if ipv6 else (0x00FC0000, dscp << 18)
    options = _u32(mask, value, attr(1, struct.pack("=I", classid)))
    return _filter(ifindex, parent, priority, 0x86DD if ipv6 else 0x0800, "u32", options, f"DSCP {dscp}")


def netem(
    ifindex: int,
    handle: int,
    *,
    delay_ns: int,
    limit_packets: int,
    rate_bytes: int = 0,
    overhead: int = 0,
    seed: int | None = None,
) -> Request:
    """netem as root: a delay to the nanosecond and, with a rate, the packet's own transmission time."""
    parts = [NETEM_OPT.pack(0, limit_packets, 0, 0, 0, 0), attr(10, struct.pack("=q", delay_ns))]
    if rate_bytes:
        parts.append(attr(6, struct.pack("=IiIi", min(rate_bytes, 0xFFFFFFFF), overhead, 0, 0)))
        if rate_bytes > 0xFFFFFFFF:
            parts.append(attr(8, struct.pack("=Q", rate_bytes)))
    if seed is not None:
        parts.append(attr(14, struct.pack("=Q", seed)))
    return qdisc(ifindex, handle, ROOT, "netem", attr(TCA_OPTIONS, b"".join(parts)))


def new_link(
    name: str, kind: str, *, peer: str | None = None, alias: str | None = None, mtu: int | None = None
) -> Request:
    """A virtual interface, up at once; a `peer` makes the other end of a veth pair, which is not up yet."""
    data = b""
    if peer is not None:
        data = nest(2, attr(1, IFINFO.pack(0, 0, 0, 0, 0) + attr(3, peer.encode() + b"\0")))
    info = nest(18, attr(1, kind.encode() + b"\0"), *([data] if data else []))
    more = (attr(20, alias.encode() + b"\0") if alias else b"") + (attr(4, struct.pack("=I", mtu)) if mtu else b"")
    body = IFINFO.pack(0, 0, 0, 1, 1) + attr(3, name.encode() + b"\0") + more + info
    return RTM_NEWLINK, NEW, body, f"{kind} {name}"


def delete_link(ifindex: int) -> Request:
    """Removes an interface."""
    return RTM_DELLINK, 0, IFINFO.pack(0, 0, ifindex, 0, 0), f"delete interface {ifindex}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One qdisc, class or filter as the kernel told it."""

    ifindex: int
    handle: int
    parent: int
    info: int
    kind: str
    attributes: dict[int, bytes]


def parse(data: bytes) -> Answer:
    """A tc answer with its attributes."""
    _, _, _, ifindex, handle, parent, info = MSG.unpack_from(data)
    found = attrs(data, MSG.size)
    return Answer(ifindex, handle, parent, info, found.get(TCA_KIND, b"").rstrip(b"\0").decode(), found)


def links(answers: list[bytes]) -> dict[str, tuple[int, dict[int, bytes]]]:
    """Interface name to index and attributes, of a dump of links."""
    out: dict[str, tuple[int, dict[int, bytes]]] = {}
    for data in answers:
        found = attrs(data, IFINFO.size)
        out[found[3].rstrip(b"\0").decode()] = (IFINFO.unpack_from(data)[2], found)
    return out
