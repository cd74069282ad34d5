"""What the summary of a program's run says besides: the program, its steps, and the port that held it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.collect.raw import Raw
from emulator.exec.program import Program
from emulator.exec.steps import Step, steps_of, summarise


def add_program(summary: dict[str, Any], raw: Raw, manifest: Mapping[str, Any]) -> None:
    """Add `program`, `steps` and `bottleneck` to a summary."""
    program = Program.from_dict(manifest["resolved"]["workload"])
    told = raw.program
    calls = {int(rank): [(a, b) for a, b in found] for rank, found in told.get("calls", {}).items()}
    tdf = int(manifest["resolved"]["tdf"])
    summary["program"] = {
        "command": list(program.command),
        "ranks": program.ranks,
        "hosts": len(program.hosts),
        "mpi": program.mpi,
        "compute": program.compute,
        "compute_us": None if program.compute_ns is None else program.compute_ns / 1000,
        "processes": [_process(row, calls, tdf) for row in told.get("processes", ())],
    }
    steps: list[Step] = steps_of(calls)
    found = summarise(steps, measured=program.compute == "measured")
    if found is not None:
        summary["steps"] = found
    summary["bottleneck"] = bottleneck(raw)


def _process(row: Mapping[str, Any], calls: Mapping[int, list[tuple[int, int]]], tdf: int) -> dict[str, Any]:
    """One process: what it computed, and how long it waited for others and the network."""
    ended, rank = row.get("ended_ns"), row.get("rank")
    lived = None if ended is None else ended - row["started_ns"]
    computing = sum(b - a for a, b in calls.get(rank, ())) if isinstance(rank, int) else 0
    cpu = (row.get("cpu_ns") or 0) // tdf
    return {
        "name": row["name"],
        "host": row["host"],
        "exit_code": row["exit_code"],
        "lines": row["lines"],
        "output": row["output"],
        "time_us": None if lived is None else lived / 1000,
        "compute_us": computing / 1000,
        "waiting_us": None if lived is None else max(0, lived - computing - cpu) / 1000,
    }


def bottleneck(raw: Raw) -> dict[str, Any] | None:
    """The port that carried most for its rate, from the first byte of any transfer to the last; among equals the fullest.

    `share` is its wire bytes over what its rate carries in that time; None without transfers.
    """
    moves = raw.worker["moves"]
    if not moves:
        return None
    begin, end = min(m["start_ns"] for m in moves), max(m["delivered_ns"] for m in moves)
    if end <= begin:
        return None
    best: tuple[float, int, dict[str, Any]] | None = None
    for name, port in raw.ports.items():
        plan = raw.plan_ports[name]
        carried = sum(c.get("tx_bytes") or 0 for c in port["classes"].values())
        share = carried * 8e9 / plan["fabric_rate_bps"] / (end - begin)
        peak = port.get("max_bytes") or 0
        row = {
            "port": name,
            "rate_gbps": round(plan["fabric_rate_bps"] / 1e9, 3),
            "share": round(share, 4),
            "over_us": round((end - begin) / 1000, 3),
            "max_bytes": port.get("max_bytes"),
        }
        key = (round(share, 2), peak)
        if best is None or key > best[:2]:
            best = (*key, row)
    return None if best is None or not best[2]["share"] else best[2]
