"""After a kill -9 at any moment `clean` leaves nothing of the dead run and touches nothing of a living one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.fabric import names, registry
from emulator.fabric.clean import clean
from emulator.port.features import Features, probe
from tests.root.test_fabric import TDF, built, left_behind

pytestmark = pytest.mark.root

# Builds, starts a process on host0 and, as the arguments say, dies at a step of the building or waits inside.
VICTIM = f"""
import os, signal, subprocess, sys
from emulator.fabric.fabric import Fabric
from emulator.fabric.plan import make_plan
from emulator.port.features import probe
from emulator.topology.model import Topology
run_id, die_at = sys.argv[1], int(sys.argv[2])
def step(text, done, total):
    if done == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
features = probe()
topology = Topology(leaves=2, spines=2, hosts_per_leaf=2)
plan = make_plan(topology, run_id=run_id, seed=1, tdf={TDF}, features=features)
with Fabric(plan, features, on_step=step) as fabric:
    fabric.popen("host0", ["sleep", "1000"], stdout=subprocess.DEVNULL)
    print("built", flush=True)
    sys.stdin.read()
"""


def victim(run_id: str, die_at: int = -1) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", VICTIM, run_id, str(die_at)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_built(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "built\n"


@pytest.fixture(scope="module")
def features() -> Features:
    return probe()


def test_after_kill_9_nothing_is_left_and_a_living_run_goes_on(features: Features) -> None:
    run_id = f"killed-{os.getpid()}"
    with built(features, "alive") as alive:
        process = victim(run_id)
        wait_built(process)
        process.kill()
        process.communicate()
        assert len(left_behind(run_id)) > 6  # six nodes named, the entry, the sleeping process
        done = clean()
        assert left_behind(run_id) == []
        assert run_id in done.runs and len([n for n in done.namespaces if run_id in n]) == 8 and done.processes
        assert alive.plan.run_id in done.spared and alive.plan.run_id not in done.runs
        assert all(check.ok for check in alive.check_paths())
        assert alive.differences(alive.plan, alive.readback()) == []
    # The run id is free again.
    process = victim(run_id)
    wait_built(process)
    process.communicate()
    assert process.returncode == 0 and left_behind(run_id) == []


@pytest.mark.parametrize("step", range(6))
def test_kill_9_at_every_step_of_the_building(step: int) -> None:
    run_id = f"step{step}-{os.getpid()}"
    process = victim(run_id, die_at=step)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    clean()
    assert left_behind(run_id) == []


def test_sigterm_ends_a_run_cleanly() -> None:
    run_id = f"term-{os.getpid()}"
    process = victim(run_id)
    wait_built(process)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode != 0 and left_behind(run_id) == []


def test_damaged_and_half_made_leftovers() -> None:
    """What a run leaves that died between two system calls, or whose files were damaged."""
    run_id = f"damaged-{os.getpid()}"
    process = victim(run_id)
    wait_built(process)
    process.kill()
    process.communicate()
    entry = registry.ROOT / run_id
    (entry / "about.json").write_text('{"fabr')
    for path in entry.glob("owner-*"):
        path.unlink()
    names.prepare()
    (registry.NAMESPACES / registry.namespace_name(run_id, "never-mounted")).touch()
    orphan = f"orphan-{os.getpid()}"
    (registry.NAMESPACES / registry.namespace_name(orphan, "host0")).touch()
    veth = f"fl{os.getpid()}"[:15]
    subprocess.run(["ip", "link", "add", veth, "type", "veth", "peer", veth[:13] + "x"], check=True)
    subprocess.run(["ip", "link", "set", veth, "alias", registry.alias(orphan, "leaf0:spine1")], check=True)
    done = clean()
    assert veth in done.interfaces
    assert left_behind(run_id) == left_behind(orphan) == []
    assert not Path(f"/sys/class/net/{veth}").exists()


def test_strangers_stay() -> None:
    """A namespace, an interface and a process without our mark; names that only resemble it."""
    tag = str(os.getpid())
    namespace, veth = f"fabriclab-{tag}", f"flz{tag}"[:15]
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    subprocess.run(["ip", "link", "add", veth, "type", "veth", "peer", veth[:13] + "x"], check=True)
    sleeper = subprocess.Popen(["ip", "netns", "exec", namespace, "sleep", "1000"])
    try:
        clean()
        assert (registry.NAMESPACES / namespace).exists() and Path(f"/sys/class/net/{veth}").exists()
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
        subprocess.run(["ip", "netns", "del", namespace], check=True)
        subprocess.run(["ip", "link", "del", veth], check=True)


def walled(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script behind walls of its own (processes, mounts, network), where it can end nobody else's runs."""
    argv = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script]
    environment = {**os.environ, "VICTIM": VICTIM.replace("sys.stdin.read()", "signal.pause()")}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_name_of_ours_on_the_machines_own_namespace_ends_nobody() -> None:
    name = registry.namespace_name("mine", "host0")
    script = (
        f"mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/{name} && "
        f"mount --bind /proc/self/ns/net /run/netns/{name} || exit 9; sleep 1000 & bystander=$!; "
        f"{sys.executable} -m emulator.cli.main clean; kill -0 $bystander && ls /run/netns"
    )
    done = walled(script)
    assert (done.returncode, done.stdout.splitlines()) == (
        0, [f"removed namespaces: {name}", "runs cleaned: mine"],
    ), done.stderr  # fmt: skip


def test_clean_all_ends_living_runs_too() -> None:
    script = (
        "mount -t tmpfs tmpfs /run && "
        f'{sys.executable} -c "$VICTIM" walled -1 > /run/out 2>&1 & '
        "while ! grep -qs built /run/out; do sleep 0.05; done; "
        f"{sys.executable} -m emulator.cli.main clean --json && "
        f"{sys.executable} -m emulator.cli.main clean --all --json && "
        "ls /run/netns /run/fabriclab"
    )
    done = walled(script)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, *listing = done.stdout.splitlines()
    assert json.loads(first) == {
        "runs": [], "processes": [], "namespaces": [], "interfaces": [], "mounts": [], "stopped": [], "spared": ["walled"],
    }  # fmt: skip
    assert json.loads(second)["stopped"] == ["walled"] and json.loads(second)["spared"] == []
    assert "ending run walled" in done.stderr
    assert [line for line in listing if line] == ["/run/fabriclab:", "/run/netns:"]


def test_the_command_says_what_it_did_and_that_there_was_nothing(features: Features) -> None:
    run_id = f"said-{os.getpid()}"
    process = victim(run_id)
    wait_built(process)
    process.kill()
    process.communicate()
    argv = [sys.executable, "-m", "emulator.cli.main", "clean"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    for start, word in (
        ("removed namespaces", f"fabriclab.{run_id}.host0"),
        ("runs cleaned", run_id),
        ("ended processes", ""),
    ):
        assert any(line.startswith(f"{start}: ") and word in line for line in said), done.stdout
    with built(features, "other", hosts_per_leaf=1) as fabric:
        done = subprocess.run([*argv, "--json"], capture_output=True, text=True, check=True)
        assert fabric.plan.run_id in json.loads(done.stdout)["spared"]
    assert left_behind(run_id) == []


def test_the_temporary_folder_of_a_killed_run_goes_and_no_other(tmp_path: Path) -> None:
    run_id = f"scratch-{os.getpid()}"
    script = (
        "import os, signal, sys; from emulator.fabric.registry import Registration\n"
        "with Registration.create(sys.argv[1], {}).scratch() as folder:\n"
        "    (folder / 'spec.json').write_text('{}'); print(folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, run_id], capture_output=True, text=True, check=False)
    folder = Path(done.stdout.strip())
    assert (folder / "spec.json").is_file()
    # Links of the entry that lead elsewhere are not followed.
    kept = tmp_path / "kept"
    kept.mkdir()
    (registry.ROOT / run_id / "fabriclab-0123456789abcdef").symlink_to(kept)
    assert run_id in clean().runs
    assert not folder.exists() and kept.is_dir() and left_behind(run_id) == []


def test_a_temporary_folder_is_gone_after_its_block() -> None:
    entry = registry.Registration.create(f"block-{os.getpid()}", {})
    with entry.scratch() as folder:
        assert folder.is_dir() and folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists() and [path.name[:5] for path in entry.path.iterdir() if path.is_symlink()] == []
    entry.remove()
