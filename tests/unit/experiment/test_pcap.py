"""Which ports a run captures, and how much of a packet: names, patterns, all; mistakes named."""

from __future__ import annotations

import pytest

from emulator.errors import UsageError
from emulator.experiment.resolve import captured_ports, resolve
from emulator.experiment.spec import Experiment
from emulator.topology.load import load_topology
from tests.experiments import TOPOLOGIES

TOPOLOGY = load_topology(TOPOLOGIES / "leaf-spine-2x2x4.yaml")
NETWORK = TOPOLOGY.network()


def test_names_patterns_and_all_in_the_order_of_the_fabric() -> None:
    assert captured_ports(["leaf0:host1", "leaf0:host0"], NETWORK) == ["leaf0:host0", "leaf0:host1"]
    assert captured_ports(["leaf0:spine1,host3:leaf0", "leaf0:spine1"], NETWORK) == ["host3:leaf0", "leaf0:spine1"]
    assert captured_ports(["leaf?:spine*"], NETWORK) == ["leaf0:spine0", "leaf0:spine1", "leaf1:spine0", "leaf1:spine1"]
    assert len(captured_ports(["all"], NETWORK)) == 24  # 12 links, both directions
    assert captured_ports([], NETWORK) == []


def test_a_port_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        captured_ports(["leaf0:hst0"], NETWORK)
    assert caught.value.what == 'no port "leaf0:hst0" in leaf-spine-2x2x4' and "leaf0:host0" in caught.value.remedy
    with pytest.raises(UsageError, match='no port is like "spine9:\\*"'):
        captured_ports(["spine9:*"], NETWORK)


@pytest.mark.parametrize(
    ("clock", "given", "kept"), [("real", None, 256), ("virtual", None, 0), ("real", "1kB", 1000), ("virtual", 0, 0)]
)
def test_packets_are_cut_where_copying_takes_time(clock: str, given: str | int | None, kept: int) -> None:
    experiment = Experiment.model_validate(
        {
            "topology": "x",
            "workload": {"kind": "incast", "params": {"senders": 3}},
            "pcap": ["leaf0:host0"],
            "pcap_snap": given,
        }
    )
    resolved = resolve(experiment, TOPOLOGY, clock=clock, tdf=1)
    assert (resolved.pcap, resolved.pcap_snap) == (["leaf0:host0"], kept)


def test_less_than_the_headers_is_refused() -> None:
    experiment = Experiment.model_validate(
        {"topology": "x", "workload": {"kind": "incast", "params": {"senders": 3}}, "pcap": ["all"], "pcap_snap": 10}
    )
    with pytest.raises(UsageError, match="10 bytes of a packet do not hold its headers"):
        resolve(experiment, TOPOLOGY, clock="real", tdf=1)


def test_how_much_to_keep_without_a_capture_is_refused() -> None:
    experiment = Experiment.model_validate(
        {"topology": "x", "workload": {"kind": "incast", "params": {"senders": 3}}, "pcap_snap": 100}
    )
    with pytest.raises(UsageError, match="nothing is captured"):
        resolve(experiment, TOPOLOGY, clock="real", tdf=1)
