"""Measures the size of the data files that Java Paimon writes for the same rows, for a comparison with ours.

The Java oracle reads the rows from JSON. So only the sizes are comparable, not the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.clock import bytes_below
from benchmarks.rows import load
from tests.support.java_oracle import JavaOracle

_TYPES = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.decimal128(18, 2): "DECIMAL(18, 2)",
    pa.timestamp("ms"): "TIMESTAMP(3)",
}


def java_file_bytes(warehouse: Path, files: Sequence[str], key: Sequence[str], options: Mapping[str, str]) -> int:
    """Write the rows with Java. Returns the size of its data files.

    warehouse: a new warehouse.
    files: Arrow files, one per commit.
    """
    java = JavaOracle()
    try:
        for commit, path in enumerate(files, 1):
            rows = load(path, key)
            if commit == 1:
                columns = [{"name": f.name, "type": _TYPES[f.type], "nullable": f.nullable} for f in rows.schema]
                java.create(warehouse, "bench.rows", columns, primary_keys=key, options=options)
            java.write(warehouse, "bench.rows", _as_json(rows), commit_user="bench", commit_id=commit)
    finally:
        java.close()
    return bytes_below(str(warehouse), "data-")


def _as_json(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows as the Java oracle reads them: decimals and times are texts."""
    columns = [
        column.cast(pa.string()) if pa.types.is_decimal(column.type) or pa.types.is_timestamp(column.type) else column
        for column in rows.columns
    ]
    for values in zip(*(column.to_pylist() for column in columns), strict=True):
        yield dict(zip(rows.schema.names, values, strict=True))
