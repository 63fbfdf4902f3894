"""Applies the changelog of a table row by row: the naive copy that a follower keeps. If changes are the written rows,
the copy is a table with the same merge engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tidelake.compaction.merge_tree.compact_unit import PickReason
from tidelake.scan import Scan
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.model.format import COMPACTION_REASON_PROPERTY, KIND_COLUMN, RowKind
from tidelake.storage.model.options import ChangelogProducer, MergeEngine
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.table import Table

Rows = dict[tuple[Any, ...], dict[str, Any]]


class BadChangelog(AssertionError):
    """Changes that no history of the key has."""


def fold(rows: Rows, changes: Iterable[dict[str, Any]], keys: tuple[str, ...]) -> None:
    """Applies changes of one snapshot. Raises BadChangelog where kinds don't follow one another as they should: +I of
    a key that is there, -U without its +U, -U or -D of another row than the one that is there.
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
    """At every snapshot with a changelog, the changes up to it add up to the table. Returns the number of such
    snapshots.

    With `full-compaction`, also what is not due for a full compaction may reach the highest level, a bucket at a time:
    what was folded is then what lies on that level, of all buckets.

    For tables whose snapshots are all there, and whose changelog is made by compactions that take in all of a commit.
    """
    options = table.context.options
    keys = table.context.schema.primary_keys
    ignored = set(options.changelog_row_deduplicate_ignore_fields)  # may change without a changelog
    are_all_new = options.merge_engine is MergeEngine.FIRST_ROW  # with the kinds that they came with
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
    """At every snapshot, what was told up to it, merged by the table's own engine, is the table. Returns how many
    snapshots told something. For `none` and `input`.

    copy: an empty table of the same engine, which takes the changes of each snapshot in a commit.

    Rows of level 0 are rows of the table. Of a first-row table no reader shows them: it is compared where it has none.

    For tables whose snapshots are all there. Where an engine makes another row of a key when some of its rows are
    merged before the others, neither table may be compacted.
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
    """What all changes up to a snapshot with a changelog come to."""
    context = table.context
    snapshot = next(s for s in table.snapshots() if s.id == snapshot_id)
    reason = snapshot.properties.get(COMPACTION_REASON_PROPERTY, PickReason.FULL)  # Java names none
    if context.options.changelog_producer is not ChangelogProducer.FULL_COMPACTION or PickReason.FULL in reason:
        yield table.scan(snapshot=snapshot_id).to_arrow(), "the table"
    if context.options.changelog_producer is ChangelogProducer.FULL_COMPACTION:
        highest = TableScan(context, keep_entry=lambda entry: entry.file.level == context.options.num_levels - 1)
        reader = SnapshotReader(context, context.schema.names)
        yield pa.Table.from_batches(reader.read(highest.plan(snapshot)), reader.schema), "the highest level"


def _without(ignored: set[str], rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return the rows without nulls. A column that was added later is null in changes, and older states lack it."""
    found = rows.select([n for n in rows.schema.names if n not in ignored]).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]
