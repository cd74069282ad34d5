"""Where a flow stands, in bytes: what was sent, what is settled, and when a round trip has passed."""

from __future__ import annotations


class Flight:
    """Counts payload bytes. A round ends when as much has been settled (acknowledged or lost) as was sent at its start."""

    __slots__ = ("_end", "sent", "settled")

    def __init__(self) -> None:
        self.sent = 0
        self.settled = 0
        self._end = 0

    @property
    def bytes(self) -> int:
        """Sent and neither acknowledged nor lost."""
        return max(0, self.sent - self.settled)

    def round_over(self) -> bool:
        """Whether everything sent when the round began is settled; if so the next round begins now."""
        if self.settled <= self._end:
            return False
        self._end = max(self.sent, self.settled)
        return True
