"""A run from Python, and its figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emulator.errors import UsageError
from emulator.report.api import Run

NAMES = ("queues", "rates", "fct", "paths", "histogram", "gantt")


def test_a_run_gives_frames_summary_events_verdict(incast: Path) -> None:
    run = Run(incast)
    assert len(run.flows) == 7 and run.verdict["word"] == "care"
    assert {"time_ns", "port", "class", "backlog_bytes", "enqueued", "dropped", "marked", "trimmed"} == set(run.queues)
    assert run.histogram["packets"].sum() > 0 and len(run.rates) > 100
    assert run.events[-1]["kind"] == "reorder-distance"
    assert "VERDICT: USE WITH CARE" in run._repr_markdown_()


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_drawn_and_carries_verdict_clock_tdf_seed(incast: Path, name: str) -> None:
    made = Run(incast).figure(name)
    assert len(made.data) > 0
    texts = [a.text for a in made.layout.annotations]
    assert "use with care · virtual clock · TDF 1 · seed 1" in texts


def test_the_queue_figure_leaves_gaps_open(incast: Path) -> None:
    line = next(t for t in Run(incast).figure("queues").data if t.name == "leaf1:host7")
    assert not line.connectgaps and np.isnan(np.array(line.y, float)).sum() == 1


def test_an_unknown_figure_names_the_known_ones(incast: Path) -> None:
    with pytest.raises(UsageError, match="there is no figure 'queue'") as caught:
        Run(incast).figure("queue")
    assert all(n in caught.value.remedy for n in NAMES)
