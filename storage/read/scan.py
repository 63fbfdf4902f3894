"""Finds the files that may hold the requested rows, by partition, bucket, key range and statistics. No data file is
opened for this.

Source: Java `operation/AbstractFileStoreScan.java`, `KeyValueFileStoreScan.java`,
`table/source/snapshot/SnapshotReaderImpl.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import deletion_files, live_entries
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.postponed_order import in_order_of_writing
from tidelake.storage.files.statistics import key_bounds, value_bounds
from tidelake.storage.merge.sorted_run import Section, interval_partition, key_ranges
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import Bucketing, BucketMode
from tidelake.storage.model.definition import REWRITTEN, Definition
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile
from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.messages import rewrite_command
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataType, Root, same_ignoring_nullability
from tidelake.storage.read.evolution.row_id_group_bounds import row_id_group_bounds
from tidelake.storage.read.evolution.row_id_groups import RowIdGroup, row_id_groups
from tidelake.storage.read.evolution.tracked_columns import tracked_schema
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.predicate import Compare, Maybe, Predicate
from tidelake.storage.read.skipping.file_index_predicate import FileIndexPredicate
from tidelake.storage.read.split import BinPacking, Split, append_splits, evolution_splits, merge_tree_splits
from tidelake.storage.read.state_files import StateFiles


class SkipReason(StrEnum):
    """Why a file is not read."""

    LEVEL_0 = "level 0"  # its rows are not visible until they were compacted
    POSTPONED = "postponed"  # its rows are not visible until a job moved them into buckets
    PARTITION = "partition"
    BUCKET = "bucket"
    KEY_RANGE = "key range"
    STATISTICS = "statistics"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class TableScan:
    """The request of a scan of one table: which rows of a snapshot to read.

    context: its schema is used for the read.
    keep_entry: returns False for a file that must be left out, before any other rule is applied.
    in_key_order: for a primary-key table: plan one split for each bucket, whose rows are ordered by their keys.
    files: which files of the snapshot are read.
    report: called with each file that is left out, except for those that keep_entry leaves out.
    """

    context: TableContext
    predicate: Predicate | None = None
    keep_entry: Callable[[ManifestEntry], bool] | None = None
    in_key_order: bool = False
    files: StateFiles = StateFiles.VISIBLE
    report: Callable[[DataFileMeta, SkipReason], None] = field(default=lambda file, why: None)

    def plan(self, snapshot: Snapshot | None) -> list[Split]:
        """Return splits in the order of partitions and buckets; none for a table without snapshots.

        Rows of the postpone bucket come after those of their partition's other buckets, which are older.
        """
        check_supported(self.context, Operation.READ)
        if snapshot is None:
            return []
        entries = self._entries(snapshot)
        with raise_if_snapshot_expired(self.context, snapshot.id):
            vectors = deletion_files(self.context, snapshot) if self._has_vectors else {}
        return self.splits_of(snapshot.id, entries, vectors)

    def splits_of(
        self,
        snapshot_id: int,
        entries: Iterable[ManifestEntry],
        vectors: Mapping[BucketId, Mapping[str, DeletionFile]],
    ) -> list[Split]:
        """Return the splits of these files. The files may be of any snapshot.

        Rows of the postpone bucket are not sorted by key. So its files are never merged, and follow in their order.

        vectors: deletion files by partition and bucket.
        """
        buckets: dict[BucketId, list[DataFileMeta]] = defaultdict(list)
        for entry in entries:
            buckets[entry.bucket_id].append(entry.file)
        splits = []
        for bucket, files in sorted(buckets.items(), key=lambda item: (item[0].partition, _place(item[0].bucket))):
            of_bucket = vectors.get(bucket, {})
            is_postponed = bucket.bucket == POSTPONE_BUCKET
            groups = [([[[f]] for f in in_order_of_writing(files)], False)] if is_postponed else self._groups(files)
            for sections, raw_convertible in groups:
                names = {file.file_name for section in sections for run in section for file in run}
                of_split = {name: of_bucket[name] for name in of_bucket.keys() & names}
                splits.append(Split(snapshot_id, *bucket, tuple(sections), raw_convertible, of_split))
        return splits

    @property
    def _has_vectors(self) -> bool:
        return self.context.options.deletion_vectors_enabled

    def _entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        with raise_if_snapshot_expired(self.context, snapshot.id):
            entries = live_entries(self.context, snapshot, keep_entry=self.keep_entry)
        self._check_one_key(entries)
        entries = self.among(entries)
        return entries if self.predicate is None else self._in_wanted_buckets(entries, self.predicate)

    def among(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Return the entries that `files` include, and report the others."""
        levels = {entry.file.level for entry in entries}
        included = {level for level in levels if self.files.include_level(level, self.context)}
        postponed = self.files.include_postponed(self.context)
        kept = []
        for entry in entries:
            is_postponed = entry.bucket == POSTPONE_BUCKET
            if postponed if is_postponed else entry.file.level in included:
                kept.append(entry)
            else:
                self.report(entry.file, SkipReason.POSTPONED if is_postponed else SkipReason.LEVEL_0)
        return kept

    def matching_entries(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Return those files that may hold rows with the requested keys, in the same order."""
        if self.predicate is None:
            return list(entries)
        kept = self._in_wanted_buckets(entries, self.predicate)
        files = {id(file) for file in self._matching([entry.file for entry in kept], by_value=False)}
        return [entry for entry in kept if id(entry.file) in files]

    def _in_wanted_buckets(self, entries: Sequence[ManifestEntry], predicate: Predicate) -> list[ManifestEntry]:
        wanted = wanted_partitions(self.context, {entry.partition for entry in entries}, predicate)
        bucketing = Bucketing.of(self.context.schema, self.context.options)
        keys = self._wanted_bucket_keys(bucketing)
        buckets_of: dict[int, set[int]] = {}  # by bucket count, which differs between partitions after a rescale
        kept = []
        for entry in entries:
            if entry.partition not in wanted:
                self.report(entry.file, SkipReason.PARTITION)
                continue
            if keys is not None and entry.total_buckets > 0 and self._has_bucket_key_types(entry.file.schema_id):
                if entry.total_buckets not in buckets_of:
                    ids = bucketing.bucket_ids(keys, num_buckets=entry.total_buckets)
                    buckets_of[entry.total_buckets] = set(ids.tolist())
                if entry.bucket not in buckets_of[entry.total_buckets]:
                    self.report(entry.file, SkipReason.BUCKET)
                    continue
            kept.append(entry)
        return kept

    def _has_bucket_key_types(self, schema_id: int) -> bool:
        """Return whether the buckets had the same keys, with the same types, in this schema.

        Java allows the type of a bucket key to change. Older rows stay in the buckets of their old values, and so do
        all rows until a rewrite with another bucket key is finished.
        """
        current = self.context.schema
        if schema_id == current.id:
            return True
        written = self.context.schemas.get(schema_id)
        older = written.by_id
        keys = current.select(Bucketing.of(current, self.context.options).key_columns)
        if not all(key.id in older and same_ignoring_nullability(older[key.id].type, key.type) for key in keys):
            return False
        if REWRITTEN not in current.options:
            return True
        before, now = Definition.of(written), Definition.of(current)
        return (before.bucket_keys, before.function) == (now.bucket_keys, now.function)

    def _has_key_types(self, schema_id: int) -> bool:
        """Return whether the keys had the same columns and types in this schema.

        If not, a rewrite of the table with another key is not finished, or the file is older than the rewrite.
        """
        schema = self.context.schema
        return schema_id == schema.id or schema.has_same_keys(self.context.schemas.get(schema_id))

    def _key_types(self, files: Sequence[DataFileMeta]) -> list[DataType]:
        """Return the types of the keys of a bucket's files. They have one key, as `_check_one_key` says."""
        with_key = self.context
        for number in {file.schema_id for file in files}:
            if not self._has_key_types(number):
                with_key = self.context.with_keys_of(number)
        return [field.type for field in with_key.schema.key_fields]

    def _check_one_key(self, entries: Sequence[ManifestEntry]) -> None:
        """Check that the files have one key, and rows of one key one bucket.

        If an engine that doesn't know rewrites wrote after a rewrite had published its schema, but before it had
        replaced the files, then versions of a row could not be recognized as such: it would be read twice.
        """
        numbers = {entry.file.schema_id for entry in entries}
        if len(numbers) < 2 or not self.context.schema.has_primary_key:
            return
        are_as_now = {self._has_key_types(number) and self._has_bucket_key_types(number) for number in numbers}
        if len(are_as_now) > 1 and REWRITTEN in self.context.schema.options:
            raise UnsupportedFeature(
                f"{self.context.name}: files of two keys",
                "another engine wrote rows after a rewrite had changed the key or its buckets, and before the rewrite "
                "had replaced the files, so a row could be read twice",
                "Stop that engine, and finish the rewrite, which keeps all rows: "
                f"`{rewrite_command(self.context.name, self.context.location)}`",
            )

    def _wanted_bucket_keys(self, bucketing: Bucketing) -> list[pa.Array] | None:
        """Return columns with the bucket keys of matching rows, if the condition names one value for each key column.

        Otherwise returns None.
        """
        if bucketing.mode is not BucketMode.FIXED or self.predicate is None:
            return None
        columns = []
        for key_field in self.context.schema.select(bucketing.key_columns):
            condition = self.predicate.within(frozenset([key_field.name]))
            if not isinstance(condition, Compare):
                return None
            if key_field.type.root in (Root.FLOAT, Root.DOUBLE):
                return None  # a filter treats 0.0 and -0.0 as equal, but they are in two buckets
            operator, value = condition.in_type_of_column(self.context.schema.arrow)
            if operator != "==":
                return None
            columns.append(pa.array([value], value.type))
        return columns

    def _groups(self, files: list[DataFileMeta]) -> list[tuple[list[Section], bool]]:
        options = self.context.options
        packing = BinPacking(options.split_target_size_bytes, options.split_open_file_cost_bytes)
        if self.context.options.data_evolution_enabled:
            return evolution_splits(self._matching_groups(row_id_groups(files)), packing)
        if not self.context.schema.has_primary_key:
            return append_splits(self._matching(files, by_value=True), packing)
        # All versions of a key are in files whose key range contains it. So skipping by key skips all versions or none.
        matching = self._matching(files, by_value=False)
        if not matching:
            return []
        types = self._key_types(matching)
        if self.in_key_order:
            sections = interval_partition(key_ranges(matching, types))
            return [(self._without_files_that_cannot_match(sections), False)]
        groups = merge_tree_splits(
            key_ranges(matching, types), packing, options.merge_engine, deletion_vectors=self._has_vectors
        )
        return [(kept, raw) for sections, raw in groups if (kept := self._without_files_that_cannot_match(sections))]

    def _without_files_that_cannot_match(self, sections: Sequence[Section]) -> list[Section]:
        """Skip files by value only in sections of a single run: keys in them have no other version."""
        if self.predicate is None:
            return list(sections)
        alone = [file for section in sections if len(section) == 1 for file in section[0]]
        kept = {id(file) for file in self._matching(alone, by_value=True)}
        result: list[Section] = []
        for section in sections:
            if len(section) > 1:
                result.append(section)
            elif run := [file for file in section[0] if id(file) in kept]:
                result.append([run])
        return result

    def _matching_groups(self, groups: list[RowIdGroup]) -> list[RowIdGroup]:
        """Return row-id groups that may hold a matching row, judged by the statistics of each column's source file."""
        if self.predicate is None or not groups:
            return groups
        maybe = self.predicate.may_match(row_id_group_bounds(self.context, groups), tracked_schema(self.context))
        if maybe is None:
            return groups
        for i in np.flatnonzero(~maybe):
            for file in groups[i]:
                self.report(file, SkipReason.STATISTICS)
        return [groups[i] for i in np.flatnonzero(maybe)]

    def _matching(self, files: list[DataFileMeta], *, by_value: bool) -> list[DataFileMeta]:
        """Return files that may hold a matching row, judged by key range or statistics, and by their indexes."""
        schema = self.context.schema
        names = schema.names if by_value else schema.trimmed_primary_keys
        condition = self.predicate.within(frozenset(names)) if self.predicate is not None else None
        if condition is None or not files:
            return files
        if not by_value and not all(self._has_key_types(number) for number in {file.schema_id for file in files}):
            return files
        bounds = value_bounds(self.context, files) if by_value else key_bounds(self.context, files)
        maybe: Maybe | None = condition.may_match(bounds, schema.arrow)
        if maybe is not None:
            for i in np.flatnonzero(~maybe):
                self.report(files[i], SkipReason.STATISTICS if by_value else SkipReason.KEY_RANGE)
            files = [files[i] for i in np.flatnonzero(maybe)]
        index_predicate = FileIndexPredicate(self.context, condition)
        return [file for file in files if self._index_allows(file, index_predicate)]

    def _index_allows(self, file: DataFileMeta, index_predicate: FileIndexPredicate) -> bool:
        """Whether the index allows matching rows. Only embedded indexes are read here; others when a file is read."""
        selected = index_predicate.selected_rows(file, file.file_name, embedded_only=True)
        if selected is not None and not selected:
            self.report(file, SkipReason.INDEX)
            return False
        return True


def _place(bucket: int) -> tuple[bool, int]:
    return bucket == POSTPONE_BUCKET, bucket


def created_since(time_ms: int) -> Callable[[ManifestEntry], bool]:
    """Return a filter for files created at this time or later, in epoch milliseconds.

    A file without a creation time is left out.
    """
    return lambda entry: (made_ms := entry.file.created_epoch_ms) is not None and made_ms >= time_ms


def wanted_partitions(context: TableContext, partitions: set[bytes], predicate: Predicate) -> set[bytes]:
    """Return the partitions that may hold a matching row.

    The values of partition columns are known. So the part of the condition on partition columns is applied exactly.
    """
    fields = context.schema.partition_fields
    condition = predicate.within(frozenset(field.name for field in fields))
    if condition is None or not partitions:
        return partitions
    rows = sorted(partitions)
    values = decode_rows(rows, [field.type for field in fields])
    table = pa.table([*values, pa.array(rows, pa.binary())], names=[*(f.name for f in fields), "_row"])
    return set(table.filter(condition.expression(context.schema.arrow)).column("_row").to_pylist())
