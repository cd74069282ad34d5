"""The checker names what a wrong algorithm does; the toy behaves as queues do; pages carry the parameters that run."""

from pathlib import Path
from typing import Any

import pytest

from traffic.congestion import describe
from traffic.congestion.base import CongestionControl
from traffic.congestion.checker import check
from traffic.congestion.plugin import load_plugin
from traffic.congestion.registry import BUILT_IN, parameters
from traffic.congestion.toy import Scene, Toy, sparkline

HEAD = "from traffic.congestion.base import CongestionControl, Feedback\nclass A(CongestionControl):\n"
ACKED = "    def acked(self, *, now, size, rtt_ns, ce):\n"

WRONG = {
    "exception": (ACKED + "        self.rate_bps = 1e9 / size\n", ":4", "odd", "ZeroDivisionError"),
    "endless-loop": (ACKED + "        while True:\n            pass\n", ":4", "incast", "more than 100000 lines"),
    "negative": (ACKED + "        self.rate_bps = (self.rate_bps or 1e9) - 3e8\n", ":4", "incast", "rate_bps is -"),
    "not-a-number": (ACKED + "        self.window_bytes = float('inf') - float('inf')\n", ":4", "incast", "is nan"),
    "wrong-type": (ACKED + "        self.rate_bps = '10G'\n", ":4", "incast", "must be a number"),
    "stuck": ("    rate_bps = 0.0\n", None, "idle", "never sends again"),
    "above-line": (ACKED + "        self.rate_bps = (self.rate_bps or 1e9) * 2\n", ":4", "incast", "cap it"),
    "timer-in-the-past": ("    def next_timer(self):\n        return 5\n", None, "idle", "it never ends"),
    "time-backwards": (
        "    last = 0\n" + ACKED + "        assert now >= self.last, 'back in time'\n        self.last = now\n",
        ":5", "backwards", "back in time",
    ),
    "no-repeat": (
        "    import random\n" + ACKED + "        self.rate_bps = 1e9 + self.random.random()\n", None, "incast", "no randomness"
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", WRONG)
def test_violations_by_name_and_event(tmp_path: Path, rule: str) -> None:
    body, line, trace, text = WRONG[rule]
    file = tmp_path / "mine.py"
    file.write_text(HEAD + body)
    report = check(load_plugin(f"{file}:A"), file=file)
    found = next(f for f in report.findings if f.rule == rule)
    assert not report.ok
    assert found.trace == trace
    assert text in found.text
    assert found.line == (f"{file}{line}" if line else None) or rule == "endless-loop"
    assert f"violation: {rule}" in str(found)


def test_event_number_and_time_of_a_violation(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + "    def marked(self, *, now):\n        self.rate_bps = -1.0\n")
    found = check(load_plugin(str(file)), file=file).findings[0]
    # the first CNP of the incast trace: after 500 us alone and 10 round trips, when two round trips have passed
    assert (found.now_ns, found.verb) == (596_000, "marked")


def test_warnings_do_not_fail_a_check(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import time\n" + HEAD + "    pass\n")
    report = check(load_plugin(str(file)), file=file)
    assert report.ok
    assert [(f.rule, f.warning) for f in report.findings] == [("impure-import", True), ("no-reaction", True)]
    assert report.findings[0].line == f"{file}:1"


def test_an_algorithm_that_never_comes_back_is_warned(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        HEAD + ACKED + "        if ce:\n            self.rate_bps = max(1e6, (self.rate_bps or 1e11) / 2)\n"
    )
    report = check(load_plugin(str(file)), file=file)
    assert [f.rule for f in report.findings] == ["no-recovery"]


@pytest.mark.parametrize("cls", BUILT_IN, ids=lambda cls: cls.name)
def test_built_in_algorithms_pass(cls: type[CongestionControl]) -> None:
    report = check(cls, params={"window_bytes": "bdp"} if cls.name == "fixed" else None)
    expected = ["no-reaction"] if cls.name in ("none", "fixed") else []
    assert [f.rule for f in report.findings] == expected
    assert len(report.rate_bps) == 100


# -- the toy -----------------------------------------------------------------------------------------------------------


class Ear(CongestionControl):
    """Keeps the round trips it is told."""

    def __init__(self, *, path: Any, params: Any) -> None:
        super().__init__(path=path, params=params)
        self.heard: list[int | None] = []

    def acked(self, *, now: int, size: int, rtt_ns: int | None, ce: bool) -> None:
        self.heard.append(rtt_ns)


def test_round_trips_in_an_empty_toy_are_the_base_round_trip() -> None:
    toy = Toy(Ear, scene=Scene(senders=1, end_ns=100_000))
    toy.run()
    heard = toy.senders[0].heard  # type: ignore[attr-defined]
    assert len(heard) > 200
    assert all(abs(rtt - 8_000) <= 2 for rtt in heard)


def total(scene: Scene, rates: list[list[float]], start: int, end: int) -> list[float]:
    bins = slice(start // scene.bin_ns, end // scene.bin_ns)
    return [sum(line[bins]) / len(line[bins]) for line in rates]


@pytest.mark.parametrize("name", ["dctcp-window", "swift", "nscc", "rccc", "cts"])
def test_windows_and_credit_fill_the_link_share_it_and_drop_nothing_after_the_start(name: str) -> None:
    scene = Scene(limit_bytes=2_000_000)
    out = Toy(name, scene=scene).run()
    assert out.dropped == 0
    shares = total(scene, out.rates_bps, 1_000_000, 1_500_000)
    assert sum(shares) > 0.95 * 97.7e9  # 100 Gbit/s less headers
    assert max(shares) < 2.5 * sum(shares) / 8
    assert total(scene, out.rates_bps, 2_000_000, 2_500_000)[0] > 0.95 * 97.7e9


def test_clear_to_send_keeps_the_queue_empty_where_fixed_windows_fill_it() -> None:
    def queue(name: str, params: dict[str, Any]) -> int:
        scene = Scene()
        ready = parameters(name, path=scene.path, params=params)
        return max(Toy(name, params=ready, scene=scene).run().queue_bytes)

    assert queue("cts", {}) <= 3 * 4190
    assert queue("fixed", {"window_bytes": "bdp"}) > 600_000
    assert queue("none", {}) > 990_000


def test_dcqcn_cuts_and_the_toy_repeats_itself() -> None:
    first, second = Toy("dcqcn").run(), Toy("dcqcn").run()
    assert first == second
    assert first.marked > 100
    assert total(Scene(), first.rates_bps, 1_000_000, 1_500_000)[0] < 20e9


def test_sparkline() -> None:
    assert sparkline([0, 5, 10], 10) == "_+@"
    assert sparkline([], 10) == ""
    assert len(sparkline([1.0] * 1000, 10)) == 60


# -- pages -------------------------------------------------------------------------------------------------------------

PAGES = Path(__file__).parents[3] / "docs" / "algorithms"


@pytest.mark.parametrize("cls", BUILT_IN, ids=lambda cls: cls.name)
def test_the_page_carries_the_parameters_that_run(cls: type[CongestionControl]) -> None:
    page = (PAGES / f"{cls.name}.md").read_text(encoding="utf-8")
    assert describe.markdown(cls) in page, f"run `fabriclab cc show {cls.name} --markdown` and put it into the page"
    assert describe.formula(cls) in page
