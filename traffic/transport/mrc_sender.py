"""The sending half of an MRC queue pair: every packet on another path, only the lost one resent.

Loss is learned from a NACK (trimmed packet), from packets sent later that were acknowledged more than a reordering
window ago (as RACK, RFC 8985, infers it), or from the timer; a clear bit in a SACK bitmap says nothing by itself
(UEC 1.0, PDS). `una` is the oldest sequence number not acknowledged; bit i of `known` says that `una + i` was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from traffic.congestion.base import CongestionControl, Loss
from traffic.packet.headers import pack_immdt, pack_reth
from traffic.packet.mrc_headers import (
    MPR_UNIT,
    Nack,
    NackReason,
    PathMark,
    Probe,
    Sack,
    pack_meth,
    pack_probe,
)
from traffic.packet.opcodes import FLAG_RTX, Opcode, psn_diff
from traffic.transport.base import NEVER, TOS_CONTROL, TOS_DATA, Outgoing, Sink, Verb, WorkRequest
from traffic.transport.spray import Mark, PathSet

_LOSS = {NackReason.TRIMMED: Loss.TRIM, NackReason.TRIMMED_LAST_HOP: Loss.TRIM_LAST_HOP}


@dataclass(frozen=True, slots=True)
class MrcOptions:
    """How an MRC queue pair behaves; times in fabric ns.

    `ack_every` packets a SACK (one at once for a marked or last packet); `rto_ns` the retransmission timer, doubled after
    `linear_retries` fruitless ones, `retry_count` of them end the connection; `reorder_ns` how much later than another a
    packet may arrive before it counts as lost; `max_psn_range` packets between the oldest unacknowledged and the newest.
    """

    ack_every: int = 4
    rto_ns: int = 524_288
    linear_retries: int = 7
    retry_count: int = 25
    reorder_ns: int = 20_000
    max_psn_range: int = 128 * MPR_UNIT
    trimming: bool = False


@dataclass(slots=True)
class _Flight:
    sent_at: int
    ev: int
    again: bool
    size: int


class MrcSender:
    """Sends WRITEs and WRITEs with immediate, the only operations MRC has."""

    def __init__(
        self,
        *,
        peer_qpn: int,
        mtu: int,
        psn0: int,
        cc: CongestionControl,
        paths: PathSet,
        options: MrcOptions,
        sink: Sink,
    ) -> None:
        self.peer_qpn = peer_qpn
        self.mtu = mtu
        self.psn0 = psn0
        self.cc = cc
        self.paths = paths
        self.opt = options
        self.sink = sink
        self.work: list[WorkRequest] = []
        self.firsts: list[int] = []
        self.done = 0
        self.una = 0
        self.nxt = 0
        self.end = 0
        self.known = 0
        self.flights: dict[int, _Flight] = {}
        self.lost: deque[int] = deque()
        self.newest_acked = -1
        self.retries = 0
        self.last_rtt_ns = -1
        self.deadline = NEVER
        self.probes: dict[int, tuple[int, int]] = {}
        self.probe_id = 0
        self.error: tuple[str, str] | None = None

    def post(self, work: WorkRequest, now: int) -> None:
        """Queue a message."""
        if work.verb not in (Verb.WRITE, Verb.WRITE_IMM):
            self.error = (f"MRC has no {work.verb.name}", "use WRITE or WRITE_IMM, or the roce transport")
            return
        work.first = self.end
        work.posted_ns = now
        work.packets = max(1, -(-len(work.local) // self.mtu))
        self.end += work.packets
        self.work.append(work)
        self.firsts.append(work.first)

    def ready_at(self, next_send: int) -> int:
        """When the next packet may leave."""
        if not self.lost and (self.nxt >= self.end or self.nxt - self.una >= self.opt.max_psn_range):
            return NEVER
        window = self.cc.window_bytes
        flight = len(self.flights)
        if window is not None and flight > 0 and (flight + 1) * self.mtu > window:
            return NEVER
        return next_send

    def emit(self, now: int) -> Outgoing:
        """The next packet, a lost one first, on the path the policy picks."""
        again = bool(self.lost)
        if again:
            seq = self.lost.popleft()
        else:
            seq = self.nxt
            self.nxt = seq + 1
        number = bisect_right(self.firsts, seq) - 1
        work = self.work[number]
        ev = self.paths.next(now)
        if self.deadline == NEVER:
            self.deadline = now + self._timeout()
        work.sent += 1
        work.retransmitted += again
        index = seq - work.first
        start = index * self.mtu
        payload = work.local[start : start + self.mtu]
        self.flights[seq] = _Flight(now, ev, again, len(payload))
        ext = pack_meth(number, number) + pack_reth(work.remote_va + start, work.rkey, len(work.local))
        if index == work.packets - 1:
            imm = work.verb is Verb.WRITE_IMM
            if imm:
                ext += pack_immdt(work.imm)
            if index == 0:
                opcode = Opcode.MRC_WRITE_ONLY_IMM if imm else Opcode.MRC_WRITE_ONLY
            else:
                opcode = Opcode.MRC_WRITE_LAST_IMM if imm else Opcode.MRC_WRITE_LAST
        else:
            opcode = Opcode.MRC_WRITE_MIDDLE if index else Opcode.MRC_WRITE_FIRST
        psn = self.psn0 + seq & 0xFFFFFF
        ask = self.ready_at(now) == NEVER
        return Outgoing(opcode, self.peer_qpn, psn, ext, payload, ev, ask, TOS_DATA, False, FLAG_RTX if again else 0)

    def _seq(self, psn: int) -> int:
        return self.una + psn_diff(psn, self.psn0 + self.una & 0xFFFFFF)

    def sacked(self, sack: Sack, now: int, at: int) -> None:
        """A SACK arrived."""
        if sack.probe:
            self._probed(sack, now)
        cack = self._seq(sack.cack_psn)
        trigger = cack + sack.ack_psn_offset
        if cack >= self.nxt:
            return
        flight = self.flights.get(trigger)
        rtt = None
        if flight is not None and not flight.again:
            rtt = self.last_rtt_ns = max(1, at - flight.sent_at)
        base = cack + sack.sack_offset - self.una
        bits = sack.bitmap << base if base >= 0 else sack.bitmap >> -base
        ahead = cack + 1 - self.una
        if ahead > 0:
            bits |= (1 << ahead) - 1
        fresh = bits & ~self.known
        ce = sack.m == PathMark.SKIP_ONCE
        if sack.entropy and not sack.probe:
            self.paths.feedback(now, sack.entropy, Mark.ECN if ce else Mark.CLEAN)
        size = 0
        if fresh:
            size = self._take(fresh, bits)
            self._complete(at)
            self.retries = 0
        if sack.rcv_cwnd_pen:
            self.cc.penalised(now=now, penalty=sack.rcv_cwnd_pen)
        if size or rtt is not None:
            self.cc.acked(now=now, size=size, rtt_ns=rtt, ce=ce)
        self._infer(now)
        self._rearm(now)

    def _take(self, fresh: int, bits: int) -> int:
        """Note what arrived; the payload bytes of the packets that were in flight."""
        una, flights = self.una, self.flights
        size = 0
        while fresh:
            low = fresh & -fresh
            fresh ^= low
            flight = flights.pop(una + low.bit_length() - 1, None)
            if flight is not None:
                size += flight.size
                if flight.sent_at > self.newest_acked and not flight.again:
                    self.newest_acked = flight.sent_at
        self.known |= bits
        ones = (~self.known & self.known + 1).bit_length() - 1
        self.known >>= ones
        self.una = una + ones
        if self.lost:
            self.lost = deque(s for s in self.lost if s >= self.una and not self.known >> s - self.una & 1)
        return size

    def _complete(self, at: int) -> None:
        while self.done < len(self.work):
            work = self.work[self.done]
            work.bytes_acked = min(len(work.local), max(0, (self.una - work.first) * self.mtu))
            if work.first + work.packets > self.una:
                break
            work.bytes_acked = len(work.local)
            self.done += 1
            self.sink.completed.append((work, at))

    def _infer(self, now: int) -> None:
        """RACK: what was sent a reordering window before something already acknowledged is lost."""
        horizon = self.newest_acked - self.opt.reorder_ns
        while self.flights:
            seq, flight = next(iter(self.flights.items()))
            if flight.sent_at >= horizon:
                break
            self._lose(seq, now, Loss.NACK, Mark.LOSS)

    def _lose(self, seq: int, now: int, kind: Loss, mark: Mark | None) -> None:
        flight = self.flights.pop(seq)
        self.lost.append(seq)
        if mark is not None:
            self.paths.feedback(now, flight.ev, mark)
        self.cc.lost(now=now, size=flight.size, kind=kind)

    def nacked(self, nack: Nack, now: int) -> None:
        """A NACK arrived: that packet, and only that, goes again."""
        seq = self._seq(nack.nack_psn)
        if seq not in self.flights:
            return
        kind = _LOSS.get(NackReason(nack.reason), Loss.NACK) if nack.reason in _LOSS else Loss.NACK
        self._lose(seq, now, kind, Mark.TRIM if kind is Loss.TRIM else None)
        self._rearm(now)

    def _timeout(self) -> int:
        return self.opt.rto_ns << min(6, max(0, self.retries - self.opt.linear_retries))

    def _rearm(self, now: int) -> None:
        oldest = next(iter(self.flights.values()), None)
        self.deadline = NEVER if oldest is None else max(now + 1, oldest.sent_at + self._timeout())

    def expire(self, now: int) -> None:
        """Packets older than the timer are lost; probes that were not answered count against their path."""
        limit = self._timeout()
        late = [seq for seq, f in self.flights.items() if f.sent_at + limit <= now]
        if late:
            self.retries += 1
            work = self.work[self.done]
            work.timeouts += 1
            if self.retries > self.opt.retry_count:
                self.error = (
                    f"no acknowledgement after {self.opt.retry_count} retries: sent {self.nxt} packets, {self.una} "
                    f"acknowledged, work request {work.id} stands at {work.bytes_acked} of {len(work.local)} bytes",
                    "look at drops on the path (summary, queues), raise retry_count or rto",
                )
                self.deadline = NEVER
                return
            for seq in late:
                self._lose(seq, now, Loss.TIMEOUT, Mark.TIMEOUT)
        self._rearm(now)

    def probe(self, now: int) -> Outgoing | None:
        """The reliability probe due now, on a path that is assumed bad; an older unanswered one counts as lost."""
        ev = self.paths.probe(now)
        if ev is None:
            return None
        for ident, (asked, sent) in list(self.probes.items()):
            if asked == ev or now - sent > self.opt.rto_ns:
                del self.probes[ident]
                self.paths.probe_lost(asked)
        self.probe_id = self.probe_id % 0xFFFF + 1
        self.probes[self.probe_id] = (ev, now)
        ext = pack_probe(Probe(self.probe_id))
        return Outgoing(Opcode.MRC_PROBE, self.peer_qpn, 0, ext, b"", ev, False, TOS_CONTROL)

    def _probed(self, sack: Sack, now: int) -> None:
        asked = self.probes.pop(sack.spdcid, None)
        if asked is not None:
            self.paths.probed(now, asked[0])
