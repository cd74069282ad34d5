"""Queue pairs for every pair of hosts that exchange moves: numbers, first PSNs, entropy, congestion control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from traffic.agent.nic import Nic
from traffic.agent.spec import HostSpec, WorkerSpec
from traffic.congestion.base import Feedback, PathInfo
from traffic.congestion.registry import create
from traffic.errors import TrafficError
from traffic.packet.codec import FlowTemplate, wire_bytes
from traffic.packet.dscp import DATA, ECT0, tos
from traffic.packet.opcodes import SPORT_MIN, Opcode
from traffic.rng import Rng
from traffic.transport.base import Memory, QueuePair, Sink
from traffic.transport.mrc import MrcQueuePair
from traffic.transport.mrc_sender import MrcOptions
from traffic.transport.rc import RcQueuePair
from traffic.transport.rc_requester import RcOptions
from traffic.transport.spray import PathState, make_paths

_FIRST_QPN = 0x100
_PORTS = 0x4000


@dataclass(slots=True)
class Connection:
    """Both ends of one connection; `index` counts the queue pairs of the same two hosts."""

    src: int
    dst: int
    index: int
    sender: QueuePair
    receiver: QueuePair


class Connector:
    """Makes connections from the worker's specification; everything random comes from its seed."""

    def __init__(self, spec: WorkerSpec, nics: list[Nic], memories: list[Memory], sink: Sink) -> None:
        self.spec = spec
        self.nics = nics
        self.memories = memories
        self.sink = sink
        self._qpn = _FIRST_QPN

    def connect(self, src: int, dst: int, index: int) -> Connection:
        """A queue pair on each of the two hosts, `src` sending to `dst`."""
        near, far = self._qpn, self._qpn + 1
        self._qpn += 2
        rng = Rng(self.spec.seed, "connection", src, dst, index)
        psns = rng.below(1 << 24), rng.below(1 << 24)
        label = f"{self.spec.hosts[src].name}>{self.spec.hosts[dst].name}" + (f"#{index}" if index else "")
        sender = self._queue_pair(src, dst, near, far, psns, label, rng)
        receiver = self._queue_pair(dst, src, far, near, psns[::-1], label, rng)
        self.nics[src].add(sender, self._template(src, dst, far), dst)
        self.nics[dst].add(receiver, self._template(dst, src, near), src)
        return Connection(src, dst, index, sender, receiver)

    def _template(self, src: int, dst: int, qpn: int) -> FlowTemplate:
        a, b = self.spec.hosts[src], self.spec.hosts[dst]
        return FlowTemplate(
            src_mac=a.mac, dst_mac=_next_mac(a, b), src_ip=a.ip, dst_ip=b.ip, dest_qpn=qpn, tos=tos(DATA, ECT0)
        )

    def _queue_pair(
        self, mine: int, other: int, qpn: int, peer: int, psns: tuple[int, int], label: str, rng: Rng
    ) -> QueuePair:
        t = self.spec.transport
        opt = t.options
        roce = t.kind == "roce"
        data = Opcode.RC_WRITE_MIDDLE if roce else Opcode.MRC_WRITE_MIDDLE
        wire = wire_bytes(data, t.mtu)
        rate = self.spec.hosts[mine].rate_bps
        # What a sender sees on an empty fabric: acknowledgements wait for a few packets, and loops for their quantum.
        patience = (opt["ack_every"] - 1) * wire * 8_000_000_000 // rate + 2 * self.spec.quantum_ns
        path = PathInfo(
            line_rate_bps=rate,
            base_rtt_ns=self.spec.base_rtt_ns[mine][other] + patience,
            mtu_bytes=t.mtu,
            wire_mtu_bytes=wire,
            hops=self.spec.hops[mine][other],
        )
        cc = create(t.cc, path=path, params=t.cc_params, preset=t.cc_preset)
        common: dict[str, Any] = {
            "qpn": qpn,
            "peer_qpn": peer,
            "label": label,
            "mtu": t.mtu,
            "cc": cc,
            "memory": self.memories[mine],
            "sink": self.sink,
            "first_psn": psns[0],
            "peer_first_psn": psns[1],
        }
        every_ack = cc.feedback is Feedback.ACK
        if roce:
            bdp_packets = max(1, -(-path.bdp_bytes // path.wire_mtu_bytes))
            selective = opt["recovery"] == "selective"
            return RcQueuePair(
                **common,
                sport=SPORT_MIN + rng.below(_PORTS),
                options=RcOptions(
                    recovery=opt["recovery"],
                    ack_every=1 if every_ack else opt["ack_every"],
                    timeout_ns=opt["timeout_ns"],
                    adaptive=opt["adaptive_timeout"],
                    retry_count=opt["retry_count"],
                    cnp_interval_ns=opt["cnp_interval_ns"] if cc.feedback is Feedback.CNP else 0,
                    window_cap=2 * bdp_packets if selective and opt["bdp_cap"] else None,
                    echo_ecn=every_ack,
                ),
            )
        if t.kind != "mrc":
            raise TrafficError(f"no packet transport {t.kind!r}", where="--transport", remedy="choose roce or mrc")
        given = opt.get("entropy_values", {}).get(f"{mine}-{other}")
        evs = given or [SPORT_MIN + p for p in rng.shuffled(range(_PORTS))[: opt["entropy"]]]
        sink = self.sink

        def note(now: int, ev: int, state: PathState, why: str) -> None:
            sink.log.append({"time_ns": now, "kind": "path", "flow": label, "ev": ev, "state": state.value, "why": why})

        paths = make_paths(
            opt["spray"],
            evs=evs,
            rng=rng,
            note=note,
            base_rtt_ns=path.base_rtt_ns,
            probe_ns=opt["probe_ns"],
            probes_needed=opt["probes_needed"],
            min_active=opt["min_active"],
        )
        return MrcQueuePair(
            **common,
            paths=paths,
            options=MrcOptions(
                ack_every=opt["ack_every"],
                rto_ns=opt["timeout_ns"],
                retry_count=opt["retry_count"],
                reorder_ns=opt["reorder_ns"],
            ),
        )


def _next_mac(a: HostSpec, b: HostSpec) -> str:
    """The MAC address of the next hop: the gateway's (a host of the same link is behind it too)."""
    return a.gateway_mac if a.gateway_mac else b.mac
