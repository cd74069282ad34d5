"""The tables of a run as frames and as files.

Equal frames give equal bytes on disk: the schemas are fixed, and no index, time of writing or library state enters them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TABLES = ("flows", "queues", "histogram", "rates")
COLUMNS = {"flows": "slowdown", "queues": "backlog_bytes", "histogram": "packets", "rates": "rate_bps"}
"""A column that each table has and no other."""
DAMAGED = "the file is damaged: `fabriclab rerun` makes the run again from its manifest.json"


@dataclass(frozen=True)
class Tables:
    """The tables of one run as pandas frames, and its events in order of time.

    `flows` one row a transfer; `queues` one row a port, class and sample (counters cumulative, null where the kernel
    cannot tell, a row of nulls where sampling rounds are missing); `histogram` packets by the backlog they met; `rates`
    what congestion control did; `events` dicts with `time_ns` and `kind`.
    """

    flows: pd.DataFrame
    queues: pd.DataFrame
    histogram: pd.DataFrame
    rates: pd.DataFrame
    events: list[dict[str, Any]]

    def write(self, run_dir: Path) -> None:
        """Write `*.parquet` and `events.jsonl` into the run directory."""
        import pyarrow.parquet as pq

        for name in TABLES:
            pq.write_table(arrow(name, getattr(self, name)), run_dir / f"{name}.parquet", compression="zstd")
        lines = [json.dumps(e, separators=(",", ":"), ensure_ascii=False, sort_keys=True) + "\n" for e in self.events]
        (run_dir / "events.jsonl").write_text("".join(lines), encoding="utf-8")

    @classmethod
    def read(cls, run_dir: Path) -> Tables:
        """The tables as `write` left them."""
        flows, queues, histogram, rates = (read_table(run_dir, name) for name in TABLES)
        return cls(flows, queues, histogram, rates, read_events(run_dir))


def read_table(run_dir: Path, name: str) -> pd.DataFrame:
    """One table of a run directory."""
    import pyarrow.parquet as pq

    path = run_dir / f"{name}.parquet"
    with readable(path):
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
    if COLUMNS[name] not in frame:
        raise UsageError(f"the table has no column {COLUMNS[name]}: it is another one", where=str(path), remedy=DAMAGED)
    return frame


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Reading a table in the block; what is wrong with its file is a UsageError."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"the table cannot be read: {error}", where=str(path), remedy=DAMAGED) from error


def read_events(run_dir: Path) -> list[dict[str, Any]]:
    """The events of a run directory."""
    path = run_dir / "events.jsonl"
    if not path.is_file():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise UsageError(f"a line is no JSON: {error}", where=str(path), remedy=DAMAGED) from error


def arrow(name: str, frame: pd.DataFrame) -> pa.Table:
    """The frame with the fixed schema of its table."""
    import pyarrow as pa

    table = pa.Table.from_pandas(frame, schema=_schema(name, list(frame.columns)), preserve_index=False)
    return table.replace_schema_metadata(None)  # pandas notes its own version there


def _schema(name: str, columns: list[str]) -> pa.Schema:
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    if name == "flows":
        kinds = {"src": pa.string(), "dst": pa.string(), "slowdown": pa.float64()}
        return pa.schema([(c, kinds.get(c, pa.int64())) for c in columns])
    if name == "queues":
        return pa.schema([(c, text if c in ("port", "class") else pa.int64()) for c in columns])
    if name == "histogram":
        return pa.schema([(c, pa.string() if c in ("port", "class") else pa.int64()) for c in columns])
    ints = ("time_ns", "flow", "qp")
    return pa.schema(
        [
            (c, pa.int64() if c in ints else pa.string() if c in ("trigger", "state", "stage") else pa.float64())
            for c in columns
        ]
    )
