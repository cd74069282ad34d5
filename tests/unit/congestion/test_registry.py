"""Names, presets, parameters, fixed values, and what a plug-in file may get wrong."""

from pathlib import Path

import pytest

from traffic.congestion.base import CongestionControl, Feedback, PathInfo
from traffic.congestion.plugin import load_plugin
from traffic.congestion.receiver import CnpReceiver
from traffic.congestion.registry import BUILT_IN, algorithm, create, create_receiver, marking, names, parameters
from traffic.errors import TrafficError

LINE = PathInfo(100_000_000_000, 8_000, 4096, 4190)
NEEDED: dict[str, dict[str, object]] = {"fixed": {"window_bytes": "bdp"}}


def test_names() -> None:
    assert names() == ["none", "fixed", "dcqcn", "dctcp-window", "timely", "swift", "nscc", "rccc", "cts"]


@pytest.mark.parametrize("cls", BUILT_IN, ids=lambda cls: cls.name)
def test_resolved_parameters_are_numbers_and_resolve_to_themselves(cls: type[CongestionControl]) -> None:
    for preset in [None, *cls.presets]:
        given = NEEDED.get(cls.name, {}) if preset is None else {}
        values = parameters(cls, path=LINE, params=given, preset=preset).values()
        assert all(v is None or isinstance(v, int | float | str) for v in values.values())
        assert parameters(cls, path=PathInfo(10_000_000_000, 99_000, 1024, 1100), params=values).values() == values


@pytest.mark.parametrize("cls", BUILT_IN, ids=lambda cls: cls.name)
def test_every_parameter_says_what_it_means_and_where_its_default_is_from(cls: type[CongestionControl]) -> None:
    for p in cls.parameters.declared():
        assert p.text and p.source, p.name


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("dcqcn", {"alpha_timr_ns": 1}, "unknown parameter alpha_timr_ns, nearest is alpha_timer_ns"),
        ("dcqcn", {"g": 1.5}, "g is 1.5: the most is 1"),
        ("dcqcn", {"g": 0}, "g is 0: it must be above 0"),
        ("dcqcn", {"timer_ns": 1.5}, "timer_ns is 1.5: give a whole number"),
        ("dcqcn", {"timer_ns": "55us"}, "timer_ns is '55us': give a number in ns"),
        ("dcqcn", {"timer_ns": float("nan")}, "give a finite number"),
        ("dcqcn", {"timer_ns": True}, "give a finite number"),
        ("dcqcn", {"order": "alpha-cur"}, "nearest is alpha-cut"),
        ("dcqcn", {"clamp_target": 1}, "give true or false"),
        ("dcqcn", {"machine": "polled"}, "machine polled needs cut_interval_ns above 0"),
        ("fixed", {}, "fixed needs rate_bps, window_bytes or both"),
        ("fixed", {"rate_bps": 2e11}, "above the line rate of 100000000000"),
        ("none", {"rate_bps": 1}, "unknown parameter rate_bps, there is none to set"),
        ("timely", {"t_low_ns": 600_000}, "t_low_ns is above t_high_ns"),
    ],
)
def test_wrong_parameters(name: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(TrafficError) as caught:
        parameters(name, path=LINE, params=params)
    assert message in caught.value.what
    assert caught.value.where == f"cc {name}"
    assert caught.value.remedy


def test_all_problems_at_once() -> None:
    with pytest.raises(TrafficError) as caught:
        create("dcqcn", path=LINE, params={"gain": 1, "g": 2, "timer_ns": -1})
    for part in ("unknown parameter gain", "g is 2: the most is 1", "timer_ns is -1: the least is 1"):
        assert part in caught.value.what


def test_unknown_names() -> None:
    with pytest.raises(TrafficError) as caught:
        create("dcqn", path=LINE)
    assert caught.value.what == "unknown congestion control dcqn"
    assert caught.value.remedy.startswith("nearest is dcqcn")
    with pytest.raises(TrafficError) as caught:
        create("dcqcn", path=LINE, preset="hpcc-mellanx")
    assert "nearest is hpcc-mellanox" in caught.value.remedy


def test_values_that_scale_with_the_line_are_numbers_in_the_manifest() -> None:
    values = parameters("dcqcn", path=LINE, preset="hpcc-mellanox").values()
    assert (values["ai_bps"], values["hai_bps"]) == (20e6, 200e6)
    assert parameters("dcqcn", path=LINE, preset="hpcc-mellanox", params={"ai_bps": 7}).values()["ai_bps"] == 7
    assert marking("dcqcn", "hpcc-mellanox", path=LINE) == {"kmin_bytes": 400e3, "kmax_bytes": 1.6e6, "pmax": 0.2}
    assert marking("dcqcn", "paper", path=LINE) == {"kmin_bytes": 5_000, "kmax_bytes": 200_000, "pmax": 0.01}


def test_fixed() -> None:
    cc = create("fixed", path=LINE, preset="bdp")
    assert (cc.rate_bps, cc.window_bytes) == (None, 24 * 4096)  # 100,000 × 4096/4190 = 97,756, in whole packets
    cc = create("fixed", path=LINE, params={"rate_bps": "line"})
    assert (cc.rate_bps, cc.window_bytes) == (100e9, None)
    cc.marked(now=0)
    cc.acked(now=0, size=4096, rtt_ns=1, ce=True)
    assert cc.rate_bps == 100e9
    assert create("none", path=LINE).may_send(in_flight=10**12, size=4096)


def test_a_window_lets_one_packet_leave_an_empty_path() -> None:
    cc = create("fixed", path=LINE, params={"window_bytes": 5000})
    assert cc.may_send(in_flight=0, size=8192)
    assert cc.may_send(in_flight=904, size=4096)
    assert not cc.may_send(in_flight=905, size=4096)


# -- files of students -------------------------------------------------------------------------------------------------


def plug(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_text("from traffic.congestion.base import CongestionControl, Feedback\n" + text)
    return str(file)


def test_template_is_an_algorithm_of_about_thirty_lines(tmp_path: Path) -> None:
    from traffic.congestion import template

    source = Path(str(template.__file__)).read_text()
    assert 25 <= len(source.splitlines()) <= 40
    (tmp_path / "mine.py").write_text(source)
    cls = load_plugin(f"{tmp_path}/mine.py:MyRate")
    cc = create(cls, path=LINE, params={"cut": 0.25})
    cc.acked(now=0, size=4096, rtt_ns=8_000, ce=True)
    assert cc.rate_bps == 25e9
    assert create(f"{tmp_path}/mine.py", path=LINE).rate_bps == 100e9


def test_a_plugin_that_wants_cnps_gets_a_generator(tmp_path: Path) -> None:
    cls = algorithm(plug(tmp_path, "class A(CongestionControl):\n    feedback = Feedback.CNP\n"))
    receiver = create_receiver(cls, path=LINE)
    assert isinstance(receiver, CnpReceiver)
    assert cls.feedback is Feedback.CNP


@pytest.mark.parametrize(
    ("text", "suffix", "what", "where"),
    [
        ("class A(CongestionControl):\n  x = (\n", ":A", "was never closed", ":3"),
        ("\nprint(1 / 0)\n", ":A", "ZeroDivisionError", ":3"),
        ("x = 1\n", ":A", "no subclass of CongestionControl", ""),
        ("class Abc(CongestionControl): pass\n", ":Abd", "nearest is Abc", ""),
        (
            "class A(CongestionControl): pass\nclass B(CongestionControl): pass\n",
            "",
            "several algorithms in it: A, B",
            "",
        ),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, suffix: str, what: str, where: str) -> None:
    name = plug(tmp_path, text)
    with pytest.raises(TrafficError) as caught:
        load_plugin(name + suffix)
    assert what in caught.value.what
    assert caught.value.where.endswith(where or (name + suffix))
    assert caught.value.remedy


def test_no_such_file() -> None:
    with pytest.raises(TrafficError, match=r"there is no file \./nowhere\.py"):
        algorithm("./nowhere.py:X")
