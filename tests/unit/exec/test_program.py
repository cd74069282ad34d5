"""Which rank runs where, what it finds in its environment, and every wrong way of asking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.errors import UsageError
from emulator.exec.program import Program, Rank, choose_hosts, rank_environment
from emulator.exec.resolve import parse_compute, program_of, resolve_program
from emulator.experiment.spec import Experiment
from emulator.topology.load import load_topology
from tests.experiments import TOPOLOGIES

HOSTS = ("host0", "host1", "host2", "host3")


@pytest.mark.parametrize(
    ("asked", "hosts", "ranks"),
    [
        ({}, HOSTS, 4),
        ({"ranks": 3}, HOSTS[:3], 3),
        ({"ranks": 5, "ranks_per_host": 2}, HOSTS[:3], 5),
        ({"hosts": ["3", "host1"]}, ("host3", "host1"), 2),
        ({"hosts": ["0"], "ranks_per_host": 4}, ("host0",), 4),
        ({"hosts": ["0", "1", "2"], "ranks": 2}, HOSTS[:2], 2),
    ],
)
def test_hosts_and_ranks(asked: dict[str, Any], hosts: tuple[str, ...], ranks: int) -> None:
    given = {"hosts": None, "ranks": None, "ranks_per_host": 1, **asked}
    assert choose_hosts(HOSTS, **given) == (hosts, ranks)


@pytest.mark.parametrize(
    ("asked", "where", "what"),
    [
        ({"ranks": 5}, "--ranks", "5 ranks do not fit on 4 hosts with 1 each"),
        ({"hosts": ["0", "1"], "ranks": 3}, "--ranks", "3 ranks do not fit on 2 hosts with 1 each"),
        ({"hosts": ["0", "host0"]}, "--hosts", "host0 is named twice"),
        ({"hosts": ["hots1"]}, "--hosts", 'no host "hots1"; did you mean "host1"?'),
    ],
)
def test_hosts_that_do_not_work(asked: dict[str, Any], where: str, what: str) -> None:
    given = {"hosts": None, "ranks": None, "ranks_per_host": 1, **asked}
    with pytest.raises(UsageError) as caught:
        choose_hosts(HOSTS, **given)
    assert (caught.value.where, caught.value.what) == (where, what)


def test_ranks_fill_one_host_after_the_other() -> None:
    program = Program(command=("true",), hosts=HOSTS[:2], ranks=3, ranks_per_host=2)
    assert program.placement() == (Rank(0, "host0", 0), Rank(1, "host0", 1), Rank(2, "host1", 0))
    assert [program.on_host(host) for host in HOSTS[:2]] == [2, 1]
    assert Program.from_dict({**program.to_dict(), "kind": "exec", "bytes": 0}) == program


def test_the_environment_is_what_torchrun_sets_and_the_interface_for_gloo() -> None:
    program = Program(command=("true",), hosts=("host2", "host0"), ranks=3, ranks_per_host=2, env={"MINE": "1"})
    got = rank_environment(
        program,
        Rank(2, "host0", 0),
        address="10.0.0.1",
        interface="eth7",
        peers=("10.0.0.5", "10.0.0.1"),
        base={"PATH": "/bin", "MKL_NUM_THREADS": "3"},
    )
    # the names: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    assert {name: got[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")} == {
        "RANK": "2",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "1",
    }
    assert (got["MASTER_ADDR"], got["MASTER_PORT"]) == ("10.0.0.5", "29500")
    assert got["GLOO_SOCKET_IFNAME"] == "eth7"
    assert got["FABRICLAB_PEERS"] == "10.0.0.5,10.0.0.1"
    assert (got["OMP_NUM_THREADS"], got["MKL_NUM_THREADS"]) == ("1", "3")
    assert (got["PATH"], got["MINE"]) == ("/bin", "1")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("free", ("free", None)),
        ("measured", ("measured", None)),
        ("fixed", ("fixed", None)),
        ("fixed=2ms", ("fixed", 2_000_000)),
    ],
)
def test_ways_to_compute(text: str, mode: tuple[str, int | None]) -> None:
    assert parse_compute(text) == mode


@pytest.mark.parametrize("text", ["", "fixed=", "fixed=2", "free=1ms", "2ms"])
def test_wrong_ways_to_compute(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_compute(text)
    assert caught.value.where == "--compute"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({}, "workload.params.command"),
        ({"command": "true"}, "workload.params.command"),
        ({"command": ["true"], "rank": 2}, "workload.params"),
        ({"command": ["true"], "ranks_per_host": 0}, "--ranks-per-host"),
        ({"command": ["true"], "algorithms": {"allreduce": "star"}}, "--algorithm"),
        ({"command": ["true"], "algorithms": {"all_reduce": "ring"}}, "--algorithm"),
    ],
)
def test_wrong_parameters_say_where(params: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as caught:
        program_of(params, HOSTS)
    assert caught.value.where == where


def test_each_collective_has_the_algorithm_that_was_asked_for_or_the_first() -> None:
    program = program_of({"command": ["true"], "algorithms": {"allreduce": "tree"}}, HOSTS)
    assert program.algorithms == {
        "allreduce": "tree",
        "reduce_scatter": "ring",
        "all_gather": "ring",
        "broadcast": "chain",
    }


@pytest.mark.parametrize(("given", "found"), [("../..", "/"), ("sub", "/some/sub"), ("/opt", "/opt"), (None, "/")])
def test_a_folder_in_an_experiment_file_is_relative_to_the_file(given: str | None, found: str) -> None:
    params = {"command": ["true"], **({} if given is None else {"cwd": given})}
    experiment = Experiment.model_validate(
        {
            "topology": "t.yaml",
            "workload": {"kind": "exec", "params": params},
            "transport": {"kind": "tcp"},
            "clock": "real",
            "tdf": 100,
        }
    )
    resolved, _ = resolve_program(experiment, load_topology(TOPOLOGIES / "single-switch-8.yaml"), Path("/some"))
    assert resolved.workload["cwd"] == found


@pytest.mark.parametrize("idle", [{"bytes": "1MB"}, {"algorithm": "ring"}, {"values": [1.0]}])
def test_what_a_program_decides_itself_is_refused_in_a_file(idle: dict[str, Any]) -> None:
    workload = {"kind": "exec", "params": {"command": ["true"]}, **idle}
    experiment = Experiment.model_validate({"topology": "t.yaml", "workload": workload, "transport": {"kind": "tcp"}})
    with pytest.raises(UsageError, match="decides itself what it sends") as caught:
        resolve_program(experiment, load_topology(TOPOLOGIES / "single-switch-8.yaml"))
    assert caught.value.where == f"workload.{next(iter(idle))}"
