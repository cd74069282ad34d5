"""Rings on real interfaces: what leaves and nothing else, whole or cut, in order; what does not fit is counted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from emulator.collect.ring import BLOCK, Array, Geometry, PortRing, unpack
from tests.root.port_lab import Lab, frame, lab

pytestmark = pytest.mark.root

Seen = list[tuple[int, int, bytes]]


@pytest.fixture
def made() -> Iterator[Lab]:
    with lab("a", "b") as found:
        found.link("a", "p0", "b", "p1")
        yield found


def everything(ring: PortRing) -> Seen:
    import numpy as np

    out: Seen = []
    room: Array = np.empty(BLOCK, np.uint8)
    while True:
        count, width = ring.copy(room)
        if not count:
            return out
        out += unpack(room[: count * width].reshape(count, width))


def ring_of(made: Lab, *, snap: int = 9014, room: int = 4 << 20) -> PortRing:
    return PortRing(str(made.netns("a")), "p0", snap_bytes=snap, geometry=Geometry.of(snap, room))


def send(made: Lab, node: str, ifname: str, frames: list[bytes]) -> None:
    with made.sender(node, ifname) as sender:
        for one in frames:
            sender.send(one)


def test_what_leaves_is_seen_whole_in_order_and_stamped_and_what_arrives_is_not(made: Lab) -> None:
    ring = ring_of(made)
    leaving = [frame(80 + 70 * i, mark=i) for i in range(120)]
    before = time.time_ns()
    send(made, "a", "p0", leaving)
    send(made, "b", "p1", [frame(100)] * 20)
    after = time.time_ns()
    found = everything(ring)
    ring.count()
    ring.close()
    assert [data for _, _, data in found] == leaving
    assert [wire for _, wire, _ in found] == [len(one) for one in leaving]
    stamps = [stamp for stamp, _, _ in found]
    assert stamps == sorted(stamps) and before <= stamps[0] and stamps[-1] <= after
    assert (ring.packets, ring.drops) == (120, 0)


def test_a_cut_packet_keeps_its_true_length(made: Lab) -> None:
    ring = ring_of(made, snap=64)
    send(made, "a", "p0", [frame(4096), frame(60)])
    found = everything(ring)
    ring.close()
    assert [(len(data), wire) for _, wire, data in found] == [(64, 4096), (60, 60)]
    assert found[0][2] == frame(4096)[:64]


def test_a_full_ring_counts_what_it_could_not_take_and_goes_on(made: Lab) -> None:
    ring = ring_of(made, room=0)
    slots = 2 * (BLOCK // ((66 + 9014 + 15) & ~15))
    send(made, "a", "p0", [frame(100, mark=i) for i in range(slots + 9)])
    first = everything(ring)
    send(made, "a", "p0", [frame(100, mark=1000 + i) for i in range(slots)])
    second = everything(ring)
    ring.count()
    ring.close()
    assert [data for _, _, data in first] == [frame(100, mark=i) for i in range(slots)]
    assert [data for _, _, data in second] == [frame(100, mark=1000 + i) for i in range(slots)]
    assert (ring.packets, ring.drops) == (2 * slots + 9, 9)
