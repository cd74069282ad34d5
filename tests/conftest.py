"""Which tests can run here: `root` needs the right to make namespaces, `virtual` a guest kernel.

Elsewhere such a test is skipped and says why; under CI=true every skip is a failure, or a machine that lacks something
would pass.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


def in_ci() -> bool:
    """Whether a skip counts as a failure."""
    return os.environ.get("CI", "").lower() in ("true", "1")


def may_make_namespaces() -> bool:
    """Whether this process has the two capabilities that a fabric needs."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    bits = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return all(bits >> number & 1 for number in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def have_guest_kernel() -> bool:
    """Whether the virtual clock has its kernel."""
    from emulator.clock.kernel import find_kernel

    return find_kernel() is not None


def pytest_configure() -> None:
    """A background shell ignores Ctrl-C, and what it starts inherits that: tests that send it need it heard."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what cannot run here, and keeps the tests of one browser in one process."""
    lacking: dict[str, str] = {}
    marked = {name: [item for item in items if item.get_closest_marker(name)] for name in ("root", "virtual", "page")}
    if marked["root"] and not may_make_namespaces():
        lacking["root"] = "makes network namespaces: run scripts/test as root"
    if marked["virtual"] and not have_guest_kernel():
        lacking["virtual"] = "needs the kernel of the virtual clock: run `fabriclab kernel build`"
    for name, reason in lacking.items():
        for item in marked[name]:
            item.add_marker(pytest.mark.skip(reason=reason))
    for item in marked["page"]:
        item.add_marker(pytest.mark.xdist_group("page"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns a skipped test into a failed one in CI; an expected failure (xfail) stays what it is."""
    report = yield
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true does not allow: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole module that skips itself."""
    report = yield
    if in_ci() and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true does not allow: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
