"""The asking half of an RC queue pair: PSNs, windows, go-back-N or selective repeat, timers.

Rules as Linux's Soft-RoCE applies them (drivers/infiniband/sw/rxe/rxe_req.c, rxe_comp.c): a cumulative ACK completes
all before it, a sequence NAK with PSN p acknowledges everything before p and rewinds to p, the retry counter starts
anew with every progress, RNR waits by the table of the syndrome. Selective repeat follows IRN (SIGCOMM 2018): the
receiver keeps packets behind a gap and names the one that showed it, the sender resends only what is missing, sends
nothing new one BDP past the oldest unacknowledged packet (what came out of order counts, so that the receiver's bitmap
need not be longer), and waits for a shorter time while three packets or fewer are in flight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

from traffic.congestion.base import CongestionControl, Loss
from traffic.packet.headers import (
    RNR_TIMER_US,
    Aeth,
    describe_syndrome,
    pack_atomic_eth,
    pack_reth,
    unpack_atomic_ack_eth,
)
from traffic.packet.opcodes import Opcode, psn_diff
from traffic.transport.base import NEVER, TOS_DATA, EventLog, Outgoing, Sink, Verb, WorkRequest
from traffic.transport.message import packets_of, segment
from traffic.transport.options import RcOptions

_NAK_SEQUENCE: Final = 0x60
_ATOMICS: Final = {Verb.FETCH_ADD: Opcode.RC_FETCH_ADD, Verb.COMPARE_SWAP: Opcode.RC_COMPARE_SWAP}
_ANSWERED: Final = (Verb.READ, Verb.FETCH_ADD, Verb.COMPARE_SWAP)
_FEW: Final = 3
"""IRN: with so many packets in flight or fewer a receiver may see no gap, so the timer must be short."""
_MOST_DOUBLINGS: Final = 6


class Requester:
    """Sends work requests and learns what became of them. Sequence numbers are unbounded; `psn0` maps them to PSNs."""

    def __init__(
        self,
        *,
        peer_qpn: int,
        sport: int,
        mtu: int,
        psn0: int,
        cc: CongestionControl,
        options: RcOptions,
        sink: Sink,
        log: EventLog,
    ) -> None:
        self.peer_qpn = peer_qpn
        self.sport = sport
        self.mtu = mtu
        self.psn0 = psn0
        self.cc = cc
        self.opt = options
        self.selective = options.recovery == "selective"
        self.sink = sink
        self.log = log
        self.work: list[WorkRequest] = []
        self.firsts: list[int] = []
        self.starts: list[int] = []  # payload bytes of all work before each
        self.bytes_end = 0
        self.done = 0
        self.una = 0
        self.nxt = 0
        self.high = 0
        self.end = 0
        self.reading = 0  # READs and atomics sent and not answered
        self.retries = 0
        self.rnr_retries = 0
        self.blocked_until = 0
        self.deadline = NEVER
        self.armed_at = 0
        self.sent_at: dict[int, int] = {}
        self.lost: deque[int] = deque()
        self.sacked: set[int] = set()
        self.recover = -1
        self.last_rtt_ns = -1
        self.error: tuple[str, str] | None = None

    def post(self, work: WorkRequest, now: int) -> None:
        """Queue a message; a READ takes as many PSNs as its response has packets."""
        work.first = self.end
        work.posted_ns = now
        work.packets = 1 if work.verb in _ATOMICS else packets_of(len(work.local), self.mtu)
        self.end += work.packets
        self.work.append(work)
        self.firsts.append(work.first)
        self.starts.append(self.bytes_end)
        self.bytes_end += len(work.local)

    @property
    def backlog(self) -> int:
        """Payload bytes still to send, lost ones included."""
        total = self.bytes_end - self._bytes_before(self.nxt)
        for seq in self.lost:
            total += self._bytes_before(seq + 1) - self._bytes_before(seq)
        return total

    @property
    def flight(self) -> int:
        """Packets on their way, as far as is known."""
        return self.nxt - self.una - len(self.sacked) - len(self.lost)

    def ready_at(self, next_send: int) -> int:
        """When the next request packet may leave."""
        if not self.lost and (self.nxt >= self.end or self._reads_full()):
            return NEVER
        if self.opt.window_cap is not None and not self.lost and self.nxt - self.una >= self.opt.window_cap:
            return NEVER
        if not self.cc.may_send(in_flight=self.flight * self.mtu, size=self.mtu):
            return NEVER
        return next_send if next_send > self.blocked_until else self.blocked_until

    def _reads_full(self) -> bool:
        if self.reading < self.opt.max_rd_atomic:
            return False
        return self._work_of(self.nxt).verb in _ANSWERED

    def _work_of(self, seq: int) -> WorkRequest:
        return self.work[bisect_right(self.firsts, seq) - 1]

    def emit(self, now: int) -> Outgoing:
        """The next request packet: a lost one first, else the next in order."""
        if self.lost:
            seq = self.lost.popleft()
        else:
            seq = self.nxt
            self.nxt = seq + 1
        work = self._work_of(seq)
        index = seq - work.first
        work.sent += 1
        fresh = seq >= self.high
        if fresh:
            self.sent_at[seq] = now
            self.high = seq + 1
        else:
            work.retransmitted += 1
            self.sent_at.pop(seq, None)
        psn = self.psn0 + seq & 0xFFFFFF
        if work.verb in _ANSWERED:
            self.reading += fresh
            packet = self._emit_answered(work, index * self.mtu, psn)
        else:
            opcode, ext, payload = segment(work, index, self.mtu)
            last = index == work.packets - 1
            ask = last or (seq + 1) % self.opt.ack_every == 0 or self.ready_at(now) == NEVER
            packet = Outgoing(opcode, self.peer_qpn, psn, ext, payload, self.sport, ask, TOS_DATA)
        if self.deadline == NEVER:
            self._arm(now)
        return packet

    def _emit_answered(self, work: WorkRequest, start: int, psn: int) -> Outgoing:
        if work.verb is Verb.READ:
            self.nxt = max(self.nxt, work.first + work.packets)
            self.high = max(self.high, self.nxt)
            opcode = Opcode.RC_READ_REQUEST
            ext = pack_reth(work.remote_va + start, work.rkey, len(work.local) - start)
        else:
            opcode = _ATOMICS[work.verb]
            ext = pack_atomic_eth(work.remote_va, work.rkey, work.add, work.compare)
        return Outgoing(opcode, self.peer_qpn, psn, ext, b"", self.sport, True, TOS_DATA)

    def acknowledge(self, psn: int, aeth: Aeth, ce: bool, now: int, at: int) -> None:
        """An ACK, NAK or RNR NAK arrived."""
        seq = self.una + psn_diff(psn, self.psn0 + self.una & 0xFFFFFF)
        if seq >= self.high:
            return
        if aeth.is_ack:
            if seq >= self.una:
                self._advance(seq + 1, ce, now, at)
            return
        if seq < self.una:
            return
        self._advance(seq, ce, now, at)
        self.log.tally(now, "nak", describe_syndrome(aeth.syndrome), psn=psn)
        if aeth.is_rnr:
            self._not_ready(seq, aeth.syndrome & 31, now)
        elif aeth.syndrome == _NAK_SEQUENCE:
            self.cc.lost(now=now, size=self.mtu, kind=Loss.NACK)
            if self.selective:
                self._gap(seq, seq + psn_diff(aeth.msn, psn), now)
            else:
                self._rewind(seq, now)
        else:
            self.error = (
                f"the responder refused: {describe_syndrome(aeth.syndrome)}",
                "check remote address, length and R_Key",
            )

    def _not_ready(self, seq: int, code: int, now: int) -> None:
        self.rnr_retries += 1
        if self.opt.rnr_retry < 7 and self.rnr_retries > self.opt.rnr_retry:
            self.error = (
                "receiver not ready too often (RNR retries exhausted)",
                "post receive buffers, or raise rnr_retry (7 = for ever)",
            )
            return
        self.blocked_until = now + RNR_TIMER_US[code] * 1000
        self._rewind(seq, self.blocked_until)

    def response(self, opcode: int, psn: int, ext: memoryview, payload: memoryview, now: int, at: int) -> None:
        """A READ response or an ATOMIC ACK arrived; one that is not the next of the oldest such request is dropped, and what is
        missing asked for again (rxe_comp.c, check_psn)."""
        seq = self.una + psn_diff(psn, self.psn0 + self.una & 0xFFFFFF)
        if not self.una <= seq < self.high:
            return
        work = self._work_of(seq)
        if work.verb not in _ANSWERED:
            return
        number = self.done
        while self.work[number].verb not in _ANSWERED:
            number += 1
        first_missing = max(self.una, self.work[number].first)
        if self.work[number] is not work or seq != first_missing:
            if self.recover < seq:
                self.recover = self.high
                self._rewind(first_missing, now)
            return
        if opcode == Opcode.RC_ATOMIC_ACKNOWLEDGE:
            work.local[:8] = unpack_atomic_ack_eth(ext).to_bytes(8, "little")
        else:
            start = (seq - work.first) * self.mtu
            work.local[start : start + len(payload)] = payload
        if seq == work.first + work.packets - 1:
            self.reading -= 1
        self._advance(seq + 1, False, now, at, answered=True)

    def _advance(self, una: int, ce: bool, now: int, at: int, *, answered: bool = False) -> None:
        """Everything below `una` arrived; never past an unanswered READ or atomic."""
        if not answered and self.reading:
            for work in self.work[self.done :]:
                if work.first >= una:
                    break
                if work.verb in _ANSWERED:
                    una = max(self.una, work.first)
                    break
        count = una - self.una
        if count <= 0:
            return
        sent = self.sent_at.pop(una - 1, None)
        rtt = None
        if sent is not None:
            rtt = self.last_rtt_ns = max(1, at - sent)
        for seq in range(self.una, una - 1):
            self.sent_at.pop(seq, None)
        if self.sacked:
            self.sacked -= set(range(self.una, una))
        if self.lost:
            self.lost = deque(s for s in self.lost if s >= una)
        size = self._bytes_before(una) - self._bytes_before(self.una)
        self.una = una
        if self.nxt < una:
            self.nxt = una
        self.retries = self.rnr_retries = 0
        self.cc.acked(now=now, size=size, rtt_ns=rtt, ce=ce)
        while self.done < len(self.work):
            work = self.work[self.done]
            work.bytes_acked = min(len(work.local), max(0, (una - work.first) * self.mtu))
            if work.first + work.packets > una:
                break
            work.bytes_acked = len(work.local)
            self.done += 1
            self.sink.completed.append((work, at))
        self._arm(now, una < self.high)

    def _bytes_before(self, seq: int) -> int:
        """Payload bytes of all sequence numbers below `seq`."""
        number = bisect_right(self.firsts, seq) - 1
        if number < 0:
            return 0
        work = self.work[number]
        return self.starts[number] + min((seq - work.first) * self.mtu, len(work.local))

    def _rewind(self, seq: int, now: int) -> None:
        self.nxt = seq
        self.lost.clear()
        self.sacked.clear()
        self._arm(now)

    def _gap(self, missing: int, arrived: int, now: int) -> None:
        """IRN: `missing` was expected when `arrived` came; resend what lies between and was not sent again already."""
        if arrived > missing:
            self.sacked.add(arrived)
        for seq in range(max(missing, self.recover), arrived):
            if seq not in self.sacked:
                self.lost.append(seq)
        self.recover = max(self.recover, arrived)
        self._arm(now)

    def _arm(self, now: int, on: bool = True) -> None:
        self.armed_at = now
        self.deadline = now + self._timeout() if on else NEVER

    def _timeout(self) -> int:
        few = self.selective and self.flight <= _FEW
        base = self.opt.timeout_low_ns if few else self.opt.timeout_ns
        return base << (min(self.retries, _MOST_DOUBLINGS) if self.opt.adaptive else 0)

    def expire(self, now: int) -> None:
        """The local ACK timeout ran out: start again at the oldest unacknowledged packet."""
        due = self.armed_at + self._timeout()
        if now < due:  # armed with few packets in flight; now there are more
            self.deadline = due
            return
        self.retries += 1
        work = self.work[self.done]
        work.timeouts += 1
        self.log.note(now, "timeout", una=self.una, sent=self.high, retry=self.retries)
        if self.retries > self.opt.retry_count:
            self.error = (
                f"no acknowledgement after {self.opt.retry_count} retries: sent {self.high} packets, {self.una} "
                f"acknowledged, work request {work.id} stands at {work.bytes_acked} of {len(work.local)} bytes",
                "look at drops on the path (summary, queues), raise retry_count or timeout, or choose another --cc",
            )
            self.deadline = NEVER
            return
        self.cc.lost(now=now, size=self.mtu, kind=Loss.TIMEOUT)
        if self.selective and not self.reading:
            self.sacked.discard(self.una)  # resent even so: perhaps its acknowledgement was lost, and nothing else asks
            self.lost = deque(seq for seq in range(self.una, self.nxt) if seq not in self.sacked)
            self.recover = self.nxt
            self._arm(now)
        else:
            self.recover = -1
            self._rewind(self.una, now)
