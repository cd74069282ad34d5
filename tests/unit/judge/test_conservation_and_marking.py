"""F6 and F10 on made counters: two hosts on one leaf, 100 packets from a to b, 90 arrive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator.judge.conservation import HostCount, PortCount, check_conservation
from emulator.judge.marking import PortMarks, check_marking, expected_marks, marking_note, reached

PORTS = [
    PortCount("a:l", "a", "l", 100, 100, 0),
    PortCount("l:b", "l", "b", 100, 90, 8, lost=2),
    PortCount("b:l", "b", "l", 90, 90, 0),
    PortCount("l:a", "l", "a", 90, 90, 0),
]
HOSTS = [HostCount("a", 100, 90), HostCount("b", 90, 90)]


def test_every_packet_is_accounted_for() -> None:
    check = check_conservation(PORTS, HOSTS)
    assert (check.status, check.value) == ("pass", 0)
    assert check.reason == "190 packets sent by agents; 370 packets sent by 4 ports, 8 dropped, 2 lost by the model"


@pytest.mark.parametrize(
    ("index", "change", "reason"),
    [
        (1, {"dropped": 7}, "port l:b: 1 packets missing (100 went in, 99 are known)"),
        (1, {"seen": 97, "sent": 87}, "through l: 3 packets missing (190 went in, 187 are known)"),
        (0, {"seen": 99, "sent": 99}, "from a: 1 packets missing (100 went in, 99 are known)"),
        (1, {"sent": 91, "dropped": 7}, "to b: 1 packets missing (91 went in, 90 are known)"),
        (1, {"seen": 101, "sent": 91}, "through l: 1 packets too many (190 went in, 191 are known)"),
    ],
)
def test_a_packet_that_vanishes_is_found_where_it_vanished(index: int, change: dict[str, int], reason: str) -> None:
    ports = [replace(p, **change) if i == index else p for i, p in enumerate(PORTS)]
    check = check_conservation(ports, HOSTS)
    assert check.status == "fail" and reason in check.reason


def test_packets_still_queued_may_be_in_flight() -> None:
    ports = [PORTS[0], replace(PORTS[1], sent=89, backlog_bytes=4194), *PORTS[2:]]
    hosts = [HOSTS[0], replace(HOSTS[1], received=89)]
    assert check_conservation(ports, hosts).status == "pass"


def test_a_refused_packet_is_the_agents_not_the_networks() -> None:
    """The host's own queue drops 5: the program before it saw them, the agent got ENOBUFS and does not count them sent."""
    ports = [replace(PORTS[0], seen=105, dropped=5), *PORTS[1:]]
    assert check_conservation(ports, HOSTS).status == "pass"


def test_socket_drops_are_known_losses() -> None:
    assert check_conservation(PORTS, [HOSTS[0], HostCount("b", 90, 88, socket_drops=2)]).status == "pass"


def test_without_a_program_the_queue_tells_what_it_saw() -> None:
    ports = [replace(p, seen=None) for p in PORTS]
    assert check_conservation(ports, HOSTS).status == "pass"
    lost = [ports[0], replace(ports[1], sent=85), *ports[2:]]
    assert check_conservation(lost, HOSTS).status == "fail"


def test_kernel_tcp_is_checked_inside_the_fabric() -> None:
    hosts = [HostCount("a", None, None), HostCount("b", None, None)]
    check = check_conservation(PORTS, hosts)
    assert check.status == "pass" and check.reason.startswith("inside the fabric only")
    assert check_conservation([], hosts).status == "not-modelled"


def test_where_nothing_was_sent_nothing_is_conserved() -> None:
    idle = [PortCount(p.name, p.node, p.peer, seen=0, sent=0, dropped=0) for p in PORTS]
    hosts = [HostCount("a", None, None), HostCount("b", None, None)]
    check = check_conservation(idle, hosts)
    assert (check.status, check.reason) == ("not-modelled", "no packet was sent")
    assert check_conservation(idle, HOSTS).status == "fail"  # the agents know of packets that no port saw


MARKS = PortMarks("l:b", True, 100_000, 400_000, 0.2, 50, 300_000, ce_dropped=0, above_kmin=900)
QUIET = PortMarks("l:a", True, 100_000, 400_000, 0.2, 0, 5_000, ce_dropped=0, above_kmin=0)


def test_marks_made_are_marks_seen() -> None:
    assert check_marking([MARKS, QUIET], 50).status == "pass"
    check = check_marking([MARKS, QUIET], 48)
    assert (check.status, check.value) == ("fail", 2)
    assert check_marking([MARKS, QUIET], 51).value == -1


def test_marked_packets_dropped_later_are_counted_out() -> None:
    assert check_marking([replace(MARKS, ce_dropped=3), QUIET], 47).status == "pass"
    assert check_marking([replace(MARKS, ce_dropped=3), QUIET], 50).status == "fail"


def test_without_that_count_the_drops_are_the_bound() -> None:
    unknown = [replace(MARKS, ce_dropped=None, dropped=10), QUIET]
    assert [check_marking(unknown, seen).status for seen in (50, 40, 39, 51)] == ["pass", "pass", "fail", "fail"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"max_bytes": 90_000}, "l:b: 50 marks, though its queue never passed kmin (90000 of 100000 B)"),
        ({"above_kmin": 40}, "l:b: 50 marks for 40 packets above kmin"),
        ({"marks": False}, "l:b: 50 marks, but this port does not mark"),
    ],
)
def test_marks_need_a_queue_above_kmin(change: dict[str, int], reason: str) -> None:
    check = check_marking([replace(MARKS, **change), QUIET], 50)  # type: ignore[arg-type]
    assert check.status == "fail" and check.reason == reason


def law(marked: int, uncertain: int = 0) -> PortMarks:
    """1,000 packets met each of the bins 0-10, …, 40-50 kB; kmin 10 kB, kmax 40 kB, pmax 0.3, last bin open.

    Lower edges 0, 10, 20, 30, 40 kB: p = 0, 0, 0.1, 0.2, 0.3; upper edges 10, 20, 30, 40 kB, open: 0, 0.1, 0.2, 0.3, 1.
    """
    return PortMarks("p", True, 10_000, 40_000, 0.3, marked, 60_000, ce_dropped=0, above_kmin=4000,
                     histogram=(1000,) * 5, bin_bytes=10_000, uncertain=uncertain)  # fmt: skip


def test_marks_follow_the_law() -> None:
    slack = 6 * 1600**0.5 + 1
    assert expected_marks(law(0)) == pytest.approx((600 - slack, 1600 + slack))
    for marked, uncertain, status in (
        (1000, 0, "pass"),
        (300, 0, "fail"),
        (300, 100, "pass"),
        (2000, 0, "fail"),
        (0, 0, "fail"),
    ):
        assert check_marking([law(marked, uncertain)], marked).status == status, marked


def test_never_reached_is_not_the_same_as_not_modelled() -> None:
    check = check_marking([QUIET, replace(QUIET, name="l:c", max_bytes=31_000)], 0)
    assert (check.status, check.reason) == ("pass", "marking never reached: peak 31000 B of threshold 100000 B at l:c")
    check = check_marking([replace(QUIET, marks=False)], 0)
    assert (check.status, check.reason) == ("not-modelled", "marking: not modelled")
    assert reached("PFC", False, None, 0, "") == "PFC: not modelled"
    assert reached("PFC", True, 10, 200, "l:b") == "PFC never reached: peak 10 B of threshold 200 B at l:b"
    assert marking_note([MARKS, QUIET]) == "marking reached: peak 300000 B over threshold 100000 B at l:b"


def test_what_the_kernel_cannot_tell_is_not_modelled() -> None:
    assert check_marking([replace(MARKS, marked=None)], 5).status == "not-modelled"
    assert check_marking([MARKS], None).status == "not-modelled"


def test_where_no_packet_can_take_a_mark_there_is_nothing_to_check() -> None:
    deaf = replace(QUIET, ect=0, max_bytes=300_000)
    check = check_marking([deaf, deaf], 0)
    assert (check.status, check.reason) == ("not-modelled", "no packet could take a mark: none was ECN-capable")
    assert check_marking([deaf, replace(QUIET, ect=7)], 0).status == "pass"
    assert check_marking([deaf], 2).status == "fail"  # seen, but made nowhere
