"""From raw results to everything a run directory holds: tables, verdict, summary, page. Runs on the host side always."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator.collect.capture_file import write_capture
from emulator.collect.raw import Raw
from emulator.collect.tables import make_tables
from emulator.exec.program import KIND as PROGRAM
from emulator.experiment.execute import schedule_of
from emulator.judge.facts import facts_from_raw
from emulator.judge.verdict import judge
from emulator.report.page import make_page
from emulator.report.summary import make_summary, write_summary
from emulator.topology.model import Topology
from traffic.packet.codec import WIRE_OVERHEAD_BYTES


def finish(run_dir: Path, manifest: Mapping[str, Any], *, earlier: Sequence[float] = ()) -> tuple[dict[str, Any], int]:
    """Writes the results into the run directory; the summary and the exit code of its verdict.

    `earlier` are the completion times (us) of earlier runs of the same experiment and seed.
    """
    raw = Raw(run_dir / "raw")
    tables = make_tables(raw, manifest)
    parts = {
        "worker": raw.worker,
        "ports": raw.ports,
        "plan": raw.plan,
        "applied": raw.applied,
        "softnet": raw.softnet,
        "samples": raw.samples,
        "probes": _probes(raw, manifest),
        "program": raw.program,
    }
    workload = manifest["resolved"]["workload"]
    schedule = None if workload["kind"] == PROGRAM else schedule_of(workload)
    facts = facts_from_raw(parts, manifest, schedule=schedule)
    if earlier and facts.whole is not None:
        facts.repeats = (*earlier, facts.whole.measured_ns / 1000)
    verdict = judge(facts)
    bound = None if facts.whole is None else facts.whole.bound_ns
    summary = make_summary(tables, raw, manifest, verdict, bound_ns=bound)
    if schedule is None:
        from emulator.exec.summary import add_program

        add_program(summary, raw, manifest)
    tables.write(run_dir)
    write_summary(run_dir, summary)
    write_capture(run_dir, raw.plan, application=f"fabriclab {manifest['versions'].get('fabriclab', '')}".strip())
    make_page(run_dir)
    return summary, verdict.exit_code


def _probes(raw: Raw, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The idle probes that arrived, beside the propagation and transmission that the topology says they take."""
    network = Topology.model_validate(manifest["topology"]).network()
    names = [h.name for h in network.hosts]
    out: list[dict[str, Any]] = []
    if raw.plan.get("unmodelled_delay_ns"):
        return out
    for src, dst, size, took in raw.worker.get("probes", []):
        if took >= 0:
            paths = network.paths(names[src], names[dst])
            expected = min(network.one_way_ns(path, size + WIRE_OVERHEAD_BYTES) for path in paths)
            out.append({"path": f"{names[src]}>{names[dst]}", "expected_ns": expected, "measured_ns": took})
    return out
