"""Compaction of one table as a job of its own: plan, rewrite, commit, until nothing is left to do.

The job never uses a pipeline's commit user, and publishes COMPACT snapshots only: rows stay as they are. Others may
write meanwhile, and may compact. Whoever comes second finds files gone that it read: its result is thrown away with
its files, and the buckets concerned are planned anew.

A crash leaves the old state or the new one, and files that no snapshot names.

Source: Java `flink/action/CompactAction.java`, `flink/compact/AppendTableCompact.java`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final, TypeAlias

from compaction.external_sort import PIECE_BYTES
from compaction.report import BucketCompaction, CompactionReport
from compaction.request import CompactionRequest
from compaction.stopping import CompactionStopped, StopRequest
from compaction.table_plan import Planner, Work
from storage.errors import BadInput, CommitConflict, CommitOutcomeUnknown, CorruptFile
from storage.files.data_file import DataFileMeta
from storage.format import BATCH_COMMIT_IDENTIFIER
from storage.logs import get_logger
from storage.schema_store import SchemaStore
from storage.snapshots.commit import TableCommit, new_commit_user
from storage.snapshots.commit_message import CommitMessage, Committable
from storage.snapshots.live_files import live_entries
from storage.snapshots.manifest_entry import ManifestEntry
from storage.snapshots.publisher import CommitEnvironment
from storage.snapshots.snapshot import SnapshotStore
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.compactor import CompactResult
from storage.write.router import BucketKey

_log = get_logger(__name__)

_COMMIT_BYTES_MAX: Final = 8 << 30  # of input: so that much work is safe in the table before more is begun
_LOST_IN_A_ROW_MAX: Final = 5

_Place: TypeAlias = tuple[BucketKey, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class _Done:
    """Files that are durable and nobody's yet."""

    work: Work
    result: CompactResult

    @property
    def message(self) -> CommitMessage:
        key, result = self.work.key, self.result
        return CommitMessage(
            key.partition,
            key.bucket,
            self.work.total_buckets,
            compact_before=result.before,
            compact_after=result.after,
            compact_changelog=result.changelog,
            compact_reason=str(result.reason),
        )


def compact_table(
    context: TableContext,
    request: CompactionRequest | None = None,
    *,
    stop: StopRequest | None = None,
    threads: int | None = None,
    environment: CommitEnvironment | None = None,
) -> CompactionReport:
    """Under the newest schema, whatever the context has.

    threads: how many buckets are compacted at a time; None: as many as there are cores.
    Raises BadInput and UnsupportedFeature for what can't be done to this table, CommitConflict when other commits were
    first too often, CommitOutcomeUnknown (what was written is left, for it may be part of the table).
    """
    job = _Job(
        context,
        request or CompactionRequest(),
        stop or StopRequest(),
        threads or os.cpu_count() or 1,
        environment or CommitEnvironment(),
    )
    return job.run()


class _Job:
    def __init__(
        self,
        context: TableContext,
        request: CompactionRequest,
        stop: StopRequest,
        threads: int,
        environment: CommitEnvironment,
    ) -> None:
        self._request = request
        self._context = request.accept(context)
        # What a table without a key needs is done at once; in a tree, one compaction may make another one due.
        self._once_each = request.full or not context.schema.has_primary_key
        self._stop = stop
        self._threads = threads
        self._environment = environment
        self._store = SnapshotStore(context.io, context.paths)
        self._schemas = SchemaStore(context.io, context.paths)
        self._commit_user = new_commit_user(context.options)
        self._finished: set[BucketKey] = set()
        self._buckets: list[BucketCompaction] = []
        self._snapshot_ids: list[int] = []
        self._lost = 0
        self._has_failed = threading.Event()

    def run(self) -> CompactionReport:
        lost_in_a_row = 0
        while True:
            looked_at, live = self._look()
            works = Planner(self._context, self._request, PIECE_BYTES // self._threads).plan(live, self._finished)
            if not works or self._stop.is_asked:
                return self._report(looked_at, is_stopped=bool(works))
            try:
                conflict = self._round(works)
            except CorruptFile as e:
                conflict = self._conflict_behind(e, works)
            lost_in_a_row = 0 if conflict is None else lost_in_a_row + 1
            if conflict is not None and lost_in_a_row >= _LOST_IN_A_ROW_MAX:
                raise CommitConflict(
                    f"{self._context.name}: other commits touched the files being compacted {lost_in_a_row} times in a "
                    f"row; set write-only = true on the table's writers. The last time: {conflict}"
                ) from conflict

    def _round(self, works: Sequence[Work]) -> CommitConflict | None:
        """Do what was planned, and publish it. Returns the conflict by which some of it was lost."""
        conflict: CommitConflict | None = None
        to_do = Counter(work.key for work in works)
        for group in _groups(works):
            ready = self._compact(group)
            lost, found = self._publish([one for one in ready if not one.result.is_empty])
            conflict = found or conflict
            done = [one for one in ready if self._once_each or one.result.is_empty]
            to_do.subtract(one.work.key for one in done if one not in lost)
            # Now, not at the end: an error in a later group must not have all this done again.
            self._finished |= {one.work.key for one in done if not to_do[one.work.key]}
        return conflict

    def _look(self) -> tuple[int | None, list[ManifestEntry]]:
        """The newest snapshot and its files, under a schema that knows all their columns: under an older one, those
        of a newer would be lost.
        """
        latest = self._store.latest()
        schema = self._schemas.latest()
        if schema is None:
            raise BadInput(f"{self._context.name} is no table any more: it was dropped")
        if schema.id != self._context.schema.id:
            self._context = self._request.accept(self._context.with_schema(schema))
        return (None, []) if latest is None else (latest.id, live_entries(self._context, latest))

    def _conflict_behind(self, error: CorruptFile, works: Sequence[Work]) -> CommitConflict:
        """A file may be missing because another commit replaced it, and it expired. Else raises the error."""
        _, live = self._look()
        there = _places(live)
        gone = [work for work in works if not _is_there(work.key, work.files, there)]
        if not gone:
            raise error
        self._lost += len(gone)
        return CommitConflict(str(error))

    def _report(self, looked_at: int | None, *, is_stopped: bool) -> CompactionReport:
        return CompactionReport(
            self._context.name, looked_at, tuple(self._buckets), tuple(self._snapshot_ids), self._lost, is_stopped
        )

    # ------------------------------------------------------------ rewriting

    def _compact(self, works: Sequence[Work]) -> list[_Done]:
        """What was not begun when the job is told to stop is left out. After an error no file is left behind."""
        self._has_failed.clear()
        with ThreadPoolExecutor(min(len(works), self._threads), "compaction") as pool:
            futures = [pool.submit(self._run, work) for work in works]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
            except BaseException:  # theirs, or an interrupt while we waited
                self._has_failed.set()
                wait(futures)
                self._discard(_results(future for future in futures if future.exception() is None))
                raise
        return _results(futures)

    def _run(self, work: Work) -> _Done | None:
        if self._stop.is_asked or self._has_failed.is_set():
            return None
        try:
            return _Done(work, work.run(lambda: self._stop.is_insisted or self._has_failed.is_set()))
        except CompactionStopped:
            return None

    def _discard(self, done: Iterable[_Done]) -> None:
        for one in done:
            BucketFiles(self._context, one.work.key).delete(one.result.new_files)

    # ------------------------------------------------------------ publishing

    def _publish(self, done: Sequence[_Done]) -> tuple[Sequence[_Done], CommitConflict | None]:
        """What could not be published because another commit was first, and the conflict. Its files are deleted."""
        lost: list[_Done] = []
        conflict: CommitConflict | None = None
        while done:
            try:
                snapshot_id = self._commit(done)
            except CommitConflict as e:
                conflict = e
                done, lost_now = self._split_by_conflict(done)
                self._discard(lost_now)
                lost += lost_now
                _log.warning("compaction thrown away", table=self._context.name, buckets=len(lost_now), reason=str(e))
            except CommitOutcomeUnknown:
                raise
            except Exception:  # surely not published
                self._discard(done)
                raise
            else:
                self._note(snapshot_id, done)
                break
        self._lost += len(lost)
        return lost, conflict

    def _commit(self, done: Sequence[_Done]) -> int:
        committable = Committable(BATCH_COMMIT_IDENTIFIER, [one.message for one in done])
        snapshot_id = TableCommit(self._context, self._commit_user, environment=self._environment).commit(committable)
        assert snapshot_id is not None, "only a commit of nothing makes no snapshot"
        return snapshot_id

    def _split_by_conflict(self, done: Sequence[_Done]) -> tuple[list[_Done], list[_Done]]:
        """What can still be published, and what is lost as its files are gone; all, if none are."""
        _, live = self._look()
        there = _places(live)
        standing: list[_Done] = []
        lost: list[_Done] = []
        for one in done:
            (standing if _is_there(one.work.key, one.result.before, there) else lost).append(one)
        return (standing, lost) if lost else ([], standing)

    def _note(self, snapshot_id: int, done: Sequence[_Done]) -> None:
        self._snapshot_ids.append(snapshot_id)
        for one in done:
            told = BucketCompaction.of(self._context, one.work.key, one.result)
            self._buckets.append(told)
            _log.info("compacted", table=self._context.name, snapshot=snapshot_id, **told.to_members())


def _places(live: Iterable[ManifestEntry]) -> set[_Place]:
    return {(BucketKey(e.partition, e.bucket), e.file.place) for e in live}


def _is_there(key: BucketKey, files: Iterable[DataFileMeta], places: set[_Place]) -> bool:
    return all((key, file.place) in places for file in files)


def _results(futures: Iterable[Future[_Done | None]]) -> list[_Done]:
    return [done for future in futures if (done := future.result()) is not None]


def _groups(works: Sequence[Work]) -> Iterator[list[Work]]:
    """In the order given; each is committed before the next begins."""
    group: list[Work] = []
    size = 0
    for work in works:
        group.append(work)
        size += work.size_bytes
        if size >= _COMMIT_BYTES_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group
