"""The worker in this very process, with the sampler hooked into its loop: how a run goes in the guest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from emulator.collect.sampler import Sampler
from emulator.experiment.execute import monotonic_start
from emulator.fabric.fabric import Fabric
from traffic.agent.clock import Clock
from traffic.agent.make import make_worker
from traffic.agent.spec import WorkerResult, WorkerSpec
from traffic.congestion.plugin import blamed

if TYPE_CHECKING:
    from emulator.collect.capture import Capture

_GRID_NS = 100_000_000


class _SamplerHook:
    """Samples at fixed fabric times, counted from the start so that no drift adds up; a capture is emptied then too."""

    def __init__(self, sampler: Sampler, period_ns: int, capture: Capture | None) -> None:
        self.sampler = sampler
        self.capture = capture
        self.period_ns = period_ns
        self.due = 0

    def run(self, now: int) -> None:
        self.sampler.sample(now)
        if self.capture is not None:
            self.capture.drain()
        self.due += self.period_ns * max(1, -(-(now + 1 - self.due) // self.period_ns))


def run_worker(
    spec: WorkerSpec,
    fabric: Fabric,
    sample_ns: int,
    say: Callable[[str, Mapping[str, Any]], None],
    capture: Capture | None = None,
) -> tuple[WorkerResult, dict[str, Any]]:
    """Run the worker; its result and the samples."""
    with blamed(spec.transport.cc):
        worker = make_worker(spec, delayed=fabric.plan.delay_mode == "netem")
    try:
        probes = worker.probe()
        real = Clock(tdf=spec.tdf, start_ns=0).offset_ns
        start = monotonic_start(0.0, _GRID_NS)
        if capture is not None:
            capture.zero_ns = real + start
        # Without a clock of its own: reading one costs virtual time, and a round takes none.
        sampler = Sampler(fabric.ports, period_ns=sample_ns)
        hook = _SamplerHook(sampler, sample_ns, capture)

        def progress(state: Mapping[str, Any]) -> None:
            if capture is not None:
                capture.drain()
            say("progress", {**state, **sampler.latest()})

        with blamed(spec.transport.cc):
            result = worker.run(start, hooks=[hook], progress=progress)
        if capture is not None:
            capture.stop()
        result.probes = probes + worker.probe()
        return result, sampler.finish()
    finally:
        worker.close()
