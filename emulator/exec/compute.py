"""The one line in a program that says "here I compute": what it takes is the run's choice (`--compute`)."""

from __future__ import annotations

import os
import time

MODE = "FABRICLAB_COMPUTE"
"""free, measured, fixed (the caller's own number) or fixed:NANOSECONDS."""
MARKS = "FABRICLAB_MARKS"
"""The file that keeps the times of all calls, without "-RANK": a line with begin and end, CLOCK_MONOTONIC ns."""
TDF = "FABRICLAB_TDF"


def compute(seconds: float = 0.0) -> None:
    """A training step's computing, `seconds` of fabric time; each call begins a step of the run's report.

    With `--compute free` it takes nothing, with `fixed` these seconds, with `fixed=2ms` that long, with `measured` nothing by
    itself, for there the CPU time counts. Outside `fabriclab exec` it does nothing. Raises ValueError below 0.
    """
    if seconds < 0:
        raise ValueError(f"computing cannot take {seconds} s")
    mode = os.environ.get(MODE)
    if mode is None:
        return
    begin = time.monotonic_ns()
    name, _, given = mode.partition(":")
    if name == "fixed":
        from traffic.agent.clock import set_timer_slack, sleep_until

        lasting = int(given) if given else round(seconds * 1e9)
        if lasting:
            set_timer_slack()
            sleep_until(begin + lasting * int(os.environ.get(TDF, "1")))
    path = os.environ.get(MARKS)
    rank = os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK"))
    if path is not None and rank is not None:
        fd = os.open(f"{path}-{rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, f"{begin} {time.monotonic_ns()}\n".encode())
        finally:
            os.close(fd)
