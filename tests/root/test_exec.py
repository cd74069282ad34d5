"""Programs on the real clock: what a rank finds, what it does to the network, and every way to end badly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import RunFailed
from tests.experiments import ROOT, TOPOLOGIES, check_of, fresh, made

pytestmark = pytest.mark.root


def program(*command: str, **more: Any) -> dict[str, Any]:
    """An experiment of a program on the smallest fabric; `more` are the workload's parameters."""
    transport = more.pop("transport", "tcp")
    limit = more.pop("time_limit", "2s")
    return {
        "topology": "single-switch-8",
        "workload": {"kind": "exec", "bytes": 0, "params": {"command": list(command), "cwd": str(ROOT), **more}},
        "transport": {"kind": transport},
        "clock": "real",
        "tdf": 100,
        "time_limit": limit,
    }


def left_behind(run_id: str) -> list[str]:
    """Namespaces and processes that still carry a run's mark."""
    names = [path.name for path in Path("/run/netns").glob(f"fabriclab.{run_id}.*")]
    mark = f"FABRICLAB_OWNER_RUN={run_id}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    names.append(folder.name)
            except (OSError, ValueError):
                continue
    return names


def failed(*command: str, **more: Any) -> RunFailed:
    """The error of a program that fails; nothing of it may be left."""
    with pytest.raises(RunFailed) as caught:
        fresh(**program(*command, **more))
    assert caught.value.what and caught.value.where
    run_dir = Path(caught.value.remedy.rsplit("what was measured is in ", 1)[1])
    assert (run_dir / "summary.json").is_file()
    assert left_behind(run_dir.name) == []
    return caught.value


def test_each_rank_has_its_own_network_name_and_number() -> None:
    run = made(
        **program(
            "sh", "-c", "echo $RANK of $WORLD_SIZE; hostname; ip -4 -o addr show dev $GLOO_SOCKET_IFNAME", ranks=3
        )
    )
    for rank in range(3):
        lines = (run.path / "output" / f"rank{rank}.txt").read_text().splitlines()
        assert lines[:2] == [f"{rank} of 3", f"host{rank}"]
        assert f"10.0.0.{2 * rank + 1}/31" in lines[2]
    assert [p["exit_code"] for p in run.summary["program"]["processes"]] == [0, 0, 0]
    assert check_of(run, "F12")["status"] == "pass"


def test_names_resolve_without_a_name_server() -> None:
    code = "import socket; print(socket.gethostbyname('host2'), socket.gethostbyaddr('10.0.0.1')[0])"
    run = made(**program(sys.executable, "-c", code, hosts=["1"]))
    assert (run.path / "output" / "rank0.txt").read_text().splitlines()[-1] == "10.0.0.5 host0"


def test_bytes_of_a_connection_are_a_flow_and_the_hosts_counters_agree() -> None:
    code = (
        "import os, socket, time\n"
        "peers = os.environ['FABRICLAB_PEERS'].split(',')\n"
        "if os.environ['RANK'] == '0':\n"
        "    with socket.create_server((peers[0], 7000)) as server:\n"
        "        sock, _ = server.accept()\n"
        "        while sock.recv(65536): pass\n"
        "else:\n"
        "    for _ in range(100):\n"
        "        try: sock = socket.create_connection((peers[0], 7000)); break\n"
        "        except OSError: time.sleep(0.05)\n"
        "    sock.sendall(bytes(1_000_000))\n"
    )
    run = made(**program(sys.executable, "-c", code, ranks=2))
    assert run.flows[["src", "dst", "bytes"]].values.tolist() == [["host1", "host0", 1_000_000]]
    assert run.summary["bottleneck"]["port"] in ("host1:leaf0", "leaf0:host0")
    assert check_of(run, "F6")["status"] == "pass", check_of(run, "F6")


def test_iperf3_fills_the_slow_uplink_and_the_report_names_it() -> None:
    """As in tests/virtual/test_exec.py; 62.5 Mbit/s of wall time, which TCP fills on a busy machine too."""
    slow = program("sh", "examples/iperf3.sh", "5M", hosts=["4", "0"])
    run = made(**{**slow, "topology": "slow-uplink", "topology_set": ["uplink.rate=25Gbit"], "tdf": 400})
    assert re.fullmatch(r"leaf0:spine[01]|spine[01]:leaf1", run.summary["bottleneck"]["port"])
    # of 25 Gbit/s, 8948 of 9038 bytes of a full segment on the wire are payload: 24.75 Gbit/s
    assert 0.85 * 24.75 <= run.summary["flows"]["goodput_gbps"] <= 24.75 * 1.01
    assert check_of(run, "F6")["status"] == "pass", check_of(run, "F6")


def test_a_rank_that_crashes_is_named_with_host_code_and_last_words() -> None:
    error = failed("sh", "-c", "echo before; [ $RANK = 2 ] && { echo last words; exit 7; }; sleep 60", ranks=3)
    assert error.what == "rank 2 on host2 ended with exit code 7"
    assert error.where == "host2"
    assert "last words" in error.remedy


def test_a_rank_ended_by_a_signal_is_told_as_such() -> None:
    assert failed("sh", "-c", "[ $RANK = 1 ] && kill -SEGV $$; sleep 60", ranks=2).what == (
        "rank 1 on host1 was ended by SIGSEGV"
    )


def test_a_rank_that_hangs_is_named_and_so_are_those_that_ended() -> None:
    error = failed("sh", "-c", "[ $RANK = 0 ] && exit 0; echo waiting; sleep 60", ranks=2, time_limit="20ms")
    assert "rank 1 on host1 still running; had ended with exit code 0: rank 0 on host0" in error.what
    assert "waiting" in error.remedy


def test_a_program_that_is_not_there_and_children_left_running() -> None:
    from emulator.errors import UsageError

    with pytest.raises(UsageError, match="cannot start no-such-program"):
        fresh(**program("no-such-program"))
    finished = fresh(**program("sh", "-c", "sleep 1000 & echo done", ranks=2))
    assert left_behind(finished.run_dir.name) == []


def test_ctrl_c_ends_every_rank_and_takes_the_fabric_away(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "emulator.cli", "exec", str(TOPOLOGIES / "single-switch-8.yaml"), "--ranks", "2",
            "--clock", "real", "--tdf", "100", "--out", str(tmp_path), "--", "sh", "-c", "echo ready; sleep 1000",
        ],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    ready = 0
    for line in process.stderr:
        ready += "ready" in line
        if ready == 2:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert left_behind(next(tmp_path.iterdir()).name) == []


@pytest.mark.parametrize("transport", ["roce", "mrc"])
def test_the_backend_computes_what_torch_does(transport: str) -> None:
    run = made(
        **program(
            sys.executable,
            str(Path(__file__).with_name("backend_program.py")),
            ranks=3,
            transport=transport,
            time_limit="30s",
        )
    )
    assert (run.path / "output" / "rank0.txt").read_text().splitlines()[-1] == "all right"
    assert check_of(run, "F12")["status"] == "pass", check_of(run, "F12")
    assert len(run.flows) > 0 and run.summary["packets"]["icrc_errors"] == 0


def test_a_rank_that_leaves_early_is_named_to_those_that_wait() -> None:
    code = (
        "import os, traffic.torch, torch, torch.distributed as d\n"
        "d.init_process_group('fabriclab')\n"
        "if os.environ['RANK'] == '1': os._exit(0)\n"
        "d.all_reduce(torch.ones(4))\n"
    )
    error = failed(sys.executable, "-c", code, ranks=2, transport="roce", time_limit="30s")
    assert error.what.startswith(
        "rank 0 on host0 ended with exit code 1; before it had ended with exit code 0: rank 1 on host1"
    )
    assert "rank 1 left" in error.remedy


def test_without_agents_the_backend_says_how_to_get_them() -> None:
    code = "import traffic.torch, torch.distributed as d; d.init_process_group('fabriclab')"
    error = failed(sys.executable, "-c", code, ranks=1, time_limit="30s")
    assert "--transport roce|mrc" in error.remedy


def test_an_mpi_program_adds_up_over_the_fabric(tmp_path: Path) -> None:
    binary = tmp_path / "allreduce"
    subprocess.run(["mpicc", "-O2", "-o", binary, ROOT / "examples" / "allreduce_mpi.c"], check=True)
    run = made(**program(str(binary), "100000", ranks=4, mpi=True, time_limit="30s"))
    assert "4 ranks, 0.4 MB" in (run.path / "output" / "rank0.txt").read_text()
    assert (run.path / "output" / "rank3.txt").read_text().splitlines()[-1] == "rank 3: 0 wrong"
    assert int(run.flows["bytes"].sum()) >= 2 * 3 * 400_000 // 4 * 4  # 2 (N-1)/N of the vector from each of N ranks
    assert left_behind(run.path.name) == []


def test_an_mpi_rank_that_fails_is_named() -> None:
    error = failed(
        "sh",
        "-c",
        "[ $OMPI_COMM_WORLD_RANK = 1 ] && { echo oh; exit 5; }; sleep 5",
        ranks=2,
        mpi=True,
        time_limit="30s",
    )
    assert error.what == "rank 1 on host1 ended with exit code 5"


def test_an_mpi_rank_that_hangs_is_named() -> None:
    script = "echo rank $OMPI_COMM_WORLD_RANK; [ $OMPI_COMM_WORLD_RANK = 1 ] && sleep 60; true"
    error = failed("sh", "-c", script, ranks=2, mpi=True, time_limit="50ms")
    assert "s of fabric time: rank 1 on host1 still running" in error.what
    assert error.where == "host1" and "rank 1 on host1 printed last:\n    rank 1" in error.remedy


def test_time_seems_to_pass_for_nobody_who_is_gone() -> None:
    """The tests above leave no process of this session's runs behind."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        mine = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _is_agent(p)]
        if not mine:
            return
        time.sleep(0.2)
    pytest.fail(f"agents of this process still run: {mine}")


def _is_agent(folder: Path) -> bool:
    try:
        words = (folder / "cmdline").read_bytes()
        parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return False
    return b"traffic.agent.serve" in words and parent == os.getpid()
