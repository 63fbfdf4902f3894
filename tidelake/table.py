"""The table: its rows, changes, snapshots, tags, branches, and their maintenance."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tidelake.batch_writes import BatchWrites
from tidelake.change_range import ChangeRange
from tidelake.compaction import table_compaction
from tidelake.compaction.append.clustering import ClusteringStrategy
from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.file_index_rewrite import FileIndexRewrite, rewrite_file_indexes
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.manifest_compaction import ManifestCompaction, compact_manifests
from tidelake.compaction.report import CompactionReport
from tidelake.errors import BadInput
from tidelake.one_commit import commit_user_of
from tidelake.read_selection import ReadSelection
from tidelake.scan import IncrementalScan, Scan, projection, snapshot_projection, with_fields
from tidelake.storage.base import env
from tidelake.storage.base.arguments import checked, checked_except
from tidelake.storage.commit.expire.expire_now import ExpiryResult, expire_now
from tidelake.storage.commit.expire.retention import retention_of
from tidelake.storage.commit.iceberg.publication import iceberg_publication_of
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.maintenance import branch_changes, tag_changes
from tidelake.storage.maintenance.analysis.analyze import TableStatistics, analyze, read_statistics
from tidelake.storage.maintenance.branch_merge import merge_branch
from tidelake.storage.maintenance.orphans import OrphanCleaning, clean_orphans
from tidelake.storage.maintenance.partition_done import mark_done, partition_directories, partitions_like
from tidelake.storage.maintenance.partition_expiry import expire_partitions
from tidelake.storage.maintenance.purge import purge
from tidelake.storage.maintenance.repair import remove_missing_files, remove_missing_manifests, repair_earliest_snapshot
from tidelake.storage.maintenance.rollback import LaterStates, later_states, roll_back, rollback_target
from tidelake.storage.maintenance.verify.inspection import ORPHAN_AGE_MS
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.options.maintenance_options import PartitionExpirationStrategy
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.evolution.tracked_columns import tracked_schema
from tidelake.storage.read.follow import Bound, CancelEvent, Follower, follow
from tidelake.storage.read.incremental_read import NoIncrement
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.stream.consumer_progress import ConsumerProgress
from tidelake.storage.read.stream.start import Start, StartAt
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.writer import Writer


class Table(BatchWrites):
    """One table. Cheap to create; keeps no files open. To see schema changes, open it again (`catalog.table(name)`)."""

    _sequence_numbers = False  # whether changes come with `_SEQUENCE_NUMBER`
    _shown: Callable[[ChangeBatch], ChangeBatch] | None = None  # converts changes to rows of a system table

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def _repr_html_(self) -> str:
        return self.scan()._repr_html_()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an Arrow stream of the rows, as `scan()` reads them, for other libraries."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the columns of the stream."""
        return self.schema.__arrow_c_schema__()

    @property
    def context(self) -> TableContext:
        """The internal table. Not part of the public API: it may change at any time."""
        return self._context

    @property
    def name(self) -> str:
        return self._context.name

    @property
    def location(self) -> str:
        return self._context.location

    @property
    def schema(self) -> pa.Schema:
        """The columns that scans return."""
        return self._context.schema.arrow

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self._context.schema.primary_keys

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._context.schema.partition_keys

    @property
    def options(self) -> Mapping[str, str]:
        return self._context.options

    # ------------------------------------------------------------ rows

    @checked_except("overwrite")
    def writer(
        self,
        *,
        commit_user: str | None = None,
        memory: MemoryBudget | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
    ) -> Writer:
        """Open a writer.

        commit_user: permanent name of this stream of commits. Keep it over restarts, so that replays are recognised.
            Default: a new random name, for one-off writes that are never replayed
        memory: memory budget shared with other writers; default: option `write-buffer-size` limits this writer
        overwrite: each commit replaces rows instead of adding some, and makes no changelog. None, False: no. True: all
            rows, or in a partitioned table those of the written partitions (option `dynamic-partition-overwrite`).
            Values of partition columns, {"day": "2026-05-01"}: the partitions with these values; all written rows must
            be in them

        Raises BadInput for overwrite={}, which could mean everything or nothing.
        """
        return Writer(self._context, commit_user_of(self._context, commit_user), memory, overwrite)

    @checked
    def scan(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        as_of: datetime | int | None = None,
        between: tuple[int | str | datetime, ...] | None = None,
        between_mode: str | None = None,
        auto_tag: str | None = None,
        columns: Sequence[str] | None = None,
        filter: Predicate | str | Any = None,
        limit: int | None = None,
    ) -> Scan:
        """Read the rows at one snapshot.

        It is the one given by id, tag or time; otherwise the one of the table's options (`scan.mode`,
        `scan.snapshot-id`, …); otherwise the latest. A given snapshot is read with its own schema, the latest with the
        table's newest.

        snapshot: id of the snapshot
        tag: name of a tag
        as_of: the last snapshot at this time; a datetime (naive ones are local time) or epoch milliseconds
        between: only added rows, as in `changes`; deleted rows are left out
        between_mode: as in `changes`
        auto_tag: as in `changes`
        columns: names, in the order of the result (also `_ROW_ID`, and fields of a ROW: `address.city`)
        filter: made with `tidelake.col` or `pyarrow.compute`, or SQL text: `"amount > 3 and city like 'B%'"`
        limit: at most this many rows, as `Scan.limit`
        """
        if isinstance(columns, str):
            raise BadInput(f"scan(columns={columns!r}): columns is a list of names")
        at = ReadSelection(snapshot, tag, as_of, between, between_mode, auto_tag).read(self._context)
        found = self._scan_at(at, columns, filter)
        return found if limit is None else found.limit(limit)

    def _scan_at(self, at: SystemTableRead, columns: Sequence[str] | None, condition: Any) -> Scan:
        schema = tracked_schema(at.context)
        return with_fields(columns, schema, lambda whole: self._scan_of_columns(at, whole, condition))

    def _scan_of_columns(self, at: SystemTableRead, columns: Sequence[str] | None, condition: Any) -> Scan:
        if not isinstance(at.increment, NoIncrement):
            names, predicate = projection(at.context.schema.arrow, columns, condition)
            return IncrementalScan(at.context, at.increment, names, predicate)
        names, predicate = snapshot_projection(at.context, columns, condition)
        return Scan(at.context, at.snapshot, names, predicate, at.files_since_ms, at.other)

    # ------------------------------------------------------------ changes

    @checked
    def changes(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        between: tuple[int | str | datetime, ...] | None = None,
        between_mode: str | None = None,
        auto_tag: str | None = None,
    ) -> Iterator[ChangeBatch]:
        """Read the changes of the snapshots start to end, both included.

        Without arguments, the options (`incremental-between`, …) decide.

        start: may be the snapshot after the latest: no changes yet
        end: None is the latest now
        between: (a, b) instead: the changes after a, up to and including b; two snapshot ids, tags or datetimes
        between_mode: `changelog` or `delta`: the changes of the snapshots in between; `diff`: only the difference of
            the two states. None: the changes that the table's producer makes; for two tags, the difference
        auto_tag: the difference from the last automatic tag before this one

        Raises SnapshotExpired if a snapshot of the range has expired, at once or while reading; BadInput if it does not
        exist yet.
        """
        named = ReadSelection(between=between, between_mode=between_mode, auto_tag=auto_tag)
        return ChangeRange(start, end, named).read(self._context, sequence_numbers=self._sequence_numbers)

    @checked
    def follow(
        self,
        *,
        start: StartAt | None = None,
        consumer: str | None = None,
        end: int | None = None,
        share: tuple[int, int] | None = None,
        stop: CancelEvent | None = None,
    ) -> Generator[ChangeBatch]:
        """Yield the changes of every new snapshot, until `stop` is set, or after the snapshot `end`.

        start: "latest" (only new changes), "earliest", a snapshot id, a datetime (from the first snapshot since), or a
            position (`ChangeBatch.position`, or its text): exactly after that batch. "latest-full", "compacted-full",
            "from-snapshot-full:7" and "from-file-creation-time:2026-05-01T12:00:00Z" start with the existing rows, all
            +I, and continue with changes. None: the table's options (`scan.mode`, `scan.snapshot-id`, …), otherwise
            "latest"
        consumer: keep the position in the table under this name: a later follow continues there, unless `start` is a
            position, and expiry keeps the snapshots that are not read yet. A batch counts as processed when the next
            one is requested; option `consumer.mode` defines how exactly the position is kept
        share: (index, count): this is one of `count` readers, each with its own buckets and position
        """
        follower = self.follower(start=start, consumer=consumer, end=end, share=share)
        return follow(follower, stop or env.Event())

    @checked
    def follower(
        self,
        *,
        start: StartAt | None = None,
        consumer: str | None = None,
        end: int | None = None,
        share: tuple[int, int] | None = None,
    ) -> Follower:
        """Return a follower, for callers that wait by themselves.

        Call `step()` until `is_done`, wait `wait_ms`, and call it again. At the end call `close()`. Arguments are those
        of `follow`.
        """
        context, options = self._context, self._context.options
        one_of = Subtask.of(options, share)
        name = consumer if consumer is not None else options.consumer_id
        progress = ConsumerProgress(context, name, one_of) if name is not None else None
        return Follower(
            context,
            self._follow_start(progress) if start is None else start,
            progress,
            ignores_progress=options.ignores_consumer_progress,
            bound=Bound(end, options.scan_bounded_watermark_ms),
            share=one_of,
            sequence_numbers=self._sequence_numbers,
            shown=self._shown,
        )

    def _follow_start(self, progress: ConsumerProgress | None) -> StartAt:
        """Return the start. As in Java, a consumer with a position continues there; options have no effect."""
        options = self._context.options
        if progress is not None and not options.ignores_consumer_progress and progress.read() is not None:
            return "latest"
        return Start.of_options(options) or "latest"

    # ------------------------------------------------------------ snapshots

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots, oldest first."""
        return self._context.snapshots.all()

    @checked
    def expire(
        self, *, retain_min: int | None = None, retain_max: int | None = None, retain_ms: int | None = None
    ) -> ExpiryResult:
        """Expire old snapshots, and delete the files that only they reference. Writers can continue.

        Keeps tags, and snapshots that consumers have not read yet. Unless the table is write-only, writers expire a few
        snapshots after each commit by themselves.

        retain_min: instead of option `snapshot.num-retained.min`
        retain_max: instead of option `snapshot.num-retained.max`
        retain_ms: instead of option `snapshot.time-retained`
        """
        return expire_now(
            self._context, retention=retention_of(self._context.options, retain_min, retain_max, retain_ms)
        )

    @checked
    def rollback(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        as_of: datetime | int | None = None,
        watermark: int | None = None,
        dry_run: bool = False,
    ) -> LaterStates:
        """Roll the table back to an earlier snapshot. Give one of the arguments.

        snapshot: id of the snapshot
        tag: name of a tag
        as_of: the last snapshot at this time: a datetime, or epoch milliseconds
        watermark: the last snapshot with this watermark or an earlier one

        Deletes later snapshots, changelogs and tags, and returns them. Their files become orphans. Stop writers and
        readers first: snapshot ids are reused.
        """
        self._check_changeable("rolled back")
        target = rollback_target(self._context, snapshot, tag, as_of, watermark)
        return later_states(self._context, target.id) if dry_run else roll_back(self._context, target)

    # ------------------------------------------------------------ tags

    def tags(self) -> dict[str, Snapshot]:
        return self._context.tags.all()

    @checked
    def create_tag(self, name: str, *, snapshot: int | None = None, retain: timedelta | None = None) -> Snapshot:
        """Create a tag: a named snapshot that does not expire.

        snapshot: its id; None is the latest
        retain: `expire_tags` deletes the tag after this time; None is never

        Raises BadInput if the name exists, SnapshotExpired if the snapshot is just expiring.
        """
        self._check_changeable("tagged")
        return tag_changes.create_tag(self._context, name, snapshot, retain)

    @checked
    def replace_tag(self, name: str, *, snapshot: int | None = None, retain: timedelta | None = None) -> Snapshot:
        """Move a tag to another snapshot, and delete files that only the old one needed. See `create_tag`."""
        self._check_changeable("tagged")
        return tag_changes.replace_tag(self._context, name, snapshot, retain)

    @checked
    def rename_tag(self, name: str, new_name: str) -> None:
        self._check_changeable("tagged")
        tag_changes.rename_tag(self._context, name, new_name)

    @checked
    def delete_tag(self, name: str) -> int:
        """Delete a tag and the files that only it references. Returns the number of these files."""
        self._check_changeable("tagged")
        plan = tag_changes.delete_tag(self._context, name)
        return plan.data_files + plan.metadata_files

    @checked
    def expire_tags(self, *, older_than: datetime | None = None, dry_run: bool = False) -> list[str]:
        """Delete tags whose retention has ended. Returns their names.

        older_than: also delete tags without retention that are older than this local time
        """
        self._check_changeable("tagged")
        names = [t.name for t in tag_changes.overdue_tags(self._context, older_than, now=env.local_now())]
        for name in names if not dry_run else ():
            tag_changes.delete_tag(self._context, name)
        return names

    # ------------------------------------------------------------ branches

    def branches(self) -> list[str]:
        """Return the names of branches, without `main`. `catalog.table("db.t$branch_NAME")` opens one."""
        return branch_names(self._context.io, self._context.paths)

    @checked
    def create_branch(self, name: str, *, tag: str | None = None, snapshot: int | None = None) -> None:
        """Create a branch from a tag or a snapshot, or an empty one."""
        self._check_changeable("branched")
        branch_changes.create_branch(self._context, name, tag=tag, snapshot_id=snapshot)

    @checked
    def delete_branch(self, name: str) -> None:
        """Delete a branch, its snapshots and tags. Files that only it had become orphans (`clean_orphans`)."""
        self._check_changeable("changed")
        branch_changes.delete_branch(self._context, name)

    @checked
    def rename_branch(self, name: str, new_name: str) -> None:
        """Rename a branch. Stop its writers and readers first."""
        self._check_changeable("changed")
        branch_changes.rename_branch(self._context, name, new_name)

    @checked
    def fast_forward(self, branch: str) -> Snapshot:
        """Replace the main branch by this branch: its snapshots and tags since the branch's start are replaced.

        Stop writers first. If interrupted, call it again. Returns the newest snapshot.
        """
        self._check_changeable("changed")
        return branch_changes.fast_forward(self._context, branch)

    @checked
    def merge_branch(self, branch: str) -> int | None:
        """Append the rows that another branch (also "main") has added since the branch was created.

        Append tables only; both sides may only have appended rows. Returns the snapshot's id; None if there is nothing
        new.
        """
        self._check_changeable("merged into")
        context = self._context
        if branch not in (DEFAULT_BRANCH, *self.branches()):
            raise BadInput(
                f"{context.name} has no branch {branch!r}; its branches are: {', '.join(self.branches()) or 'none'}"
            )
        return merge_branch(context, context.of_branch(branch))

    # ------------------------------------------------------------ files

    @checked
    def compact(
        self,
        *,
        full: bool = False,
        where: Predicate | Any = None,
        order_by: Sequence[str] = (),
        strategy: str | None = None,
        cancellation: CancellationToken | None = None,
    ) -> CompactionReport:
        """Rewrite files into fewer; rows do not change. Returns a report, empty if nothing is due.

        full: compact each bucket into one sorted run, or join all small files; otherwise only what is due
        where: only partitions that match; on partition columns
        order_by: sort the rows of an append table by these columns, so that filters on them read fewer files
        strategy: `order`, `zorder`, `hilbert`, or None to choose by the number of columns

        Writers can continue, and their new files are left for the next call. On tables with a primary key they should
        be write-only, or both may compact the same files. Then old snapshots expire by the table's options.

        Raises CommitConflict if others repeatedly committed first; CorruptFile for files that can't be read, after the
        other buckets are done.
        """
        request = CompactionRequest(
            full=full,
            where=as_predicate(where, self.schema) if where is not None else None,
            order_by=tuple(order_by),
            strategy=ClusteringStrategy.parse(strategy) if strategy is not None else None,
        )
        return table_compaction.compact(self._context, request, cancellation=cancellation)

    @checked
    def compact_manifests(self, *, dry_run: bool = False) -> ManifestCompaction:
        """Merge the manifests now, with an empty snapshot. Commits merge them, too, but later.

        dry_run: only count them

        Raises CommitConflict if others repeatedly committed first.
        """
        self._check_changeable("compacted")
        return compact_manifests(self._context, dry_run=dry_run)

    @checked
    def rewrite_file_index(self, *, where: Predicate | Any = None, dry_run: bool = False) -> FileIndexRewrite:
        """Build the indexes that the options `file-index.*` name, for existing files. Data files are not rewritten.

        Makes one snapshot, or none if all files have their indexes.

        where: only partitions that match; on partition columns
        dry_run: only find out which files would change

        Raises CommitConflict if others repeatedly changed the same files.
        """
        condition = as_predicate(where, self.schema) if where is not None else None
        return rewrite_file_indexes(self._context, where=condition, dry_run=dry_run)

    @checked
    def clean_orphans(self, *, older_than_ms: int = ORPHAN_AGE_MS, dry_run: bool = False) -> OrphanCleaning:
        """Delete orphan files: files that no snapshot, tag or branch references, and that are older than this (a day).

        Writers can continue, as long as no commit takes longer than that.
        """
        self._check_changeable("cleaned")
        return clean_orphans(self._context, older_than_ms=older_than_ms, dry_run=dry_run)

    # ------------------------------------------------------------ partitions, statistics

    @checked
    def expire_partitions(
        self, *, older_than: timedelta | None = None, strategy: str | None = None, dry_run: bool = False
    ) -> list[str]:
        """Drop expired partitions, at most `partition.expiration-max-num`. Older snapshots keep their rows.

        Returns the partitions: `dt=2024-05-14/hour=7`.

        older_than: instead of option `partition.expiration-time`
        strategy: "values-time" (the time in its values: `partition.timestamp-pattern`, `partition.timestamp-formatter`)
            or "update-time" (its last write), instead of option `partition.expiration-strategy`
        """
        self._check_changeable("changed")
        if strategy is not None and strategy not in tuple(PartitionExpirationStrategy):
            raise BadInput(f"strategy={strategy!r}: expected one of {', '.join(PartitionExpirationStrategy)}")
        return expire_partitions(
            self._context,
            older_than_ms=None if older_than is None else int(older_than.total_seconds() * 1000),
            strategy=None if strategy is None else PartitionExpirationStrategy(strategy),
            dry_run=dry_run,
        )

    @checked
    def mark_done(self, partitions: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> list[str]:
        """Write a `_SUCCESS` file into the directory of each partition, to mark it complete. Returns the partitions.

        partitions: column -> value each; other columns match any value

        Raises BadInput for one that matches no partition with rows.
        """
        self._check_changeable("changed")
        found = partitions_like(self._context, partitions)
        return partition_directories(self._context, found) if dry_run else mark_done(self._context, found)

    @checked
    def analyze(self, columns: Sequence[str] | None = None) -> int | None:
        """Collect statistics of rows and columns, for query planners (also Spark's) and `$statistics`.

        Reads all values of the columns. Returns the id of the snapshot with the statistics; None for a table without
        snapshots. Later snapshots keep them until the schema changes.

        columns: None is all columns whose values can be counted; an empty list counts rows only
        """
        self._check_changeable("analyzed")
        return analyze(self._context, columns)

    def statistics(self) -> TableStatistics | None:
        """Return the statistics of the last analysis; None if there was none, or the schema has changed since."""
        latest = self._context.snapshots.latest()
        return None if latest is None else read_statistics(self._context, latest)

    # ------------------------------------------------------------ repair

    @checked
    def remove_missing_files(self, *, dry_run: bool = False) -> list[str]:
        """Remove lost data files from the table's metadata, so that it can be read without their rows.

        Returns their paths.
        """
        self._check_changeable("changed")
        return remove_missing_files(self._context, dry_run=dry_run)

    @checked
    def remove_missing_manifests(self, *, dry_run: bool = False) -> list[str]:
        """Remove lost manifests from the latest snapshot. Returns their names.

        Files that they deleted are then part of the table again; call `remove_missing_files` next.
        """
        self._check_changeable("changed")
        return remove_missing_manifests(self._context, dry_run=dry_run)

    @checked
    def repair_earliest_snapshot(self, snapshot_id: int) -> int:
        """Make this snapshot the earliest one, after earlier ones were lost or deleted manually.

        Returns the previous earliest one. Raises BadInput if it does not exist, or a later one is missing.
        """
        self._check_changeable("changed")
        return repair_earliest_snapshot(self._context, snapshot_id)

    @checked
    def publish_iceberg_metadata(self, *, anew: bool = False) -> str | None:
        """Publish the metadata for Iceberg readers (option `metadata.iceberg.storage`) of the latest snapshot.

        Each commit does the same. This is for a table that got the option after its last commit, and for lost metadata.
        Returns the path of the newest metadata file; None for a table without snapshots.

        anew: replace all metadata, even if nothing is lost. It then has at most the newest 100 snapshots

        Raises BadInput if the table does not have the option, or this is a branch.
        """
        self._check_changeable("changed")
        publication = iceberg_publication_of(self._context)
        if publication is None:
            raise BadInput(
                f"{self._context.name} has no Iceberg metadata: only the main branch of a table with option "
                "metadata.iceberg.storage has it. Set the option, for example to table-location"
            )
        check_supported(self._context, Operation.WRITE)
        return publication.repair(anew=anew)

    @checked
    def purge(self) -> OrphanCleaning:
        """Delete all rows, branches, tags, consumers, changelogs and older snapshots. Stop writers and readers first.

        If it is interrupted, call it again. The table, its schemas and options stay.
        """
        self._check_changeable("purged")
        return purge(self._context)

    def _check_changeable(self, what: str) -> None:
        """Raise BadInput for a read-only table.

        what: the refused action, such as "tagged"
        """
