"""Runs in the guest: our RC queue pair and Soft-RoCE's, one exchange after the other; prints what happened as JSON.

    python -m tests.virtual.soft_roce.talk PEER

PEER is `peer.c`, compiled.
"""

from __future__ import annotations

import json
import mmap
import random
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.virtual.soft_roce.link import LINUX_IP, LINUX_MAC, OUR_IP, OUR_MAC, RATE_BPS, Fates, Link, counters, lay
from traffic.congestion.base import PathInfo
from traffic.congestion.registry import create
from traffic.packet.codec import FlowTemplate
from traffic.transport.base import Memory, Sink, Verb, WorkRequest
from traffic.transport.options import RcOptions
from traffic.transport.rc import RcQueuePair

MTU: Final = 1024
LARGE_MTU: Final = 4096
SIZE: Final = 50_001
"""49 packets of the smaller MTU; the last one's payload is no multiple of four bytes, so it has a pad."""
QPN: Final = 0x1234
RKEY: Final = 0x5678
VA: Final = 0x7000_0000_0000
PSN: Final = 0xFFFFF0
LINUX_PSN: Final = 0xFFFFE0
"""Both sides' PSNs wrap within their first messages."""
TIMEOUT: Final = 8
"""4.096 us * 2^8: about a millisecond."""
IMMEDIATE: Final = 0xABCD1234
REGION: Final = 1 << 18
MIDDLE: Final = 20
PACKETS: Final = 49
LAST: Final = PACKETS - 1
LAST_ACKS: Final = range(9, 13)
LOSS: Final = 0.05
ROUNDS: Final = 8
PART: Final = 3_000
COUNTS: Final = 64
WRITTEN: Final = 10_000
READ: Final = 50_000
"""Where in the half of a memory the numbers lie that were counted, and what is written and read, PART bytes each round."""
LATE_NS: Final = 200_000
SETTLE_NS: Final = 2_000_000
"""Two ticks: within one Linux does not read its counters anew."""
WINDOW: Final = 16_384


class Linux:
    """The process that owns Soft-RoCE's queue pair; `memory` is its registered memory."""

    def __init__(self, program: str, qpn: int, mtu: int) -> None:
        path = Path(f"/dev/shm/soft-roce-{qpn}")
        with path.open("wb+") as file:
            file.truncate(REGION)
            self.memory = memoryview(mmap.mmap(file.fileno(), REGION))
        arguments = ("rxe0", path, mtu, OUR_IP, qpn, PSN, LINUX_PSN, TIMEOUT)
        self.process = subprocess.Popen(
            [program, *map(str, arguments)], text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.qpn, self.rkey, self.va = map(int, self.line().split())

    def line(self) -> str:
        """What it says next."""
        line = self.stdout.readline().rstrip()
        assert line, "the program on verbs has ended"
        return line

    def ask(self, verb: str, *numbers: int) -> None:
        """See `peer.c`; what is not given is 0."""
        print(verb, *(*numbers, *[0] * 6)[:6], file=self.stdin)

    @property
    def answered(self) -> bool:
        """Whether `line` would not wait."""
        return bool(select.select([self.stdout], [], [], 0)[0])


class Talk:
    """One connection between the two."""

    def __init__(self, link: Link, program: str, qpn: int, mtu: int = MTU) -> None:
        self.link = link
        self.linux = Linux(program, qpn, mtu)
        self.sink = Sink()
        self.memory = memoryview(bytearray(REGION))
        registered = Memory()
        registered.register(RKEY, VA, self.memory)
        path = PathInfo(line_rate_bps=RATE_BPS, base_rtt_ns=10_000, mtu_bytes=mtu, wire_mtu_bytes=mtu + 98)
        self.qp = RcQueuePair(
            qpn=qpn,
            peer_qpn=self.linux.qpn,
            label="ours>linux",
            mtu=mtu,
            cc=create("fixed", path=path, params={"window_bytes": WINDOW}),
            memory=registered,
            sink=self.sink,
            first_psn=PSN,
            peer_first_psn=LINUX_PSN,
            sport=0xC123,
            options=RcOptions(),
        )
        template = FlowTemplate(
            src_mac=OUR_MAC, dst_mac=LINUX_MAC, src_ip=OUR_IP, dst_ip=LINUX_IP, dest_qpn=self.linux.qpn
        )
        link.nic.add(self.qp, template, 1)
        self.random = random.Random(qpn)

    def _places(
        self, verb: Verb, mine: memoryview, other: memoryview, size: int
    ) -> tuple[int, int, Callable[[], bool]]:
        """Random data where it comes from. Gives where it lies at the one who asks (`mine`) and at the other, and the check:
        not one byte of both memories is other than it must be."""
        near, far = self.random.randrange(1, REGION - size), self.random.randrange(1, REGION - size)
        source, start, target, end = (other, far, mine, near) if verb is Verb.READ else (mine, near, other, far)
        source[start : start + size] = data = self.random.randbytes(size)
        kept, wanted = bytes(source), bytearray(target)
        wanted[end : end + size] = data
        return near, far, lambda: bytes(source) == kept and bytes(target) == wanted

    def ours(self, verb: Verb, fates: Fates, *, size: int = SIZE, wrong: int = 0, late: bool = False) -> dict[str, Any]:
        """We ask, Soft-RoCE answers. `wrong` is added to the R_Key; the buffer of a SEND may come `late`."""
        near, far, placed = self._places(verb, self.memory, self.linux.memory, size)
        work = WorkRequest(
            id=1,
            verb=verb,
            local=self.memory[near : near + size],
            remote_va=self.linux.va + far,
            rkey=self.linux.rkey + wrong,
            imm=IMMEDIATE,
        )
        self.link.begin(fates)
        before = counters()
        self.qp.post(work, self.link.clock.now())
        if verb is Verb.SEND_IMM:
            if late:
                self.link.run_for(LATE_NS)
            self.linux.ask("recv", far, size)
            assert self.linux.line() == "posted"
        self.link.run(lambda: bool(self.sink.completed or self.sink.failures))
        told = self._told(before, placed)
        told |= {"status": "success", "retransmitted": work.retransmitted, "timeouts": work.timeouts}
        if self.sink.failures:
            told["status"] = self.sink.failures[0].what
        if verb is Verb.SEND_IMM:
            told["received"] = self.linux.line()
        self.sink.completed.clear()
        return told

    def linuxs(
        self, verb: Verb, fates: Fates, *, size: int = SIZE, wrong: int = 0, late: bool = False
    ) -> dict[str, Any]:
        """Soft-RoCE asks, we answer."""
        near, far, placed = self._places(verb, self.linux.memory, self.memory, size)
        self.link.begin(fates)
        before = counters()
        if verb is Verb.SEND_IMM and not late:
            self.qp.responder.recv_buffers.append(self.memory[far : far + size])
        self.linux.ask(verb.value, near, size, VA + far, RKEY + wrong, IMMEDIATE)
        self.linux.ask("wait", 1)
        if late:
            self.link.run_for(LATE_NS)
            self.qp.responder.recv_buffers.append(self.memory[far : far + size])
        self.link.run(lambda: self.linux.answered, self.linux.stdout)
        told = self._told(before, placed) | {"status": self.linux.line()}
        told["delivered"] = [(d.verb.value, d.size, d.imm) for d in self.sink.delivered]
        self.sink.delivered.clear()
        return told

    def atomics(self) -> dict[str, Any]:
        """Each side adds to and swaps a number of the other's; the numbers found, and those left there."""
        found = []
        self.linux.memory[:8] = self.memory[:8] = (1000).to_bytes(8, "little")
        self.link.begin({})
        for verb, add, compare in ((Verb.FETCH_ADD, 7, 0), (Verb.COMPARE_SWAP, 5, 1007), (Verb.COMPARE_SWAP, 6, 1007)):
            local = memoryview(bytearray(8))
            work = WorkRequest(
                id=1, verb=verb, local=local, remote_va=self.linux.va, rkey=self.linux.rkey, add=add, compare=compare
            )
            self.qp.post(work, self.link.clock.now())
            self.link.run(lambda: bool(self.sink.completed or self.sink.failures))
            self.sink.completed.clear()
            operands = (add, 0) if verb is Verb.FETCH_ADD else (compare, add)
            self.linux.ask(verb.value, 64, 8, VA, RKEY, *operands)
            self.linux.ask("wait", 1)
            self.link.run(lambda: self.linux.answered, self.linux.stdout)
            found.append((int.from_bytes(local, "little"), self.linux.line(), _number(self.linux.memory, 64)))
        self.link.run_for(SETTLE_NS)
        return {"found": found, "left": (_number(self.linux.memory, 0), _number(self.memory, 0)), **self.link.told()}

    def both_at_once(self, loss: float) -> dict[str, Any]:
        """Each side asks the other for 32 things, all posted at once: to count, to write, to count, to read, eight times over."""
        for memory in (self.memory, self.linux.memory):
            memory[:] = self.random.randbytes(REGION)
        # Our requests use the first half of both memories, Soft-RoCE's the second.
        mine, theirs = bytearray(self.memory), bytearray(self.linux.memory)
        plans = ((0, mine, theirs), (REGION // 2, theirs, mine))
        for base, _, asked in plans:
            asked[base : base + 8] = bytes(8)
        self.memory[:], self.linux.memory[:] = mine, theirs
        for base, asking, asked in plans:
            for i in range(ROUNDS):
                for j in (2 * i, 2 * i + 1):
                    number = base + COUNTS + 8 * j
                    asking[number : number + 8] = j.to_bytes(8, "little")
                written, read = (slice(base + at + i * PART, base + at + (i + 1) * PART) for at in (WRITTEN, READ))
                asked[written] = asking[written]
                asking[read] = asked[read]
            asked[base : base + 8] = (2 * ROUNDS).to_bytes(8, "little")
        losses = {way: {n: "lose" for n in range(2000) if self.random.random() < loss} for way in ("out", "into")}
        self.link.begin(losses)
        before = counters()
        for i in range(ROUNDS):
            for verb, near, far, size in (
                (Verb.FETCH_ADD, COUNTS + 16 * i, 0, 8),
                (Verb.WRITE, WRITTEN + i * PART, WRITTEN + i * PART, PART),
                (Verb.FETCH_ADD, COUNTS + 16 * i + 8, 0, 8),
                (Verb.READ, READ + i * PART, READ + i * PART, PART),
            ):
                work = WorkRequest(
                    id=i,
                    verb=verb,
                    local=self.memory[near : near + size],
                    remote_va=self.linux.va + far,
                    rkey=self.linux.rkey,
                    add=1,
                )
                self.qp.post(work, self.link.clock.now())
                half = REGION // 2
                self.linux.ask(verb.value, half + near, size, VA + half + far, RKEY, 1)
        self.linux.ask("wait", 4 * ROUNDS)
        self.link.run(lambda: self.linux.answered and (self.qp.idle or bool(self.sink.failures)), self.linux.stdout)
        status = self.sink.failures[0].what if self.sink.failures else self.linux.line()
        told = self._told(before, lambda: self.memory == mine and self.linux.memory == theirs)
        self.sink.completed.clear()
        return told | {"status": status}

    def _told(self, before: dict[str, int], placed: Callable[[], bool]) -> dict[str, Any]:
        self.link.run_for(SETTLE_NS)
        after = counters()
        changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        return {"placed": placed(), "counters": changed, **self.link.told()}


def _number(memory: memoryview, at: int) -> int:
    return int.from_bytes(memory[at : at + 8], "little")


def main() -> None:
    """All exchanges; those that end the connection have one of their own."""
    lay()
    link, program = Link(), sys.argv[1]
    talk, large = Talk(link, program, QPN), Talk(link, program, QPN + 1, LARGE_MTU)
    told: dict[str, Any] = {}
    for side, ask, ask_large in (("ours", talk.ours, large.ours), ("linux", talk.linuxs, large.linuxs)):
        for verb in (Verb.WRITE, Verb.READ):
            # The data of a WRITE comes from the one who asks, that of a READ from the other.
            data, other = ("out", "into") if (side == "ours") == (verb is Verb.WRITE) else ("into", "out")
            key = f"{side} {verb.value}"
            told[key] = ask(verb, {})
            told[f"{key}, large MTU"] = ask_large(verb, {})
            told[f"{key}, marked"] = ask(verb, {way: dict.fromkeys(range(PACKETS), "mark") for way in ("out", "into")})
            told[f"{key}, one lost"] = ask(verb, {data: {MIDDLE: "lose"}})
            told[f"{key}, one spoiled"] = ask(verb, {data: {MIDDLE: "spoil"}})
            told[f"{key}, ends lost"] = ask(verb, {data: {0: "lose", LAST: "lose"}})
            told[f"{key}, other way lost"] = ask(
                verb, {other: dict.fromkeys(LAST_ACKS if verb is Verb.WRITE else (0,), "lose")}
            )
        told[f"{side} send"] = ask(Verb.SEND_IMM, {})
        told[f"{side} send, buffer late"] = ask(Verb.SEND_IMM, {}, late=True)
    told["atomics"] = talk.atomics()
    told["both at once"] = talk.both_at_once(0)
    told["both at once, lossy"] = talk.both_at_once(LOSS)
    qpn = QPN + 1
    for side in ("ours", "linux"):
        for verb in (Verb.WRITE, Verb.READ):
            qpn += 1
            refused = Talk(link, program, qpn)
            told[f"{side} {verb.value}, wrong key"] = (refused.ours if side == "ours" else refused.linuxs)(
                verb, {}, wrong=1
            )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
