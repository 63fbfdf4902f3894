"""What an overwrite replaces, and what it adds.

Source: Java `operation/commit/OverwriteChangesProvider.java`, `FileStoreCommitImpl.tryUpgrade`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.commit.commit_changes import CommitChanges, commit_changes
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.conflicts import first_overlap
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries_of
from tidelake.storage.merge.sorted_run import key_ranges
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.format import POSTPONE_BUCKET, CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataType, arrow_type, exact_scalar


def delete_entries(live: Sequence[ManifestEntry], table_bucket: int, *, drop_stats: bool) -> list[ManifestEntry]:
    """Return a DELETE for each file. Postponed files (bucket -2) stay, unless the table has `bucket = -2`."""
    return [
        entry.as_delete(drop_stats=drop_stats) for entry in live if entry.bucket >= 0 or table_bucket == POSTPONE_BUCKET
    ]


def matching_partitions(
    partitions: Collection[bytes], specs: Sequence[Mapping[str, Any]], context: TableContext
) -> set[bytes]:
    """Return the partitions that match one of the specs.

    specs: column -> value (None or the text of `partition.default-name` for null). Columns that are left out match any
        value. A text is converted to the column's type.

    Raises BadInput for a column that is no partition column, or a value that is not of its type.
    """
    fields = context.schema.partition_fields
    types = {field.name: field.type for field in fields}
    wanted = [_typed(spec, types, context) for spec in specs]
    if not partitions or not fields:
        return set(partitions)
    rows = sorted(partitions)
    columns = dict(zip(types, decode_rows(rows, list(types.values())), strict=True))
    return {row for i, row in enumerate(rows) if any(_matches_spec(spec, columns, i) for spec in wanted)}


def _typed(spec: Mapping[str, Any], types: Mapping[str, DataType], context: TableContext) -> dict[str, pa.Scalar]:
    unknown = [name for name in spec if name not in types]
    if unknown:
        by = f"is partitioned by {', '.join(types)}" if types else "is not partitioned"
        raise BadInput(f"{context.name} {by}; {unknown[0]!r} can't select partitions")
    typed = {}
    for name, value in spec.items():
        given = None if value == context.options.partition_default_name else value
        try:
            typed[name] = exact_scalar(given, arrow_type(types[name]))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as e:
            raise BadInput(
                f"{context.name}: {value!r} is not a valid value of partition column {name} ({types[name]}): {e}"
            ) from None
    return typed


def _matches_spec(spec: Mapping[str, pa.Scalar], columns: Mapping[str, pa.Array], row: int) -> bool:
    return all(_same(value, columns[name][row]) for name, value in spec.items())


def _same(one: pa.Scalar, other: pa.Scalar) -> bool:
    if one.is_valid and other.is_valid:
        return bool(pc.equal(one, other).as_py())
    return bool(one.is_valid == other.is_valid)


def upgraded(new: Sequence[ManifestEntry], key_types: Sequence[DataType], top_level: int) -> list[ManifestEntry]:
    """Move files that replace a bucket to the top level if they don't overlap: the bucket has no other files.

    It changes nothing unless all files are of level 0 and in real buckets.
    """
    if any(entry.file.level > 0 or entry.bucket < 0 or entry.kind is not FileKind.ADD for entry in new):
        return list(new)
    buckets: dict[BucketId, list[ManifestEntry]] = defaultdict(list)
    for entry in new:
        buckets[entry.bucket_id].append(entry)
    result: list[ManifestEntry] = []
    for entries in buckets.values():
        overlaps = first_overlap(key_ranges([entry.file for entry in entries], key_types)) is not None
        level = 0 if overlaps else top_level
        result += [replace(entry, file=replace(entry.file, level=level)) for entry in entries]
    return result


@dataclass(frozen=True, slots=True)
class Replacement:
    """Computes what an overwrite replaces: live files of the given partitions that match one of the specs.

    It is computed again for every attempt, so files that others added in the meantime are replaced, too.

    written: the files that replace them
    partitions: None: all
    specs: see `matching_partitions`; None: all
    """

    context: TableContext
    written: CommitChanges
    partitions: set[bytes] | None = None
    specs: Sequence[Mapping[str, Any]] | None = None

    def __call__(self, base: Snapshot | None) -> CommitChanges:
        manifests, options = self.context.shared(ManifestStore), self.context.options
        live = live_entries_of(manifests, base, self.partitions, self.context.name)
        index = manifests.read_index(base.index_manifest if base is not None else None)
        replaced = {entry.partition for entry in live} | {entry.partition for entry in index}
        if self.partitions is not None:
            replaced &= self.partitions
        if self.specs is not None:
            replaced = matching_partitions(replaced, self.specs, self.context)
        deletes = delete_entries(
            [entry for entry in live if entry.partition in replaced],
            Bucketing.of(self.context.schema, options).total_buckets,
            drop_stats=options.manifest_delete_file_drop_stats,
        )
        index_deletes = [entry.as_delete() for entry in index if entry.partition in replaced]
        return CommitChanges(
            CommitKind.OVERWRITE, [*deletes, *self.written.entries], index=[*index_deletes, *self.written.index]
        )


def replacement_of(
    context: TableContext,
    written: CommitChanges,
    partition: Mapping[str, Any] | None,
    dynamic: bool | None,
) -> Replacement | None:
    """Return what an overwrite replaces, by the arguments of `TableCommit.overwrite`; None: nothing.

    Raises BadInput for arguments that contradict each other, the table or the written files.
    """
    is_partitioned = bool(context.schema.partition_keys)
    if dynamic is None:
        dynamic = partition is None and is_partitioned and context.options.dynamic_partition_overwrite
    if dynamic and (partition is not None or not is_partitioned):
        raise BadInput(
            f"{context.name}: a dynamic overwrite needs a partitioned table, as its rows choose the partitions"
        )
    new_partitions = {entry.partition for entry in written.entries}
    if dynamic:
        return Replacement(context, written, new_partitions) if new_partitions else None
    if partition is None:
        return Replacement(context, written)
    if matching_partitions(new_partitions, [partition], context) != new_partitions:
        raise BadInput(
            f"{context.name}: rows were written outside of the partition to overwrite, {dict(partition)}. Nothing was "
            "published. Filter the rows, or pass overwrite=True to replace the partitions that rows are written to"
        )
    return Replacement(context, written, specs=[partition])


def overwrite_changes(messages: Sequence[CommitMessage], context: TableContext) -> tuple[CommitChanges, CommitChanges]:
    """Return the written changes and the compaction after them, both without changelogs."""
    options, key_types = context.options, [f.type for f in context.schema.key_fields]
    total_buckets = Bucketing.of(context.schema, options).total_buckets
    changes = commit_changes([_silent(message) for message in messages], total_buckets, ignore_empty=True)
    by_kind = {change.kind: change for change in changes}
    compacted = by_kind.pop(CommitKind.COMPACT, CommitChanges(CommitKind.COMPACT))
    written = next(iter(by_kind.values()), CommitChanges(CommitKind.OVERWRITE))
    if key_types and compacted.is_empty and options.overwrite_upgrade:
        written = replace(written, entries=upgraded(written.entries, key_types, options.num_levels - 1))
    return written, compacted


def _silent(message: CommitMessage) -> CommitMessage:
    increment = message.increment
    compacted = replace(increment.compacted, changelog=())
    return replace(message, increment=replace(increment, changelog_files=(), compacted=compacted))
