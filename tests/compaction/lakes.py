"""Small tables with level-0 files and small files for a compaction job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import tidelake
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.table import TableContext

COLUMNS: Final = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), pa.field("p", pa.string(), nullable=False)]
)
Rows = Sequence[tuple[int, str | None, str]]


def new_table(
    warehouse: Path | str,
    *,
    keyed: bool = False,
    partitioned: bool = False,
    options: Mapping[str, str] | None = None,
    name: str = "db.t",
    columns: pa.Schema = COLUMNS,
) -> tidelake.Table:
    """Write-only. keyed: by k (and p, where partitioned); else an append table, without buckets unless options say."""
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database(name.partition(".")[0], if_not_exists=True)
    partition = ["p"] if partitioned else []
    key = [*partition, "k"] if keyed else []
    return catalog.create_table(
        name, columns, primary_key=key, partition_by=partition, options={"write-only": "true", **(options or {})}
    )


def write(table: tidelake.Table, *commits: Rows) -> None:
    """A snapshot each."""
    for rows in commits:
        with table.writer() as writer:
            writer.write(pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], COLUMNS))
            writer.commit()


def commits(count: int, *, rows: int = 4, partitions: str = "a") -> list[Rows]:
    """Every commit has keys of its own and some of the one before."""
    return [[(3 * n + i, f"{n}", p) for i in range(rows) for p in partitions] for n in range(count)]


def content(table: tidelake.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def file_counts(context: TableContext) -> dict[tuple[str, int, int], int]:
    """(partition as text, bucket, level) -> how many files."""
    latest = context.snapshots.latest()
    counts: dict[tuple[str, int, int], int] = {}
    for entry in live_entries(context, latest) if latest is not None else ():
        place = partition_directory(context, entry.partition), entry.bucket, entry.file.level
        counts[place] = counts.get(place, 0) + 1
    return counts


def orphans(context: TableContext) -> set[str]:
    """Data files that no snapshot names."""
    store = context.snapshots
    named = {entry.file.file_name for snapshot in store.all() for entry in live_entries(context, snapshot)}
    return {name for name in _data_files(context.io, context.location) if name not in named}


def _data_files(io: FileIO, directory: str) -> set[str]:
    found: set[str] = set()
    for entry in io.list_directory(directory):
        if entry.is_directory:
            found |= _data_files(io, f"{directory}/{entry.name}")
        elif entry.name.startswith("data-"):
            found.add(entry.name)
    return found


def with_io(table: tidelake.Table, io: FileIO) -> TableContext:
    """The same table, reached through another FileIO."""
    return TableContext.open(io, table.location, table.name)


def local_io(warehouse: Path | str) -> FileIO:
    return open_file_io(str(warehouse), {})
