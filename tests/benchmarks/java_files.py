"""The bytes of the data files that Java Paimon makes of the same rows: what ours are compared with.

Through the Java oracle, which reads rows from JSON: so the sizes count, and its time does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.benchmarks.clock import bytes_below
from tests.support.java_oracle import JavaOracle

_TYPES = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.decimal128(18, 2): "DECIMAL(18, 2)",
    pa.timestamp("ms"): "TIMESTAMP(3)",
}


def java_file_bytes(scratch: Path, files: Sequence[str], key: Sequence[str], options: Mapping[str, str]) -> int:
    """files: Arrow files, one a commit."""
    warehouse = scratch / "java"
    name = f"bench.rows_{'_'.join(key)}_{options['bucket']}"
    java = JavaOracle()
    try:
        for commit, path in enumerate(files, 1):
            with pa.memory_map(path) as file:
                rows = pa.ipc.open_file(file).read_all()
            if commit == 1:
                columns = [{"name": f.name, "type": _TYPES[f.type], "nullable": f.name not in key} for f in rows.schema]
                java.create(warehouse, name, columns, primary_keys=key, options={**options, "write-only": "true"})
            lines = scratch / "rows.jsonl"
            _write_lines(rows, lines)
            java.command("write", warehouse, name, input=str(lines), commit_user="bench", commit_id=commit)
    finally:
        java.close()
    return bytes_below(str(warehouse), "data-")


def _write_lines(rows: pa.Table, path: Path) -> None:
    """As the oracle reads them: decimals and times are texts."""
    columns: dict[str, list[Any]] = {
        name: column.cast(pa.string()).to_pylist()
        if pa.types.is_decimal(column.type) or pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    with path.open("w", encoding="ascii") as file:
        for values in zip(*columns.values(), strict=True):
            file.write(json.dumps(dict(zip(columns, values, strict=True))) + "\n")
