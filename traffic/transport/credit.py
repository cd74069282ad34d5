"""How receiver credits cross a wire that loses packets: running totals, requests that are repeated, 24-bit numbers.

The algorithms speak of increments in bytes (`traffic.congestion.base`); the wire carries totals since the start in
units of 256 bytes (`mrc_headers.RCVD_UNIT`), so a lost grant or request is made good by the next one. Totals are
rounded up: a sender may hold up to 255 bytes more than it was granted, once and not with every grant.
"""

from __future__ import annotations

from traffic.congestion.base import CongestionControl
from traffic.packet.mrc_headers import RCVD_UNIT
from traffic.packet.opcodes import psn_diff
from traffic.transport.base import NEVER


def unwrap(known: int, low: int) -> int:
    """The total nearest to `known` whose low 24 bits are `low`."""
    return known + psn_diff(low, known & 0xFFFFFF)


class CreditAsker:
    """The sender's side: what total to ask for and when, and increments out of the totals that come back.

    A request in a message of its own goes out when no packet may leave for want of credit and the wish is news, or no
    answer came for `repeat_ns`; with `step_bytes` (a transport whose data packets say nothing of credit) also each
    time the wish has grown by so much.
    """

    def __init__(self, cc: CongestionControl, *, repeat_ns: int, step_bytes: int | None = None) -> None:
        self.cc = cc
        self.repeat_ns = repeat_ns
        self.step = None if step_bytes is None else max(1, step_bytes // RCVD_UNIT)
        self.told = 0
        self.given = 0
        self.repeat_at = NEVER

    def target(self, backlog: int) -> int:
        """The total, in units, that a packet leaving now says; `backlog` bytes are still to send behind it."""
        units = -(-self.cc.credit_target(backlog=backlog) // RCVD_UNIT)
        if units > self.told:
            self.told = units
        return units

    def ask(self, now: int, backlog: int) -> int | None:
        """The total to ask for in a message of its own now, or None; keeps the time of the next try in `repeat_at`."""
        credit = self.cc.credit_bytes
        if not backlog or credit is None:
            self.repeat_at = NEVER
            return None
        units = -(-self.cc.credit_target(backlog=backlog) // RCVD_UNIT)
        if credit > 0:
            self.repeat_at = NEVER
            if self.step is None or units - self.told < self.step:
                return None
        elif units <= self.told:
            if self.repeat_at == NEVER:
                self.repeat_at = now + self.repeat_ns
            if now < self.repeat_at:
                return None
        if credit <= 0:
            self.repeat_at = now + self.repeat_ns
        if units > self.told:
            self.told = units
        return units

    def credited(self, total: int, now: int) -> None:
        """A grant arrived: `total` units modulo 2^24."""
        total = unwrap(self.given, total)
        if total > self.given:
            size = (total - self.given) * RCVD_UNIT
            self.given = total
            self.cc.credited(now=now, size=size)


class CreditGiver:
    """The receiver's side: the total wished for and the total granted, both since the start."""

    def __init__(self) -> None:
        self.wanted = 0
        self.bytes = 0

    @property
    def total(self) -> int:
        """What was granted so far, in units."""
        return -(-self.bytes // RCVD_UNIT)

    def asked(self, total: int) -> bool:
        """A wish arrived (`total` units modulo 2^24); whether it is more than was known."""
        total = unwrap(self.wanted, total)
        if total <= self.wanted:
            return False
        self.wanted = total
        return True

    @property
    def target(self) -> int:
        """The wish in bytes, as the algorithms take it."""
        return self.wanted * RCVD_UNIT
