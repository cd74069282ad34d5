"""What the event loop serves: a schedule known from the start (`job`), or calls that ranks make as they go (`calls`)."""

from __future__ import annotations

from typing import Protocol

from traffic.agent.ledger import Connects
from traffic.agent.spec import MoveRecord
from traffic.transport.base import Delivery, WorkRequest


class Work(Protocol):
    """The loop's side of it. Times are fabric ns."""

    undelivered: int

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do and nothing more can come."""

    def connect(self, connector: Connects, qps: int) -> None:
        """Make the connections that are known to be needed; keep the connector for those that are not."""

    def next_start(self) -> int | None:
        """When the next move may be posted; None while there is none."""

    def post_due(self, now: int) -> set[int]:
        """Post every move whose time has come; the hosts that now have something to send."""

    def delivered(self, d: Delivery) -> None:
        """A message is in memory."""

    def completed(self, work: WorkRequest, at: int) -> None:
        """The sender knows that a message arrived."""

    def progress(self) -> tuple[int, int]:
        """Bytes acknowledged, and bytes in all as far as known."""

    def state(self) -> dict[str, int]:
        """For somebody who watches: packets retransmitted, and steps where there are some."""

    def verify(self) -> tuple[int, int]:
        """(wrong, checked) elements of the results."""

    def averages(self) -> list[tuple[int, float]] | None:
        """The average each rank arrived at, where that is asked for."""

    def final_records(self) -> list[MoveRecord]:
        """What became of every move."""


class Caller(Protocol):
    """Who brings work while the loop runs: a descriptor to wait for, and what to do when it can be read."""

    fd: int

    @property
    def stopped(self) -> bool:
        """Whether the loop should end now, whatever is under way."""

    def serve(self, now: int) -> None:
        """Take what waits."""
