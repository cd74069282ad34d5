"""What a host's kernel counts of its IP packets: /proc/net/snmp and /proc/net/netstat of its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from traffic.agent.packet_socket import in_namespace
from traffic.agent.spec import HostRecord, KernelHostRecord
from traffic.errors import TrafficError

_ETHERNET = 14
_LOST = ("TCPBacklogDrop", "TCPRcvQDrop", "RcvPruned", "OfoPruned")
"""Packets that TCP itself threw away at the receiver (net/ipv4/proc.c, tcp_input.c)."""


def read(netns: str) -> dict[str, int]:
    """Counters by name (`Ip.InReceives`, `IpExt.InCEPkts`, `TcpExt.TCPBacklogDrop` …) of one namespace."""

    def texts() -> str:
        folder = Path("/proc/thread-self/net")
        return "".join((folder / name).read_text(encoding="ascii") for name in ("snmp", "netstat"))

    return parse(in_namespace(netns, texts))


def parse(text: str) -> dict[str, int]:
    """From the two-line tables: names behind `Group:`, then values behind the same."""
    lines = [line.split() for line in text.splitlines() if line]
    counts: dict[str, int] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        if names[0] != values[0]:
            raise TrafficError("unexpected order of lines", where="/proc/net/snmp", remedy="report this with the file")
        counts.update({names[0].rstrip(":") + "." + n: int(v) for n, v in zip(names[1:], values[1:], strict=True)})
    return counts


def host_record(rank: int, start: Mapping[str, int], end: Mapping[str, int]) -> KernelHostRecord:
    """A host's packets between two readings; what the kernel does not count is None."""

    def grown(name: str) -> int | None:
        return end[name] - start[name] if name in start and name in end else None

    def octets(name: str, packets: int | None) -> int | None:
        size = grown(name)
        return None if size is None or packets is None else size + _ETHERNET * packets

    sent, got = grown("Ip.OutRequests"), grown("Ip.InReceives")
    lost = [n for n in map(grown, (f"TcpExt.{name}" for name in _LOST)) if n is not None]
    return KernelHostRecord(
        rank,
        tx_packets=sent,
        tx_bytes=octets("IpExt.OutOctets", sent),
        rx_packets=got,
        rx_bytes=octets("IpExt.InOctets", got),
        rx_ce=grown("IpExt.InCEPkts"),
        kernel_drops=sum(lost) if lost else None,
    )


def add(record: KernelHostRecord, counted: HostRecord) -> None:
    """Add the frames that a packet socket sent and took beside the kernel; what is not known stays so."""
    for name in ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes"):
        known = getattr(record, name)
        if known is not None:
            setattr(record, name, known + getattr(counted, name))
