"""Checks that the changelog is complete: an earlier state, with the later changes applied, must give the end state.

Each bucket is checked separately, in the order of its keys:

1. The end state is read; each range of some ten thousand of its keys gets a checksum (`checksum_ranges`).
2. The start state and the changelog files, oldest first, are merged like sorted runs. The rows of each key are folded
   to one row. The result gets checksums of the same ranges.
3. For ranges with different checksums, all three are merged again, and their rows are compared one by one.

Memory is bounded for any size: one batch of each run, which is smaller if there are more runs.

    changelog-producer           how the rows of a key are folded
    none, input                  by the table's merge engine: they are rows as they were written
    lookup, full-compaction      to the last row, or none if it is -D; kinds must fit the previous row

With an aggregation, a retraction of a row that never existed counts only until a compaction drops it. Such a key may be
reported although nothing was lost.

The states are those that a stream starts with: of `lookup` the levels above 0, of `full-compaction` the highest one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.maintenance.verify.checksum_ranges import Checksums
from tidelake.storage.merge.changelog_rows import KeyedRows, equal_rows
from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.merge.merge_functions import merge_function_of
from tidelake.storage.merge.merge_reader import Merge, MergeOrder
from tidelake.storage.merge.multi_pass_merge import fan_in_of, multi_pass_merge
from tidelake.storage.merge.sections import BatchSize, batch_size
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import KIND_COLUMN, CommitKind, RowKind
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.schema.table_schema import KIND_FIELD
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import arrow_schema
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds, with_kind
from tidelake.storage.read.changes.change_reader import ChangeReader, whole_keys
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split
from tidelake.storage.read.state_files import StateFiles

_SIDE: Final = "_SIDE"
_BEFORE, _CHANGE, _AFTER = range(3)
_KEY_NUMBER: Final = "_KEY_NUMBER"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChangelogDifference:
    """A key whose rows differ, in batches of one row.

    replayed: the result of its changes; None for no row.
    there: the row in the table; None for no row.
    """

    key: pa.RecordBatch
    replayed: pa.RecordBatch | None
    there: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class _Parts:
    """The content of a bucket: two states, and the changes between them, oldest first."""

    before: Split | None
    changes: Sequence[ManifestEntry]
    after: Split | None

    @property
    def size(self) -> BatchSize:
        """The size of batches, if a batch of each file is held at the same time."""
        states = [file for split in (self.before, self.after) if split is not None for file in split.files]
        return batch_size([[file] for file in (*states, *(entry.file for entry in self.changes))])


@dataclass(slots=True)
class ChangelogReport:
    """The result of a check.

    start: the state that changes were applied to; None for an empty table.
    end: the snapshot that was compared.
    keys: number of compared keys.
    changes: number of changelog rows.
    differing: number of keys whose rows differ.
    ill_formed: number of keys with a kind that does not fit the previous row: a +I for an existing row, a -U or -D
        without a row, a +U without its -U.
    """

    start: int | None
    end: int
    keys: int = 0
    changes: int = 0
    differing: int = 0
    ill_formed: int = 0
    first: ChangelogDifference | None = None
    first_ill_formed: pa.RecordBatch | None = None
    overwritten: list[int] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.differing and not self.ill_formed


def check_changelog(
    context: TableContext, start: int | None = None, end: int | None = None, *, only_touched: bool = False
) -> ChangelogReport:
    """Compare the changelog with the table.

    The rows that an OVERWRITE snapshot replaced are not in the changelog. So the check starts after the last such
    snapshot of the range, and reports these snapshots. Raises UnsupportedFeature for a table without a primary key,
    SnapshotExpired, BadInput.

    start: None: the earliest state after which all changes exist.
    end: None: the latest snapshot.
    only_touched: don't read a bucket whose files are the same in both states, if it has no changes. Its rows are equal.
    """
    if not context.schema.has_primary_key:
        raise UnsupportedFeature(
            f"{context.name} has no primary key",
            "its changelog can't be compared with it, as no key identifies equal rows",
            "Compare counts: each commit of an append table adds the rows of its files",
        )
    return _Check(context, start, end, only_touched).run()


class _Check:
    def __init__(self, context: TableContext, start: int | None, end: int | None, only_touched: bool) -> None:
        self._context = context
        self._only_touched = only_touched
        self._snapshots = context.snapshots
        self._changes = ChangeReader(context)
        self._end = self._state(self._latest_id() if end is None else end)
        first = self._first_start() if start is None else start
        if not 0 <= first <= self._end.id:
            raise BadInput(
                f"changes after snapshot {first} up to {self._end.id}: the first snapshot must not be after the last "
                "one"
            )
        self._checked_snapshots = [self._changes.get(snapshot_id) for snapshot_id in range(first + 1, self._end.id + 1)]
        overwritten = [s.id for s in self._checked_snapshots if s.commit_kind is CommitKind.OVERWRITE]
        if overwritten:
            first = overwritten[-1]
            self._checked_snapshots = [snapshot for snapshot in self._checked_snapshots if snapshot.id > first]
        self._start = self._state(first) if first else None
        self._report = ChangelogReport(first or None, self._end.id, overwritten=overwritten)
        options, schema = context.options, context.schema
        self._is_replayed = options.changelog_producer in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION)
        keys = tuple(schema.trimmed_primary_keys)
        self._order = (
            MergeOrder(keys, sequence_follows_run_order=True)
            if self._is_replayed
            else MergeOrder.of(keys, options, sequence_follows_run_order=True)
        )
        self._engine = merge_function_of(context)
        self._compared = [name for name in schema.names if name not in schema.primary_keys]
        self._schema = arrow_schema([*schema.fields, KIND_FIELD]).append(pa.field(_SIDE, pa.int8()))

    def _latest_id(self) -> int:
        latest = self._snapshots.latest_id()
        if latest is None:
            raise BadInput(f"{self._context.name} has no snapshot yet: there is nothing to verify")
        return latest

    def _first_start(self) -> int:
        """Return 0, an empty table, if all changes since the first commit exist; otherwise the earliest snapshot."""
        earliest = self._snapshots.earliest_id() or 1
        return 0 if self._changes.history.earliest_id() == 1 else earliest

    def _state(self, snapshot_id: int) -> Snapshot:
        found = self._snapshots.find(snapshot_id)
        if found is None:
            available = f"its snapshots are {self._snapshots.earliest_id()} to {self._snapshots.latest_id()}"
            raise BadInput(f"{self._context.name} has no state of snapshot {snapshot_id}: {available}")
        return found

    def run(self) -> ChangelogReport:
        before, after = self._buckets(self._start), self._buckets(self._end)
        changes: dict[BucketId, list[ManifestEntry]] = defaultdict(list)
        for snapshot in self._checked_snapshots:
            for entry in self._changes.entries(snapshot):
                changes[entry.bucket_id].append(entry)
        for bucket in sorted(before.keys() | after.keys() | changes.keys()):
            if self._only_touched and bucket not in changes and _same_files(before.get(bucket), after.get(bucket)):
                continue
            self._check(_Parts(before.get(bucket), changes.get(bucket, ()), after.get(bucket)))
        return self._report

    def _check(self, parts: _Parts) -> None:
        columns = self._context.schema.names
        table_checksums = Checksums.of(self._rows_of(parts.after), self._order.key_columns, columns)
        replayed = Checksums(table_checksums.ranges, columns)
        for rows in self._merged(parts, self._replay):
            replayed.add(rows)
        differs = table_checksums.differing_ranges(replayed)
        if differs.any():

            def in_differing_range(rows: pa.RecordBatch) -> pa.RecordBatch:
                wanted = differs[table_checksums.ranges.of_rows(rows)]
                return rows if wanted.all() else rows.filter(pa.array(wanted))

            for _ in self._merged(parts, self._compare, in_differing_range, include_after=True):
                pass

    def _merged(
        self,
        parts: _Parts,
        merge: Merge[T],
        wanted: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
        *,
        include_after: bool = False,
    ) -> Iterator[T]:
        """Merge the rows of equal keys: of the state before, of changes, and if wanted of the state after."""
        size = parts.size
        runs = [
            self._marked(self._rows_of(parts.before), _BEFORE),
            *(self._marked(self._change_run(entry, size), _CHANGE) for entry in parts.changes),
            *([self._marked(self._rows_of(parts.after), _AFTER)] if include_after else []),
        ]
        fan_in = fan_in_of(self._context.options)
        return multi_pass_merge([map(wanted, run) for run in runs], self._schema, self._order, merge, fan_in=fan_in)

    # ------------------------------------------------------------ rows, in the order of keys

    def _buckets(self, snapshot: Snapshot | None) -> dict[BucketId, Split]:
        scan = TableScan(
            self._context,
            keep_entry=lambda entry: entry.bucket >= 0,
            in_key_order=True,
            files=StateFiles.STREAM_START,
        )
        return {split.bucket_id: split for split in scan.plan(snapshot)}

    def _rows_of(self, split: Split | None) -> Iterator[pa.RecordBatch]:
        if split is not None:
            reader = SnapshotReader(self._context, self._context.schema.names)
            yield from (with_kind(batch, RowKind.INSERT) for batch in reader.read([split]))

    def _change_run(self, entry: ManifestEntry, size: BatchSize) -> Iterator[pa.RecordBatch]:
        path = data_file_path(bucket_directory(self._context, entry.partition, entry.bucket), entry.file)
        fields = [*self._context.schema.fields, KIND_FIELD]
        batches = read_data_file(
            self._context,
            entry.file,
            path,
            fields,
            partition=entry.partition,
            batch_rows=size.rows,
            batch_bytes=size.bytes,
        )
        return whole_keys(batches, self._order.key_columns)

    def _marked(self, batches: Iterator[pa.RecordBatch], side: int) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marks = pa.array(np.full(batch.num_rows, side, np.int8))
            yield pa.RecordBatch.from_arrays([*batch.columns, marks], schema=self._schema)

    # ------------------------------------------------------------ keys

    def _replay(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        """Fold complete groups of equal keys: the state before, then changes, oldest first."""
        self._report.keys += len(groups)
        self._report.changes += int(np.count_nonzero(rows.column(_SIDE).to_numpy() == _CHANGE))
        rows = rows.drop_columns([_SIDE])
        every = np.ones(len(groups.rows), np.bool_)
        if self._is_replayed:
            self._check_kinds(rows, groups)
        return self._replayed(rows, groups, every).adds().rows

    def _compare(self, rows: pa.RecordBatch, groups: Groups) -> None:
        """Compare complete groups of equal keys: the state before, changes oldest first, the state after."""
        side = rows.column(_SIDE).to_numpy()[groups.rows]
        # The other keys are counted already.
        self._report.keys += len(groups) - int(np.count_nonzero(groups.any(side != _AFTER)))
        rows = rows.drop_columns([_SIDE])
        table_rows = _last(rows, groups, side == _AFTER)
        replayed = self._replayed(rows, groups, side != _AFTER).adds()
        old, new = replayed.places(len(groups)), table_rows.places(len(groups))
        both = np.flatnonzero((old >= 0) & (new >= 0))
        same = (old < 0) & (new < 0)
        same[both[equal_rows(replayed.rows, old[both], table_rows.rows, new[both], self._compared)]] = True
        wrong = np.flatnonzero(~same)
        self._report.differing += len(wrong)
        if len(wrong) and self._report.first is None:
            first = wrong[0]
            rows_there = [_row(side_rows, places[first]) for side_rows, places in ((replayed, old), (table_rows, new))]
            key = self._key(rows, groups, int(first))
            self._report.first = ChangelogDifference(key, rows_there[0], rows_there[1])

    def _replayed(self, rows: pa.RecordBatch, groups: Groups, wanted: Mask) -> KeyedRows:
        if self._is_replayed:
            return _last(rows, groups, wanted)
        numbers = np.zeros(rows.num_rows, np.int64)
        numbers[groups.rows] = groups.numbers
        kept = groups.keep(wanted)
        if not len(kept):
            return KeyedRows(rows.slice(0, 0), np.zeros(0, np.intp))
        merged = self._engine.merge(rows.append_column(_KEY_NUMBER, pa.array(numbers)), kept)
        return KeyedRows(merged.select(rows.schema.names), merged.column(_KEY_NUMBER).to_numpy())

    def _check_kinds(self, rows: pa.RecordBatch, groups: Groups) -> None:
        """Compare each kind with the previous one of the same key."""
        kinds = row_kinds(rows)[groups.rows]
        key = groups.numbers
        begins = np.append(True, key[1:] != key[:-1]) if len(key) else np.zeros(0, np.bool_)
        before = np.append(np.int8(RowKind.DELETE), kinds[:-1]) if len(kinds) else kinds
        is_there = ~begins & ~is_retract(before)
        updates = ~begins & (before == RowKind.UPDATE_BEFORE)
        fits = np.where(kinds == RowKind.INSERT, ~is_there & ~updates, is_there)
        fits = np.where(kinds == RowKind.UPDATE_AFTER, updates, fits)
        left_open = (kinds == RowKind.UPDATE_BEFORE) & np.append(begins[1:], True) if len(kinds) else ~fits
        wrong = np.unique(key[~fits | left_open])
        self._report.ill_formed += len(wrong)
        if len(wrong) and self._report.first_ill_formed is None:
            self._report.first_ill_formed = self._key(rows, groups, int(wrong[0]))

    def _key(self, rows: pa.RecordBatch, groups: Groups, number: int) -> pa.RecordBatch:
        row = int(groups.rows[groups.starts[number]])
        return rows.slice(row, 1).select(list(self._context.schema.primary_keys))


def _same_files(before: Split | None, after: Split | None) -> bool:
    if before is None or after is None:
        return before is after
    return replace(before, snapshot_id=after.snapshot_id) == after


def _last(rows: pa.RecordBatch, groups: Groups, wanted: Mask) -> KeyedRows:
    positions = groups.last(wanted)
    keys = np.flatnonzero(positions >= 0)
    return KeyedRows(rows.take(pa.array(groups.rows[positions[keys]])), keys)


def _row(side: KeyedRows, place: int) -> pa.RecordBatch | None:
    return None if place < 0 else side.rows.slice(int(place), 1).drop_columns([KIND_COLUMN])
