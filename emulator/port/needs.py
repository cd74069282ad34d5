"""What each kernel feature and tool is for, and how to get it: the table behind `fabriclab doctor`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulator.port.features import Features

_MODULES = "apt-get install linux-image-amd64 (its modules), or use --clock virtual"
_KERNEL = "boot a kernel with {}, or use --clock virtual"


@dataclass(frozen=True, slots=True)
class Need:
    """One thing: whether it is there (`None`: could not be looked at), what needs it, how to get it.

    `severity` is blocks (nothing runs on the real clock without it), limits (a feature is missing or done in
    another way) or info. `answer` is what the kernel said.
    """

    name: str
    there: bool | None
    needed_for: str
    remedy: str
    severity: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What this machine can do. `clock` is the one to use (real, virtual or none), `why` the reason for it."""

    features: Features
    needs: tuple[Need, ...]
    guest_kernel: str | None
    real: bool
    clock: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        """As plain data: what `doctor --json` prints."""
        return {
            "clock": self.clock,
            "why": self.why,
            "real_clock": self.real,
            "guest_kernel": self.guest_kernel,
            "marking": self.features.marking,
            "delay": self.features.delay,
            "needs": [asdict(need) for need in self.needs],
            "features": self.features.to_dict(),
        }


def marking_text(marking: str) -> str:
    """What a kind of marking means for a result."""
    return {
        "bpf": "the BPF program reads each class's queue: the ramp from kmin to kmax is exact",
        "virtual-queue": "the BPF program models one queue a port by rate and clock: it does not know the classes apart",
        "red": "RED marks at a step (kmin = kmax); no ramp, no trimming, no random loss, no histogram of the queue",
        "none": "no CE marks, so DCQCN and DCTCP cannot work; drops only",
        "unknown": "not known without root",
    }[marking]


def delay_text(delay: str) -> str:
    """What a place of the delay means for a result."""
    return {
        "netem": "netem on an IFB at each receiving interface: every program sees it",
        "agent": "the receiving agents hold packets for the delay of their whole path: other programs see none",
        "unknown": "not known without root",
    }[delay]


def diagnose(features: Features, guest_kernel: Path | None, *, program_ready: bool) -> Diagnosis:
    """Sets features against needs. `program_ready`: the BPF program is compiled already."""
    needs = _needs(features, program_ready)
    real = all(need.there for need in needs if need.severity == "blocks")
    if guest_kernel is not None:
        clock, why = (
            "virtual",
            "a guest kernel is there: results are exact, repeat to the bit and do not depend on this machine",
        )
    elif real:
        clock, why = (
            "real",
            "no guest kernel yet; `fabriclab kernel build` makes one, for exact results at any link speed",
        )
    else:
        clock = "none"
        why = "the real clock lacks something below and there is no guest kernel: run `fabriclab kernel build`, or become root"
    return Diagnosis(features, needs, None if guest_kernel is None else str(guest_kernel), real, clock, why)


def _needs(features: Features, program_ready: bool) -> tuple[Need, ...]:
    capabilities = set(features.capabilities)
    out = [
        Need(
            "root",
            {"net_admin", "net_raw", "sys_admin"} <= capabilities,
            "everything on the real clock (namespaces, packet sockets); the virtual clock needs none",
            "run with sudo, or use --clock virtual",
            "blocks",
        ),
        _kernel(
            features,
            "namespaces",
            features.namespaces,
            "every node",
            _KERNEL.format("CONFIG_NET_NS, CONFIG_VETH"),
            "blocks",
        ),
        _kernel(features, "htb", features.qdiscs["htb"], "the rate of every port", _MODULES, "blocks"),
        _kernel(features, "bfifo", features.qdiscs["bfifo"], "the limit of every queue", _MODULES, "blocks"),
        _kernel(
            features,
            "clsact",
            features.clsact,
            "the BPF program, keeping RoCE from the kernel's own UDP code",
            _MODULES,
            "blocks",
        ),
        _kernel(
            features,
            "cls_bpf",
            features.cls_bpf,
            "marking on a ramp, trimming, random loss, exact counters",
            _MODULES,
            "limits",
        ),
        _kernel(
            features,
            "kfunc",
            features.kfunc,
            "marking on the queue itself",
            _KERNEL.format("BTF, Linux 6.2 or later"),
            "limits",
        ),
        _kernel(
            features,
            "netem",
            features.qdiscs["netem"],
            "delay in the kernel (else the agents hold packets)",
            _MODULES,
            "limits",
        ),
        _kernel(
            features,
            "ifb",
            features.ifb,
            "delay in the kernel",
            _MODULES,
            "limits" if features.qdiscs["netem"] else "info",
        ),
        _kernel(
            features,
            "fib_multipath_hash_seed",
            features.multipath_seed,
            "the same path for the same flow after a reboot, and tiers that do not polarise",
            _KERNEL.format("Linux 6.11 or later"),
            "limits",
        ),
        _kernel(
            features,
            "red",
            features.qdiscs["red"],
            "marking where no BPF program loads",
            _MODULES,
            "info" if features.marking in ("bpf", "virtual-queue") else "limits",
        ),
        _kernel(features, "fq", features.qdiscs["fq"], "pacing of kernel TCP outside TCP itself", _MODULES, "info"),
    ]
    out += [
        Need(
            f"tcp {name}",
            name in features.congestion_available,
            f"--transport tcp --cc {name}",
            f"modprobe tcp_{name}, or use --clock virtual",
            "info",
        )
        for name in ("cubic", "dctcp", "bbr")
    ]
    for name, purpose, package, severity in (
        ("mnexec", "building a fabric (Mininet's helper)", "mininet", "blocks"),
        ("clang", "compiling the BPF program, once", "clang libbpf-dev", "info" if program_ready else "limits"),
        ("ip", "looking at a fabric by hand", "iproute2", "info"),
        ("tc", "looking at a fabric by hand", "iproute2", "info"),
        ("ethtool", "looking at a fabric by hand", "ethtool", "info"),
        ("tshark", "checking captures with a foreign dissector", "tshark", "info"),
    ):
        out.append(Need(name, features.tools.get(name) is not None, purpose, f"apt-get install {package}", severity))
    return tuple(out)


def _kernel(features: Features, name: str, there: bool | None, purpose: str, remedy: str, severity: str) -> Need:
    return Need(name, there, purpose, remedy, severity, "" if there else features.reasons.get(name, ""))
