"""From raw results to a verdict: a made run of two senders to one host, right to the packet, and what breaks it.

Hosts 1 and 2 send 2.5 MB each to host 0 at 100 Gbit/s, 625 packets of 4,000 bytes of payload each (4,098 on the wire, 327.84
ns). The receiver's port needs 1,250 x 327.84 = 409,800 ns; its queue grows by one packet each 327.84 ns to 2.5 MB.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emulator.judge.conservation import HostCount, PortCount
from emulator.judge.facts import facts_from_raw
from emulator.judge.marking import probability
from emulator.judge.remedy import REMEDIES
from emulator.judge.verdict import Verdict, judge
from traffic.collective.registry import make_schedule

MTU, WIRE, RATE, DELAY, PERIOD = 4000, 4098, 100_000_000_000, 500, 2_000
PACKETS, TX = 1250, 327.84
KMIN, KMAX, PMAX, BIN = 100_000, 400_000, 0.2, 65_536
Break = Callable[[dict[str, Any]], None]


def made_run() -> dict[str, Any]:
    """Raw results as execute leaves them, on a real clock at TDF 100."""
    index = np.arange(PACKETS)
    came = (index // 2 + 1) * TX + DELAY
    left = came[0] + (index + 1) * TX
    queue = (index - np.searchsorted(left, came, side="right")).clip(0) * WIRE
    histogram = np.bincount(np.minimum(queue // BIN, 63), minlength=64).tolist()
    marks = round(sum(probability(q, KMIN, KMAX, PMAX) for q in queue.tolist()))
    nodes = [{"name": n, "kind": n.rstrip("0123456789")} for n in ("host0", "host1", "host2", "leaf0")]
    pairs = [(f"host{i}", "leaf0") for i in range(3)] + [("leaf0", f"host{i}") for i in range(3)]
    plan_ports, ports = [], {}
    through = {("leaf0", "host0"): PACKETS, ("host1", "leaf0"): 625, ("host2", "leaf0"): 625}
    for number, (node, peer) in enumerate(pairs):
        name, hot = f"{node}:{peer}", (node, peer) == ("leaf0", "host0")
        data = through.get((node, peer), 0)
        control = 10 if (node, peer) in (("leaf0", "host1"), ("leaf0", "host2")) else 20 if node == "host0" else 0
        plan_ports.append({
            "name": name, "node": node, "peer": peer, "number": number, "fabric_rate_bps": RATE, "fabric_delay_ns": DELAY,
            "burst_bytes": 8196, "kmin_bytes": KMIN, "kmax_bytes": KMAX, "pmax": PMAX, "mark": node == "leaf0", "carrier": True,
        })  # fmt: skip
        ports[name] = {
            "number": number,
            "classes": {
                "control": {"tx_packets": control, "tx_bytes": 84 * control, "dropped": 0, "backlog_bytes": 0},
                "data": {"tx_packets": data, "tx_bytes": WIRE * data, "dropped": 0, "backlog_bytes": 0},
            },
            "seen_packets": data + control, "marked": marks if hot else 0, "trimmed": 0, "lost": 0, "ce_dropped": 0,
            "max_bytes": int(queue.max()) if hot else 0, "above_kmin": int((queue >= KMIN).sum()) if hot else 0,
            "ect_packets": data, "histogram": {"control": [0] * 64, "data": histogram if hot else [data] + [0] * 63},
            "bin_bytes": BIN,
        }  # fmt: skip
    ticks = np.arange(0, 412_000, PERIOD)
    hot = next(p["number"] for p in plan_ports if p["name"] == "leaf0:host0")
    taken, sent = np.searchsorted(came, ticks, side="right"), np.searchsorted(left, ticks, side="right")
    zero = np.zeros(len(ticks), dtype=np.int64)
    samples = {
        "time_ns": np.repeat(ticks, 2), "port": np.full(2 * len(ticks), hot), "cls": np.tile([0, 1], len(ticks)),
        "backlog_bytes": np.stack([zero, (taken - sent) * WIRE], 1).ravel(), "enqueued": np.stack([zero, taken], 1).ravel(),
        "tick_ns": ticks, "period_ns": np.array(PERIOD),
    }  # fmt: skip
    end = int(left[-1]) + DELAY + 1
    moves = [
        {"id": i, "flow": i, "step": 0, "src": i + 1, "dst": 0, "size": 2_500_000, "start_ns": 0, "delivered_ns": end,
         "acked_ns": end + 1000, "sent": 625, "retransmitted": 0, "reordered": 0, "ce": marks // 2, "trimmed": 0, "timeouts": 0}
        for i in range(2)
    ]  # fmt: skip
    hosts = [
        {"rank": r, "tx_packets": t, "rx_packets": x, "rx_foreign": 0, "kernel_drops": 0, "enobufs": 0, "rx_ce": c}
        for r, (t, x, c) in enumerate([(20, PACKETS, marks), (625, 10, 0), (625, 10, 0)])
    ]
    cores = [[100, 0, 50, 1000, 0, 0, 10, 0], [100, 0, 50, 1000, 0, 0, 10, 0]]
    later = [[130, 0, 60, 1050, 0, 0, 20, 0], [110, 0, 50, 1090, 0, 0, 10, 0]]  # 50 and 10 of 100 ticks busy
    counters = {"dropped": 5, "udp_rcvbuf_errors": 0, "pressure_us": 0, "run_wait_ns": 0, "monotonic_ns": 0}
    return {
        "plan": {"nodes": nodes, "ports": plan_ports, "tdf": 100, "delay_mode": "agent", "notes": []},
        "ports": ports,
        "samples": samples,
        "worker": {
            "moves": moves, "hosts": hosts, "wrong": 0, "checked": 5_000_000, "problem": None, "end_ns": end,
            "loop": {"late_p99_ns": 100, "clock_step_ns": 0}, "arrivals": {"0": left.astype(int).tolist()},
        },
        "applied": {"differences": {"start": [], "end": []}},
        "softnet": {"start": {**counters, "cpu_ticks": cores}, "end": {**counters, "monotonic_ns": 10**9, "cpu_ticks": later}},
    }  # fmt: skip


MANIFEST = {
    "clock": {"mode": "real", "tdf": 100},
    "experiment": {"transport": {"kind": "roce", "mtu": MTU, "options": {"spray": "oblivious"}}},
}
SCHEDULE = make_schedule("incast", ranks=3, senders=2, size=2_500_000)


def verdict(raw: dict[str, Any], **manifest: Any) -> Verdict:
    return judge(facts_from_raw(raw, {**MANIFEST, **manifest}, schedule=SCHEDULE))


def test_a_clean_run_is_trusted() -> None:
    result = verdict(made_run())
    assert (result.word, result.text, result.exit_code) == ("trusted", "trusted", 0)
    status = {c.id: c.status for c in result.checks}
    assert {k for k, v in status.items() if v != "pass"} == {"F4", "F13"}  # no probes, one run
    value = {c.id: c.value for c in result.checks}
    assert abs(value["F2"] or 1) < 0.01 and (value["F3"] or 1) < 0.01 and value["F8"] == 0.5
    # 5 MB are 400,000 ns, a transmission of 320, two wires; the run needs 98 of 4,000 bytes more for headers
    assert value["F14"] == pytest.approx(411_128.84 / 401_320, rel=1e-3)
    peak = made_run()["ports"]["leaf0:host0"]["max_bytes"]
    assert peak == 625 * WIRE  # the last packet meets the 1,249 before it less the 624 that left
    assert result.notes == (
        f"marking reached: peak {peak} B over threshold 100000 B at leaf0:host0",
        "PFC: not modelled",
    )


def shaper_at(share: float) -> Break:
    def change(raw: dict[str, Any]) -> None:
        """The receiver's port sends at a share of its rate: samples and arrivals stretch by it."""
        samples, worker = raw["samples"], raw["worker"]
        samples["time_ns"] = (samples["time_ns"] / share).astype(np.int64)
        samples["tick_ns"], samples["period_ns"] = (
            (samples["tick_ns"] / share).astype(np.int64),
            np.array(int(PERIOD / share)),
        )
        worker["arrivals"]["0"] = [int(t / share) for t in worker["arrivals"]["0"]]
        worker["end_ns"] = int(worker["end_ns"] / share)
        for move in worker["moves"]:
            move["delivered_ns"] = int(move["delivered_ns"] / share)

    return change


def set_path(*path: Any, value: Any) -> Break:
    def change(raw: dict[str, Any]) -> None:
        place = raw
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def stop_sampler(raw: dict[str, Any]) -> None:
    raw["samples"]["tick_ns"] = raw["samples"]["tick_ns"][:100]


def hidden_filter(raw: dict[str, Any]) -> None:
    """5 packets vanish between leaf0's routing and its port."""
    port = raw["ports"]["leaf0:host0"]
    port["seen_packets"] -= 5
    port["classes"]["data"]["tx_packets"] -= 5
    raw["worker"]["hosts"][0]["rx_packets"] -= 5


HOSTS0 = ("worker", "hosts", 0)
BUSY = [[200, 0, 45, 1000, 0, 0, 10, 0], [100, 0, 50, 1000, 0, 0, 10, 0]]


@pytest.mark.parametrize(
    ("change", "word", "reason"),
    [
        (
            set_path("applied", "differences", "end", value=["leaf0:host0: tso is on"]),
            "untrusted",
            "F1 plan = reality: at the end: ",
        ),
        (shaper_at(0.9), "untrusted", "F2 rate: leaf0:host0 sent 10"),
        (shaper_at(0.96), "care", "F2 rate: leaf0:host0 sent 4"),
        (shaper_at(1.2), "untrusted", "F2 rate: leaf0:host0 sent 20"),
        (set_path("worker", "loop", "late_p99_ns", value=5000), "untrusted", "F5 source kept up: "),
        (set_path("worker", "loop", "late_p99_ns", value=500), "care", "F5 source kept up: "),
        (set_path("worker", "hosts", 1, "enobufs", value=400), "untrusted", "F5 source kept up: "),
        (hidden_filter, "untrusted", "F6 conservation: through leaf0: 5 packets missing"),
        (set_path("softnet", "end", "dropped", value=7), "untrusted", "F7 hidden drops: 2 in softnet backlog"),
        (set_path(*HOSTS0, "kernel_drops", value=1), "untrusted", "F7 hidden drops: 1 in packet sockets"),
        (set_path("softnet", "end", "cpu_ticks", value=BUSY), "untrusted", "F8 CPU: busiest core 100 %"),
        (stop_sampler, "untrusted", "F9 sampler: "),
        (set_path(*HOSTS0, "rx_ce", value=3), "untrusted", "F10 ECN: "),
        (set_path("ports", "leaf0:host0", "marked", value=0), "untrusted", "F10 ECN: leaf0:host0: no mark where "),
        (set_path("worker", "moves", 0, "reordered", value=1), "untrusted", "F11 order: "),
        (set_path("worker", "wrong", value=1), "untrusted", "F12 workload: 1 of 5000000 results are wrong"),
        (
            set_path("worker", "moves", 1, "delivered_ns", value=-1),
            "untrusted",
            "F12 workload: 1 of 2 transfers did not finish",
        ),
        (
            set_path("worker", "moves", 1, "delivered_ns", value=150_000),
            "untrusted",
            "F14 theory: host2>host0 (transfer 1) took 150000 ns",
        ),
        (set_path("worker", "loop", "clock_step_ns", value=5_000_000), "untrusted", "C1 system clock: "),
        (
            set_path("applied", value={}),
            "care",
            "F1 plan = reality could not be checked: not read back at the start and end",
        ),
        (set_path("samples", value=None), "care", "F9 sampler could not be checked: the run was not sampled"),
        (set_path("ports", value={}), "care", "F6 conservation could not be checked: "),
    ],
)
def test_each_fault_turns_the_verdict_with_its_reason(change: Break, word: str, reason: str) -> None:
    raw = copy.deepcopy(made_run())
    change(raw)
    result = verdict(raw)
    assert result.word == word
    assert any(r.startswith(reason) for r in result.reasons), result.reasons
    assert result.exit_code == (3 if word == "untrusted" else 0)
    assert result.text.startswith("use with care (" if word == "care" else "do not trust (")


def test_the_spread_of_repeats_counts() -> None:
    facts = facts_from_raw(made_run(), MANIFEST, schedule=SCHEDULE, repeats=[1.0, 1.5, 0.6])
    assert judge(facts).word == "untrusted" and judge(facts).reasons[0].startswith(
        "F13 repeats: 3 runs: median 1, CV 43"
    )


def test_kernel_tcp_on_a_slowed_clock_needs_care() -> None:
    result = verdict(made_run(), experiment={"transport": {"kind": "tcp", "mtu": MTU}})
    assert result.word == "care" and result.reasons[0].startswith(
        "C2 transport timers: kernel TCP keeps its own timers"
    )
    status = {c.id: c.status for c in result.checks}
    # the hosts' kernels count CE, but nobody tells what overtook
    assert (status["F10"], status["F11"]) == ("pass", "not-modelled")


def test_without_a_schedule_the_records_give_a_bound() -> None:
    facts = facts_from_raw(made_run(), MANIFEST)
    assert facts.bound is not None and facts.bound.because == "5000000 bytes enter host0"


def test_what_to_do_stands_beside_the_reasons_and_none_twice() -> None:
    raw = copy.deepcopy(made_run())
    stop_sampler(raw)
    set_path("worker", "loop", "late_p99_ns", value=5000)(raw)
    set_path("applied", "differences", "end", value=["leaf0:host0: tso is on"])(raw)
    told = verdict(raw).remedies
    assert len(told) == 2 and told[0].startswith("something changed the network") and "--tdf 200," in told[1]
    virtual = verdict(raw, clock={"mode": "virtual", "tdf": 1}).remedies
    assert len(virtual) == 2 and "report it" in virtual[1]


def test_a_run_in_which_nobody_sent_is_not_trusted_and_no_fault_to_report() -> None:
    facts = facts_from_raw(made_run(), MANIFEST)
    facts.ports = [PortCount(p.name, p.node, p.peer, seen=0, sent=0, dropped=0) for p in facts.ports]
    facts.hosts, facts.tx_packets, facts.enobufs = [HostCount(h.name, None, None) for h in facts.hosts], 0, 0
    result = judge(facts)
    assert result.word == "care" and result.reasons == ("F6 conservation could not be checked: no packet was sent",)
    assert result.remedies == ()


def test_a_packet_that_came_late_on_one_path_is_found_though_it_was_sent_again() -> None:
    raw = made_run()
    set_path("worker", "loop", "naks_sent", value=1)(raw)
    set_path("worker", "moves", 0, "retransmitted", value=9)(raw)
    assert [c.status for c in verdict(raw).checks if c.id == "F11"] == ["fail"]
    for where in ("kernel_drops", "icrc_errors"):
        harmed = copy.deepcopy(raw)
        set_path(*HOSTS0, where, value=1)(harmed)
        assert [c.status for c in verdict(harmed).checks if c.id == "F11"] == ["pass"]


def test_packets_that_may_not_take_a_mark_are_counted() -> None:
    raw = made_run()
    before = {m.name: m.uncertain for m in facts_from_raw(raw, MANIFEST).marking}
    port = raw["ports"]["leaf0:host0"]
    port["classes"]["data"]["dropped"], port["lost"], port["trimmed"] = 3, 20, 100
    port["ect_packets"] -= 1000
    after = {m.name: m.uncertain for m in facts_from_raw(raw, MANIFEST).marking}
    assert after == before | {"leaf0:host0": before["leaf0:host0"] + 1123}


@pytest.mark.parametrize("counter", ["pressure_us", "run_wait_ns"])
def test_a_counter_that_this_kernel_lacks_is_left_out_of_f8(counter: str) -> None:
    raw = made_run()
    set_path("softnet", "start", counter, value=None)(raw)
    cpu = facts_from_raw(raw, MANIFEST).cpu
    assert cpu is not None and cpu.busiest_core == 0.5
    assert [cpu.pressure is None, cpu.waiting is None] == [counter == "pressure_us", counter == "run_wait_ns"]


def test_a_busy_machine_is_not_told_to_slow_down() -> None:
    raw = copy.deepcopy(made_run())
    set_path("softnet", "end", "cpu_ticks", value=BUSY)(raw)
    (told,) = verdict(raw).remedies
    assert "other programs" in told and "--tdf" not in told


def test_a_run_that_was_made_again_says_so() -> None:
    why = "this machine spoiled the run at 50× (F8 CPU: busy): made again, slowed 100×"
    notes = verdict(made_run(), clock={"mode": "real", "tdf": 100, "why": why}).notes
    assert notes[0] == f"{why}; the first attempt is in the folder spoiled"


def test_every_check_has_a_remedy() -> None:
    ids = {c.id for c in verdict(made_run()).checks} | {"C3"}
    assert ids == set(REMEDIES)


def test_json_of_a_verdict() -> None:
    data = verdict(made_run()).to_json()
    assert data["word"] == "trusted" and data["reasons"] == [] and data["remedies"] == []
    assert set(data["checks"][0]) == {"id", "name", "status", "value", "limit", "reason"}
