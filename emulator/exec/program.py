"""What runs where: a command, its ranks and their hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from emulator.errors import UsageError
from emulator.topology.suggest import nearest

KIND: Final = "exec"
"""The workload's kind in experiment and manifest."""

RUNNING: Final = "running"
"""What the run says to whoever watches when a process of the program starts or ends: the names of those that run."""

MASTER_PORT: Final = 29500
"""Where rank 0 listens, as torchrun chooses."""

RANK_VARIABLES: Final = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "HOSTNAME",
    "FABRICLAB_HOST",
    "FABRICLAB_ADDRESS",
)
"""What differs from rank to rank in the environment; MPI's ranks have variables of their own."""

ComputeMode = Literal["free", "fixed", "measured"]


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of the program. `local` counts the ranks of one host."""

    rank: int
    host: str
    local: int


@dataclass(frozen=True)
class Program:
    """A command with all that decides how it runs.

    `hosts` take part, in this order; rank r runs on `hosts[r // ranks_per_host]`. `compute` says what a call of
    `emulator.compute` takes: nothing, `compute_ns` (the caller's own number if None), or what the CPU takes.
    `env` is put over the environment; `algorithms` names the algorithm of each collective of the backend `fabriclab`.
    """

    command: tuple[str, ...]
    hosts: tuple[str, ...]
    ranks: int
    ranks_per_host: int = 1
    mpi: bool = False
    compute: ComputeMode = "free"
    compute_ns: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = "/"
    algorithms: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return {**asdict(self), "command": list(self.command), "hosts": list(self.hosts)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Program:
        """From a resolved workload."""
        names = cls.__dataclass_fields__
        raw = {key: value for key, value in data.items() if key in names}
        return cls(**{**raw, "command": tuple(raw["command"]), "hosts": tuple(raw["hosts"])})

    def placement(self) -> tuple[Rank, ...]:
        """All ranks, in order."""
        k = self.ranks_per_host
        return tuple(Rank(r, self.hosts[r // k], r % k) for r in range(self.ranks))

    def on_host(self, host: str) -> int:
        """How many ranks run on a host."""
        return sum(rank.host == host for rank in self.placement())


def choose_hosts(
    known: Sequence[str], *, hosts: Sequence[str] | None, ranks: int | None, ranks_per_host: int
) -> tuple[tuple[str, ...], int]:
    """The hosts that take part and the number of ranks. `hosts` are names or numbers; raises UsageError."""
    if hosts is None:
        wanted = len(known) if ranks is None else -(-ranks // ranks_per_host)
        if wanted > len(known):
            raise UsageError(
                f"{ranks} ranks do not fit on {len(known)} hosts with {ranks_per_host} each",
                where="--ranks",
                remedy=f"use at most {len(known) * ranks_per_host}, more --ranks-per-host, or a larger topology",
            )
        chosen = list(known[:wanted])
    else:
        chosen = [_host(word, known) for word in hosts]
        twice = next((name for i, name in enumerate(chosen) if name in chosen[:i]), None)
        if twice is not None:
            raise UsageError(f"{twice} is named twice", where="--hosts", remedy="use --ranks-per-host for more ranks")
    count = len(chosen) * ranks_per_host if ranks is None else ranks
    if not 0 < count <= len(chosen) * ranks_per_host:
        raise UsageError(
            f"{count} ranks do not fit on {len(chosen)} hosts with {ranks_per_host} each",
            where="--ranks",
            remedy=f"use 1 to {len(chosen) * ranks_per_host}, or name more --hosts",
        )
    return tuple(chosen[: -(-count // ranks_per_host)]), count


def _host(word: str, known: Sequence[str]) -> str:
    name = word if word in known else f"host{word}"
    if name not in known:
        raise UsageError(
            f'no host "{word}"; {nearest(word, known)}', where="--hosts", remedy="see `fabriclab topo show`"
        )
    return name


def rank_environment(
    program: Program,
    rank: Rank,
    *,
    address: str,
    interface: str,
    peers: Sequence[str],
    base: Mapping[str, str],
) -> dict[str, str]:
    """What a rank finds in its environment: as torchrun sets it, and the host's name, address and interface.

    `peers` are the addresses of `program.hosts`. Variables of OpenMP and BLAS keep one thread a rank, unless `base` says more.
    """
    per_host = program.on_host(rank.host)
    threads = {name: base.get(name, "1") for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {
        **base,
        **threads,
        "RANK": str(rank.rank),
        "WORLD_SIZE": str(program.ranks),
        "LOCAL_RANK": str(rank.local),
        "LOCAL_WORLD_SIZE": str(per_host),
        "GROUP_RANK": str(program.hosts.index(rank.host)),
        "GROUP_WORLD_SIZE": str(len(program.hosts)),
        "MASTER_ADDR": peers[0],
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
        "HOSTNAME": rank.host,
        "FABRICLAB_HOST": rank.host,
        "FABRICLAB_ADDRESS": address,
        "FABRICLAB_PEERS": ",".join(peers),
        "PYTHONUNBUFFERED": "1",
        **program.env,
    }
