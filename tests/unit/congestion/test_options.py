"""No parameter that parses and does nothing: changing any one changes what an algorithm does in some scene."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from traffic.congestion.base import CongestionControl
from traffic.congestion.params import Param
from traffic.congestion.registry import BUILT_IN, parameters
from traffic.congestion.toy import Scene, Toy
from traffic.errors import TrafficError

SCENES = [
    Scene(senders=3, join_ns=200_000, leave_ns=700_000, end_ns=1_200_000, limit_bytes=400_000),
    Scene(senders=12, join_ns=100_000, leave_ns=500_000, end_ns=800_000, limit_bytes=150_000, trimming=True),
]
HYPER = {"timer_ns": 2_000, "byte_counter_bytes": 20_000, "fast_recovery": 1, "cnp_interval_ns": 3_000}
# what brings a parameter into play where the defaults do not
CONTEXTS: dict[str, dict[str, Any]] = {
    "dcqcn.hai_bps": HYPER,
    "dcqcn.halve_in_hyper": HYPER,
    "dcqcn.fast_recovery": {"timer_ns": 5_000},
    "dcqcn.ai_bps": {"timer_ns": 5_000},
    "dcqcn.byte_counter_bytes": {"byte_counter_bytes": 100_000},
    "dcqcn.shrink_target": {"clamp_target": False, "cnp_interval_ns": 1_000},
    "dcqcn.min_rate_bps": {"cnp_interval_ns": 1_000},
    "dcqcn.cut_interval_ns": {"cnp_interval_ns": 1_000},
    "dcqcn.machine": {"cut_interval_ns": 4_000},
    "dctcp-window.max_window_bytes": {"max_window_bytes": 120_000},
    "nscc.penalty_interval_ns": {"penalty_for_trims": True},
    "rccc.over_floor": {"oversubscribed": True, "over_cut": 1.0, "over_target": 0.0},
    "timely.t_high_ns": {"t_low_ns": 5_000, "t_high_ns": 20_000},
    "timely.min_rate_bps": {"t_low_ns": 5_000, "t_high_ns": 9_000},
    "fixed.rate_bps": {"window_bytes": 1e6, "rate_bps": 20e9},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "timely": {"t_low_ns": 12_000},
    "rccc": {"oversubscribed": True},
    "fixed": {"window_bytes": "bdp"},
}
ELSEWHERE = {"cts.patience_ns": "test_receiver", "swift.reset_after": "test_windows"}


def others(p: Param, value: Any) -> Iterator[Any]:
    """Other values that a parameter may have."""
    if p.kind == "bool":
        yield not value
    elif p.choices:
        yield from (c for c in p.choices if c != value)
    elif value is None:
        yield from (50e9, 30_000)
    else:
        for factor in (2, 0.5, 0.1, 10):
            yield type(value)(value * factor) if value else (1 if p.high == 1 else 20_000)
        yield p.high if p.high is not None else value + 3


CASES = [(cls, p) for cls in BUILT_IN for p in cls.parameters.declared() if f"{cls.name}.{p.name}" not in ELSEWHERE]


@pytest.mark.parametrize(("cls", "p"), CASES, ids=lambda x: x.name)
def test_every_parameter_changes_something(cls: type[CongestionControl], p: Param) -> None:
    context = CONTEXTS.get(f"{cls.name}.{p.name}", FAMILIES.get(cls.name, {}))
    for scene in SCENES:
        values = parameters(cls, path=scene.path, params=context).values()
        usual = outcome(cls, values, scene)
        for other in others(p, values[p.name]):
            try:
                changed = outcome(cls, {**values, p.name: other}, scene)
            except TrafficError:
                continue  # out of range
            if changed != usual:
                return
    pytest.fail(f"{cls.name}.{p.name} changed nothing")


def outcome(cls: type[CongestionControl], values: dict[str, Any], scene: Scene) -> dict[str, Any]:
    toy = Toy(cls, params=parameters(cls, path=scene.path, params=values), scene=scene)
    return asdict(toy.run())
