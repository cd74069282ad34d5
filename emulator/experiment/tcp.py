"""Kernel TCP as a transport: which congestion controls, which options, what the hosts' kernels must be told."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from emulator.errors import MissingCapability, UsageError

if TYPE_CHECKING:
    from emulator.experiment.spec import Transport

KERNEL_CC = ("cubic", "reno", "dctcp", "bbr")
"""Congestion controls of the kernel that the product knows; the guest kernel of the virtual clock has them all."""


def tcp_options(transport: Transport) -> dict[str, Any]:
    """The options of a resolved TCP transport. Raises UsageError for what kernel TCP does not have.

    `qps` connections between two hosts; `ecn` whether ECN is negotiated (RFC 3168; DCTCP needs it); `min_rto_ns` the least
    retransmission time-out, None for the kernel's own 200 ms.
    """
    name = transport.cc or "cubic"
    if name not in KERNEL_CC:
        raise UsageError(
            f"kernel TCP has no congestion control {name}", where="--cc", remedy=f"choose one of {', '.join(KERNEL_CC)}"
        )
    if transport.cc_params or transport.cc_preset:
        raise UsageError(
            "kernel TCP takes no parameters or presets for its congestion control",
            where="--cc-set" if transport.cc_params else "--cc-preset",
            remedy="leave them out; dctcp-window is DCTCP with parameters, for --transport roce",
        )
    if name == "dctcp" and transport.ecn is False:
        raise UsageError("DCTCP needs ECN", where="--no-ecn", remedy="leave it out, or use --cc reno")
    if transport.timeout is not None and transport.timeout < 1000:
        raise UsageError(
            f"a least time-out of {transport.timeout} ns", where="transport.timeout", remedy="give at least 1us"
        )
    return {
        "qps": transport.qps,
        "ecn": name == "dctcp" if transport.ecn is None else transport.ecn,
        "min_rto_ns": transport.timeout,
    }


def host_sysctls(transport: Mapping[str, Any], tdf: int) -> dict[str, str]:
    """What every host's namespace is set to, for it inherits none of it from the machine; read back like all the plan.

    Nothing is remembered from one connection to the next. A least time-out that is given counts in fabric time, so it is
    dilated; what TCP has by itself is not.
    """
    if transport["kind"] != "tcp":
        return {}
    options = transport["options"]
    out = {
        "net.ipv4.tcp_ecn": "1" if options["ecn"] else "0",
        "net.ipv4.tcp_timestamps": "1",
        "net.ipv4.tcp_sack": "1",
        "net.ipv4.tcp_no_metrics_save": "1",
    }
    if options["min_rto_ns"] is not None:
        out["net.ipv4.tcp_rto_min_us"] = str(max(1, options["min_rto_ns"] * tdf // 1000))
    return out


def require_cc(name: str, *, clock: str) -> None:
    """That this very kernel has a congestion control; asking for it loads its module where there is one.

    Raises MissingCapability with what to do. The list in tcp_available_congestion_control names loaded ones only.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            remedy = (
                f"modprobe tcp_{name} where the kernel has it as a module, or use --clock virtual, whose kernel has it"
                if clock == "real"
                else "build the guest kernel again with `fabriclab kernel build`"
            )
            raise MissingCapability(
                f"this kernel has no congestion control {name} for TCP ({error.strerror})", where="--cc", remedy=remedy
            ) from error
