"""The asking half of an RC queue pair: PSNs, windows, go-back-N or selective repeat, timers.

Rules as Linux's Soft-RoCE applies them (drivers/infiniband/sw/rxe/rxe_req.c, rxe_comp.c): a cumulative ACK completes all
before it, a sequence NAK with PSN p acknowledges everything before p and rewinds to p, the retry counter starts anew with
every progress, RNR waits by the table of the syndrome. Selective repeat follows IRN (SIGCOMM 2018): the receiver keeps
packets behind a gap and names the one that showed it, the sender resends only what is missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from traffic.congestion.base import CongestionControl, Loss
from traffic.packet.headers import (
    RNR_TIMER_US,
    Aeth,
    describe_syndrome,
    pack_atomic_eth,
    pack_ieth,
    pack_immdt,
    pack_reth,
    unpack_atomic_ack_eth,
)
from traffic.packet.opcodes import Opcode, psn_diff
from traffic.transport.base import NEVER, TOS_DATA, Outgoing, Sink, Verb, WorkRequest

_NAK_SEQUENCE = 0x60
_WRITES = (Verb.WRITE, Verb.WRITE_IMM)
_LAST = {
    Verb.WRITE: (Opcode.RC_WRITE_LAST, Opcode.RC_WRITE_ONLY),
    Verb.WRITE_IMM: (Opcode.RC_WRITE_LAST_IMM, Opcode.RC_WRITE_ONLY_IMM),
    Verb.SEND: (Opcode.RC_SEND_LAST, Opcode.RC_SEND_ONLY),
    Verb.SEND_IMM: (Opcode.RC_SEND_LAST_IMM, Opcode.RC_SEND_ONLY_IMM),
    Verb.SEND_INV: (Opcode.RC_SEND_LAST_INV, Opcode.RC_SEND_ONLY_INV),
}
_ATOMICS = {Verb.FETCH_ADD: Opcode.RC_FETCH_ADD, Verb.COMPARE_SWAP: Opcode.RC_COMPARE_SWAP}
_ANSWERED = (Verb.READ, Verb.FETCH_ADD, Verb.COMPARE_SWAP)


@dataclass(frozen=True, slots=True)
class RcOptions:
    """How an RC queue pair behaves; times in fabric ns.

    `timeout_ns` is the local ACK timeout, doubled at each fruitless retry when `adaptive`; `ack_every` how often an ACK is
    asked for; `recv_depth` receive buffers posted (None: always enough); `rnr_timer` the code sent when there is none;
    `cnp_interval_ns` the least time between two CNPs; `window_cap` packets in flight whatever the algorithm says (IRN's BDP cap).
    """

    recovery: str = "gbn"
    ack_every: int = 4
    timeout_ns: int = 1_048_576
    adaptive: bool = True
    retry_count: int = 7
    rnr_retry: int = 7
    rnr_timer: int = 1
    recv_depth: int | None = None
    cnp_interval_ns: int = 50_000
    window_cap: int | None = None
    echo_ecn: bool = False


class Requester:
    """Sends work requests and learns what became of them. Sequence numbers are unbounded; `psn0` maps them to PSNs."""

    def __init__(
        self, *, peer_qpn: int, sport: int, mtu: int, psn0: int, cc: CongestionControl, options: RcOptions, sink: Sink
    ) -> None:
        self.peer_qpn = peer_qpn
        self.sport = sport
        self.mtu = mtu
        self.psn0 = psn0
        self.cc = cc
        self.opt = options
        self.sink = sink
        self.work: list[WorkRequest] = []
        self.firsts: list[int] = []
        self.done = 0
        self.una = 0
        self.nxt = 0
        self.high = 0
        self.end = 0
        self.retries = 0
        self.rnr_retries = 0
        self.blocked_until = 0
        self.deadline = NEVER
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
        work.packets = 1 if work.verb in _ATOMICS else max(1, -(-len(work.local) // self.mtu))
        self.end += work.packets
        self.work.append(work)
        self.firsts.append(work.first)

    def ready_at(self, next_send: int) -> int:
        """When the next request packet may leave."""
        if not self.lost:
            if self.nxt >= self.end:
                return NEVER
            flight = self.nxt - self.una - len(self.sacked)
            window = self.cc.window_bytes
            if window is not None and flight > 0 and (flight + 1) * self.mtu > window:
                return NEVER
            if self.opt.window_cap is not None and flight >= self.opt.window_cap:
                return NEVER
        return next_send if next_send > self.blocked_until else self.blocked_until

    def emit(self, now: int) -> Outgoing:
        """The next request packet: a lost one first, else the next in order."""
        if self.lost:
            seq = self.lost.popleft()
        else:
            seq = self.nxt
            self.nxt = seq + 1
        work = self.work[bisect_right(self.firsts, seq) - 1]
        index = seq - work.first
        work.sent += 1
        if seq < self.high:
            work.retransmitted += 1
            self.sent_at.pop(seq, None)
        else:
            self.sent_at[seq] = now
            self.high = seq + 1
        if self.deadline == NEVER:
            self.deadline = now + self._timeout()
        start = index * self.mtu
        last = index == work.packets - 1
        psn = self.psn0 + seq & 0xFFFFFF
        verb = work.verb
        if verb in _ANSWERED:
            return self._emit_answered(work, seq, start, psn)
        payload = work.local[start : start + self.mtu]
        ext = b""
        if last:
            opcode = _LAST[verb][index == 0]
            if index == 0 and verb in _WRITES:
                ext = pack_reth(work.remote_va, work.rkey, len(work.local))
            if verb in (Verb.WRITE_IMM, Verb.SEND_IMM):
                ext += pack_immdt(work.imm)
            elif verb is Verb.SEND_INV:
                ext += pack_ieth(work.imm)
        elif index == 0:
            write = verb in _WRITES
            opcode = Opcode.RC_WRITE_FIRST if write else Opcode.RC_SEND_FIRST
            ext = pack_reth(work.remote_va, work.rkey, len(work.local)) if write else b""
        else:
            opcode = Opcode.RC_WRITE_MIDDLE if verb in _WRITES else Opcode.RC_SEND_MIDDLE
        ask = last or (seq + 1) % self.opt.ack_every == 0 or self.ready_at(now) == NEVER
        return Outgoing(opcode, self.peer_qpn, psn, ext, payload, self.sport, ask, TOS_DATA)

    def _emit_answered(self, work: WorkRequest, seq: int, start: int, psn: int) -> Outgoing:
        if work.verb is Verb.READ:
            self.nxt = self.high = max(self.nxt, work.first + work.packets)
            ext = pack_reth(work.remote_va + start, work.rkey, len(work.local) - start)
            return Outgoing(Opcode.RC_READ_REQUEST, self.peer_qpn, psn, ext, b"", self.sport, True, TOS_DATA)
        ext = pack_atomic_eth(work.remote_va, work.rkey, work.add, work.compare)
        return Outgoing(_ATOMICS[work.verb], self.peer_qpn, psn, ext, b"", self.sport, True, TOS_DATA)

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
        if aeth.is_rnr:
            self.rnr_retries += 1
            if self.opt.rnr_retry < 7 and self.rnr_retries > self.opt.rnr_retry:
                self.error = (
                    "receiver not ready too often (RNR retries exhausted)",
                    "post receive buffers, or raise rnr_retry (7 = for ever)",
                )
                return
            self.blocked_until = now + RNR_TIMER_US[aeth.syndrome & 31] * 1000
            self._rewind(seq, now)
        elif aeth.syndrome == _NAK_SEQUENCE:
            self.cc.lost(now=now, size=self.mtu, kind=Loss.NACK)
            if self.opt.recovery == "selective":
                self._gap(seq, seq + psn_diff(aeth.msn, psn), now)
            else:
                self._rewind(seq, now)
        else:
            self.error = (
                f"the responder refused: {describe_syndrome(aeth.syndrome)}",
                "check remote address, length and R_Key",
            )

    def response(self, opcode: int, psn: int, ext: memoryview, payload: memoryview, now: int, at: int) -> None:
        """A READ response or an ATOMIC ACK arrived; a gap is dropped and asked for again."""
        seq = self.una + psn_diff(psn, self.psn0 + self.una & 0xFFFFFF)
        if not self.una <= seq < self.high:
            return
        work = self.work[bisect_right(self.firsts, seq) - 1]
        if work.verb not in _ANSWERED:
            return
        first_missing = max(self.una, work.first)
        if seq != first_missing:
            if self.recover < seq:
                self.recover = self.high
                self._rewind(first_missing, now)
            return
        if opcode == Opcode.RC_ATOMIC_ACKNOWLEDGE:
            work.local[:8] = unpack_atomic_ack_eth(ext).to_bytes(8, "little")
        else:
            start = (seq - work.first) * self.mtu
            work.local[start : start + len(payload)] = payload
        self._advance(seq + 1, False, now, at, answered=True)

    def _advance(self, una: int, ce: bool, now: int, at: int, *, answered: bool = False) -> None:
        """Everything below `una` arrived; never past an unanswered READ or atomic."""
        if not answered:
            for work in self.work[self.done :]:
                if work.first >= una:
                    break
                if work.verb in _ANSWERED:
                    if work.first + work.packets <= una or work.first < una:
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
        self.una = una
        if self.nxt < una:
            self.nxt = una
        self.retries = self.rnr_retries = 0
        self.cc.acked(now=now, size=self._bytes(una - count, una), rtt_ns=rtt, ce=ce)
        while self.done < len(self.work):
            work = self.work[self.done]
            work.bytes_acked = min(len(work.local), max(0, (una - work.first) * self.mtu))
            if work.first + work.packets > una:
                break
            work.bytes_acked = len(work.local)
            self.done += 1
            self.sink.completed.append((work, at))
        self.deadline = now + self._timeout() if una < self.high else NEVER

    def _bytes(self, low: int, high: int) -> int:
        """Payload bytes of the sequence numbers in [low, high)."""
        total = 0
        for work in self.work[self.done :]:
            if work.first >= high:
                break
            start = max(low, work.first) - work.first
            end = min(high - work.first, work.packets)
            total += max(0, min(end * self.mtu, len(work.local)) - start * self.mtu)
        return total

    def _rewind(self, seq: int, now: int) -> None:
        self.nxt = seq
        self.lost.clear()
        self.sacked.clear()
        self.deadline = now + self._timeout()

    def _gap(self, missing: int, arrived: int, now: int) -> None:
        """IRN: `missing` was expected when `arrived` came; resend what lies between and was not sent again already."""
        if arrived > missing:
            self.sacked.add(arrived)
        for seq in range(max(missing, self.recover), arrived):
            if seq not in self.sacked:
                self.lost.append(seq)
        self.recover = max(self.recover, arrived)
        self.deadline = now + self._timeout()

    def _timeout(self) -> int:
        return self.opt.timeout_ns << (min(self.retries, 6) if self.opt.adaptive else 0)

    def expire(self, now: int) -> None:
        """The local ACK timeout ran out: start again at the oldest unacknowledged packet."""
        if now < self.deadline:
            return
        self.retries += 1
        work = self.work[self.done]
        work.timeouts += 1
        if self.retries > self.opt.retry_count:
            self.error = (
                f"no acknowledgement after {self.opt.retry_count} retries: sent {self.high} packets, {self.una} acknowledged, "
                f"work request {work.id} stands at {work.bytes_acked} of {len(work.local)} bytes",
                "look at drops on the path (summary, queues), raise retry_count or timeout, or choose a congestion control",
            )
            self.deadline = NEVER
            return
        self.cc.lost(now=now, size=self.mtu, kind=Loss.TIMEOUT)
        self.recover = -1
        self._rewind(self.una, now)
