"""Queue pairs of one run, made from its resolved options: what every host and every test builds them by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from traffic.congestion.base import CongestionControl, Feedback, PathInfo, ReceiverControl
from traffic.congestion.registry import create, create_receiver, parameters
from traffic.errors import TrafficError
from traffic.packet.codec import wire_bytes
from traffic.packet.opcodes import SPORT_MIN, Opcode
from traffic.rng import Rng
from traffic.transport.base import Memory, QueuePair, Sink
from traffic.transport.mrc import MrcQueuePair
from traffic.transport.options import MrcOptions, RcOptions
from traffic.transport.paths import PathSet, PathSettings, PathState, by_lot
from traffic.transport.rc import RcQueuePair
from traffic.transport.spray import make_paths

_PORTS: Final = 0x4000


def path_info(
    cls: type[CongestionControl],
    *,
    kind: str,
    mtu: int,
    rate_bps: int,
    base_rtt_ns: int,
    hops: int,
    ack_every: int,
    quantum_ns: int,
    trimming: bool,
) -> PathInfo:
    """The path as a sender sees it: acknowledgements wait for packets, and loops for a quantum, on an empty fabric too."""
    credit = cls.feedback is Feedback.CREDIT
    data = Opcode.MRC_WRITE_MIDDLE if kind == "mrc" else Opcode.RC_WRITE_MIDDLE
    wire = wire_bytes(data, mtu, timestamp=kind == "mrc" and credit)
    patience = (ack_every - 1) * wire * 8_000_000_000 // rate_bps + 2 * quantum_ns
    return PathInfo(
        line_rate_bps=rate_bps,
        base_rtt_ns=base_rtt_ns + patience,
        mtu_bytes=mtu,
        wire_mtu_bytes=wire,
        hops=hops,
        trimming=trimming,
    )


class QueuePairs:
    """Makes queue pairs. The algorithm's class and parameters are found once, for the `longest` path of the run.

    `options` are the transport's own, all resolved (see `emulator/experiment/options.py`).
    """

    def __init__(
        self,
        *,
        kind: str,
        mtu: int,
        cls: type[CongestionControl],
        cc_params: Mapping[str, Any],
        options: Mapping[str, Any],
        longest: PathInfo,
        sink: Sink,
    ) -> None:
        if kind not in ("roce", "mrc"):
            raise TrafficError(f"no packet transport {kind!r}", where="--transport", remedy="choose roce or mrc")
        self.mtu = mtu
        self.cls = cls
        self.params = parameters(cls, path=longest, params=cc_params)
        self.options = options
        self.sink = sink
        self._behaviour = _rc_options(cls, options) if kind == "roce" else _mrc_options(options)

    def receiving(self, path: PathInfo) -> ReceiverControl | None:
        """The receiver's half for one host, None where the algorithm has none; `path` is its farthest sender's."""
        made = create_receiver(self.cls, path=path, params=self.params)
        return None if type(made) is ReceiverControl else made

    def make(
        self,
        *,
        qpn: int,
        peer_qpn: int,
        label: str,
        path: PathInfo,
        memory: Memory,
        first_psn: int,
        peer_first_psn: int,
        rng: Rng,
        receiving: ReceiverControl | None,
        evs: Sequence[int] | None = None,
        orders: Sequence[tuple[int, int, bool]] = (),
    ) -> QueuePair:
        """One end of a connection. `evs`: its entropy values (by lot if None); `orders`: the path controller's."""
        common: dict[str, Any] = {
            "qpn": qpn,
            "peer_qpn": peer_qpn,
            "label": label,
            "mtu": self.mtu,
            "cc": create(self.cls, path=path, params=self.params),
            "memory": memory,
            "sink": self.sink,
            "first_psn": first_psn,
            "peer_first_psn": peer_first_psn,
            "receiving": receiving,
        }
        if isinstance(self._behaviour, RcOptions):
            return RcQueuePair(**common, sport=SPORT_MIN + rng.below(_PORTS), options=self._behaviour)
        values = evs or by_lot(rng, self.options["entropy"])
        paths = self._paths(path, qpn, label, values, rng, orders)
        return MrcQueuePair(**common, paths=paths, options=self._behaviour)

    def _paths(
        self,
        path: PathInfo,
        qpn: int,
        label: str,
        evs: Sequence[int],
        rng: Rng,
        orders: Sequence[tuple[int, int, bool]],
    ) -> PathSet:
        rows = self.sink.log

        def note(now: int, ev: int, state: PathState, why: str) -> None:
            rows.append(
                {"time_ns": now, "kind": "path", "qp": qpn, "flow": label, "ev": ev, "state": state.value, "why": why}
            )

        options = self.options
        settings = PathSettings(
            evs=evs,
            rng=rng,
            note=note,
            base_rtt_ns=path.base_rtt_ns,
            probe_ns=options["probe_ns"],
            probes_needed=options["probes_needed"],
            min_active=options["min_active"],
            orders=orders,
        )
        return make_paths(options["spray"], settings)


def _rc_options(cls: type[CongestionControl], options: Mapping[str, Any]) -> RcOptions:
    return RcOptions(
        recovery=options["recovery"],
        ack_every=options["ack_every"],
        timeout_ns=options["timeout_ns"],
        timeout_low_ns=options["timeout_low_ns"],
        adaptive=options["adaptive_timeout"],
        retry_count=options["retry_count"],
        window_cap=options["bdp_cap_packets"],
        echo_ecn=cls.feedback is Feedback.ACK,
    )


def _mrc_options(options: Mapping[str, Any]) -> MrcOptions:
    return MrcOptions(
        ack_every=options["ack_every"],
        rto_ns=options["timeout_ns"],
        adaptive=options["adaptive_timeout"],
        retry_count=options["retry_count"],
        reorder_ns=options["reorder_ns"],
    )
