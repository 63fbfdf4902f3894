"""Replays a table's changelog row by row, and compares the copy with the table.

If the changes are the rows as they were written, the copy is a table of the same engine into which they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from compaction.merge_tree.compact_unit import PickReason
from storage.format import COMPACTION_REASON_PROPERTY, KIND_COLUMN, RowKind
from storage.manifests.snapshot_files import live_entries
from storage.options import ChangelogProducer, MergeEngine
from storage.read.scan import TableScan
from storage.read.snapshot_reader import SnapshotReader
from tidelake.scan import Scan
from tidelake.table import Table

Rows = dict[tuple[Any, ...], dict[str, Any]]


class BadChangelog(AssertionError):
    """The changes of a key contradict each other."""


def fold(rows: Rows, changes: Iterable[dict[str, Any]], keys: tuple[str, ...]) -> None:
    """Applies the changes of one snapshot.

    Raises BadChangelog if the changes contradict the rows: +I of an existing key, -U without its +U, -U or -D with
    another row than the existing one.
    """
    awaited: tuple[Any, ...] | None = None
    for change in changes:
        kind = RowKind(change.pop(KIND_COLUMN))
        key = tuple(change[name] for name in keys)
        if (awaited is not None) is not (kind is RowKind.UPDATE_AFTER) or awaited not in (None, key):
            raise BadChangelog(f"{kind.symbol} of {key} where +U of {awaited} should come")
        if kind.is_retract and rows.get(key) != change:
            raise BadChangelog(f"{kind.symbol} of {change}, and the row is {rows.get(key)}")
        if kind is RowKind.INSERT and key in rows:
            raise BadChangelog(f"+I of {change}, and there is {rows[key]}")
        awaited = key if kind is RowKind.UPDATE_BEFORE else None
        if kind.is_retract:
            del rows[key]
        else:
            rows[key] = change
    if awaited is not None:
        raise BadChangelog(f"-U of {awaited} without +U")


def check_changelog(table: Table) -> int:
    """Checks at each snapshot with a changelog that all changes up to it give the table.

    Returns the number of these snapshots.

    With `full-compaction`, single buckets may be compacted to the highest level without a full compaction of the table.
    Then the changes give the rows of the highest level of all buckets.

    The table must have all its snapshots, and its compactions must always include all rows of a commit.
    """
    options = table.context.options
    keys = table.context.schema.primary_keys
    ignored = set(options.changelog_row_deduplicate_ignore_fields)  # they may change without a change in the changelog
    are_all_new = options.merge_engine is MergeEngine.FIRST_ROW  # the changes keep the row kinds that were written
    rows: Rows = {}
    carrying = [s.id for s in table.snapshots() if s.changelog_manifest_list is not None]
    for snapshot_id in carrying:
        batches = table.changes(start=snapshot_id, end=snapshot_id)
        changes = [row for batch in batches for row in _without(ignored, batch.rows)]
        fold(rows, [row | {KIND_COLUMN: RowKind.INSERT} for row in changes] if are_all_new else changes, keys)
        for there, of_what in _states(table, snapshot_id):
            expected = {tuple(row[name] for name in keys): row for row in _without(ignored, there)}
            assert rows == expected, f"snapshot {snapshot_id}: folded {rows}, and {of_what} has {expected}"
    return len(carrying)


def check_written_rows(table: Table, copy: Table) -> int:
    """Checks at each snapshot that all changes up to it, merged by the table's engine, give the table.

    Returns the number of snapshots with changes. For the changelog producers `none` and `input`.

    copy: an empty table of the same engine. The changes of each snapshot are written to it in one commit.

    Rows of level 0 count as rows of the table. Readers of a first-row table don't show them, so such a table is only
    compared at snapshots without files on level 0.

    The table must have all its snapshots. If the engine's result depends on which rows of a key are merged first,
    neither table may be compacted.
    """
    table = Table(table.context.with_options({"deletion-vectors.merge-on-read": "true"}))
    keys = table.context.schema.primary_keys
    shows_level_0 = table.context.options.merge_engine is not MergeEngine.FIRST_ROW
    telling = 0
    with copy.writer() as writer:
        for snapshot in table.snapshots():
            batches = list(table.changes(start=snapshot.id, end=snapshot.id))
            for batch in batches:
                writer.write(pa.table(batch.rows))
            if batches:
                writer.commit()
                telling += 1
            if not shows_level_0 and any(entry.file.level == 0 for entry in live_entries(table.context, snapshot)):
                continue
            merged, there = (_by_key(rows, keys) for rows in (copy.scan(), table.scan(snapshot=snapshot.id)))
            assert merged == there, f"snapshot {snapshot.id}: merged {merged}, and the table has {there}"
    return telling


def _by_key(rows: Scan, keys: tuple[str, ...]) -> Rows:
    return {tuple(row[name] for name in keys): row for row in rows.to_arrow().to_pylist()}


def _states(table: Table, snapshot_id: int) -> Iterator[tuple[pa.Table, str]]:
    """Yields the rows that all changes up to a snapshot must give, and the name of this state."""
    context = table.context
    snapshot = next(s for s in table.snapshots() if s.id == snapshot_id)
    reason = snapshot.properties.get(COMPACTION_REASON_PROPERTY, PickReason.FULL)  # Java stores no reason
    if context.options.changelog_producer is not ChangelogProducer.FULL_COMPACTION or PickReason.FULL in reason:
        yield table.scan(snapshot=snapshot_id).to_arrow(), "the table"
    if context.options.changelog_producer is ChangelogProducer.FULL_COMPACTION:
        highest = TableScan(context, keep_entry=lambda entry: entry.file.level == context.options.num_levels - 1)
        reader = SnapshotReader(context, context.schema.names)
        yield pa.Table.from_batches(reader.read(highest.plan(snapshot)), reader.schema), "the highest level"


def _without(ignored: set[str], rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.select([n for n in rows.schema.names if n not in ignored]).to_pylist()
    return found
