"""The same rows written by Tidelake and by Java have the same metadata: buckets, key ranges, statistics, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest

from tests.interop.conftest import NewTable
from tests.interop.layouts import LAYOUTS, Layout
from tests.interop.shared_table import NAME, SharedTable
from tests.support.expected import Json, json_values
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.fileio import open_file_io
from tidelake.storage.files.data_file import EMPTY_STATS, DataFileMeta, SimpleStats
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField

Bounds: TypeAlias = Mapping[str, tuple[Json, Json, int | None]]  # column -> smallest, largest, nulls

# Bounds that Java keeps otherwise, by format and column; ours hold every value too. Nulls are counted alike.
OTHERWISE: Final = {
    ("orc", "binary"): "its ORC library keeps no bounds of bytes",
    ("orc", "varbinary"): "its ORC library keeps no bounds of bytes",
    ("orc", "bytes"): "its ORC library keeps no bounds of bytes",
    ("orc", "float"): "its ORC library passes over NaN: the largest is infinity",
    ("orc", "double"): "its ORC library passes over NaN: the largest is infinity",
    ("orc", "char"): "they are of the values filled with blanks",
    ("parquet", "timestamp_ns"): "INT96 has no statistics",
    ("parquet", "timestamp_ns_ltz"): "INT96 has no statistics",
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
def test_file_metadata_equals_javas(layout: Layout, new_table: NewTable) -> None:
    ours, javas = (
        new_table(
            layout.columns,
            primary_key=layout.key,
            partition_by=layout.partition,
            options={**layout.options, "write-only": "true"},  # else Java compacts
            folder=writer,
        )
        for writer in ("we", "java")
    )
    for turn in range(2):
        rows = layout.rows(range(40), [3 if n % 7 == 3 else 0 for n in range(40)] if layout.key else None, turn=turn)
        ours.write(rows)
        javas.java_writes(rows)
    otherwise = frozenset(column for file_format, column in OTHERWISE if file_format == layout.format_of_level_0)
    assert described(ours, otherwise) == described(javas, otherwise)


def described(
    table: SharedTable, otherwise: frozenset[str]
) -> dict[BucketId, list[tuple[DataFileMeta, Bounds, Bounds]]]:
    """The files of each bucket, in commit order: without what must differ (names, sizes, times), and their statistics
    in words. otherwise: columns whose bounds are left out.
    """
    context = FileSystemCatalog(open_file_io("/"), str(table.warehouse)).load(NAME)
    latest = context.snapshots.latest()
    assert latest is not None
    found: dict[BucketId, list[tuple[DataFileMeta, Bounds, Bounds]]] = {}
    for entry in live_entries(context, latest):
        file = entry.file
        plain = replace(
            file, file_name="", file_size=0, creation_time_ms=0, key_stats=EMPTY_STATS, value_stats=EMPTY_STATS
        )
        if entry.total_buckets == -1:  # Java's writers all begin at 0: nothing is ordered by these numbers
            plain = replace(plain, min_sequence_number=0, max_sequence_number=0)
        keys = in_words(file.key_stats, context.schema.key_fields, frozenset())
        values = in_words(file.value_stats, value_fields(context, file), otherwise)
        found.setdefault(entry.bucket_id, []).append((plain, keys, values))
    return found


def value_fields(context: TableContext, file: DataFileMeta) -> Sequence[DataField]:
    names = file.value_stats_columns
    return context.schema.fields if names is None else context.schema.select(names)


def in_words(stats: SimpleStats, fields: Sequence[DataField], otherwise: frozenset[str]) -> Bounds:
    if not stats.null_counts:
        return {}
    minimum, maximum = (decode_rows([row], [f.type for f in fields]) for row in (stats.min_values, stats.max_values))
    return {
        f.name: (
            *((None, None) if f.name in otherwise else (_bound(minimum[i]), _bound(maximum[i]))),
            stats.null_counts[i],
        )
        for i, f in enumerate(fields)
    }


def _bound(column: Any) -> Json:
    (value,) = json_values(column)
    return 0.0 if value == 0 else value  # which of the two zeros is no matter
