"""Clear-to-send: the receiver lets few senders send at once, as Meta's collective library does in place of DCQCN.

Sender      waits for a grant, sends what it allows
Receiver    calls senders in turn, `grant_bytes` each; the next when no more than one BDP is still to come (for `senders`
            above 1: and `senders` − 1 grants), so that the port never idles and its queue stays short
"""

from __future__ import annotations

from collections import deque
from typing import Any

from traffic.congestion.base import CongestionControl, Feedback, Loss, PathInfo, ReceiverControl
from traffic.congestion.params import Formula, Params, param

_META = "Gangidi et al., RDMA over Ethernet for AI training at Meta, SIGCOMM 2024 (receiver-driven admission)"


class CtsParams(Params):
    """Parameters of `cts`."""

    senders: int = param(
        1, low=1, unit="", text="full grants that may be under way at once", source=f"{_META}; value own choice"
    )
    grant_bytes: int = param(
        524_288, low=1, text="bytes of one grant", source="NCCL's default buffer of 4 MiB in 8 steps (from memory)"
    )
    ahead_bytes: int = param(
        Formula("BDP", lambda path, _: path.bdp_payload_bytes), low=0,
        text="the next sender is called when no more than this is still to come", source="own choice",
    )  # fmt: skip
    patience_ns: int = param(
        Formula("1 ms and 20 base RTT", lambda path, _: 1_000_000 + 20 * path.base_rtt_ns), low=1,
        text="a sender from which nothing comes for so long loses its turn", source="own choice",
    )  # fmt: skip


class Cts(CongestionControl):
    """The sender's half: sends what it was called for, nothing on trust."""

    name = "cts"
    feedback = Feedback.CREDIT
    source = _META
    parameters = CtsParams

    params: CtsParams
    credit_bytes: float

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self.credit_bytes = 0.0
        self._granted = 0

    def sent(self, *, now: int, size: int) -> None:
        self.credit_bytes -= size

    def credited(self, *, now: int, size: int) -> None:
        self.credit_bytes += size
        self._granted += size
        self.trigger = "clear_to_send"

    def credit_target(self, *, backlog: int) -> int:
        return self._granted + max(0, backlog - int(self.credit_bytes))

    def state(self) -> dict[str, float]:
        return {"credit_bytes": self.credit_bytes, "granted_bytes": self._granted}


class ClearToSend(ReceiverControl):
    """The receiver's half: a queue of senders, and the bytes that are under way."""

    parameters = CtsParams

    def __init__(self, *, path: PathInfo, params: Any) -> None:
        super().__init__(path=path, params=params)
        self._budget: int = params.ahead_bytes + (params.senders - 1) * params.grant_bytes
        self._target: dict[int, int] = {}
        self._granted: dict[int, int] = {}
        self._queue: deque[int] = deque()
        self._due: dict[int, int] = {}  # queue pair -> granted bytes still to come
        self._heard: dict[int, int] = {}  # such a queue pair -> when it last sent or was called
        self._under_way = 0
        self._grants: dict[int, int] = {}

    def arrived(
        self, *, now: int, qp: int, size: int, ce: bool, credit_target: int = 0, trimmed: Loss | None = None
    ) -> None:
        due = self._due.get(qp, 0)
        if due:
            self._due[qp] = max(0, due - size)
            self._under_way -= due - self._due[qp]
            self._heard[qp] = now
            if not self._due[qp]:
                self._give_up(qp)
        self.requested(now=now, qp=qp, credit_target=credit_target)

    def requested(self, *, now: int, qp: int, credit_target: int) -> None:
        self._granted.setdefault(qp, 0)
        self._target[qp] = max(credit_target, self._target.get(qp, 0))
        self._enqueue(qp)
        self._call(now)

    def idle(self, *, now: int, qp: int) -> None:
        self._give_up(qp)
        if qp in self._queue:
            self._queue.remove(qp)
        self._target.pop(qp, None)
        self._granted.pop(qp, None)
        self._call(now)

    def next_timer(self) -> int | None:
        return min(self._heard.values()) + self.params.patience_ns if self._heard else None

    def expired(self, *, now: int) -> None:
        for qp in [q for q, heard in self._heard.items() if heard + self.params.patience_ns <= now]:
            self._give_up(qp)
            if qp in self._queue:  # the silent one comes last
                self._queue.remove(qp)
                self._queue.append(qp)
        self._call(now)

    def take_grants(self) -> list[tuple[int, int]]:
        grants, self._grants = list(self._grants.items()), {}
        return grants

    def _give_up(self, qp: int) -> None:
        """Wait for no more of this queue pair's granted bytes."""
        self._under_way -= self._due.pop(qp, 0)
        self._heard.pop(qp, None)

    def _enqueue(self, qp: int) -> None:
        if self._target[qp] > self._granted[qp] and qp not in self._queue:
            self._queue.append(qp)

    def _call(self, now: int) -> None:
        while self._queue and self._under_way <= self._budget:
            qp = self._queue.popleft()
            size = min(self.params.grant_bytes, self._target[qp] - self._granted[qp])
            self._granted[qp] += size
            self._grants[qp] = self._grants.get(qp, 0) + size
            self._due[qp] = self._due.get(qp, 0) + size
            self._under_way += size
            self._heard[qp] = now
            self._enqueue(qp)


Cts.receiver = ClearToSend
