"""Writes tables of ten sorted runs on level 0 with overlapping keys, as input of reads and compactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from unittest.mock import patch

import tidelake
from benchmarks.flush import WARM_UP_ROWS
from benchmarks.rows import generate
from tidelake.storage.files.formats import parquet_writer

TABLE: Final = "rows"
WARM_UP_TABLE: Final = "warm_up"
_OPTIONS: Final = {"bucket": "1", "write-only": "true", "file.compression": "zstd"}


def write_runs(
    warehouse: str,
    workload: str,
    scale: float,
    options: Mapping[str, str] | None = None,
    *,
    one_row_group: bool = False,
) -> None:
    """Write `bench.rows`, ten commits of one file each, and `bench.warm_up`, the same with a few rows.

    one_row_group: each file has a single row group, of 128 MiB and more, as Java would write it.
    """
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench")
    held_bytes = 1 << 40 if one_row_group else parquet_writer.ROW_GROUP_HELD_BYTES
    with patch.object(parquet_writer, "ROW_GROUP_HELD_BYTES", held_bytes):
        for name, rows_max in ((WARM_UP_TABLE, WARM_UP_ROWS), (TABLE, None)):
            _write(catalog, f"bench.{name}", workload, scale, _OPTIONS | dict(options or {}), rows_max)


def _write(
    catalog: tidelake.Catalog,
    name: str,
    workload: str,
    scale: float,
    options: Mapping[str, str],
    rows_max: int | None,
) -> None:
    commits = generate(workload, scale)
    first = next(commits)
    with catalog.create_table(name, first.schema, primary_key=["id"], options=options).writer() as writer:
        for identifier, rows in enumerate((first, *commits), 1):
            writer.write(rows if rows_max is None else rows.slice(0, rows_max))
            writer.commit(identifier)
