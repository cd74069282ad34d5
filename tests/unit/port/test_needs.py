"""What doctor concludes from what was probed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from emulator.errors import FabricError, MissingCapability
from emulator.port import features as features_module
from emulator.port import objects
from emulator.port.features import Features, probe
from emulator.port.needs import diagnose

FULL = Features(
    uid=0,
    capabilities=("net_admin", "net_raw", "sys_admin"),
    kernel="6.12",
    machine="x86_64",
    guest=False,
    clocksource="tsc",
    namespaces=True,
    qdiscs=dict.fromkeys(("htb", "bfifo", "red", "netem", "tbf", "fq", "prio"), True),
    ifb=True,
    clsact=True,
    cls_bpf=True,
    redirect=True,
    netem_seed=True,
    btf=True,
    kfunc=True,
    multipath_seed=True,
    congestion_available=("cubic", "dctcp", "bbr"),
    congestion_allowed=("cubic",),
    tools=dict.fromkeys(("mnexec", "ip", "tc", "ethtool", "clang", "tshark"), "/usr/bin/x"),
    marking="bpf",
    delay="netem",
    reasons={},
    unknown=(),
)


def test_nothing_is_missing_on_a_full_machine() -> None:
    found = diagnose(FULL, None, program_ready=True)
    assert [need.name for need in found.needs if not need.there] == []
    assert (found.real, found.clock) == (True, "real")


def test_a_guest_kernel_is_recommended_and_needs_no_root() -> None:
    poor = replace(
        FULL,
        uid=1000,
        capabilities=(),
        namespaces=None,
        unknown=("namespaces: ...",),
        marking="unknown",
        delay="unknown",
    )
    assert diagnose(poor, Path("/k/linux"), program_ready=True).clock == "virtual"
    alone = diagnose(poor, None, program_ready=True)
    assert (alone.real, alone.clock) == (False, "none")
    assert "kernel build" in alone.why


def test_a_missing_thing_says_what_needs_it_what_the_kernel_said_and_the_remedy() -> None:
    """p4lang/tutorials issue 138: a kernel without sch_netem gave 'No such file or directory' and a lab without delay."""
    poor = replace(
        FULL,
        qdiscs={**FULL.qdiscs, "netem": False},
        reasons={"netem": "Specified qdisc kind is unknown"},
        delay="agent",
    )
    (need,) = [need for need in diagnose(poor, None, program_ready=True).needs if need.name == "netem"]
    assert need.there is False and need.severity == "limits"
    assert "delay in the kernel" in need.needed_for and "Specified qdisc kind is unknown" in need.answer and need.remedy


def test_without_a_shaper_nothing_runs_on_the_real_clock() -> None:
    poor = replace(FULL, qdiscs={**FULL.qdiscs, "htb": False})
    assert diagnose(poor, None, program_ready=True).clock == "none"


def test_a_compiler_is_no_need_once_the_program_is_compiled() -> None:
    poor = replace(FULL, tools={**FULL.tools, "clang": None})
    for ready, severity in ((True, "info"), (False, "limits")):
        (need,) = [need for need in diagnose(poor, None, program_ready=ready).needs if need.name == "clang"]
        assert need.severity == severity


def test_probing_without_capabilities_says_what_it_could_not_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features_module, "_capabilities", lambda: ())
    found = probe()
    assert found.namespaces is None and set(found.qdiscs.values()) == {None}
    assert (found.marking, found.delay) == ("unknown", "unknown")
    assert any("root" in text for text in found.unknown)
    assert json.loads(json.dumps(found.to_dict()))["kernel"] == found.kernel


def test_doctor_prints_json_and_ends_with_4_when_nothing_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from emulator.cli import doctor as module

    monkeypatch.setattr(features_module, "_capabilities", lambda: ())
    monkeypatch.setattr(module, "guest_kernel", lambda: None)
    done = CliRunner().invoke(module.doctor, ["--json"], standalone_mode=False)
    assert done.return_value == 4 and json.loads(done.output)["clock"] == "none"
    monkeypatch.setattr(module, "guest_kernel", lambda: Path("/k/linux"))
    done = CliRunner().invoke(module.doctor, [], standalone_mode=False)
    assert done.return_value == 0 and "use virtual" in done.output and "/k/linux" in done.output


def test_without_clang_the_error_names_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))
    with pytest.raises(MissingCapability) as caught:
        objects.ensure_object("bpf", cache=tmp_path)
    assert "clang is not installed" in caught.value.what and "libbpf-dev" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []
    ready = tmp_path / objects.object_name("bpf")
    # An ELF file of 64 bytes and one section of 64 behind them (elf(5)).
    whole = b"\x7fELF" + bytes(36) + (64).to_bytes(8, "little") + bytes(10) + b"\x40\0\1\0" + bytes(2 + 64)
    ready.write_bytes(whole)
    assert objects.ensure_object("bpf", cache=tmp_path) == ready
    for damaged in (whole[:-1], whole[:10], b"", b"compiled before" * 20):
        ready.write_bytes(damaged)
        assert objects.find_object("bpf", tmp_path) is None
        with pytest.raises(MissingCapability):  # it is compiled again
            objects.ensure_object("bpf", cache=tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FabricError) as caught:
        objects.ensure_object("bpf", cache=tmp_path / "file" / "bpf")
    assert "FABRICLAB_BPF_DIR" in caught.value.remedy


def test_each_variant_and_each_source_has_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {objects.object_name(variant) for variant in objects.VARIANTS}
    changed = tmp_path / "port.bpf.c"
    changed.write_text(objects.SOURCE.read_text() + "\n")
    monkeypatch.setattr(objects, "SOURCE", changed)
    assert len(names | {objects.object_name("bpf")}) == 3
