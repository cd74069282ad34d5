"""A rank's link to its agent."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from tests.experiments import ROOT

PROGRAM = """
import atexit, sys
ended = []
atexit.register(lambda: print("ended" if ended and not ended[0].is_alive() else "alive"))
from traffic.torch.link import AgentLink
link = AgentLink(sys.argv[1], 0)
ended.append(link._thread)
"""


def test_its_thread_has_ended_when_python_ends(tmp_path: Path) -> None:
    """A thread that Python's end finds inside PyTorch ends the process with SIGABRT. What is registered first runs last."""
    address = str(tmp_path / "agent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(address)
        server.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        agent, _ = server.accept()
        with agent:
            assert json.loads(agent.recv(4096)) == {"hello": 0}
            agent.send(json.dumps({"algorithms": {}}).encode())
            assert process.communicate(timeout=60)[0] == "ended\n"
            assert agent.recv(4096) == b""
        assert process.returncode == 0
