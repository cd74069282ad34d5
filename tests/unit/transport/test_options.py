"""Every option of a transport changes what happens, and no two algorithms give the same run where there is congestion.

Over a fabric in memory (`net.py`): an incast of four hosts through four spines into a queue of 400 KB at 100 Gbit/s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import pytest

from emulator.errors import UsageError
from emulator.experiment.spec import Transport
from tests.unit.transport.net import Fate, Outcome, fabric, net, transfer
from traffic.congestion.base import CongestionControl, Feedback
from traffic.congestion.registry import BUILT_IN
from traffic.packet.codec import Packet
from traffic.packet.dscp import CONTROL
from traffic.packet.opcodes import Opcode

PAIR = {"kind": "pairs", "bytes": 400_000, "params": {"ranks": 8}}
US = 1_000


def seen(outcome: Outcome) -> tuple[Any, ...]:
    """All that a user could tell two runs apart by."""
    events = [(e["time_ns"], e["kind"]) for e in outcome.events]
    return (*outcome.same, sorted(outcome.control.items()), events, outcome.failures, outcome.end_ns)


def dark(start: int, end: int, port: str = "leaf1:host7") -> Callable[[], Fate]:
    """A port that loses all data between two times."""

    def fate(name: str, now: int, packet: Packet) -> bool:
        return name == port and start <= now < end and packet.dscp != CONTROL

    return lambda: fate


def last_packet_once() -> Fate:
    """The last packet of ONE, the only short one, is lost the first time."""
    left = [1]

    def fate(name: str, now: int, packet: Packet) -> bool:
        hit = name == "leaf1:host7" and len(packet.payload) == 200_000 % 4096 and left[0] > 0
        left[0] -= hit
        return hit

    return fate


@dataclass
class Case:
    """Two values of one option, and the run in which they must differ."""

    option: str
    a: Any
    b: Any
    kind: str
    common: Mapping[str, Any] = field(default_factory=dict)
    topology: Mapping[str, Any] = field(default_factory=dict)
    fate: Callable[[], Fate] | None = None
    workload: Mapping[str, Any] | None = None

    def run(self, value: Any) -> Outcome:
        return transfer(
            fabric(**self.topology), kind=self.kind, fate=self.fate and self.fate(), workload=self.workload,
            **self.common, **({} if value is None else {self.option: value}),
        )  # fmt: skip


ONE = {"kind": "incast", "bytes": 200_000, "params": {"senders": 1, "receiver": 7}}
SELECTIVE = {"recovery": "selective", "cc": "none"}
TAIL = dark(14 * US, 22 * US)  # the end of a transfer of 200 kB at 100 Gbit/s
LONG = dark(5 * US, 1_500 * US)
ONE_SPINE = dark(10 * US, 400 * US, "leaf0:spine1")
CASES = [
    Case("cc", "dcqcn", "swift", "roce"),
    Case("cc", "nscc", "swift", "mrc"),
    Case("cc_preset", None, "hpcc-mellanox", "roce"),
    Case("cc_preset", None, "htsim", "mrc", {"cc": "swift"}),
    Case("cc_params", {"cnp_interval_ns": 50_000}, {"cnp_interval_ns": "4us"}, "roce"),
    Case("cc_params", {"penalty": 0}, {"penalty": 100}, "mrc"),
    Case("mtu", 4096, 1024, "roce"),
    Case("mtu", 4096, 1024, "mrc"),
    Case("recovery", "gbn", "selective", "roce", {"cc": "none"}),
    Case("bdp_cap", True, False, "roce", SELECTIVE),
    Case("qps", 1, 4, "roce"),
    Case("qps", 1, 4, "mrc"),
    Case("ack_every", 1, 8, "roce"),
    Case("ack_every", 1, 8, "mrc"),
    Case("timeout", "200us", "900us", "roce", {"cc": "none"}, fate=TAIL, workload=ONE),
    Case("timeout", "200us", "900us", "mrc", fate=LONG, workload=ONE),
    Case("timeout_low", "40us", "200us", "roce", SELECTIVE, fate=last_packet_once, workload=ONE),
    Case("adaptive_timeout", True, False, "roce", {"cc": "none", "timeout": "200us"}, fate=LONG, workload=ONE),
    Case("adaptive_timeout", True, False, "mrc", {"timeout": "100us"}, fate=LONG, workload=ONE),
    Case("retry_count", 1, 7, "roce", {"cc": "none", "timeout": "200us"}, fate=LONG, workload=ONE),
    Case("retry_count", 1, 7, "mrc", {"timeout": "200us"}, fate=LONG, workload=ONE),
    Case("spray", "oblivious", "ecmp", "mrc"),
    Case("entropy", 4, 64, "mrc"),
    Case("entropy_set", "even", "lot", "mrc"),
    Case("deny", (), ({"via": "spine2"},), "mrc"),
    Case("deny", ({"via": "spine2"},), ({"via": "spine2", "at": "20us"},), "mrc"),
    Case("trim", "off", "on", "mrc", {"cc": "none"}),
    Case("reorder_window", "2us", "200us", "mrc", topology={"overrides": ({"link": "leaf0:spine1", "delay": "9us"},)}),
    Case("probe_interval", "20us", "90us", "mrc", fate=ONE_SPINE),
    Case("probes_needed", 1, 8, "mrc", {"probe_interval": "10us"}, fate=ONE_SPINE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.kind}-{c.option}-{c.b}")
def test_two_values_of_an_option_give_two_results(case: Case) -> None:
    a, b = case.run(case.a), case.run(case.b)
    assert seen(a) != seen(b)


@pytest.mark.parametrize("case", CASES[:8], ids=lambda c: f"{c.kind}-{c.option}")
def test_the_same_value_gives_the_same_result_to_the_nanosecond(case: Case) -> None:
    assert seen(case.run(case.a)) == seen(case.run(case.a))


@pytest.mark.parametrize("kind", ["roce", "mrc"])
@pytest.mark.parametrize("option", sorted(set(Transport.model_fields) - {"kind"}))
def test_every_option_has_a_case_above_on_each_transport_or_is_refused_there(option: str, kind: str) -> None:
    if any((c.option, c.kind) == (option, kind) for c in CASES):
        return
    values = {c.option: c.b for c in CASES} | {"ecn": True}
    with pytest.raises(UsageError):
        net(kind=kind, **{option: values[option]})


OF_PATHS = ("deny", "probe_interval", "probes_needed")


@pytest.mark.parametrize("case", [c for c in CASES if c.option in OF_PATHS], ids=lambda c: c.option)
@pytest.mark.parametrize("spray", ["oblivious", "reps", "flowlet", "ecmp"])
def test_what_is_said_of_paths_has_an_effect_with_every_spray_or_is_refused(case: Case, spray: str) -> None:
    """Above they are tried with `bitmap`, the default."""
    sprayed = replace(case, common={**case.common, "spray": spray})
    if spray == "ecmp" and case.option in ("probe_interval", "probes_needed"):
        with pytest.raises(UsageError, match="keeps its path"):
            sprayed.run(case.b)
    else:
        assert seen(sprayed.run(case.a)) != seen(sprayed.run(case.b))


# -- algorithms --------------------------------------------------------------------------------------------------------

DEEP = fabric(queue={"limit": "4MB"})
STORM = {"kind": "incast", "bytes": 1_500_000, "params": {"senders": 4, "receiver": 7}}


def fits(kind: str) -> list[type[CongestionControl]]:
    return [c for c in BUILT_IN if kind == "roce" or c.feedback is not Feedback.CNP]


def values(cls: type[CongestionControl]) -> dict[str, Any]:
    return {"rate_bps": "50Gbit"} if cls.name == "fixed" else {}


@pytest.mark.parametrize("kind", ["roce", "mrc"])
def test_no_two_algorithms_give_the_same_run(kind: str) -> None:
    """The defect to guard against: three congestion controls, byte-equal results (aliyun/SimAI issue 145)."""
    runs = {
        cls.name: transfer(DEEP, workload=STORM, kind=kind, cc=cls.name, cc_params=values(cls)) for cls in fits(kind)
    }
    assert not any(o.failures for o in runs.values())
    assert sum(o.marked > 0 for o in runs.values()) >= len(runs) - 2  # congested it was
    for a, b in combinations(runs, 2):
        assert runs[a].same != runs[b].same, (a, b)


SLOW = fabric(overrides=({"link": "leaf0:spine3", "rate": "25Gbit"},))
SPRAYS = ("oblivious", "bitmap", "reps", "flowlet", "ecmp")


def test_no_two_sprays_give_the_same_run() -> None:
    """Rounds leave the pauses in which a flowlet ends."""
    work = {"kind": "incast", "bytes": 300_000, "params": {"senders": 4, "receiver": 7, "rounds": 3}}
    runs = {name: transfer(SLOW, workload=work, kind="mrc", spray=name) for name in SPRAYS}
    for a, b in combinations(runs, 2):
        assert runs[a].same != runs[b].same, (a, b)


def test_who_looks_where_marks_come_from_uses_a_slow_uplink_less() -> None:
    """One uplink of four at a quarter of its rate; shapes of uet-htsim and of REPS (EuroSys 2026)."""
    work = {"kind": "permutation", "bytes": 2_000_000, "params": {"ranks": 8}}
    runs = {name: transfer(SLOW, workload=work, kind="mrc", spray=name) for name in ("oblivious", "bitmap", "reps")}
    slow = {name: o.by_port["leaf0:spine3"] / o.by_port["leaf0:spine0"] for name, o in runs.items()}
    assert slow["bitmap"] < slow["oblivious"] and slow["reps"] < slow["oblivious"]
    assert runs["reps"].end_ns < runs["oblivious"].end_ns


# -- what fits what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        ({"kind": "mrc", "cc": "dcqcn"}, "dcqcn lives by congestion notification packets, and mrc has none"),
        ({"kind": "roce", "cc": "nscc", "cc_params": {"penalty": 3}}, "no field for the receiver's penalty"),
        (
            {"kind": "roce", "cc": "nscc", "cc_params": {"penalty_interval_ns": "9us"}},
            "no field for the receiver's penalty",
        ),
        ({"kind": "roce", "cc": "nscc", "cc_params": {"ignore_last_hop_trims": True}}, "no packet of roce is trimmed"),
        ({"kind": "roce", "cc": "dqcn"}, "unknown congestion control dqcn"),
        ({"kind": "mrc", "cc_params": {"gama": 1}}, "unknown parameter gama, nearest is gamma"),
        ({"kind": "mrc", "cc_params": {"target_ns": "4furlongs"}}, "target_ns is '4furlongs'"),
        ({"kind": "roce", "cc_preset": "papper"}, "unknown preset papper"),
        ({"kind": "roce", "trim": "on"}, "roce cannot use trimmed packets"),
        ({"kind": "roce", "spray": "reps"}, "spray is an option of mrc, not of roce"),
        ({"kind": "mrc", "recovery": "selective"}, "recovery is an option of roce, not of mrc"),
        ({"kind": "roce", "timeout_low": "20us"}, "timeout_low belongs to selective repeat"),
        ({"kind": "tcp", "ack_every": 2}, "ack_every is an option of roce and mrc, not of tcp"),
        ({"kind": "mrc", "ecn": True}, "ecn is an option of tcp, not of mrc"),
        ({"kind": "mrc", "deny": ({"via": "spine9"},)}, 'no node "spine9"'),
        ({"kind": "mrc", "deny": ({"via": "host7"},)}, "host7 is a host"),
        ({"kind": "mrc", "deny": tuple({"via": f"spine{i}"} for i in range(4))}, "every path from host"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_built(transport: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        net(**transport)
    assert words in caught.value.what and caught.value.remedy


def test_the_list_of_those_that_fit_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        net(kind="mrc", cc="dcqcn")
    assert "none, fixed, dctcp-window, timely, swift, nscc, rccc, cts" in caught.value.remedy


# -- loss, trimming ----------------------------------------------------------------------------------------------------


def share(kind: str, loss: str, **transport: Any) -> float:
    """Time of one transfer of 4 MB without loss over that with it."""
    work = {"kind": "incast", "bytes": 4_000_000, "params": {"senders": 1, "receiver": 7}}
    lossy = fabric(uplink={"loss": loss}, queue={"limit": "4MB"})
    clean = transfer(DEEP, workload=work, kind=kind, **transport)
    hit = transfer(lossy, workload=work, kind=kind, **transport)
    assert not hit.failures and hit.retransmitted > 0
    return clean.end_ns / hit.end_ns


def test_go_back_n_collapses_at_one_percent_of_loss_and_mrc_does_not() -> None:
    """Issue 4: MRC near line rate, go-back-N far below, selective repeat between (shape of MRC paper, figure 16)."""
    gbn = share("roce", "1%", cc="none")
    selective = share("roce", "1%", cc="none", recovery="selective")
    mrc = share("mrc", "1%")
    assert gbn < 0.3 and 1.3 * gbn < selective < 0.9 * mrc and mrc > 0.85


def test_trimming_loses_no_packet_and_resends_each_trimmed_one_once() -> None:
    shallow = fabric(
        queue={"limit": "100KB"}, ecn={"kmin": "40KB", "kmax": "90KB", "pmax": 0.2}, hosts_per_leaf=9, spines=9
    )
    work = {"kind": "incast", "bytes": 300_000, "params": {"senders": 16, "receiver": 17}}
    on = transfer(shallow, workload=work, kind="mrc", trim="on")
    off = transfer(shallow, workload=work, kind="mrc", trim="off")
    assert (on.dropped, on.timeouts, on.failures) == (0, 0, [])
    trims = on.trimmed.total()
    assert trims > 50 and on.retransmitted == trims
    assert off.trimmed.total() == 0 and off.dropped > 0
    told = Counter[str]()
    for event in on.events:
        if event["kind"] == "nack":
            told[event["why"]] += event["count"]
    last = on.trimmed["leaf1:host17"]
    assert told == Counter({"trimmed_last_hop": last, "trimmed": trims - last}) and last > trims / 2


def test_where_switches_trim_the_last_hop_marks_only_if_the_file_says_so() -> None:
    plain = net(kind="mrc", trim="on").network
    said = net(fabric(ecn={"last_hop": True, "kmin": "40KB", "kmax": "160KB"}), kind="mrc", trim="on").network
    assert not plain.port("leaf1:host7").ecn and plain.port("spine0:leaf1").ecn
    assert said.port("leaf1:host7").ecn
    assert not net(kind="mrc", cc="rccc").network.port("leaf1:host7").ecn
    assert net(kind="mrc").network.port("leaf1:host7").ecn


def test_a_topology_that_trims_does_not_trim_for_roce() -> None:
    trims = fabric(queue={"limit": "100KB", "trim": True}, ecn={"kmin": "40KB", "kmax": "90KB", "pmax": 0.2})
    assert any(p.trim for p in net(trims, kind="mrc").network.ports)
    assert not any(p.trim for p in net(trims, kind="roce").network.ports)
    assert not any(p.trim for p in net(trims, kind="mrc", trim="off").network.ports)
    one = fabric(overrides=({"link": "leaf0:spine1", "trim": True},))
    assert [p.name for p in net(one, kind="mrc").network.ports if p.trim] == ["leaf0:spine1", "spine1:leaf0"]


def test_rounds_of_events_say_why() -> None:
    out = transfer(kind="roce", cc="none")
    kinds = {e["kind"] for e in out.events}
    assert "nak" in kinds and out.control[Opcode.RC_ACKNOWLEDGE] > 0
    lost = transfer(kind="mrc", fate=ONE_SPINE(), probe_interval="10us")
    states = [(e["state"], e["why"]) for e in lost.events if e["kind"] == "path"]
    assert ("assumed_bad", "loss") in states and ("good", "probes") in states
