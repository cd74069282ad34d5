"""The queue samples of a run by port and class, straight from the file: millions of rows in about a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.collect.store import readable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Series:
    """The samples of one port and class in order of time: ns, bytes, packets queued so far; NaN where missing."""

    port: str
    cls: str
    time: NDArray[np.float64]
    backlog: NDArray[np.float64]
    enqueued: NDArray[np.float64]


def read_series(run_dir: Path) -> list[Series]:
    """Every series of `queues.parquet`, by class and port in the order of the file's categories."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["time_ns", "port", "class", "backlog_bytes", "enqueued"]
    path = run_dir / "queues.parquet"
    with readable(path):
        stored = pq.read_table(path, columns=columns, read_dictionary=["port", "class"])
    table = stored.unify_dictionaries()
    if not table.num_rows:
        return []
    codes, names = [], []
    for column in ("class", "port"):
        coded = table.column(column).combine_chunks()
        codes.append(coded.indices.to_numpy(zero_copy_only=False))
        names.append([str(v) for v in coded.dictionary.to_pylist()])
    key = codes[0].astype(np.int64) * len(names[1]) + codes[1]
    order = np.argsort(key.astype(np.uint16) if key.max() < 2**16 else key, kind="stable")
    key = key[order]
    starts = np.append(0, np.flatnonzero(np.diff(key)) + 1)
    parts = []
    for column in ("time_ns", "backlog_bytes", "enqueued"):
        values = table.column(column).cast(pa.float64()).to_numpy()
        parts.append(np.split(values[order], starts[1:]))
    heads = [divmod(int(k), len(names[1])) for k in key[starts]]
    return [Series(names[1][p], names[0][c], *arrays) for (c, p), *arrays in zip(heads, *parts, strict=True)]
