"""What was seen of a program's TCP as the records every run has: transfers, rates, paths, hosts. Pure but for `host_counts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from emulator.errors import FabricError
from emulator.exec.sockets import Flow, Sample
from traffic.agent import kernel_counts
from traffic.agent.packet_socket import in_namespace
from traffic.agent.spec import KernelHostRecord, MoveRecord

Key = tuple[int, int]
_ETHERNET: Final = 14


def moves_of(flows: Sequence[tuple[Key, Flow]], first_id: int = 0) -> list[MoveRecord]:
    """A transfer for each end that sent; what TCP does not tell stays None."""
    out = []
    for number, (_, flow) in enumerate(flows, first_id):
        info = flow.info
        out.append(
            MoveRecord(
                number,
                number,
                0,
                flow.src,
                flow.dst,
                flow.acked,  # what a closing connection had sent but nobody acknowledged never arrived for certain
                start_ns=flow.start_ns,
                delivered_ns=flow.end_ns,
                acked_ns=flow.end_ns,
                sent=0 if info is None else info.data_segments,
                retransmitted=0 if info is None else info.retransmits,
                reordered=None,
                ce=None if info is None or not info.ecn else info.delivered_ce,
                trimmed=None,
                timeouts=None if info is None else info.timeouts,
                bytes_acked=flow.acked,
            )
        )
    return out


def rates_of(flows: Sequence[tuple[Key, Flow]], samples: Sequence[Sample], first_id: int = 0) -> dict[str, list[Any]]:
    """The columns of the table of rates: window, pacing rate and round trip of each end, where they changed.

    The kernel's times are undilated; `tdf` has no part in them on the virtual clock, and on the real one they are wall time.
    """
    number = {key: i for i, (key, _) in enumerate(flows, first_id)}
    names = ("time_ns", "flow", "qp", "rate_bps", "window_bytes", "rtt_ns", "trigger")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for sample in samples:
        if sample.flow in number:
            info = sample.info
            row = (
                sample.time_ns,
                number[sample.flow],
                number[sample.flow],
                None if info.pacing_rate is None else 8 * info.pacing_rate,
                info.cwnd * info.mss,
                1000 * info.rtt_us,
                info.state,
            )
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
    return columns


def dilated(columns: dict[str, list[Any]], tdf: int) -> dict[str, list[Any]]:
    """The same in fabric time: rates times, round trips divided by the TDF."""
    if tdf == 1:
        return columns
    out = dict(columns)
    out["rate_bps"] = [None if v is None else v * tdf for v in columns["rate_bps"]]
    out["rtt_ns"] = [None if v is None else v // tdf for v in columns["rtt_ns"]]
    return out


def host_counts(netns: str) -> dict[str, int]:
    """The IP counters of a host's namespace, without what went over its loopback."""
    counts = kernel_counts.read(netns)
    packets, octets = in_namespace(netns, _loopback)
    for name in ("Ip.OutRequests", "Ip.InReceives"):
        counts[name] -= packets
    for name in ("IpExt.OutOctets", "IpExt.InOctets"):
        if name in counts:
            counts[name] -= octets - _ETHERNET * packets
    return counts


def _loopback() -> tuple[int, int]:
    """Packets and bytes (with a link header each) that `lo` sent."""
    for line in Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == "lo":
            words = rest.split()
            return int(words[9]), int(words[8])
    raise FabricError("no loopback interface", where="/proc/net/dev", remedy="report this with the kernel's version")


def host_records(before: Sequence[Mapping[str, int]], after: Sequence[Mapping[str, int]]) -> list[KernelHostRecord]:
    """What each host's kernel sent and took between two readings."""
    return [kernel_counts.host_record(i, a, b) for i, (a, b) in enumerate(zip(before, after, strict=True))]
