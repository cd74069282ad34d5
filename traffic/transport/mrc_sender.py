"""The sending half of an MRC queue pair: every packet on another path, only the lost one resent.

Loss is learned from a NACK (a trimmed packet, or one the receiver had no room for), from packets sent a reordering
window later that were acknowledged (as RACK, RFC 8985, infers it), from a probe that came through behind it on the same
path, or from the timer; a clear bit in another packet's SACK says nothing by itself (UEC 1.0, PDS). `una` is the oldest
sequence number not acknowledged; bit i of `known` says that `una + i` was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from traffic.congestion.base import CongestionControl, Feedback, Loss
from traffic.packet.headers import pack_immdt, pack_reth
from traffic.packet.mrc_headers import (
    CC_CREDIT,
    MPR_UNIT,
    Nack,
    NackReason,
    PathMark,
    Sack,
    pack_credit_request,
    pack_credit_target,
    pack_meth,
)
from traffic.packet.opcodes import FLAG_RTX, FLAG_TS, Opcode, psn_diff
from traffic.transport.base import NEVER, TOS_CONTROL, TOS_DATA, EventLog, Outgoing, Sink, Verb, WorkRequest
from traffic.transport.credit import CreditAsker
from traffic.transport.message import packets_of
from traffic.transport.mrc_probes import Prober
from traffic.transport.options import MrcOptions
from traffic.transport.paths import Mark, PathSet

_LOSS: Final[dict[int, Loss]] = {NackReason.TRIMMED: Loss.TRIM, NackReason.TRIMMED_LAST_HOP: Loss.TRIM_LAST_HOP}
_FATAL: Final = frozenset((NackReason.UNEXP_EVENT,))
_REASONS: Final = {int(reason): reason.name.lower() for reason in NackReason}
_MOST_DOUBLINGS: Final = 6
_REMEMBERED: Final = 256


@dataclass(slots=True)
class _Flight:
    sent_at: int
    ev: int
    again: bool
    size: int
    asked: int = -NEVER


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
        log: EventLog,
    ) -> None:
        self.peer_qpn = peer_qpn
        self.mtu = mtu
        self.psn0 = psn0
        self.cc = cc
        self.paths = paths
        self.opt = options
        self.sink = sink
        self.log = log
        self.asker = CreditAsker(cc, repeat_ns=options.rto_ns) if cc.feedback is Feedback.CREDIT else None
        self.psn_range = options.max_psn_range
        self.penalty = 0
        self.backlog = 0
        self.in_flight = 0
        self.unasked = 0  # bytes sent since the last packet that asked for a SACK
        self.work: list[WorkRequest] = []
        self.firsts: list[int] = []
        self.done = 0
        self.una = 0
        self.nxt = 0
        self.end = 0
        self.known = 0
        self.flights: dict[int, _Flight] = {}
        self.lost: deque[int] = deque()
        self.resent: dict[int, int] = {}  # what was sent again lately, and when it was known to have arrived
        self.newest_acked = -1  # when the newest of the packets known to have arrived was sent,
        self.reorder_ns = options.reorder_ns
        self.widen_at = 0
        self.newest_rtt = 0  # and how long it took until that was known
        self.retries = 0
        self.retry_at = 0
        self.last_rtt_ns = -1
        self.deadline = NEVER
        self.doubt_at = NEVER
        self.prober = Prober(
            peer_qpn=peer_qpn,
            paths=paths,
            log=log,
            patience_ns=2 * cc.path.base_rtt_ns,
            lost_after_ns=options.rto_ns,
        )
        self.error: tuple[str, str] | None = None

    def post(self, work: WorkRequest, now: int) -> None:
        """Queue a message."""
        if work.verb not in (Verb.WRITE, Verb.WRITE_IMM):
            self.error = (f"MRC has no {work.verb.name}", "use WRITE or WRITE_IMM, or the roce transport")
            return
        work.first = self.end
        work.posted_ns = now
        work.packets = packets_of(len(work.local), self.mtu)
        self.end += work.packets
        self.backlog += len(work.local)
        self.work.append(work)
        self.firsts.append(work.first)

    def ready_at(self, next_send: int) -> int:
        """When the next packet may leave."""
        if not self.lost and (self.nxt >= self.end or self.nxt - self.una >= self.psn_range):
            return NEVER
        return next_send if self.cc.may_send(in_flight=self.in_flight, size=self.mtu) else NEVER

    def emit(self, now: int) -> Outgoing:
        """The next packet, a lost one first, on the path the policy picks; congestion control is told."""
        again = bool(self.lost)
        if again:
            seq = self.lost.popleft()
            self.resent[seq] = NEVER
            if len(self.resent) > _REMEMBERED:
                del self.resent[next(iter(self.resent))]
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
        size = len(payload := work.local[start : start + self.mtu])
        self.flights[seq] = _Flight(now, ev, again, size)
        self.in_flight += size
        self.backlog -= size
        self.prober.sent(now)
        flags = FLAG_RTX if again else 0
        ext = pack_meth(number, number)
        self.cc.sent(now=now, size=size)
        if self.asker is not None:
            ext += pack_credit_target(self.asker.target(self.backlog))
            flags |= FLAG_TS
        ext += pack_reth(work.remote_va + start, work.rkey, len(work.local))
        opcode = Opcode.MRC_WRITE_MIDDLE if index else Opcode.MRC_WRITE_FIRST
        if index == work.packets - 1:
            opcode = Opcode.MRC_WRITE_LAST if index else Opcode.MRC_WRITE_ONLY
            if work.verb is Verb.WRITE_IMM:
                opcode = Opcode.MRC_WRITE_LAST_IMM if index else Opcode.MRC_WRITE_ONLY_IMM
                ext += pack_immdt(work.imm)
        self.unasked += size
        ask = self.ready_at(now) == NEVER or self._few()
        self.unasked *= not ask
        psn = self.psn0 + seq & 0xFFFFFF
        return Outgoing(opcode, self.peer_qpn, psn, ext, payload, ev, ask, TOS_DATA, False, flags)

    def _few(self) -> bool:
        """Of a window of few packets each quarter is asked about; else it would move by whole windows, not by packets."""
        window = self.cc.window_bytes
        return window is not None and self.unasked * 4 >= window < 4 * self.opt.ack_every * self.mtu

    def _seq(self, psn: int) -> int:
        return self.una + psn_diff(psn, self.psn0 + self.una & 0xFFFFFF)

    def sacked(self, sack: Sack, now: int, at: int) -> None:
        """A SACK arrived."""
        asked = self.prober.answered(sack.spdcid, now) if sack.probe else None
        if asked is not None and asked[1] > self.newest_acked:
            self.newest_acked, self.newest_rtt = asked[1], now - asked[1]
        if sack.mpr:
            self.psn_range = sack.mpr * MPR_UNIT
        if sack.cc_type == CC_CREDIT:
            if self.asker is not None:
                self.asker.credited(sack.rcvd_bytes, now)
        elif sack.rcv_cwnd_pen != self.penalty:
            self.penalty = sack.rcv_cwnd_pen
            self.cc.penalised(now=now, penalty=self.penalty)
        if (cack := self._seq(sack.cack_psn)) >= self.nxt:
            return
        trigger = cack + sack.ack_psn_offset
        flight, rtt = self.flights.get(trigger) if sack.entropy and not sack.probe else None, None
        if flight is not None and not flight.again:
            rtt = self.last_rtt_ns = max(1, at - flight.sent_at)
            self.prober.patience_ns = self.cc.path.base_rtt_ns + max(self.cc.path.base_rtt_ns, rtt)
        base = cack + sack.sack_offset - self.una
        bits = sack.bitmap << base if base >= 0 else sack.bitmap >> -base
        ahead = cack + 1 - self.una
        if ahead > 0:
            bits |= (1 << ahead) - 1
        fresh = bits & ~self.known
        if not fresh and not sack.probe and now - self.resent.get(trigger, NEVER) > self.cc.path.base_rtt_ns // 2:
            del self.resent[trigger]
            self._widen(now)  # it came twice: a SACK that tells nothing new is not just one that another overtook
        ce = sack.m == PathMark.SKIP_ONCE
        if sack.entropy and not sack.probe:
            bad = sack.m == PathMark.ALWAYS_SKIP
            self.paths.feedback(now, sack.entropy, Mark.ECN if ce else Mark.LOSS if bad else Mark.CLEAN)
        size = self._take(fresh, bits, trigger, now) if fresh else 0
        if fresh:
            self._complete(at)
            self.retries = 0
        if size or rtt is not None:
            self.cc.acked(now=now, size=size, rtt_ns=rtt, ce=ce)
        if asked is not None:
            self._passed(*asked, cack + sack.sack_offset + 63, now)
        self._infer(now)
        self._rearm(now)
        if not sack.probe or asked is not None or not self.flights:
            # An answer past the queues, or from a path on trial, says nothing of what is still out.
            self.prober.heard(now, bool(self.flights))

    def _take(self, fresh: int, bits: int, trigger: int, now: int) -> int:
        """Note what arrived, all but `trigger` unmarked, since a marked packet is answered at once; the bytes in flight of it."""
        una, flights, recycles = self.una, self.flights, self.paths.recycles
        size = unneeded = 0
        while fresh:
            low = fresh & -fresh
            fresh ^= low
            seq = una + low.bit_length() - 1
            if seq in self.resent:
                self.resent[seq] = now
            flight = flights.pop(seq, None)
            if flight is not None:
                size += flight.size
                if recycles and seq != trigger:
                    self.paths.feedback(now, flight.ev, Mark.CLEAN)
                if flight.sent_at > self.newest_acked and not flight.again:
                    self.newest_acked, self.newest_rtt = flight.sent_at, now - flight.sent_at
        self.in_flight -= size
        self.known |= bits
        ones = (~self.known & self.known + 1).bit_length() - 1
        self.known >>= ones
        self.una = una + ones
        if self.lost:
            for seq in [s for s in self.lost if s < self.una or self.known >> s - self.una & 1]:
                self.lost.remove(seq)
                unneeded += self._size(seq)
            self.backlog -= unneeded
            if unneeded:
                self._widen(now)
        return size

    def _size(self, seq: int) -> int:
        """Payload bytes of a sequence number."""
        work = self.work[bisect_right(self.firsts, seq) - 1]
        return min(self.mtu, len(work.local) - (seq - work.first) * self.mtu)

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
        """RACK: what was sent before something that arrived is lost a reordering window after its own turn."""
        while self.flights:
            seq, flight = next(iter(self.flights.items()))
            if now < self._overtaken_at(flight.sent_at):
                break
            self.log.tally(now, "lost", "overtaken", psn=self.psn0 + seq & 0xFFFFFF, ev=flight.ev)
            self._lose(seq, now, Loss.NACK, Mark.LOSS)

    def _passed(self, ev: int, probed_at: int, last: int, now: int) -> None:
        """A probe sent on `ev` arrived, and its answer tells of all up to `last`: what went before it there is lost."""
        behind = [s for s, f in self.flights.items() if f.ev == ev and f.sent_at < probed_at and s <= last]
        for seq in behind:
            self.log.tally(now, "lost", "passed by a probe", psn=self.psn0 + seq & 0xFFFFFF, ev=ev)
            self._lose(seq, now, Loss.NACK, Mark.LOSS)

    def doubts(self, now: int) -> Iterator[Outgoing]:
        """Probes behind overtaken packets, one a path, once all else of their messages has left.

        Before that the reordering window costs nothing. A packet may be a quarter of a round trip late (RFC 8985, 6.2);
        a probe that brings no answer is sent again after two.
        """
        self.doubt_at = NEVER
        whole = self.nxt if self.nxt == self.end else self.firsts[bisect_right(self.firsts, self.nxt) - 1]
        base = self.cc.path.base_rtt_ns
        probed = set()
        for seq, flight in self.flights.items():
            if flight.sent_at >= self.newest_acked:
                return
            if seq >= whole:
                continue
            due = max(flight.sent_at + self.newest_rtt + base // 4, flight.asked + 2 * base)
            if due > now:
                self.doubt_at = min(self.doubt_at, due)
                continue
            flight.asked = now
            self.doubt_at = min(self.doubt_at, now + 2 * base)
            if flight.ev not in probed:
                probed.add(flight.ev)
                yield self.prober.doubt(now, self.psn0 + seq & 0xFFFFFF, flight.ev)

    def silence(self, now: int) -> tuple[Outgoing, Outgoing]:
        """The probes for which nothing was heard long enough."""
        ev = next((flight.ev for flight in reversed(self.flights.values())), None)
        return self.prober.silence(now, self.una, self.nxt, ev)

    def _widen(self, now: int) -> None:
        """What was called lost had arrived: wait longer from now on, one window more a round trip (RFC 8985, 6.2)."""
        if now >= self.widen_at and self.reorder_ns < self.opt.rto_ns // 2:
            self.widen_at = now + self.cc.path.base_rtt_ns
            self.reorder_ns += self.opt.reorder_ns
            self.log.note(now, "reorder window", window_ns=self.reorder_ns)

    def _overtaken_at(self, sent_at: int) -> int:
        if sent_at >= self.newest_acked:
            return NEVER
        if self.newest_acked - sent_at > self.reorder_ns:
            return 0
        return sent_at + self.newest_rtt + self.reorder_ns

    def _lose(self, seq: int, now: int, kind: Loss, mark: Mark | None) -> None:
        flight = self.flights.pop(seq)
        self.in_flight -= flight.size
        self.backlog += flight.size
        self.lost.append(seq)
        if mark is not None:
            self.paths.feedback(now, flight.ev, mark)
        self.cc.lost(now=now, size=flight.size, kind=kind)

    def nacked(self, nack: Nack, now: int) -> None:
        """A NACK arrived: that packet, and only that, goes again."""
        why = _REASONS.get(nack.reason, f"reason {nack.reason:#04x}")
        self.log.tally(now, "nack", why, psn=nack.nack_psn, ev=nack.entropy)
        if nack.reason in _FATAL:
            self.error = (f"the receiver refused a packet: {why}", "check remote address, length and R_Key")
            return
        seq = self._seq(nack.nack_psn)
        if seq not in self.flights:
            return
        kind = _LOSS.get(nack.reason, Loss.NACK)
        self._lose(seq, now, kind, Mark.TRIM if kind is Loss.TRIM else None)
        self._rearm(now)
        self.prober.heard(now, bool(self.flights))

    def _timeout(self) -> int:
        doublings = min(_MOST_DOUBLINGS, max(0, self.retries - self.opt.linear_retries)) if self.opt.adaptive else 0
        return self.opt.rto_ns << doublings

    def _rearm(self, now: int) -> None:
        oldest = next(iter(self.flights.values()), None)
        if oldest is None:
            self.deadline = NEVER
            return
        self.deadline = max(now + 1, min(oldest.sent_at + self._timeout(), self._overtaken_at(oldest.sent_at)))

    def expire(self, now: int) -> None:
        """Packets that were overtaken long enough ago are lost, and those older than the timer."""
        self._infer(now)
        limit = self._timeout()
        late = [seq for seq, f in self.flights.items() if f.sent_at + limit <= now]
        if late and now >= self.retry_at:
            # Packets of one flight time out one after another: together they are one fruitless try.
            self.retries += 1
            self.retry_at = now + limit
            work = self.work[self.done]
            work.timeouts += 1
            self.log.note(now, "timeout", una=self.una, sent=self.nxt, packets=len(late), retry=self.retries)
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

    def ask(self, now: int) -> Outgoing | None:
        """A request for credit in a packet of its own, where one is due."""
        total = self.asker.ask(now, self.backlog) if self.asker is not None else None
        if total is None:
            return None
        ext = pack_credit_request(total)
        return Outgoing(Opcode.MRC_PROBE, self.peer_qpn, 0, ext, b"", self.paths.next(now), False, TOS_CONTROL)
