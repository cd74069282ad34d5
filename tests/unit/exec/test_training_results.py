"""Result f: its experiment files say what its tables claim, and its cells are what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.bench import training
from emulator.exec.program import Program
from emulator.exec.resolve import resolve_program
from emulator.experiment.load import load_experiment
from emulator.report.api import Run
from emulator.topology.load import load_topology
from tests.experiments import ROOT

SPECS = ROOT / "docs" / "results" / "specs"


@pytest.mark.parametrize("backend", training.BACKENDS)
@pytest.mark.parametrize("name", ["f-training", "f-slow-uplink"])
def test_the_files_run_the_example_over_each_transport(name: str, backend: str) -> None:
    path = SPECS / f"{name}.yaml"
    experiment = load_experiment(path, [*training.carried_by(backend), "clock=real", "tdf=100"])
    topology = load_topology(path.parent / experiment.topology, experiment.topology_set)
    resolved, _ = resolve_program(experiment, topology, path.parent)
    program = Program.from_dict(resolved.workload)
    assert program.hosts == ("host0", "host4", "host1", "host5")
    assert (program.cwd, program.compute_ns) == (str(ROOT), 2_000_000)
    assert program.command[:2] == ("python", "examples/ddp.py") and (ROOT / program.command[1]).is_file()
    wanted = ("tcp", "gloo") if backend == "gloo" else (backend, "fabriclab")
    assert (resolved.transport["kind"], program.command[2]) == wanted


def test_the_slow_fabric_has_an_uplink_at_a_quarter_and_paths_that_lose_a_packet_in_a_thousand() -> None:
    path = SPECS / "f-slow-uplink.yaml"
    experiment = load_experiment(path)
    network = load_topology(path.parent / experiment.topology, experiment.topology_set).network()
    ports = {port.name: port for host in network.hosts + network.switches for port in network.ports_of(host.name)}
    assert ports["leaf0:spine1"].rate_bps * 4 == ports["leaf0:spine0"].rate_bps
    path_ports = ("host0:leaf0", "leaf0:spine0", "spine0:leaf1", "leaf1:host4")
    kept = 1.0
    for name in path_ports:
        kept *= 1 - ports[name].loss
    assert 1 - kept == pytest.approx(0.001, rel=0.001)


def test_losses_are_read_and_compared(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "rank0.txt").write_text("step 0 loss 0.5000000\nsomething else\nstep 1 loss 0.2500010\n")
    run = Run.__new__(Run)
    run.path = tmp_path
    assert training.difference(run, [0.5, 0.25]) == pytest.approx(4e-6)
    assert training.difference(run, [0.5]) == float("inf")
