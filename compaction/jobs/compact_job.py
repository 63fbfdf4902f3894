"""Compacts one table as a dedicated job: plan, rewrite, commit, until everything that was due is done.

The job never uses a pipeline's commit user, and publishes only COMPACT snapshots, which change no rows. Others may
write and compact meanwhile. The job that commits second finds that files it read were deleted: its result and its files
are discarded, and these buckets are planned again.

A crash leaves the old state or the new one, and files that no snapshot names.

Source: Java `flink/action/CompactAction.java`, `flink/compact/AppendTableCompact.java`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION
from dataclasses import replace
from typing import Final, TypeVar

from tidelake.compaction.append.external_sort import PIECE_BYTES
from tidelake.compaction.cancellation import CancellationToken, CompactionCancelled
from tidelake.compaction.jobs.job_expiry import JobExpiry
from tidelake.compaction.jobs.job_scope import JobScope
from tidelake.compaction.jobs.planner import CompactTask, TaskResult, TaskRunner, plan_tasks
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.jobs.table_files import TableFiles
from tidelake.compaction.report import BucketCompaction, CompactionReport
from tidelake.errors import BadInput, CommitConflict, CommitOutcomeUnknown, CorruptFile
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.progress import Advance, counted
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.manifests.index_manifest import index_files_by_bucket
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.publisher import CommitEnvironment
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.deletion_vector_maintainer import DeletionVectorMaintainer, write_index_changes

_log = get_logger(__name__)

COMMIT_BYTES_MAX: Final = 8 << 30  # of input: this much work is committed before more is started
_MAX_CONSECUTIVE_CONFLICTS: Final = 5
# Writers continue while a job waits, so doubling waits would only delay its commit: by 13 s with 20 commits
# per second.
_RETRY_WAIT_MAX_MS: Final = 200
_MAX_CONSECUTIVE_EXPIRATIONS: Final = 10  # a damaged manifest always fails, even in later snapshots

T = TypeVar("T")


def compact_table(
    context: TableContext,
    request: CompactionRequest | None = None,
    *,
    cancellation: CancellationToken | None = None,
    threads: int | None = None,
    environment: CommitEnvironment | None = None,
    task_runner: TaskRunner | None = None,
) -> CompactionReport:
    """Compact a table, with its newest schema.

    It compacts what is due at the start, and what becomes due by that. So it ends even if others keep writing. Then old
    snapshots expire.

    threads: buckets to compact at a time; None: the number of cores
    task_runner: runs tasks on other machines; None: in threads

    Raises
    - CorruptFile for files that can't be read, after the other buckets are done;
    - BadInput and UnsupportedFeature for requests that this table can't fulfil;
    - CommitConflict if other commits were first too often;
    - CommitOutcomeUnknown: the written files are kept, as they may be part of the table.
    """
    cancellation = cancellation or CancellationToken()
    with JobExpiry(cancellation) as expiry:
        report = _Job(
            context, request or CompactionRequest(), cancellation, expiry, threads, environment, task_runner
        ).run()
    if report.error is not None:
        raise report.error
    return report


def compact_round(
    context: TableContext,
    request: CompactionRequest,
    *,
    cancellation: CancellationToken,
    expiry: JobExpiry,
    threads: int | None = None,
) -> CompactionReport:
    """Plan once, and compact what is due: one round of a job without an end.

    Damaged files, and a conflict that lost everything, are in the report's error; they are not raised.
    Unless has_more is set, nothing is left to do in the snapshot planned_snapshot_id of the report. That id is another
    writer's snapshot if others committed meanwhile.
    """
    return _Job(context, request, cancellation, expiry, threads).run_round()


class _Job:
    def __init__(
        self,
        context: TableContext,
        request: CompactionRequest,
        cancellation: CancellationToken,
        expiry: JobExpiry,
        threads: int | None,
        environment: CommitEnvironment | None = None,
        task_runner: TaskRunner | None = None,
    ) -> None:
        self._task_runner = task_runner
        self._is_write_only = context.options.write_only
        self._request = request
        self._context = request.prepare(context)
        # A table without a key is done in one pass; in a merge tree, a compaction may make another one due.
        self._is_single_pass = request.full or not context.schema.has_primary_key
        self._cancellation = cancellation
        self._expiry = expiry
        self._threads = threads or os.cpu_count() or 1
        self._environment = _with_retry_wait_limit(
            environment or CommitEnvironment(), context.options.commit_min_retry_wait_ms
        )
        self._store = context.snapshots
        self._schemas = context.schemas
        self._commit_user = new_commit_user(context.options)
        self._table = TableFiles(self._context)  # as it was last read
        self._seen_id: int | None = None
        self._scope = JobScope()
        self._finished: set[BucketId] = set()
        self._buckets: list[BucketCompaction] = []
        self._snapshot_ids: list[int] = []
        self._lost = 0
        self._unreadable: list[tuple[CompactTask, CorruptFile]] = []  # in this round
        self._damage: list[CorruptFile] = []
        self._has_failed = env.Event()
        self._advance: Advance = lambda _: None

    def run(self) -> CompactionReport:
        lost_in_a_row = 0
        while True:
            planned_snapshot_id, tasks = self._plan()
            if not tasks or self._cancellation.is_cancelled:
                return self._report(planned_snapshot_id, is_cancelled=bool(tasks))
            conflict = self._round(tasks)
            lost_in_a_row = 0 if conflict is None else lost_in_a_row + 1
            if conflict is not None and lost_in_a_row >= _MAX_CONSECUTIVE_CONFLICTS:
                raise self._conflict_error(conflict, "some", f" {lost_in_a_row} times in a row") from conflict

    def run_round(self) -> CompactionReport:
        planned_snapshot_id, tasks = self._plan()
        if not tasks or self._cancellation.is_cancelled:
            return self._report(planned_snapshot_id, is_cancelled=bool(tasks))
        conflict = self._round(tasks)
        if planned_snapshot_id is not None:
            planned_snapshot_id += len(self._snapshot_ids)
        report = self._report(
            planned_snapshot_id,
            is_cancelled=self._cancellation.is_cancelled,  # unknown: the buckets that were skipped
            has_more=bool(self._lost or (self._buckets and not self._is_single_pass)),
        )
        if conflict is None or report.buckets or report.error is not None:
            return report
        return replace(report, error=self._conflict_error(conflict, "all"))

    def _conflict_error(self, conflict: CommitConflict, share: str, how_often: str = "") -> CommitConflict:
        remedy = (
            "its writers are write-only; if another compaction job runs on it, stop one of them"
            if self._is_write_only
            else "set write-only = true on the table's writers"
        )
        return CommitConflict(
            f"{self._context.name}: other commits touched {share} of the files being compacted{how_often}; {remedy}. "
            f"The last time: {conflict}"
        )

    def _plan(self) -> tuple[int | None, list[CompactTask]]:
        """Return the snapshot that was read, and the tasks that are due in it."""
        table = self._read_live_files()
        entries = self._scope.filter(table.entries)
        tasks = plan_tasks(
            self._context,
            self._request,
            replace(table, entries=entries),
            self._finished,
            piece_bytes=PIECE_BYTES // self._threads,
        )
        self._scope.narrow(entries, {task.key for task in tasks})
        return table.snapshot_id, tasks

    def _round(self, tasks: Sequence[CompactTask]) -> CommitConflict | None:
        """Run and publish the tasks. Returns the conflict that lost some of them."""
        conflict: CommitConflict | None = None
        to_do = Counter(task.key for task in tasks)
        for group in _groups(tasks):
            ready = self._compact(group)
            lost, found = self._publish([one for one in ready if not one.result.is_empty])
            conflict = found or conflict
            for one in lost:
                self._scope.refresh(one.task.key)
            done = [one for one in ready if self._is_single_pass or one.result.is_empty]
            to_do.subtract(one.task.key for one in done if one not in lost)
            # Now, not at the end: after an error in a later group, this must not be done again.
            self._finished |= {one.task.key for one in done if not to_do[one.task.key]}
        return self._check_unreadable() or conflict

    def _read_live_files(self) -> TableFiles:
        """Return the files of the newest snapshot, under a schema that has all their columns.

        Under an older schema, newer columns would be lost.
        """

        def read_table_files() -> TableFiles:
            latest = self._store.latest()
            schema = self._schemas.latest()
            if schema is None:
                raise BadInput(f"{self._context.name} no longer exists: the table was dropped")
            if schema.id != self._context.schema.id:
                self._context = self._request.prepare(self._context.with_schema(schema))
            if latest is None:
                return TableFiles(self._context)
            manifests = self._context.shared(ManifestStore)
            index = index_files_by_bucket(manifests.read_index(latest.index_manifest))
            return TableFiles(self._context, latest.id, live_entries(self._context, latest), index)

        self._table = self._retry_when_expired(read_table_files)
        self._seen_id = self._table.snapshot_id
        return self._table

    def _retry_when_expired(self, action: Callable[[], T]) -> T:
        """Run an action that reads metadata of the newest snapshot. If that expires, a newer one exists; try again."""
        seen_id = self._seen_id
        for _ in range(_MAX_CONSECUTIVE_EXPIRATIONS):
            try:
                return action()
            except (CorruptFile, FileNotFoundError):
                latest_id = self._store.latest_id()
                if latest_id == seen_id:
                    raise
                seen_id = latest_id
        return action()

    def _check_unreadable(self) -> CommitConflict | None:
        """Sort out unreadable files: another commit replaced the file, and it expired; or it is damaged.

        The bucket of a damaged file is not compacted.
        """
        unreadable, self._unreadable = self._unreadable, []
        if not unreadable:
            return None
        table = self._read_live_files()
        conflict: CommitConflict | None = None
        for task, error in unreadable:
            if table.holds(task.key, task.files, task.deletion_files):
                self._damage.append(error)
                self._finished.add(task.key)
            else:
                self._lost += 1
                self._scope.refresh(task.key)
                conflict = CommitConflict(str(error))
        return conflict

    def _report(
        self, planned_snapshot_id: int | None, *, is_cancelled: bool = False, has_more: bool = False
    ) -> CompactionReport:
        return CompactionReport(
            self._context.name,
            planned_snapshot_id,
            tuple(self._buckets),
            tuple(self._snapshot_ids),
            self._lost,
            is_cancelled,
            has_more,
            self._damage_error(),
        )

    def _damage_error(self) -> CorruptFile | None:
        if not self._damage:
            return None
        first, count = self._damage[0], len(self._damage)
        others = f", and {count - 1} more like it" if count > 1 else ""
        remedy = (
            f"{first.found}{others}. Other buckets were compacted all the same; `tidelake table verify "
            f"{self._context.name}` lists all damage"
        )
        return CorruptFile(first.path, first.expected, remedy, first.offset)

    # ------------------------------------------------------------ rewriting

    def _compact(self, tasks: Sequence[CompactTask]) -> list[TaskResult]:
        """Run tasks. Tasks that were not started before a cancellation, and unreadable ones, are left out.

        After another error, such as a full disk, no file is left.
        """
        if self._task_runner is not None:
            return self._collect_results(tasks, self._task_runner(tasks))
        self._has_failed.clear()
        total = sum(task.size_bytes for task in tasks)
        threads = env.ThreadPoolExecutor(min(len(tasks), self._threads), "compaction")
        with counted("compacting", total, "bytes") as self._advance, threads as pool:
            futures = [pool.submit(self._run, task) for task in tasks]
            try:
                env.wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
            except BaseException:  # an error of a task, or an interrupt while waiting
                self._has_failed.set()
                env.wait(futures)
                self._discard(_results(future for future in futures if future.exception() is None))
                raise
        return _results(futures)

    def _run(self, task: CompactTask) -> TaskResult | None:
        if self._cancellation.is_cancelled or self._has_failed.is_set():
            return None
        try:
            result = task.run(lambda: self._cancellation.is_cancelled_now or self._has_failed.is_set())
            self._advance(task.size_bytes)
            return TaskResult(task, result)
        except CompactionCancelled:
            return None
        except CorruptFile as e:
            self._unreadable.append((task, e))
            return None

    def _collect_results(
        self, tasks: Sequence[CompactTask], found: Sequence[CompactResult | CorruptFile]
    ) -> list[TaskResult]:
        """Return the results of tasks that ran elsewhere."""
        done = []
        for task, result in zip(tasks, found, strict=True):
            if isinstance(result, CorruptFile):
                self._unreadable.append((task, result))
            else:
                done.append(TaskResult(task, result))
        return done

    def _discard(self, done: Iterable[TaskResult]) -> None:
        for one in done:
            BucketFiles(self._context, one.task.key).discard(one.result)

    # ------------------------------------------------------------ publishing

    def _publish(self, done: Sequence[TaskResult]) -> tuple[Sequence[TaskResult], CommitConflict | None]:
        """Publish results.

        Returns those that lost against another commit, with the conflict. Their files are deleted.
        """
        lost: list[TaskResult] = []
        conflict: CommitConflict | None = None
        conflicts = 0
        while done:
            try:
                snapshot_id = self._commit(done)
            except CommitConflict as e:
                conflict = e
                conflicts += 1
                done, conflicting = self._split_by_conflict(done)
                if not conflicting and conflicts < _MAX_CONSECUTIVE_CONFLICTS:
                    continue  # no file was lost: another commit was only faster
                done, conflicting = (done, conflicting) if conflicting else ([], done)
                self._discard(conflicting)
                lost += conflicting
                _log.warning("compaction discarded", table=self._context.name, buckets=len(conflicting), reason=str(e))
            except CommitOutcomeUnknown:
                raise
            except Exception:  # certainly not published
                self._discard(done)
                raise
            else:
                self._record_commit(snapshot_id, done)
                break
        self._lost += len(lost)
        return lost, conflict if lost else None

    def _commit(self, done: Sequence[TaskResult]) -> int:
        index = self._without_vectors(done)
        committable = Committable(BATCH_COMMIT_IDENTIFIER, [*(one.message for one in done), *index])
        commit = TableCommit(self._context, self._commit_user, environment=self._environment)
        try:
            snapshot_id = self._retry_when_expired(lambda: commit.commit(committable))
        except CommitOutcomeUnknown:
            raise
        except Exception:
            commit.abort(index)
            raise
        assert snapshot_id is not None, "a commit that changes something always creates a snapshot"
        return snapshot_id

    def _without_vectors(self, done: Sequence[TaskResult]) -> list[CommitMessage]:
        """Write index files of append tables without the deletion vectors of rewritten files.

        Several tasks of a bucket may have their vectors in one file.
        """
        if self._context.schema.has_primary_key:
            return []
        maintainers: dict[BucketId, DeletionVectorMaintainer] = {}
        for one in done:
            key = one.task.key
            if key not in maintainers:
                maintainers[key] = DeletionVectorMaintainer(self._context, key, self._table.index_files(key))
            for file in one.result.before:
                maintainers[key].remove(file.file_name)
        return write_index_changes(self._context, maintainers, compaction=True)

    def _split_by_conflict(self, done: Sequence[TaskResult]) -> tuple[list[TaskResult], list[TaskResult]]:
        """Return the results that can still be published, and those that are lost because their input is gone."""
        table = self._read_live_files()
        publishable: list[TaskResult] = []
        lost: list[TaskResult] = []
        for one in done:
            done_before, relied_on = one.result.before, one.result.relied_on
            is_live = table.holds(one.task.key, done_before, one.task.deletion_files, relied_on)
            (publishable if is_live else lost).append(one)
        return publishable, lost

    def _record_commit(self, snapshot_id: int, done: Sequence[TaskResult]) -> None:
        self._snapshot_ids.append(snapshot_id)
        self._expiry.published(self._context, snapshot_id)
        for one in done:
            self._scope.add(one.task.key, one.result.after)
            compacted = BucketCompaction.of(self._context, one.task.key, one.result)
            self._buckets.append(compacted)
            _log.info("compacted", table=self._context.name, snapshot=snapshot_id, **compacted.to_members())


def _results(futures: Iterable[env.Future[TaskResult | None]]) -> list[TaskResult]:
    return [done for future in futures if (done := future.result()) is not None]


def _groups(tasks: Sequence[CompactTask]) -> Iterator[list[CompactTask]]:
    """Group tasks in their order. Each group is committed before the next starts."""
    group: list[CompactTask] = []
    size = 0
    for task in tasks:
        group.append(task)
        size += task.size_bytes
        if size >= COMMIT_BYTES_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group


def _with_retry_wait_limit(environment: CommitEnvironment, min_wait_ms: float) -> CommitEnvironment:
    most_ms = max(_RETRY_WAIT_MAX_MS, min_wait_ms)
    return replace(environment, sleep_ms=lambda wait_ms: environment.sleep_ms(min(wait_ms, most_ms)))
