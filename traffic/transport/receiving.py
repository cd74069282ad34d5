"""One host's receiving port: the receiver's half of congestion control, and the queue pairs that carry what it says."""

from __future__ import annotations

from traffic.congestion.base import ReceiverControl
from traffic.transport.base import NEVER, QueuePair


class ReceivingPort:
    """Hands notifications and grants to the queue pairs they belong to; the agent calls `answer` before it sends."""

    def __init__(self, control: ReceiverControl) -> None:
        self.control = control
        self.pairs: dict[int, QueuePair] = {}
        self.closed = False

    def add(self, qp: QueuePair) -> None:
        """A queue pair of this host."""
        self.pairs[qp.qpn] = qp

    def next_timer(self) -> int:
        """When `expire` must be called (`NEVER`: not at all)."""
        due = None if self.closed else self.control.next_timer()
        return NEVER if due is None else due

    def expire(self, now: int) -> None:
        """Run the timers that are due."""
        if self.next_timer() <= now:
            self.control.expired(now=now)

    def close(self, now: int) -> None:
        """All traffic is over: the receiver's half forgets every queue pair and says nothing more.

        A packet that comes twice may still arrive; for a half that forgot all, it would ask for the flow's whole credit anew.
        """
        self.closed = True
        for qpn in self.pairs:
            self.control.idle(now=now, qp=qpn)
        self.answer()

    def answer(self) -> None:
        """Let the queue pairs send what the receiver's half has to say."""
        cnps, grants = self.control.take_cnps(), self.control.take_grants()
        if self.closed:
            return
        for qpn in cnps:
            self.pairs[qpn].notify()
        for qpn, size in grants:
            self.pairs[qpn].grant(size)
