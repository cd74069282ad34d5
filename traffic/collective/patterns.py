"""Traffic patterns without a reduction: incast, permutation, pairs, a victim beside an incast, staggered joins.

Ranks are hosts by number. Every flow has its own place in its sender's memory and its own place in its receiver's, behind
what any host sends, so that no flow can hide another's fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traffic.collective.build import MoveList, align, need_positive, need_rank, need_ranks
from traffic.collective.schedule import Schedule
from traffic.errors import TrafficError
from traffic.rng import Rng

_ROUND_SHIFT = 4
MOST_TRANSFERS = 1_000_000
"""Each is a Python object, and a row of the result."""


@dataclass(frozen=True, slots=True)
class Flow:
    """`size` bytes from one host to another, from `start_ns` on."""

    src: int
    dst: int
    size: int
    start_ns: int = 0


def flows(name: str, algorithm: str, ranks: int, wanted: Sequence[Flow], *, size: int, rounds: int = 1) -> Schedule:
    """A schedule of `wanted` flows, repeated in `rounds` with a barrier (a round starts when all of the last is delivered).

    Each round sends other bytes (its window of the sender's memory starts 4 bytes later), so the check of the last round
    cannot pass on what an earlier one left.
    """
    need_positive(size=size, rounds=rounds)
    if rounds * len(wanted) > MOST_TRANSFERS:
        raise TrafficError(
            f"{rounds} rounds of {len(wanted)} flows are more than {MOST_TRANSFERS} transfers",
            where="rounds",
            remedy=f"use at most {MOST_TRANSFERS // len(wanted)} rounds",
        )
    for flow in wanted:
        need_rank(flow.src, ranks, name)
        need_rank(flow.dst, ranks, name)
        if flow.src == flow.dst:
            raise TrafficError(f"host {flow.src} would send to itself", where=name, remedy="name two different hosts")
    sends: dict[int, int] = {}
    receives: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    for flow in wanted:
        places.append((sends.get(flow.src, 0), receives.get(flow.dst, 0)))
        sends[flow.src] = places[-1][0] + align(flow.size + _ROUND_SHIFT * (rounds - 1))
        receives[flow.dst] = places[-1][1] + align(flow.size)
    inbox = max(sends.values(), default=0)
    moves = MoveList()
    barrier: tuple[int, ...] = ()
    for turn in range(rounds):
        done: tuple[int, ...] = ()
        for number, (flow, (source, target)) in enumerate(zip(wanted, places, strict=True)):
            done += moves.add(
                flow.src, flow.dst, source + _ROUND_SHIFT * turn, inbox + target, flow.size, needs=barrier,
                start_ns=flow.start_ns if turn == 0 else 0, step=turn, flow=number,
            )  # fmt: skip
        barrier = done
    memory = inbox + max(receives.values(), default=0)
    return Schedule(name, algorithm, ranks, memory, 0, tuple(moves.moves), size_bytes=size)


def senders_to(receiver: int, count: int, ranks: int) -> list[int]:
    """The `count` hosts after `receiver`, in order, round the end."""
    need_rank(receiver, ranks, "receiver")
    need_positive(senders=count)
    if count > ranks - 1:
        raise TrafficError(
            f"{count} senders and a receiver do not fit on {ranks} hosts",
            where="senders",
            remedy=f"use at most {ranks - 1} senders, or a topology with at least {count + 1} hosts",
        )
    return [(receiver + 1 + i) % ranks for i in range(count)]


def incast(ranks: int, senders: int, size: int, receiver: int = 0, rounds: int = 1) -> Schedule:
    """`senders` hosts send `size` bytes each to `receiver`, `rounds` times with a barrier between."""
    wanted = [Flow(src, receiver, size) for src in senders_to(receiver, senders, ranks)]
    return flows("incast", "incast", ranks, wanted, size=size, rounds=rounds)


def derangement(ranks: int, seed: int) -> list[int]:
    """A seeded permutation in which no rank keeps its place, each as likely as any other."""
    need_ranks(ranks, 2, "a permutation")
    rng = Rng(seed, "permutation", ranks)
    while True:
        out = rng.shuffled(range(ranks))
        if all(i != j for i, j in enumerate(out)):
            return out


def permutation(ranks: int, size: int, seed: int = 0) -> Schedule:
    """Every host sends `size` bytes to one other and receives from one other, chosen by `seed`."""
    wanted = [Flow(src, dst, size) for src, dst in enumerate(derangement(ranks, seed))]
    return flows("permutation", "permutation", ranks, wanted, size=size)


def pairs(
    ranks: int, size: int, pairs: Sequence[tuple[int, int]] | None = None, both_ways: bool = False, rounds: int = 1
) -> Schedule:
    """Each pair's first host sends `size` bytes to its second. Default: host i to host i + N/2, for the first N/2 hosts."""
    need_ranks(ranks, 2, "a pair")
    chosen = (
        [(int(a), int(b)) for a, b in pairs] if pairs is not None else [(i, i + ranks // 2) for i in range(ranks // 2)]
    )
    if not chosen:
        raise TrafficError("no pair is named", where="pairs", remedy="name at least one pair of hosts")
    wanted = [Flow(a, b, size) for a, b in chosen]
    if both_ways:
        wanted += [Flow(b, a, size) for a, b in chosen]
    return flows("pairs", "pairs", ranks, wanted, size=size, rounds=rounds)


def victim(
    ranks: int,
    size: int,
    senders: int = 7,
    receiver: int | None = None,
    victim_src: int | None = None,
    victim_dst: int | None = None,
    victim_size: int | None = None,
) -> Schedule:
    """An incast of `senders` to one receiver, and one flow beside it, from another host to an idle one (the last flow).

    Defaults: hosts 0 … senders-1 send to the last host, the next host sends to the last but one. With hosts numbered leaf
    by leaf the victim shares the senders' uplinks and the receiver's leaf, but not the receiver's port.
    """
    if ranks < senders + 3:
        raise TrafficError(
            f"an incast of {senders} beside a victim needs {senders + 3} hosts, not {ranks}",
            where="senders", remedy=f"use at most {max(1, ranks - 3)} senders, or a larger topology",
        )  # fmt: skip
    to = ranks - 1 if receiver is None else receiver
    taken = {to}
    dst = next(i for i in reversed(range(ranks)) if i not in taken) if victim_dst is None else victim_dst
    taken |= {dst, -1 if victim_src is None else victim_src}
    sources = [i for i in range(ranks) if i not in taken][:senders]
    src = next(i for i in range(ranks) if i not in taken and i not in sources) if victim_src is None else victim_src
    for name, host in (("receiver", to), ("victim_src", src), ("victim_dst", dst)):
        need_rank(host, ranks, name)
    if len({to, src, dst}) < 3:
        raise TrafficError(
            f"receiver {to}, victim_src {src} and victim_dst {dst} must be three hosts",
            where="victim", remedy="the victim runs between two hosts outside the incast",
        )  # fmt: skip
    wanted = [Flow(i, to, size) for i in sources] + [Flow(src, dst, size if victim_size is None else victim_size)]
    return flows("victim", "victim", ranks, wanted, size=size)


def staggered(ranks: int, senders: int, size: int, gap_ns: int, receiver: int = 0) -> Schedule:
    """Senders join one after the other, `gap_ns` apart, each with `size` bytes for the same receiver."""
    if gap_ns < 0:
        raise TrafficError(f"gap_ns is {gap_ns}", where="gap_ns", remedy="use 0 or more nanoseconds")
    wanted = [Flow(s, receiver, size, i * gap_ns) for i, s in enumerate(senders_to(receiver, senders, ranks))]
    return flows("staggered", "staggered", ranks, wanted, size=size)
