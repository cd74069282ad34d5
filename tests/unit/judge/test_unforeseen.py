"""F6 also asks whether a queue dropped what its own limit explains (a limit cut behind the run's back)."""

from __future__ import annotations

from emulator.judge.conservation import HostCount, PortCount, check_conservation


def test_drops_that_would_have_fitted_fail_conservation() -> None:
    ports = [PortCount("leaf0:host0", "leaf0", "host0", seen=10, sent=7, dropped=3, unforeseen=3)]
    hosts = [HostCount("host0", 0, 7)]
    check = check_conservation(ports, hosts)
    assert check.status == "fail"
    assert "port leaf0:host0: 3 packets dropped that would have fitted its limit" in check.reason
