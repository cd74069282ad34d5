"""The worker in this very process, with the sampler hooked into its loop: how a run goes in the guest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from emulator.collect.sampler import Sampler
from emulator.experiment.execute import monotonic_start
from emulator.fabric.fabric import Fabric
from traffic.agent.make import make_worker
from traffic.agent.spec import WorkerResult, WorkerSpec

_GRID_NS = 100_000_000


class _SamplerHook:
    """Samples at fixed fabric times, counted from the start so that no drift adds up."""

    def __init__(self, sampler: Sampler, period_ns: int) -> None:
        self.sampler = sampler
        self.period_ns = period_ns
        self.due = 0

    def run(self, now: int) -> None:
        self.sampler.sample(now)
        self.due += self.period_ns * max(1, -(-(now + 1 - self.due) // self.period_ns))


def run_worker(
    spec: WorkerSpec, fabric: Fabric, sample_ns: int, say: Callable[[str, Mapping[str, Any]], None]
) -> tuple[WorkerResult, dict[str, Any]]:
    """Run the worker; its result and the samples."""
    worker = make_worker(spec, delayed=fabric.plan.delay_mode == "netem")
    try:
        probes = worker.probe()
        start = monotonic_start(0.0, _GRID_NS)
        # Without a clock of its own: reading one costs virtual time, and a round takes none.
        sampler = Sampler(fabric.ports, period_ns=sample_ns)
        hook = _SamplerHook(sampler, sample_ns)
        result = worker.run(start, hooks=[hook], progress=lambda state: say("progress", state))
        result.probes = probes + worker.probe()
        return result, sampler.finish()
    finally:
        worker.close()
