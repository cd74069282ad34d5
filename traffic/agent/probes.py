"""Idle probes: one small packet over each path that the workload uses, timed by the kernel's arrival stamp.

Sent before the traffic and after it, one at a time on an empty fabric, so what they take is propagation, transmission and
nothing else; the judge compares that with the plan (invariant F4).
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from traffic.agent.clock import Clock
from traffic.agent.packet_socket import PacketSocket
from traffic.agent.spec import HostRecord, WorkerSpec
from traffic.packet.codec import FlowTemplate, parse
from traffic.packet.dscp import CONTROL, tos
from traffic.packet.headers import pack_deth
from traffic.packet.opcodes import GSI_QKEY, SPORT_MIN, Opcode

_GSI_QPN = 1
_MOST_PAIRS = 64
_PATIENCE = 4


def probe_paths(
    spec: WorkerSpec, sockets: Sequence[PacketSocket], records: Sequence[HostRecord]
) -> list[tuple[int, int, int, int]]:
    """(src rank, dst rank, frame bytes, one-way fabric ns) for each pair that sends, at most 64; a lost probe has -1.

    Raises nothing: a fabric that loses probes shows in the result.
    """
    clock = Clock(tdf=spec.tdf, start_ns=time.monotonic_ns())
    pairs = sorted({(m.src, m.dst) for m in spec.schedule.moves})
    step = -(-len(pairs) // _MOST_PAIRS)
    return [_probe(spec, sockets, records, clock, src, dst) for src, dst in pairs[::step]]


def _probe(
    spec: WorkerSpec,
    sockets: Sequence[PacketSocket],
    records: Sequence[HostRecord],
    clock: Clock,
    src: int,
    dst: int,
) -> tuple[int, int, int, int]:
    a, b = spec.hosts[src], spec.hosts[dst]
    template = FlowTemplate(
        src_mac=a.mac, dst_mac=a.gateway_mac, src_ip=a.ip, dst_ip=b.ip, dest_qpn=_GSI_QPN, tos=tos(CONTROL)
    )
    header, trailer = template.build(
        Opcode.UD_SEND_ONLY, src, pack_deth(GSI_QKEY, _GSI_QPN), b"", sport=SPORT_MIN + dst, ack_req=False
    )
    size = len(header + trailer)
    sockets[src].slot()[:size] = header + trailer
    sockets[src].queue(size)
    sent = clock.now()
    sockets[src].flush()
    records[src].tx_packets += 1
    records[src].tx_bytes += size
    records[src].tx_control += 1
    patience_s = max(0.2, _PATIENCE * spec.base_rtt_ns[src][dst] * spec.tdf / 1e9)
    while select.select([sockets[dst].fd], [], [], patience_s)[0]:
        for frame, stamp in sockets[dst].receive():
            packet = parse(frame)
            records[dst].rx_packets += 1
            records[dst].rx_bytes += len(frame)
            if packet is not None and packet.dest_qpn == _GSI_QPN and packet.psn == src:
                sockets[dst].release()
                return src, dst, size, clock.at(stamp) - sent + spec.held_ns(src, dst, size)
        sockets[dst].release()
    return src, dst, size, -1
