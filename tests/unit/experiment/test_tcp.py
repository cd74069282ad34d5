"""Kernel TCP in an experiment: what it takes, what the hosts are told, what a kernel without netem leaves out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from emulator.errors import UsageError
from emulator.experiment.spec import Transport
from emulator.experiment.tcp import host_sysctls, tcp_options
from emulator.fabric.plan import make_plan
from emulator.topology.model import Topology
from traffic.agent.kernel_counts import host_record, parse


def test_ecn_is_negotiated_for_dctcp_alone_unless_asked() -> None:
    assert [tcp_options(Transport(kind="tcp", cc=cc))["ecn"] for cc in (None, "reno", "bbr", "dctcp")] == [
        False
    ] * 3 + [True]
    assert tcp_options(Transport(kind="tcp", cc="cubic", ecn=True))["ecn"] is True


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"cc": "dcqcn"}, "--cc"),
        ({"cc": "dctcp", "ecn": False}, "--no-ecn"),
        ({"cc_params": {"g": 1}}, "--cc-set"),
        ({"cc_preset": "paper"}, "--cc-preset"),
        ({"timeout": "1ns"}, "transport.timeout"),
    ],
)
def test_what_kernel_tcp_has_not_is_wrong_usage(more: dict[str, object], place: str) -> None:
    with pytest.raises(UsageError) as error:
        tcp_options(Transport.model_validate({"kind": "tcp", **more}))
    assert error.value.where == place and error.value.remedy


def test_sysctls_are_set_in_each_host_and_a_given_time_out_is_dilated() -> None:
    transport = {
        "kind": "tcp",
        "options": tcp_options(Transport.model_validate({"kind": "tcp", "cc": "dctcp", "timeout": "1ms"})),
    }
    sysctls = host_sysctls(transport, 100)
    assert sysctls["net.ipv4.tcp_ecn"] == "1"
    assert sysctls["net.ipv4.tcp_rto_min_us"] == "100000"  # 1 ms of fabric time at TDF 100
    assert host_sysctls({"kind": "roce"}, 100) == {}
    features = SimpleNamespace(delay="netem", multipath_seed=True, guest=False)
    plan = make_plan(
        Topology(leaves=2, spines=1, hosts_per_leaf=1), run_id="20261129-161200-x", seed=1, tdf=1, features=features,  # type: ignore[arg-type]
        host_sysctls=sysctls,
    )  # fmt: skip
    assert {n.kind: n.sysctls.get("net.ipv4.tcp_ecn") for n in plan.nodes} == {"host": "1", "leaf": None, "spine": None}


@pytest.mark.parametrize(
    ("delay", "agents", "left_out"), [("agent", False, 2000), ("agent", True, 0), ("netem", False, 0)]
)
def test_propagation_that_nobody_keeps_is_neither_planned_nor_silent(delay: str, agents: bool, left_out: int) -> None:
    """Four links of 500 ns between leaves: kept by netem or by agents; kernel TCP without netem has neither."""
    plan = make_plan(
        Topology(leaves=2, spines=2, hosts_per_leaf=1), run_id="20261129-161200-x", seed=1, tdf=10,
        features=SimpleNamespace(delay=delay, multipath_seed=True, guest=False), agents=agents,  # type: ignore[arg-type]
    )  # fmt: skip
    assert plan.unmodelled_delay_ns == plan.to_dict()["unmodelled_delay_ns"] == left_out
    assert any("propagation: not modelled" in note for note in plan.notes) == bool(left_out)
    assert {p.fabric_delay_ns for p in plan.ports} == ({0} if left_out else {500})
    assert plan.path_delay_ns("host0", "host1") == (0 if left_out else 2000)
    assert plan.hold_ns("host0", "host1") == (2000 if agents else 0)


TABLES = """Ip: Forwarding InReceives OutRequests
Ip: 2 {got} {sent}
TcpExt: SyncookiesSent TCPBacklogDrop
TcpExt: 0 1
IpExt: InOctets OutOctets InCEPkts
IpExt: {octets} 500 {ce}
"""


def test_counters_of_the_kernel_become_a_hosts_record_and_what_is_not_counted_stays_unknown() -> None:
    start = parse(TABLES.format(got=5, sent=7, octets=1000, ce=0))
    end = parse(TABLES.format(got=15, sent=9, octets=2000, ce=3))
    record = host_record(4, start, end)
    assert (record.rank, record.rx_packets, record.tx_packets, record.rx_ce, record.kernel_drops) == (4, 10, 2, 3, 0)
    assert record.rx_bytes == 1000 + 10 * 14  # the kernel counts IP packets, the record Ethernet frames
    assert record.enobufs is record.icrc_errors is record.tx_data is None
    del end["IpExt.InCEPkts"]
    assert host_record(4, start, end).rx_ce is None
