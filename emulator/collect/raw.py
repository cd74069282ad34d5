"""Reads what a run left in `raw/` (docs/raw-results.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import FabricError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CLASSES = ("control", "data", "trimmed")
"""Names of the classes by their number in `samples.npz`."""


FILES = {
    "worker": "worker.json",
    "ports": "ports.json",
    "plan": "plan.json",
    "samples": "samples.npz",
    "applied": "applied.json",
    "softnet": "softnet.json",
    "features": "features.json",
    "probes": "probes.json",
    "paths": "paths.json",
    "program": "program.json",
}


@dataclass(frozen=True, eq=False)
class Raw(Mapping[str, Any]):
    """The raw results of one run; each file is read once, when first asked for.

    As attributes: `worker`, `ports` and `plan` must be there, what else is missing reads as empty. As a mapping: the files
    that are there, by their names without ending.
    """

    folder: Path

    def __getitem__(self, name: str) -> Any:
        if name not in FILES or not (self.folder / FILES[name]).is_file():
            raise KeyError(name)
        if name in ("ports", "samples"):
            return getattr(self, name)
        return self._kept(FILES[name])

    def __iter__(self) -> Iterator[str]:
        return (name for name, file in FILES.items() if (self.folder / file).is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _read(self) -> dict[str, Any]:
        return {}

    def _kept(self, file: str) -> Any:
        if file not in self._read:
            self._read[file] = read_json(self.folder / file)
        return self._read[file]

    @cached_property
    def worker(self) -> dict[str, Any]:
        """`worker.json`: what the agents measured."""
        return self._need("worker.json")

    @cached_property
    def ports(self) -> dict[str, dict[str, Any]]:
        """`ports.json`: every port's counters at the end, by port name in the order of the plan."""
        return dict(sorted(self._need("ports.json").items(), key=lambda item: int(item[1]["number"])))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """`plan.json`: the plan the fabric was built from."""
        return self._need("plan.json")

    @cached_property
    def applied(self) -> dict[str, Any]:
        """`applied.json`: what the kernel said on read-back."""
        return self._may("applied.json")

    @cached_property
    def softnet(self) -> dict[str, Any]:
        """`softnet.json`: the machine's own counters before and after."""
        return self._may("softnet.json")

    @cached_property
    def program(self) -> dict[str, Any]:
        """`program.json`: the processes of a program of the user and how they ended."""
        return self._may("program.json")

    @cached_property
    def path_names(self) -> dict[tuple[int, int, int], str]:
        """Switches behind (src, dst, UDP source port), as far as the run asked the kernel (`paths.json`)."""
        found = {}
        for key, ports in self._may("paths.json").items():
            src, dst, entropy = (int(n) for n in key.split("-"))
            found[src, dst, entropy] = ">".join(str(port).split(":")[0] for port in ports[1:])
        return found

    @cached_property
    def samples(self) -> Mapping[str, NDArray[np.int64]]:
        """`samples.npz` as arrays by name; empty arrays when the run kept no samples."""
        import numpy as np

        path = self.folder / "samples.npz"
        never = np.empty((0, 2), np.int64)
        names = ("time_ns", "port", "cls", "backlog_bytes", "enqueued", "dropped", "marked", "trimmed", "tick_ns")
        if not path.is_file():
            return {**{n: np.empty(0, np.int64) for n in names}, "period_ns": np.array(0), "slept_ns": never}
        with np.load(path, allow_pickle=False) as stored:
            kept = [name for name in ("tx_bytes", "slept_ns") if name in stored.files]
            return {"slept_ns": never, **{n: stored[n] for n in (*names, *kept, "period_ns")}}

    @cached_property
    def plan_ports(self) -> dict[str, dict[str, Any]]:
        """The plan's ports by name."""
        return {str(p["name"]): p for p in self.plan["ports"]}

    def _need(self, name: str) -> dict[str, Any]:
        if not (self.folder / name).is_file():
            raise FabricError(
                f"the raw results lack {name}",
                where=str(self.folder),
                remedy="the run did not get as far as measuring; see commands.log beside it",
            )
        return self._may(name)

    def _may(self, name: str) -> dict[str, Any]:
        content = self._kept(name) if (self.folder / name).is_file() else {}
        if not isinstance(content, dict):
            raise FabricError(f"{name} holds no object", where=str(self.folder / name), remedy="run again")
        return content


def read_json(path: Path) -> Any:
    """The content of a JSON file; FabricError where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FabricError(
            f"{path.name} is no JSON: {error}", where=str(path), remedy="the file was cut short; run again"
        ) from error
