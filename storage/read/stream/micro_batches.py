"""Divides a stream of changes into micro-batches, whose files are read by any number of tasks.

A unit is a set of files whose rows are read together. An offset is a place between two units. A batch is everything
between two offsets, and planning it again gives the same result.

Source: Java `spark/sources/PaimonMicroBatchStream.java`, `StreamHelper.scala`, `PaimonSourceOffset.scala`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.options.scan_options import StartupMode
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeReader
from tidelake.storage.read.changes.overwrites import overwritten_rows, reads_overwrites_as_changes
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.expired_snapshots import raise_if_changes_expired, raise_if_snapshot_expired
from tidelake.storage.read.split import Split
from tidelake.storage.read.stream.consumer_progress import ConsumerProgress
from tidelake.storage.read.stream.full_read import FullRead
from tidelake.storage.read.stream.next_snapshot import NextSnapshot
from tidelake.storage.read.stream.start import Start, first_position

_INDEX: Final = "index"
_PLANS_KEPT: Final = 8

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """An offset of a stream in micro-batches.

    position: the snapshot that is read next, and whether it is read in full; its `rows` is 0
    index: how many units of that snapshot were read already
    """

    position: ChangePosition
    index: int = 0

    @classmethod
    def of_members(cls, members: Mapping[str, Any]) -> StreamOffset:
        """Raise BadInput."""
        try:
            index = members.get(_INDEX, 0)
            if not isinstance(index, int) or index < 0:
                raise ValueError(f"{_INDEX} is {index!r}")
            return cls(ChangePosition.of_members(dict(members)), index)
        except ValueError as error:
            raise BadInput(f"{dict(members)!r} is not an offset of a table's stream: {error}") from None

    def to_members(self) -> dict[str, Any]:
        members = self.position.to_members()
        return {**members, _INDEX: self.index} if self.index else members

    def is_before(self, other: StreamOffset) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, bool, int]:
        """The sort key. A snapshot that was read in full is followed by the changes of the next snapshot."""
        return self.position.next_snapshot_id, not self.position.is_full, self.index


@dataclass(frozen=True, slots=True)
class OverwriteChanges:
    """The rows that an OVERWRITE snapshot replaced, as changes."""


UnitContent: TypeAlias = Split | tuple[ManifestEntry, ...] | OverwriteChanges
"""What a unit reads: a split in full, changes in data files, or the changes of an OVERWRITE snapshot."""


@dataclass(frozen=True, slots=True)
class StreamUnit:
    """A unit that one task reads. It is never divided. It can be pickled.

    bucket: the partition as serialized BinaryRow, and the bucket; None if the unit covers several buckets.
    row_count: rows in the files, before any merge.
    size_bytes: size of the files.
    """

    snapshot: Snapshot
    bucket: BucketId | None
    content: UnitContent
    row_count: int
    size_bytes: int
    file_count: int


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of a batch; None means no limit. A unit is added while the units before it are below each limit."""

    max_rows: int | None = None
    max_bytes: int | None = None
    max_files: int | None = None

    @property
    def is_none(self) -> bool:
        return self == BatchLimits()

    def are_reached(self, units: Sequence[StreamUnit]) -> bool:
        taken = (
            (self.max_rows, sum(unit.row_count for unit in units)),
            (self.max_bytes, sum(unit.size_bytes for unit in units)),
            (self.max_files, sum(unit.file_count for unit in units)),
        )
        return any(limit is not None and count >= limit for limit, count in taken)


class MicroBatches:
    """Plans the batches of one stream. Used by one thread.

    context: all rows of the stream are mapped to its schema.
    skips_overwrites: skip what OVERWRITE snapshots replaced. If false, and if the options don't turn overwrites into
        changes, such a snapshot ends the stream with an error.
    """

    def __init__(self, context: TableContext, *, skips_overwrites: bool = False) -> None:
        options = context.options
        if options.scan_bounded_watermark_ms is not None:
            raise UnsupportedFeature(
                "option scan.bounded.watermark of a stream of micro-batches",
                "such a stream ends at the state of its start, or never",
                "Leave it out; trigger(availableNow=True) reads the current state",
            )
        self._context = context
        self._share = Subtask.of(options)
        self._reader = ChangeReader(context, self._share)
        self._snapshots = NextSnapshot(context, self._reader)
        self._skips_overwrites = skips_overwrites
        name = options.consumer_id
        self._progress = ConsumerProgress(context, name, self._share) if name is not None else None
        self._plans: OrderedDict[tuple[int, bool], list[StreamUnit]] = OrderedDict()
        self._newer_schemas: set[int] = set()

    # ---------------------------------------------------------------- offsets

    def first(self) -> StreamOffset | None:
        """Return the start of a new stream; None while the table has no snapshot to start with.

        It is the position of the consumer, otherwise the start that the options name, otherwise `latest-full`.
        """
        if self._progress is not None and not self._context.options.ignores_consumer_progress:
            kept = self._progress.read()
            if kept is not None:
                if kept.rows:
                    raise BadInput(
                        f"consumer {self._context.options.consumer_id!r} of {self._context.name} stopped within "
                        f"snapshot {kept.next_snapshot_id}, where a stream of micro-batches can't begin. Name another "
                        "consumer-id, or set consumer.ignore-progress"
                    )
                return StreamOffset(kept)
        start = Start.of_options(self._context.options) or Start(StartupMode.LATEST_FULL)
        position = first_position(self._context, start)
        return None if position is None else StreamOffset(position)

    def latest(self, start: StreamOffset, limits: BatchLimits, target: StreamOffset | None = None) -> StreamOffset:
        """Return the end of the batch that starts at `start`, or `start` itself if there is nothing to read yet.

        target: the batch does not end after this offset.
        Raises SnapshotExpired and BadInput as `NextSnapshot.find` does.
        """
        end, taken = start, list[StreamUnit]()
        while target is None or end.is_before(target):
            snapshot = self._next(end.position)
            if snapshot is None:
                break
            behind = StreamOffset(ChangePosition.behind(snapshot))
            if limits.is_none:
                end = behind
                continue
            units = self._units(snapshot, end.position)
            for unit in units[end.index :]:
                if limits.are_reached(taken):
                    return end
                taken.append(unit)
                end = replace(end, index=end.index + 1)
            end = behind
        return end

    def newest(self, start: StreamOffset) -> StreamOffset:
        """Return the offset after everything that exists now."""
        return self.latest(start, BatchLimits())

    def row_count(self, start: StreamOffset, end: StreamOffset) -> int:
        """Return the rows in the files of a batch, before any merge."""
        return sum(unit.row_count for unit in self.plan(start, end))

    # ---------------------------------------------------------------- batches

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[StreamUnit]:
        """Return all units between two offsets, in order. Raises SnapshotExpired, BadInput."""
        units: list[StreamUnit] = []
        at = start
        while at.is_before(end):
            snapshot = self._next(at.position, is_planned=True)
            if snapshot is None:
                raise BadInput(
                    f"{self._context.name}: the stream's batch ends at {end.to_members()}, but snapshot "
                    f"{at.position.next_snapshot_id} does not exist: the table may have been rolled back. Start a new "
                    "stream"
                )
            is_last = (snapshot.id, at.position.is_full) == (end.position.next_snapshot_id, end.position.is_full)
            units += self._units(snapshot, at.position)[at.index : end.index if is_last else None]
            at = end if is_last else StreamOffset(ChangePosition.behind(snapshot))
        return units

    def committed(self, end: StreamOffset) -> None:
        """Record that everything before this offset was processed: the consumer of the stream continues from there.

        While a snapshot is read in full, the consumer stays at its beginning.
        """
        if self._progress is not None and not (end.position.is_full and end.index):
            self._progress.moved(end.position)

    def _next(self, position: ChangePosition, *, is_planned: bool = False) -> Snapshot | None:
        snapshot = self._snapshots.find(position)
        if snapshot is None or is_planned:
            return snapshot
        delay_ms = self._context.options.snapshot_delay_ms
        return None if delay_ms > 0 and snapshot.time_ms + delay_ms > epoch_ms() else snapshot

    def _units(self, snapshot: Snapshot, position: ChangePosition) -> list[StreamUnit]:
        key = snapshot.id, position.is_full
        if key not in self._plans:
            self._report_newer_schema(snapshot)
            self._plans[key] = self._planned(snapshot, position)
            if len(self._plans) > _PLANS_KEPT:
                self._plans.popitem(last=False)
        return self._plans[key]

    def _planned(self, snapshot: Snapshot, position: ChangePosition) -> list[StreamUnit]:
        if position.is_full:
            splits = FullRead(self._context, self._share, position.files_since_ms).plan(snapshot)
            return [_of_split(snapshot, split) for split in splits]
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            return self._overwrite(snapshot)
        with raise_if_changes_expired(self._context, snapshot):
            entries = sorted(self._reader.entries(snapshot), key=lambda entry: entry.bucket_id)
        return [
            _of_entries(snapshot, bucket, tuple(of_bucket))
            for bucket, of_bucket in groupby(entries, key=lambda entry: entry.bucket_id)
        ]

    def _overwrite(self, snapshot: Snapshot) -> list[StreamUnit]:
        if reads_overwrites_as_changes(self._context):
            rows = max(snapshot.delta_record_count, 0)
            return [StreamUnit(snapshot, None, OverwriteChanges(), rows, 0, 1)]
        if self._skips_overwrites:
            _log.warning("overwrite skipped", table=self._context.name, snapshot=snapshot.id)
            return []
        option = (
            "streaming-read-overwrite" if self._context.schema.has_primary_key else "streaming-read-append-overwrite"
        )
        raise UnsupportedFeature(
            f"snapshot {snapshot.id} of {self._context.name} in a stream",
            "it replaced rows without recording which (OVERWRITE)",
            f"Set {option}=true to read what it replaced as changes, or skip-overwrites=true to skip it",
        )

    def _report_newer_schema(self, snapshot: Snapshot) -> None:
        if snapshot.schema_id > self._context.schema.id and snapshot.schema_id not in self._newer_schemas:
            self._newer_schemas.add(snapshot.schema_id)
            _log.warning(
                "schema of the table changed, and the stream continues with its first one",
                table=self._context.name,
                schema=snapshot.schema_id,
                of_the_stream=self._context.schema.id,
            )


def read_units(context: TableContext, units: Iterable[StreamUnit]) -> Iterator[pa.RecordBatch]:
    """Yield the table's columns and int8 `_VALUE_KIND`.

    Raises SnapshotExpired if files were deleted with their snapshot.
    """
    share = Subtask.of(context.options)
    reader, full = ChangeReader(context, share), FullRead(context, share)
    for unit in units:
        match unit.content:
            case Split():
                yield from full.read([unit.content])
            case OverwriteChanges():
                with raise_if_snapshot_expired(context, unit.snapshot.id):
                    yield from overwritten_rows(context, unit.snapshot, share, tuple(context.schema.names))
            case entries:
                with raise_if_changes_expired(context, unit.snapshot):
                    yield from reader.rows(entries)


def _of_split(snapshot: Snapshot, split: Split) -> StreamUnit:
    files = split.files
    size = sum(file.file_size for file in files)
    return StreamUnit(snapshot, split.bucket_id, split, split.row_count, size, len(files))


def _of_entries(snapshot: Snapshot, bucket: BucketId, entries: tuple[ManifestEntry, ...]) -> StreamUnit:
    size = sum(entry.file.file_size for entry in entries)
    return StreamUnit(snapshot, bucket, entries, sum(entry.file.row_count for entry in entries), size, len(entries))
