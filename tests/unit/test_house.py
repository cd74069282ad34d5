"""The house rules that a machine can hold: who imports whom, sizes, forbidden calls, light commands, packages named once."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    path.relative_to(ROOT).as_posix() for top in ("emulator", "traffic") for path in (ROOT / top).rglob("*.py")
)
PURE = ("traffic/congestion/", "traffic/transport/", "traffic/collective/", "emulator/judge/", "emulator/topology/")
IMPURE = {"socket", "time", "subprocess", "select", "asyncio", "threading", "random", "pyroute2", "mininet"}
ALLOWED = {"traffic/transport/tcp.py": {"socket", "select"}}
"""Kernel TCP is sockets by its nature."""
KERNEL_ROOMS = (
    "emulator/fabric/",
    "emulator/port/",
    "emulator/collect/",
    "emulator/clock/",
    "emulator/exec/",
    "traffic/agent/",
)
HEAVY = (
    "pydantic",
    "ruamel",
    "rich",
    "numpy",
    "pandas",
    "pyarrow",
    "plotly",
    "scapy",
    "networkx",
    "pyroute2",
    "mininet",
)
LINES = 400


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), module)


def imported(module: str) -> Iterator[tuple[int, str]]:
    """Line and name of every absolute import, inside functions too."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            yield node.lineno, node.module or ""


def forbidden(found: ast.Module) -> Iterator[str]:
    """A shell, a kill by name, an `except` that hides everything."""
    for node in ast.walk(found):
        if isinstance(node, ast.keyword) and node.arg == "shell":
            yield f"{node.value.lineno}: shell="
        elif isinstance(node, ast.Constant) and node.value in ("pkill", "killall"):
            yield f"{node.lineno}: {node.value}"
        elif isinstance(node, ast.Attribute) and node.attr in ("system", "popen") and ast.unparse(node.value) == "os":
            yield f"{node.lineno}: os.{node.attr}"
        elif isinstance(node, ast.ExceptHandler):
            name = node.type.id if isinstance(node.type, ast.Name) else ""
            silent = all(isinstance(part, ast.Pass) for part in node.body)
            if node.type is None or (name in ("Exception", "BaseException") and silent):
                yield f"{node.lineno}: except that hides everything"


def test_the_check_sees_what_is_forbidden() -> None:
    code = "import os\nos.system('x')\nrun(['pkill'], shell=True)\ntry:\n    f()\nexcept Exception:\n    pass\n"
    assert sorted(forbidden(ast.parse(code))) == [
        "2: os.system",
        "3: pkill",
        "3: shell=",
        "6: except that hides everything",
    ]


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 100
    assert all(any(module.startswith(room) for module in MODULES) for room in (*PURE, *KERNEL_ROOMS))


def test_traffic_never_imports_emulator() -> None:
    mine = [module for module in MODULES if module.startswith("traffic/")]
    assert [f"{m}:{line}" for m in mine for line, name in imported(m) if name.split(".")[0] == "emulator"] == []


def test_pure_packages_import_nothing_impure() -> None:
    wrong = []
    for module in (module for module in MODULES if module.startswith(PURE)):
        forbidden = IMPURE - ALLOWED.get(module, set())
        wrong += [f"{module}:{line}: {name}" for line, name in imported(module) if name.split(".")[0] in forbidden]
    assert wrong == []


def test_only_the_kernel_rooms_import_what_changes_the_kernel() -> None:
    found = {m for m in MODULES for _, name in imported(m) if name.split(".")[0] in ("pyroute2", "mininet")}
    assert [module for module in sorted(found) if not module.startswith(KERNEL_ROOMS)] == []


def test_no_module_is_longer_than_two_ideas() -> None:
    lines = {module: (ROOT / module).read_text(encoding="utf-8").count("\n") for module in MODULES}
    assert {module: count for module, count in lines.items() if count > LINES} == {}


def test_no_shell_no_kill_by_name_no_error_swallowed() -> None:
    assert [f"{module}:{found}" for module in MODULES for found in forbidden(tree(module))] == []


def test_nothing_is_left_for_later() -> None:
    marks = r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b"
    found = {module: re.findall(marks, (ROOT / module).read_text(encoding="utf-8")) for module in MODULES}
    assert {module: words for module, words in found.items() if words} == {}


def test_a_module_only_defines_when_it_is_imported() -> None:
    """A bare call at the top of a module is work at import; let through are Scapy's own way to bind layers, and the one module
    that programs import to register the torch.distributed backend."""
    calls = [
        f"{module}:{node.lineno}: {ast.unparse(node.value.func)}"
        for module in MODULES
        if module != "traffic/torch/__init__.py"
        for node in tree(module).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    assert [call for call in calls if not re.search(r": bind_(layers|bottom_up|top_down)$", call)] == []


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from emulator.cli.main import main\n"
        "code = main(['--help'])\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules], code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "HEAVY [] 0"


def test_set_up_knows_every_package_that_the_kernel_build_asks_for() -> None:
    from emulator.clock.kernel_source import HEADERS, SOURCE_PACKAGE, TOOLS

    script = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    table = re.search(r"PACKAGES_kernel='\n(.*?)'", script, re.DOTALL)
    assert table is not None
    assert {line.split()[0] for line in table[1].splitlines()} == {SOURCE_PACKAGE, *TOOLS.values(), *HEADERS.values()}
