"""The fabric in the kernel: built as planned, read back, routed by hash, and gone afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import FabricError
from emulator.fabric import registry
from emulator.fabric.fabric import Fabric
from emulator.fabric.plan import FabricPlan, make_plan
from emulator.port.features import Features, probe
from emulator.port.netlink import inside
from emulator.topology.model import Topology

pytestmark = pytest.mark.root

TDF = 1000
"""100 Gbit/s become 100 Mbit/s: slow enough for any machine, fast enough for a test."""


@pytest.fixture(scope="module")
def features() -> Features:
    return probe()


def plan_of(features: Features, run_id: str, **keys: Any) -> FabricPlan:
    shape = {"leaves": 2, "spines": 2, "hosts_per_leaf": 4} | keys
    return make_plan(
        Topology.model_validate(shape), run_id=f"{run_id}-{os.getpid()}", seed=7, tdf=TDF, features=features
    )


def left_behind(run_id: str) -> list[str]:
    """Everything of a run that is still there."""
    found = [path.name for path in registry.NAMESPACES.glob(f"fabriclab.{run_id}.*")]
    found += [str(path) for path in registry.ROOT.glob(f"*{run_id}*")]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{registry.MARK_VARIABLE}={run_id}\0".encode() in (entry / "environ").read_bytes():
                    found.append(f"process {entry.name}")
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
    return found + [link["ifname"] for link in links if run_id in link.get("ifalias", "")]


@contextlib.contextmanager
def built(features: Features, run_id: str, **keys: Any) -> Iterator[Fabric]:
    plan = plan_of(features, run_id, **keys)
    with Fabric(plan, features) as fabric:
        yield fabric
    assert left_behind(plan.run_id) == []


def test_built_as_planned_and_every_pair_answers(features: Features) -> None:
    with built(features, "build") as fabric:
        found = json.loads(json.dumps(fabric.readback()))
        assert fabric.differences(fabric.plan, found) == []
        checks = fabric.check_paths()
        assert len(checks) == 8 * 7 and [check for check in checks if not check.ok] == []
        # A user on another terminal enters by name, and sees the alias.
        named = ["ip", "netns", "exec", fabric.plan.node("leaf0").namespace, "ip", "-j", "link"]
        links = json.loads(subprocess.run(named, capture_output=True, check=True).stdout)
        assert f"fabriclab:{fabric.plan.run_id}:leaf0:spine1" in {link.get("ifalias") for link in links}


def test_twelve_hosts_on_one_leaf(features: Features) -> None:
    """Port numbers of two digits (bugs.md 10)."""
    with built(features, "twelve", leaves=2, spines=1, hosts_per_leaf=12) as fabric:
        assert sum(check.ok for check in fabric.check_paths()) == 24 * 23


def test_a_link_that_is_down_from_the_start(features: Features) -> None:
    down = [{"link": "leaf0:spine1", "state": "down"}]
    with built(features, "down", overrides=down) as fabric:
        assert all(check.ok for check in fabric.check_paths())
        counters = fabric.ports.counters()
        assert counters["leaf1:spine1"].seen_packets == 0 and (counters["leaf1:spine0"].seen_packets or 0) > 0


def send_udp(fabric: Fabric, src: str, dst: str, ports: list[int]) -> None:
    """One small packet from each source port."""
    with inside(fabric.netns(src)):
        for port in ports:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.bind(("", port))
                sock.sendto(b"x" * 18, (fabric.plan.address(dst), 9))


def uplinks(fabric: Fabric) -> list[int]:
    counters = fabric.ports.counters()
    return [
        counters[port.name].seen_packets or 0 for port in fabric.plan.ports_of("leaf0") if port.peer.startswith("spine")
    ]


def test_ecmp_by_source_port_balanced_stable_and_repeatable(features: Features) -> None:
    count = 4000
    results = []
    for _ in range(2):
        with built(features, "ecmp", spines=4, hosts_per_leaf=1) as fabric:
            send_udp(fabric, "host0", "host1", [0xC000] * 200)
            assert sorted(uplinks(fabric)) == [0, 0, 0, 200]
            before = uplinks(fabric)
            send_udp(fabric, "host0", "host1", [0xC000 + i for i in range(count)])
            results.append([after - earlier for after, earlier in zip(uplinks(fabric), before, strict=True)])
    assert sum(results[0]) == count
    # Binomial with p = 1/4: sigma = sqrt(4000 * 3/16) = 27.4; four ports within five sigma.
    assert all(abs(share - count / 4) < 5 * 27.4 for share in results[0]), results[0]
    # The seed of the hash comes from the run's, so a second build sends every flow the same way.
    assert results[0] == results[1]


def change(fabric: Fabric, node: str, *argv: str) -> None:
    assert fabric.popen(node, argv).wait() == 0


def test_changes_behind_our_back_are_found(features: Features) -> None:
    with built(features, "changed") as fabric:
        plan = fabric.plan
        up, down = plan.port("leaf0:spine1"), plan.port("leaf0:host0")
        change(fabric, "leaf0", "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")
        change(fabric, "leaf0", "ip", "link", "set", up.ifname, "mtu", "1500")
        change(fabric, "leaf0", "ip", "neigh", "del", down.peer_ip, "dev", down.ifname)
        change(fabric, "leaf1", "ip", "route", "replace", "10.0.0.0/24", "via", plan.port("leaf1:spine0").peer_ip)
        change(fabric, "leaf1", "ip", "route", "add", "192.0.2.0/24", "via", plan.port("leaf1:spine0").peer_ip)
        change(fabric, "host3", "ethtool", "-K", plan.ports_of("host3")[0].ifname, "tso", "on", "tx", "on")
        change(fabric, "host1", "ip", "link", "set", "lo", "down")
        change(fabric, "host2", "ip", "link", "add", "mine", "type", "veth", "peer", "too")
        words = "\n".join(fabric.differences(plan, fabric.readback()))
    spine0, spine1 = plan.port("leaf1:spine0"), plan.port("leaf1:spine1")
    for expected in (
        "leaf0: net.ipv4.conf.all.rp_filter is 1, the plan says 0",
        "leaf0:spine1: mtu is 1500, the plan says 9000",
        f"leaf0:host0: neighbours is {{}}, the plan says {{'{down.peer_ip}': '{down.peer_mac}'}}",
        f"leaf1: route 10.0.0.0/24 is via {spine0.peer_ip} on {spine0.ifname}, "
        f"the plan says via {spine0.peer_ip} on {spine0.ifname} and {spine1.peer_ip} on {spine1.ifname}",
        f"leaf1: route 192.0.2.0/24 via {spine0.peer_ip} on {spine0.ifname} is not in the plan",
        "host3:leaf0: offloads is ['tx-checksum-ip-generic'",
        "host1: the loopback is down, the plan says up",
        "host2: interface mine is not in the plan",
    ):
        assert expected in words


def test_a_failed_read_is_an_error_and_not_an_absence(features: Features) -> None:
    """bugs.md 20."""
    with built(features, "failed") as fabric, pytest.raises(FabricError, match="namespace"):
        subprocess.run(["ip", "netns", "del", fabric.plan.node("leaf0").namespace], check=True)
        fabric.readback()


def test_kernel_tcp_puts_no_large_packets_in_a_queue(features: Features) -> None:
    """A TCP socket makes packets of up to 64 KB even with every offload off; one queue entry must be one frame.

    Large packets would be cut behind the sender's queue: the next port would see more packets than the first.
    """
    size = 400_000
    with built(features, "tcp", leaves=2, spines=1, hosts_per_leaf=1) as fabric:
        plan = fabric.plan
        with inside(fabric.netns("host0")):
            listener = socket.create_server(("", 5001))
        with inside(fabric.netns("host1")):
            sender = socket.create_connection((plan.address("host0"), 5001), timeout=5)
        receiver = listener.accept()[0]
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * size)
        receiver.settimeout(5)
        sent = sender.send(b"x" * size)
        received = 0
        while received < sent:
            received += len(receiver.recv(65536))
        counters = fabric.ports.counters()
        for sock in (listener, sender, receiver):
            sock.close()
    packets = [counters[name].seen_packets for name in ("host1:leaf1", "leaf1:spine0", "spine0:leaf0", "leaf0:host0")]
    assert sent > 100_000 and len(set(packets)) == 1, (sent, packets)
    # MTU 9000 carries 8948 bytes of TCP payload (20 IP, 20 TCP, 12 timestamps).
    assert packets[0] >= sent // 8948


def test_two_runs_at_once(features: Features) -> None:
    with built(features, "one") as one, built(features, "two") as two:
        assert all(check.ok for check in (*one.check_paths(), *two.check_paths()))
        assert two.differences(two.plan, two.readback()) == one.differences(one.plan, one.readback()) == []


def test_a_run_id_in_use_is_refused_and_the_run_lives_on(features: Features) -> None:
    with built(features, "same", hosts_per_leaf=1) as fabric:
        with pytest.raises(FabricError, match="is running now"), Fabric(fabric.plan, features):
            pass
        assert all(check.ok for check in fabric.check_paths())


def test_without_root_the_remedy_is_named() -> None:
    code = (
        "import os; from emulator.cli.main import main; import emulator.cli.up, emulator.topology.load\n"
        "os.setuid(65534); raise SystemExit(main(['up', 'topologies/leaf-spine-2x2x4.yaml']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "network namespaces need root" in done.stderr and "sudo" in done.stderr


def test_prompt_from_a_pipe(features: Features) -> None:
    script = (
        "host0 echo to host7\nhost1 sleep 1000 &\nleaf0 ip -br link show lo\npingall\nqueues\nlinks\nhosts\n"
        "host0 false\nhots\nhost9 ls\nhost0 no-such-program\nhost0\nhost0 'unclosed\nhelp\nexit\nhost0 echo never\n"
    )
    argv = [sys.executable, "-m", "emulator.cli.main", "up", "topologies/leaf-spine-2x2x4.yaml", "--tdf", str(TDF)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(script, timeout=60)
    assert process.returncode == 0, err
    for expected in ("to 10.0.1.7", "56 of 56 pairs answered", "(exit code 1)", "leaf0:spine1", "NODE COMMAND"):
        assert expected in out
    for expected in (
        'no command or node "hots"; did you mean "hosts"?',
        'no command or node "host9"',
        "there is no program no-such-program on this machine",
        "no command for host0",
        "No closing quotation",
    ):
        assert expected in err
    assert "never" not in out
    run_id = next(word for word in out.split() if word.startswith("fabriclab.")).split(".")[1]
    assert left_behind(run_id) == []


def test_ctrl_c_at_the_prompt_cleans_up_and_in_a_command_ends_only_that() -> None:
    """On a terminal: the first Ctrl-C ends `sleep`, the second comes at the prompt."""
    argv = [sys.executable, "-m", "emulator.cli.main", "up", "topologies/leaf-spine-2x2x4.yaml", "--tdf", str(TDF)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(argv[0], argv)
    try:
        read_until(terminal, "fabriclab> ")
        os.write(terminal, b"hosts\n")
        run_id = read_until(terminal, "fabriclab> ").split("fabriclab.")[1].split(".")[0]
        os.write(terminal, b"host0 sh -c 'echo asleep; exec sleep 1000'\n")
        read_until(terminal, "asleep\r\n")
        os.write(terminal, b"\x03")
        read_until(terminal, "fabriclab> ")
        os.write(terminal, b"host0 expr 40 + 2\n")
        read_until(terminal, "42\r\n")
        read_until(terminal, "fabriclab> ")
        os.write(terminal, b"\x03")
        read_until(terminal, "interrupted")
        _, status = os.waitpid(pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert left_behind(run_id) == []


def read_until(terminal: int, text: str, seconds: float = 20) -> str:
    """What a terminal says, up to and with `text`."""
    seen = ""
    deadline = time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no {text!r} in {seen!r}"
        seen += os.read(terminal, 4096).decode()
    return seen
