"""Files and settings: what cannot be kept as a file in tests/mistakes, and that loading changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emulator.topology.document import MAX_FILE_BYTES
from emulator.topology.load import TopologyError, load_topology

GOOD = "leaves: 2\nspines: 2\nhosts_per_leaf: 4\n"


def write(folder: Path, text: str, name: str = "fabric.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def problems(path: Path, *settings: str) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        load_topology(path, settings)
    return [str(problem).replace(str(path), path.name) for problem in caught.value.problems]


def test_the_file_names_the_fabric_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert load_topology(write(tmp_path, GOOD, "my-lab.yaml")).name == "my-lab"
    assert load_topology(write(tmp_path, GOOD + "name: other\n", "my-lab.yaml")).name == "other"


def test_settings_go_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "uplink: {rate: 100Gbit}\n")
    settings = ["uplink.rate=25Gbit", "ecn.pmax=10%", "overrides.0.link=leaf0:spine1", "overrides[0].state=down"]
    topology = load_topology(path, [*settings, "queue={limit: 1MB}"])
    assert topology.uplink.rate == 25 * 10**9
    assert topology.ecn.pmax == 0.1
    assert topology.queue.limit == 10**6
    assert not topology.network().port("spine1:leaf0").up


def test_a_setting_cures_a_problem_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "uplink: {rate: 100Gb}\n")
    assert load_topology(path, ["uplink.rate=100Gbit"]).uplink.rate == 100 * 10**9


def test_the_place_of_a_problem_is_where_the_value_came_from(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "ecn:\n  kmin: 500KB\n")
    assert problems(path)[0].startswith("fabric.yaml:5:9: ecn.kmin (500KB) is not below ecn.kmax (400KB)")
    assert problems(path, "ecn.kmin=600KB")[0].startswith("--set ecn.kmin=600KB: ecn.kmin (600KB) is not below")


def test_problems_of_fields_and_of_the_whole_come_in_one_pass(tmp_path: Path) -> None:
    text = GOOD + "uplink: {rate: 100Gb}\necn: {kmin: 500KB}\noverrides:\n  - {link: leaf0:spine7, rate: 10Gbit}\n"
    found = problems(write(tmp_path, text))
    assert [line.split(": ")[0] for line in found] == ["fabric.yaml:4:16", "fabric.yaml:5:13", "fabric.yaml:7:12"]


def test_too_large_a_file_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, "#" * (MAX_FILE_BYTES + 1))
    assert problems(path) == [f"fabric.yaml: is larger than {MAX_FILE_BYTES} bytes; name a topology file"]


def test_an_unreadable_file_says_why(tmp_path: Path) -> None:
    # A link to itself cannot be read even by root, whom file modes do not stop.
    path = tmp_path / "loop.yaml"
    path.symlink_to(path)
    assert problems(path) == [
        "loop.yaml: cannot be read: too many levels of symbolic links; check the path and its permissions"
    ]


def test_a_bomb_of_aliases_is_refused_at_once(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    assert any("alias *a" in line for line in problems(write(tmp_path, "\n".join(lines))))


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_topology(path).leaves == 2


def test_loading_touches_no_kernel_interface(tmp_path: Path) -> None:
    # mininet issue 804: importing a topology created it.
    write(tmp_path, GOOD)
    code = (
        "import sys\n"
        "from emulator.topology.load import load_topology\n"
        f"load_topology({str(tmp_path / 'fabric.yaml')!r}).network()\n"
        "print([m for m in ('socket', 'subprocess', 'pyroute2', 'mininet', 'threading') if m in sys.modules])\n"
    )
    before = sorted(path.name for path in Path("/sys/class/net").iterdir())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"pyroute2", "mininet"} & set(done.stdout.strip("[]\n").replace("'", "").split(", "))
    assert sorted(path.name for path in Path("/sys/class/net").iterdir()) == before


def test_the_package_imports_nothing_that_reaches_the_machine() -> None:
    import ast

    banned = {
        "socket", "time", "subprocess", "select", "asyncio", "threading", "random", "pyroute2", "mininet", "os",
    }  # fmt: skip
    folder = Path(__file__).parents[3] / "emulator" / "topology"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & banned, path.name
