"""mpirun's command line, and its output taken apart by rank. The texts are those of OpenMPI 4.1.4."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from emulator.errors import MissingCapability
from emulator.exec.mpi import TaggedOutput, mpirun_argv, require_mpirun
from emulator.exec.program import Program

PROGRAM = Program(command=("./prog", "-n", "3"), hosts=("host0", "host5"), ranks=3, ranks_per_host=2, mpi=True)


def test_mpirun_gets_hosts_slots_and_our_launch_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    argv = mpirun_argv(PROGRAM, Path("/run/map.json"))
    assert argv[0] == "/usr/bin/mpirun"
    assert argv[argv.index("-H") + 1] == "host0:2,host5:1"
    assert argv[argv.index("-np") + 1] == "3"
    agent = argv[argv.index("plm_rsh_agent") + 1]
    assert agent.endswith("-m emulator.exec.mpi_agent /run/map.json")
    assert argv[-3:] == ["./prog", "-n", "3"]


def test_without_mpirun_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingCapability) as caught:
        require_mpirun()
    assert "openmpi-bin" in caught.value.remedy


def test_lines_go_to_their_ranks(tmp_path: Path) -> None:
    said: list[str] = []
    output = TaggedOutput(PROGRAM, tmp_path, tmp_path, said.append)
    for line in ("[1,0]<stdout>:hello", "[1,2]<stderr>:oh: no", "", "mpirun has something to say"):
        output.line(line)
    output.close()
    assert said == ["[0 host0] hello", "[2 host5] oh: no", "[mpirun] mpirun has something to say"]
    assert (tmp_path / "rank0.txt").read_text() == "hello\n"
    assert (tmp_path / "rank2.txt").read_text() == "oh: no\n"
    assert output.problem() is None


def test_the_rank_that_failed_first_is_named_with_its_last_words(tmp_path: Path) -> None:
    output = TaggedOutput(PROGRAM, tmp_path, tmp_path, lambda text: None)
    output.line("[1,2]<stdout>:cannot go on")
    for rank, code in ((2, 3), (0, 143)):  # rank 0 was ended because rank 2 had failed
        (tmp_path / f"mpi-ended-{rank}").write_text(f"{code}\n")
        os.utime(tmp_path / f"mpi-ended-{rank}", ns=(0, 1000 + code))
    output.close()
    assert output.problem() == {
        "what": "rank 2 on host5 ended with exit code 3",
        "where": "host5",
        "remedy": "rank 2 on host5 printed last:\n    cannot go on",
    }


def test_ranks_that_have_not_ended_are_known(tmp_path: Path) -> None:
    output = TaggedOutput(PROGRAM, tmp_path, tmp_path, lambda text: None)
    output.line("[1,2]<stdout>:waiting")
    for rank in (0, 1):
        (tmp_path / f"mpi-ended-{rank}").write_text("0\n")
    output.close()
    assert output.problem() is None
    running = {name: (host, last) for name, host, last in output.running()}
    assert running["rank 2 on host5"] == ("host5", "rank 2 on host5 printed last:\n    waiting")
    assert not {"rank 0 on host0", "rank 1 on host0"} & set(running)


def test_a_signal_is_told_as_one(tmp_path: Path) -> None:
    output = TaggedOutput(PROGRAM, tmp_path, tmp_path, lambda text: None)
    (tmp_path / "mpi-ended-1").write_text("139\n")  # 128 + SIGSEGV, as a shell gives it
    output.close()
    problem = output.problem()
    assert problem is not None
    assert problem["what"] == "rank 1 on host0 was ended by SIGSEGV"
    assert problem["remedy"] == "rank 1 on host0 printed nothing"
