"""Inside the guest: `python -m emulator.bench.virtual_guest ROUNDS RATE DELAY`, the loops whose cost the host side measures.

Two hosts, two leaves, one spine: four shaped, delayed links. Says `begin` and `end` around each loop, one JSON line each.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from traffic import native

MTU: Final = 4096
_ROUND_BYTES: Final = 8 << 20
_GRID_NS: Final = 100_000_000


def say(name: str, **fields: Any) -> None:
    """One line for the host side."""
    sys.stdout.write("\x1e" + json.dumps({"name": name, **fields}) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Each transport, then ready frames alone, over the same fabric."""
    native.enable()
    from emulator.bench.datapath import topology
    from emulator.experiment.execute import worker_spec
    from emulator.experiment.resolve import resolve
    from emulator.experiment.spec import Experiment
    from emulator.fabric.fabric import Fabric
    from emulator.fabric.plan import make_plan
    from emulator.port.features import probe

    rounds, rate, delay = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    features = probe()
    shape = topology(rate=rate, delay=delay, limit="4MB", kmin="400kB", kmax="1600kB")
    plan = make_plan(shape, run_id="bench", seed=1, tdf=1, features=features)
    with Fabric(plan, features) as fabric:
        for kind in ("roce", "mrc"):
            experiment = Experiment.model_validate(
                {
                    "topology": "bench",
                    "workload": {
                        "kind": "incast",
                        "bytes": _ROUND_BYTES,
                        "params": {"senders": 1, "ranks": 2, "rounds": rounds},
                    },
                    "transport": {"kind": kind, "cc": "none", "mtu": MTU},
                }
            )
            resolved = resolve(experiment, shape, clock="virtual", tdf=1)
            spec = worker_spec({"run_id": "bench", "resolved": resolved.to_dict()}, plan, fabric.netns)
            _transport(spec, plan.delay_mode == "netem")
        _ready_frames(spec, plan.delay_mode == "netem", rounds * _ROUND_BYTES // MTU)
    return 0


def _transport(spec: Any, delayed: bool) -> None:
    from emulator.experiment.execute import monotonic_start
    from traffic.agent.worker import Worker

    worker = Worker(spec, delayed=delayed)
    try:
        worker.recorder.on_phase = say
        result = worker.run(monotonic_start(0.0, _GRID_NS))
    finally:
        worker.close()
    say(
        "loop",
        what=spec.transport.kind,
        packets=sum(host.tx_data for host in result.hosts),
        turns=int(result.loop["wakeups"]),
        fabric_ns=result.end_ns,
        compiled=native.in_use(),
        wrong=result.wrong,
        problem=result.problem,
    )


def _ready_frames(spec: Any, delayed: bool, packets: int) -> None:
    """The baseline: a window of ready frames kept full, one ready frame back for four that came; nothing built or read."""
    from emulator.bench.datapath import ready_frame
    from traffic.agent.clock import set_timer_slack, sleep_until
    from traffic.agent.ring_socket import RingSocket

    hosts = spec.hosts[:2]
    ends = [RingSocket(h.netns, h.ifname, delayed=delayed, slots=4096) for h in hosts]
    data, ack = ready_frame(hosts[0], hosts[1], MTU), ready_frame(hosts[1], hosts[0], 0)
    bdp = hosts[0].rate_bps * spec.base_rtt_ns[0][1] // (8_000_000_000 * MTU)
    window = 4 * (bdp // 4 + 2)
    try:
        set_timer_slack()
        sent = came = owed = acked = turns = 0
        at = start = time.monotonic_ns()
        say("begin")
        while came < packets:
            acked += 4 * len(ends[0].receive())
            ends[0].release()
            fresh = len(ends[1].receive())
            ends[1].release()
            came, owed = came + fresh, owed + fresh
            _send(ends[0], data, min(window - (sent - acked), packets - sent))
            sent = min(packets, max(sent, acked + window))
            _send(ends[1], ack, owed // 4)
            owed %= 4
            turns += 1
            at += spec.quantum_ns
            sleep_until(at)
        say("end")
    finally:
        for end in ends:
            end.close()
    say(
        "loop",
        what="ready frames",
        packets=sent,
        turns=turns,
        fabric_ns=at - start,
        compiled=False,
        wrong=0,
        problem=None,
    )


def _send(end: Any, frame: bytes, count: int) -> None:
    for _ in range(count):
        end.slot()[: len(frame)] = frame
        end.queue(len(frame))
    if count > 0:
        end.flush()


if __name__ == "__main__":
    sys.exit(main())
