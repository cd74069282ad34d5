"""Reliability probes of MRC: small packets without a PSN that a SACK answers.

In the control class, past all queues: on an entropy value that is assumed bad, to learn that its path is back; and where
packets are out and nothing is heard for two round trips (one as the last packet took it: behind a long queue less than
that is no silence, and the probes of many senders would be a load), to gather acknowledgements that the receiver is keeping (a
window that shrank may wait for one that is not due). What the answer does not tell of may still be in a queue.

In the data class, on the entropy value of the packet they ask about: after the same silence, to find a lost last packet
before the timer does (as the tail loss probe of RFC 8985, section 7); and where a message that has left whole misses a
packet that others overtook, to learn at once whether that is late or lost. One path is one queue after the other, so
what these find missing is lost, and need not be waited for any longer.
"""

from __future__ import annotations

from traffic.packet.mrc_headers import Probe, pack_probe
from traffic.packet.opcodes import Opcode
from traffic.transport.base import NEVER, TOS_CONTROL, TOS_DATA, EventLog, Outgoing
from traffic.transport.paths import PathSet


class Prober:
    """The probes of one sender; `quiet_at` is when silence has lasted too long (`NEVER` while nothing is out)."""

    def __init__(self, *, peer_qpn: int, paths: PathSet, log: EventLog, patience_ns: int, lost_after_ns: int) -> None:
        self.peer_qpn = peer_qpn
        self.paths = paths
        self.log = log
        self.patience_ns = patience_ns
        self.lost_after_ns = lost_after_ns
        self.quiet_at = NEVER
        self._quiet_ns = patience_ns
        self._asked: dict[int, tuple[int, int]] = {}
        self._behind: dict[int, tuple[int, int]] = {}
        self._follow = False
        self._number = 0

    def bad_path(self, now: int) -> Outgoing | None:
        """The probe due now on a path that is assumed bad; an older one without an answer counts as lost."""
        ev = self.paths.probe(now)
        if ev is None:
            return None
        for number, (asked, sent) in list(self._asked.items()):
            if asked == ev or now - sent > self.lost_after_ns:
                del self._asked[number]
                self.paths.probe_lost(asked)
        number = self._next()
        self._asked[number] = (ev, now)
        return self._packet(number, ev)

    def answered(self, number: int, now: int) -> tuple[int, int] | None:
        """A SACK answered a probe; its entropy value and when it was sent, if it went behind data."""
        asked = self._asked.pop(number, None)
        if asked is not None:
            self.paths.probed(now, asked[0])
        return self._behind.pop(number, None)

    def sent(self, now: int) -> None:
        """A data packet left."""
        self.quiet_at = now + self._quiet_ns

    def heard(self, now: int, more: bool) -> None:
        """A SACK or NACK arrived; `more` says whether packets are still out."""
        self._quiet_ns = self.patience_ns
        self.quiet_at = now + self._quiet_ns if more else NEVER

    def silence(self, now: int, una: int, sent: int, ev: int | None) -> tuple[Outgoing, Outgoing]:
        """The probes due at `quiet_at`, one in each class; the next ones wait twice as long.

        The one in the data class follows the newest packet out, whose entropy value is `ev`: that one asked for an answer,
        and none came. Every other such probe takes another value, as the one in the control class does: that path may be dead.
        """
        self._follow = self._quiet_ns == self.patience_ns or not self._follow
        self._quiet_ns *= 2
        self.quiet_at = now + self._quiet_ns
        self.log.tally(now, "probe", "silence", una=una, sent=sent)
        other = self.paths.next(now)
        if other == ev:
            other = self.paths.next(now)
        gather = self._packet(self._next(), other)
        return gather, self._behind_data(now, ev if ev is not None and self._follow else other)

    def doubt(self, now: int, psn: int, ev: int) -> Outgoing:
        """A probe behind the overtaken packet `psn`, which used `ev`."""
        self.log.tally(now, "probe", "overtaken", psn=psn, ev=ev)
        return self._behind_data(now, ev)

    def _behind_data(self, now: int, ev: int) -> Outgoing:
        for number in [n for n, (_, at) in self._behind.items() if now - at > self.lost_after_ns]:
            del self._behind[number]
        number = self._next()
        self._behind[number] = (ev, now)
        return self._packet(number, ev, TOS_DATA)

    def _next(self) -> int:
        self._number = self._number % 0xFFFF + 1
        return self._number

    def _packet(self, number: int, ev: int, tos: int = TOS_CONTROL) -> Outgoing:
        ext = pack_probe(Probe(number))
        return Outgoing(Opcode.MRC_PROBE, self.peer_qpn, 0, ext, b"", ev, False, tos)
