"""What this kernel can do for a fabric, found by doing it in a network namespace that is thrown away."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulator.errors import FabricError
from emulator.port import tc
from emulator.port.netlink import CLONE_NEWNET, NLM_F_ACK, Netlink, NetlinkError, attr, libc

TOOLS = ("mnexec", "ip", "tc", "ethtool", "clang", "tshark")
_CAPABILITIES = {"net_admin": 12, "net_raw": 13, "sys_admin": 21, "sys_resource": 24, "bpf": 39}
_SEED = "/proc/sys/net/ipv4/fib_multipath_hash_seed"


@dataclass(frozen=True, slots=True)
class Features:
    """One machine's capabilities; `None` means that it could not be probed, and `unknown` says why.

    `marking` is bpf, virtual-queue, red or none; `delay` is netem or agent (the receiving agent holds packets); both are
    "unknown" where nothing could be probed.
    `reasons` says for each thing that is missing what the kernel or the system answered.
    """

    uid: int
    capabilities: tuple[str, ...]
    kernel: str
    machine: str
    guest: bool
    clocksource: str
    namespaces: bool | None
    qdiscs: dict[str, bool | None]
    ifb: bool | None
    clsact: bool | None
    cls_bpf: bool | None
    redirect: bool | None
    netem_seed: bool | None
    btf: bool
    kfunc: bool | None
    multipath_seed: bool | None
    congestion_available: tuple[str, ...]
    congestion_allowed: tuple[str, ...]
    tools: dict[str, str | None]
    marking: str
    delay: str
    reasons: dict[str, str]
    unknown: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def probe(*, log: Callable[[str], None] | None = None) -> Features:
    """Looks at this machine; about 0.1 s as root (half a second more the first time, when the BPF program is compiled).

    Without root it says what it could not probe. Nothing it makes outlives the call.
    """
    reasons: dict[str, str] = {}
    unknown: list[str] = []
    capabilities = _capabilities()
    kernel: dict[str, bool | None] = {}
    if "sys_admin" in capabilities and "net_admin" in capabilities:
        worker = _Throwaway(reasons)
        thread = threading.Thread(target=worker.run, name="probe")
        thread.start()
        thread.join()
        kernel = worker.found
        if worker.problem is not None:
            raise worker.problem
    else:
        unknown.append(
            "namespaces, qdiscs, ifb, clsact, cls_bpf, kfunc: probing them needs CAP_SYS_ADMIN and CAP_NET_ADMIN (root)"
        )
    btf = Path("/sys/kernel/btf/vmlinux").exists()
    kfunc, virtual = _bpf(btf, kernel.get("cls_bpf"), reasons, log)
    qdiscs = {kind: kernel.get(kind) for kind in ("htb", "bfifo", "red", "netem", "tbf", "fq", "prio")}
    return Features(
        uid=os.geteuid(),
        capabilities=capabilities,
        kernel=platform.release(),
        machine=platform.machine(),
        guest=_is_guest(),
        clocksource=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        namespaces=kernel.get("namespaces"),
        qdiscs=qdiscs,
        ifb=kernel.get("ifb"),
        clsact=kernel.get("clsact"),
        cls_bpf=kernel.get("cls_bpf"),
        redirect=kernel.get("redirect"),
        netem_seed=kernel.get("netem_seed"),
        btf=btf,
        kfunc=kfunc,
        multipath_seed=Path(_SEED).exists(),
        congestion_available=tuple(_read("/proc/sys/net/ipv4/tcp_available_congestion_control").split()),
        congestion_allowed=tuple(_read("/proc/sys/net/ipv4/tcp_allowed_congestion_control").split()),
        tools={name: _which(name) for name in TOOLS},
        marking=_first(unknown, bpf=kfunc, **{"virtual-queue": virtual}, red=qdiscs["red"], none=True),
        delay=_first(unknown, netem=qdiscs["netem"] and kernel.get("ifb") and kernel.get("redirect"), agent=True),
        reasons=reasons,
        unknown=tuple(unknown),
    )


def _first(unknown: list[str], **choices: bool | None) -> str:
    return "unknown" if unknown else next(name for name, there in choices.items() if there)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _which(name: str) -> str | None:
    # an ordinary user's PATH often lacks the system folders
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _is_guest() -> bool:
    return "User Mode Linux" in _read("/proc/cpuinfo")


def _capabilities() -> tuple[str, ...]:
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            bits = int(line.split()[1], 16)
            return tuple(name for name, bit in _CAPABILITIES.items() if bits >> bit & 1)
    return ()


def _bpf(
    btf: bool, cls_bpf: bool | None, reasons: dict[str, str], log: Callable[[str], None] | None
) -> tuple[bool | None, bool | None]:
    """Whether the program with and without kernel structures loads and reads true values here."""
    if cls_bpf is None:
        return None, None
    if not cls_bpf:
        return False, False
    from emulator.port.program import PortProgram

    if btf:
        try:
            program = PortProgram("bpf", 1, parts=("port_egress", "probe"), log=log)
            try:
                if program.reads_kernel():
                    return True, True
            finally:
                program.close()
            reasons["kfunc"] = "the kernel takes the program but its loads from kernel structures give zeros"
        except FabricError as exc:
            reasons["kfunc"] = str(exc)
    else:
        reasons["kfunc"] = "no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)"
    try:
        PortProgram("virtual-queue", 1, log=log).close()
    except FabricError as exc:
        reasons["bpf"] = str(exc)
        return False, False
    return False, True


class _Throwaway:
    """Tries kernel objects in a network namespace of its own thread; it goes away with the thread."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.found: dict[str, bool | None] = {}
        self.problem: FabricError | None = None
        self._reasons = reasons

    def run(self) -> None:
        """The thread's body."""
        if libc().unshare(CLONE_NEWNET) != 0:
            self.found["namespaces"] = False
            self._reasons["namespaces"] = os.strerror(ctypes.get_errno())
            return
        try:
            with Netlink() as netlink:
                self._probe(netlink)
        except FabricError as exc:
            self.problem = exc

    def _probe(self, netlink: Netlink) -> None:
        self.found["namespaces"] = self._try(netlink, "namespaces", tc.new_link("p0", "veth", peer="p1"))
        self.found["ifb"] = self._try(netlink, "ifb", tc.new_link("p2", "ifb"))
        if not self.found["namespaces"]:
            return
        links = tc.links(netlink.dump(tc.RTM_GETLINK, tc.IFINFO.pack(0, 0, 0, 0, 0)))
        port, peer = links["p0"][0], links["p1"][0]
        byte_limit = attr(tc.TCA_OPTIONS, (100_000).to_bytes(4, "little"))
        for kind, request in {
            "netem": tc.netem(port, 0x10000, delay_ns=1000, limit_packets=10, rate_bytes=10**6),
            "netem_seed": tc.netem(port, 0x10000, delay_ns=1000, limit_packets=10, seed=1),
            "red": tc.red(port, 0x10000, tc.ROOT, limit=100_000, low=1000, high=1001, max_p=0xFFFFFFFF),
            "tbf": tc.tbf(port, 0x10000, rate=10**6, buffer_ticks=10**6, limit_bytes=10**5),
            "fq": tc.qdisc(port, 0x10000, tc.ROOT, "fq"),
            "prio": tc.qdisc(port, 0x10000, tc.ROOT, "prio", attr(tc.TCA_OPTIONS, bytes([3, 0, 0, 0, *[0] * 16]))),
            "bfifo": tc.qdisc(port, 0x10000, tc.ROOT, "bfifo", byte_limit),
            "htb": tc.htb_root(port, 0x10000, 0x20),
        }.items():
            self.found[kind] = self._try(netlink, kind, request)
            if self.found[kind]:
                netlink.request(*tc.delete_qdisc(port, 0x10000, tc.ROOT))
        self.found["netem_seed"] = self.found["netem_seed"] and self.found["netem"]
        self.found["clsact"] = self._try(netlink, "clsact", tc.clsact(peer))
        if self.found["clsact"]:
            self.found["cls_bpf"] = self._try(netlink, "cls_bpf", tc.classic_filter(peer))
            if self.found["ifb"]:
                self.found["redirect"] = self._try(netlink, "redirect", tc.redirect_filter(peer, links["p2"][0]))

    def _try(self, netlink: Netlink, name: str, request: tc.Request) -> bool:
        kind, flags, body, what = request
        try:
            netlink.request(kind, flags | NLM_F_ACK, body, what)
        except NetlinkError as exc:
            if exc.code in (errno.EPERM, errno.EACCES):
                raise
            self._reasons[name] = exc.what
            return False
        return True
