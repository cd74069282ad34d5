"""The packet loop on the virtual clock, measured from outside the guest: data-hops a second, and what the time goes to.

A guest is a kernel process and one host process for each task in it (its code runs there natively, and stops at every system
call). So the host's own accounting tells apart what bounds a run: tasks (Python), the guest's kernel (queues, BPF, netem), and
the host's work of handing control to and fro.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from emulator.clock.virtual import run_guest
from emulator.errors import RunFailed
from emulator.port.objects import cache_dir, ensure_object
from traffic import native

HOPS: Final = 4
_WALL_LIMIT_S: Final = 300.0
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Loop:
    """One loop: wall and processor time, of which `task_us`, `kernel_us` and `host_us` a packet are the parts.

    A data-hop is one packet of more than 1,000 bytes over one link. `hops_per_cpu_s` is what `hops_per_wall_s` would be on a
    machine with a core to spare.
    """

    what: str
    compiled: bool
    packets: int
    packets_per_turn: float
    wall_us: float
    cpu_us: float
    task_us: float
    kernel_us: float
    host_us: float
    hops_per_wall_s: float
    hops_per_cpu_s: float
    goodput_gbps: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class _Used:
    """Wall seconds, and seconds of the guest's processes: user time of tasks and of its kernel, system time of both."""

    wall: float
    task: float
    kernel: float
    host: float


def measure(*, rounds: int = 5, rate_bps: int = 400_000_000_000, delay_ns: int = 500) -> list[Loop]:
    """Both transports and the baseline over four links of this rate and delay, in one guest; raises RunFailed where a loop
    did not do its work."""
    ensure_object("bpf")
    marks: list[tuple[str, _Used]] = []
    loops: list[Loop] = []
    other: list[str] = []

    def on_line(line: str) -> None:
        if not line.startswith("\x1e"):
            other.append(line)
            return
        fields = json.loads(line[1:])
        if fields["name"] == "loop":
            loops.append(_loop(fields, marks))
            marks.clear()
        else:
            marks.append((fields["name"], _used()))

    with tempfile.TemporaryDirectory(prefix="fabriclab-bench-", dir=Path.home()) as folder:
        status = run_guest(
            [sys.executable, "-m", "emulator.bench.virtual_guest", str(rounds), f"{rate_bps}bit", f"{delay_ns}ns"],
            run_dir=Path(folder),
            wall_limit_s=_WALL_LIMIT_S,
            on_line=on_line,
            cwd=Path(__file__).resolve().parents[2],
            seed=1,
            env={"FABRICLAB_BPF_DIR": str(cache_dir()), **native.environment()},
        )
    if status != 0:
        raise RunFailed(
            f"the bench in the guest ended with status {status}", where="guest", remedy="\n".join(other[-12:])
        )
    return loops


def _loop(fields: dict[str, Any], marks: list[tuple[str, _Used]]) -> Loop:
    if fields["problem"] is not None or fields["wrong"]:
        raise RunFailed(
            f"the {fields['what']} loop went wrong: {fields['problem']}", where="bench virtual", remedy="run it again"
        )
    at = dict(marks)
    begin, end = at["begin"], at["end"]
    packets = fields["packets"]
    task, kernel, host = end.task - begin.task, end.kernel - begin.kernel, end.host - begin.host
    wall, cpu = end.wall - begin.wall, max(_TICK_S, task + kernel + host)
    return Loop(
        what=fields["what"],
        compiled=fields["compiled"],
        packets=packets,
        packets_per_turn=packets / fields["turns"],
        wall_us=1e6 * wall / packets,
        cpu_us=1e6 * cpu / packets,
        task_us=1e6 * task / packets,
        kernel_us=1e6 * kernel / packets,
        host_us=1e6 * host / packets,
        hops_per_wall_s=HOPS * packets / wall,
        hops_per_cpu_s=HOPS * packets / cpu,
        goodput_gbps=packets * 4096 * 8 / fields["fabric_ns"],
    )


def _used() -> _Used:
    """What the guest this process started has used so far. Its kernel leads the session that its tasks belong to."""
    leaders = {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    task = kernel = host = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                if fields[3] in leaders:
                    user, system = int(fields[11]), int(fields[12])
                    host += system
                    if folder.name == fields[3]:
                        kernel += user
                    else:
                        task += user
    return _Used(time.monotonic(), task * _TICK_S, kernel * _TICK_S, host * _TICK_S)
