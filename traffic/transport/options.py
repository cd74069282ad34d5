"""How the queue pairs of each transport behave; all times in fabric nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

from traffic.packet.mrc_headers import MPR_UNIT


@dataclass(frozen=True, slots=True)
class RcOptions:
    """How an RC queue pair behaves; times in fabric ns.

    `timeout_ns` is the local ACK timeout, doubled at each fruitless retry when `adaptive`; `timeout_low_ns` stands
    for it in selective repeat while few packets are in flight (IRN's RTO_low). `ack_every`: how often an ACK is asked
    for. `max_rd_atomic`: READs and atomics under way at once. `recv_depth`: receive buffers for WRITEs with immediate
    (None: always enough); `rnr_timer`: the code sent when there is none. `window_cap`: packets from the oldest
    unacknowledged to the newest, whatever the algorithm says (IRN's BDP cap). `echo_ecn`: acknowledgements tell of CE marks.
    """

    recovery: str = "gbn"
    ack_every: int = 4
    timeout_ns: int = 1_048_576
    timeout_low_ns: int = 1_048_576
    adaptive: bool = True
    retry_count: int = 7
    rnr_retry: int = 7
    rnr_timer: int = 1
    max_rd_atomic: int = 16
    recv_depth: int | None = None
    window_cap: int | None = None
    echo_ecn: bool = False


@dataclass(frozen=True, slots=True)
class MrcOptions:
    """How an MRC queue pair behaves; times in fabric ns.

    `ack_every` packets a SACK (one at once for a marked or last packet); `rto_ns` the retransmission timer, doubled
    (when `adaptive`) after `linear_retries` fruitless ones, `retry_count` of them end the connection; `reorder_ns`
    how much later than another a packet may arrive before it counts as lost; `max_psn_range` packets between the
    oldest unacknowledged and the newest: what the receiver's bitmap holds, and what the sender starts from.
    """

    ack_every: int = 4
    rto_ns: int = 524_288
    adaptive: bool = True
    linear_retries: int = 3
    retry_count: int = 25
    reorder_ns: int = 20_000
    max_psn_range: int = 128 * MPR_UNIT
