"""Counts a table's rows and the values of its columns, and commits the statistics.

A snapshot of kind ANALYZE names the statistics file. Later snapshots name it, too, until the schema changes.

Source: Java `stats/Statistics.java`, `StatsFileHandler.java`; Spark's `PaimonAnalyzeTableColumnCommand`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.base.pretty_json import pretty_json
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.maintenance.analysis.column_summary import ColumnSummary, can_be_summed_up
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The statistics of a table.

    snapshot_id: the snapshot whose rows were counted.
    merged_record_count: the number of rows after merging.
    merged_record_size: the bytes of the files, multiplied by the share of their rows that remain after merging.
    columns: by name, as in the file: colId, distinctCount, min, max (texts), nullCount, avgLen, maxLen.
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None
    merged_record_size: int | None
    columns: dict[str, dict[str, Any]]


def analyze(context: TableContext, columns: Sequence[str] | None = None) -> int | None:
    """Count rows and values, and commit the statistics.

    columns: the columns to count. None is all whose values can be counted. An empty list counts rows only.

    Returns the snapshot that names the statistics; None for a table without snapshots. Raises BadInput for a column
    that doesn't exist, UnsupportedFeature for a column whose type can't be counted.
    """
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return None
    found = _count(context, snapshot, _fields(context, columns))
    name = f"stat-{env.new_uuid()}-0"
    context.io.create_if_absent(context.paths.statistics(name), pretty_json(_to_json(found)).encode())
    return TableCommit(context, new_commit_user(context.options)).add_statistics(name)


def read_statistics(context: TableContext, snapshot: Snapshot) -> TableStatistics | None:
    """Return the statistics that a snapshot names. Raises CorruptFile."""
    if snapshot.statistics is None:
        return None
    path = context.paths.statistics(snapshot.statistics)
    try:
        stored = json.loads(context.io.read(path))
        return TableStatistics(
            int(stored["snapshotId"]),
            int(stored["schemaId"]),
            stored.get("mergedRecordCount"),
            stored.get("mergedRecordSize"),
            dict(stored.get("colStats") or {}),
        )
    except FileNotFoundError:
        raise CorruptFile(path, "statistics that a snapshot references", "no file") from None
    except (ValueError, KeyError, TypeError) as e:
        raise CorruptFile(path, "the JSON of statistics", str(e)) from None


def _fields(context: TableContext, columns: Sequence[str] | None) -> list[DataField]:
    by_name = context.schema.by_name
    if columns is None:
        return [field for field in context.schema.fields if can_be_summed_up(field)]
    for name in columns:
        if name not in by_name:
            raise BadInput(f"{context.name} has no column {name!r}; there are: {', '.join(by_name)}")
        if not can_be_summed_up(by_name[name]):
            raise UnsupportedFeature(
                f"statistics of column {name} ({by_name[name].type})",
                "its values have no order, and are not counted",
                "Name other columns, or none: then all that can be counted are",
            )
    return [by_name[name] for name in dict.fromkeys(columns)]


def _count(context: TableContext, snapshot: Snapshot, fields: Sequence[DataField]) -> TableStatistics:
    summaries = [ColumnSummary(field) for field in fields]
    names = tuple(field.name for field in fields) or context.schema.names[:1]
    with raise_if_snapshot_expired(context, snapshot.id):
        size = sum(entry.file.file_size for entry in live_entries(context, snapshot))
        rows = 0
        for batch in SnapshotReader(context, names).read(TableScan(context).plan(snapshot)):
            rows += len(batch)
            for summary, column in zip(summaries, batch.columns, strict=False):
                summary.add(column)
    stored = snapshot.total_record_count
    return TableStatistics(
        snapshot.id,
        snapshot.schema_id,
        rows,
        size * rows // stored if stored else 0,
        {field.name: summary.to_json() for field, summary in zip(fields, summaries, strict=True)},
    )


def _to_json(found: TableStatistics) -> dict[str, Any]:
    return {
        "snapshotId": found.snapshot_id,
        "schemaId": found.schema_id,
        "mergedRecordCount": found.merged_record_count,
        "mergedRecordSize": found.merged_record_size,
        "colStats": found.columns,
    }
