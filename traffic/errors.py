"""Errors of the traffic side: what is wrong, where, and what to do about it."""

from __future__ import annotations


class TrafficError(Exception):
    """Root of the errors raised by packets, transports, collectives and agents.

    `what` states the problem, `where` its place (flow, queue pair, option), `remedy` what to do.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}; {self.remedy}" if self.remedy else head
