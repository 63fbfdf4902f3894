"""Compaction of one table as a job of its own: plan, rewrite, commit, until what was due is done.

The job never uses a pipeline's commit user, and publishes COMPACT snapshots only: rows stay as they are. Others may
write meanwhile, and may compact. Whoever comes second finds files gone that it read: its result is thrown away with
its files, and the buckets concerned are planned again.

A crash leaves the old state or the new one, and files that no snapshot names.

Source: Java `flink/action/CompactAction.java`, `flink/compact/AppendTableCompact.java`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from compaction.expiry import JobExpiry
from compaction.external_sort import PIECE_BYTES
from compaction.report import BucketCompaction, CompactionReport
from compaction.request import CompactionRequest
from compaction.scope import Scope
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
from storage.snapshots.manifest_store import ManifestStore
from storage.snapshots.metadata_cache import MetadataCache
from storage.snapshots.publisher import CommitEnvironment
from storage.snapshots.snapshot import SnapshotStore
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.compactor import CompactResult
from storage.write.router import BucketKey

_log = get_logger(__name__)

_COMMIT_BYTES_MAX: Final = 8 << 30  # of input: so that much work is safe in the table before more is begun
_LOST_IN_A_ROW_MAX: Final = 5
# Writers go on however long a job waits, so waits that double only keep its work from the table: 13 s beside 20 commits
# a second.
_RETRY_WAIT_MAX_MS: Final = 200
_EXPIRED_IN_A_ROW_MAX: Final = 10  # a manifest that is damaged fails for ever, however many snapshots follow

T = TypeVar("T")

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
            compact_tombstones=result.tombstones,
            known_files=result.known_files,
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

    Ends also while others write: it does what was due when it began, and what becomes due by that. Then old snapshots
    expire.

    threads: how many buckets are compacted at a time; None: as many as there are cores.
    Raises CorruptFile for files that can't be read, when the other buckets are done. Raises BadInput and
    UnsupportedFeature for what can't be done to this table, CommitConflict when other commits were first too often,
    CommitOutcomeUnknown (what was written is left, for it may be part of the table).
    """
    stop = stop or StopRequest()
    with JobExpiry(stop) as expiry:
        report = _Job(context, request or CompactionRequest(), stop, expiry, threads, environment).run()
    if report.error is not None:
        raise report.error
    return report


def compact_round(
    context: TableContext,
    request: CompactionRequest,
    *,
    stop: StopRequest,
    expiry: JobExpiry,
    cache: MetadataCache | None = None,
    threads: int | None = None,
) -> CompactionReport:
    """One look, and what is due by it: a part of a job that has no end. cache: of manifests, for many rounds.

    What is damaged, and that all was lost, is told, not raised. looked_at: unless has_more is set, nothing is left to
    do in the snapshot of this id; it is another's when others committed meanwhile.
    """
    return _Job(context, request, stop, expiry, threads, cache=cache).one_round()


class _Job:
    def __init__(
        self,
        context: TableContext,
        request: CompactionRequest,
        stop: StopRequest,
        expiry: JobExpiry,
        threads: int | None,
        environment: CommitEnvironment | None = None,
        cache: MetadataCache | None = None,
    ) -> None:
        self._is_write_only = context.options.write_only
        self._request = request
        self._context = request.accept(context)
        # What a table without a key needs is done at once; in a tree, one compaction may make another one due.
        self._once_each = request.full or not context.schema.has_primary_key
        self._stop = stop
        self._expiry = expiry
        self._threads = threads or os.cpu_count() or 1
        self._environment = _impatient(environment or CommitEnvironment(), context.options.commit_min_retry_wait_ms)
        self._cache = cache or MetadataCache()
        self._manifests = ManifestStore(self._context, self._cache)
        self._store = SnapshotStore(context.io, context.paths)
        self._schemas = SchemaStore(context.io, context.paths)
        self._commit_user = new_commit_user(context.options)
        self._seen_id: int | None = None
        self._scope = Scope()
        self._finished: set[BucketKey] = set()
        self._buckets: list[BucketCompaction] = []
        self._snapshot_ids: list[int] = []
        self._lost = 0
        self._unreadable: list[tuple[Work, CorruptFile]] = []  # in this round
        self._damage: list[CorruptFile] = []
        self._has_failed = threading.Event()

    def run(self) -> CompactionReport:
        lost_in_a_row = 0
        while True:
            looked_at, works = self._plan()
            if not works or self._stop.is_asked:
                return self._report(looked_at, is_stopped=bool(works))
            conflict = self._round(works)
            lost_in_a_row = 0 if conflict is None else lost_in_a_row + 1
            if conflict is not None and lost_in_a_row >= _LOST_IN_A_ROW_MAX:
                raise self._lost_to(conflict, "some", f" {lost_in_a_row} times in a row") from conflict

    def one_round(self) -> CompactionReport:
        looked_at, works = self._plan()
        if not works or self._stop.is_asked:
            return self._report(looked_at, is_stopped=bool(works))
        conflict = self._round(works)
        if looked_at is not None:
            looked_at += len(self._snapshot_ids)
        report = self._report(
            looked_at,
            is_stopped=self._stop.is_asked,  # which buckets were left out because of it, nobody knows
            has_more=bool(self._lost or (self._buckets and not self._once_each)),
        )
        if conflict is None or report.buckets or report.error is not None:
            return report
        return replace(report, error=self._lost_to(conflict, "all"))

    def _lost_to(self, conflict: CommitConflict, share: str, how_often: str = "") -> CommitConflict:
        remedy = (
            "its writers are write-only; if another compaction job is at work on it, end one of them"
            if self._is_write_only
            else "set write-only = true on the table's writers"
        )
        return CommitConflict(
            f"{self._context.name}: other commits touched {share} of the files being compacted{how_often}; {remedy}. "
            f"The last time: {conflict}"
        )

    def _plan(self) -> tuple[int | None, list[Work]]:
        """The snapshot looked at, and what is due in it."""
        looked_at, live = self._look()
        entries = self._scope.of(live)
        works = Planner(self._context, self._request, PIECE_BYTES // self._threads).plan(entries, self._finished)
        self._scope.narrow(entries, {work.key for work in works})
        return looked_at, works

    def _round(self, works: Sequence[Work]) -> CommitConflict | None:
        """Do what was planned, and publish it. Returns the conflict by which some of it was lost."""
        conflict: CommitConflict | None = None
        to_do = Counter(work.key for work in works)
        for group in _groups(works):
            ready = self._compact(group)
            lost, found = self._publish([one for one in ready if not one.result.is_empty])
            conflict = found or conflict
            for one in lost:
                self._scope.renew(one.work.key)
            done = [one for one in ready if self._once_each or one.result.is_empty]
            to_do.subtract(one.work.key for one in done if one not in lost)
            # Now, not at the end: an error in a later group must not have all this done again.
            self._finished |= {one.work.key for one in done if not to_do[one.work.key]}
        return self._conflict_behind_unreadable() or conflict

    def _look(self) -> tuple[int | None, list[ManifestEntry]]:
        """The newest snapshot and its files, under a schema that knows all their columns: under an older one, those
        of a newer would be lost.
        """

        def look() -> tuple[int | None, list[ManifestEntry]]:
            latest = self._store.latest()
            schema = self._schemas.latest()
            if schema is None:
                raise BadInput(f"{self._context.name} is no table any more: it was dropped")
            if schema.id != self._context.schema.id:
                self._context = self._request.accept(self._context.with_schema(schema))
                self._manifests = ManifestStore(self._context, self._cache)
            if latest is None:
                return None, []
            return latest.id, live_entries(self._context, latest, manifests=self._manifests)

        self._seen_id, live = self._despite_expiry(look)
        return self._seen_id, live

    def _despite_expiry(self, action: Callable[[], T]) -> T:
        """What reads metadata of the newest snapshot, which may expire meanwhile: then there is a newer one."""
        seen_id = self._seen_id
        for _ in range(_EXPIRED_IN_A_ROW_MAX):
            try:
                return action()
            except (CorruptFile, FileNotFoundError):
                latest_id = self._store.latest_id()
                if latest_id == seen_id:
                    raise
                seen_id = latest_id
        return action()

    def _conflict_behind_unreadable(self) -> CommitConflict | None:
        """A file may be missing because another commit replaced it, and it expired. Else it is damaged, and its bucket
        is left alone.
        """
        unreadable, self._unreadable = self._unreadable, []
        if not unreadable:
            return None
        _, live = self._look()
        there = _places(live)
        conflict: CommitConflict | None = None
        for work, error in unreadable:
            if _is_there(work.key, work.files, there):
                self._damage.append(error)
                self._finished.add(work.key)
            else:
                self._lost += 1
                self._scope.renew(work.key)
                conflict = CommitConflict(str(error))
        return conflict

    def _report(self, looked_at: int | None, *, is_stopped: bool = False, has_more: bool = False) -> CompactionReport:
        return CompactionReport(
            self._context.name,
            looked_at,
            tuple(self._buckets),
            tuple(self._snapshot_ids),
            self._lost,
            is_stopped,
            has_more,
            self._told_damage(),
        )

    def _told_damage(self) -> CorruptFile | None:
        if not self._damage:
            return None
        first, count = self._damage[0], len(self._damage)
        others = f", and {count - 1} more like it" if count > 1 else ""
        remedy = (
            f"{first.found}{others}. Other buckets were compacted all the same; `tidelake table verify "
            f"{self._context.name}` tells all that is wrong"
        )
        return CorruptFile(first.path, first.expected, remedy, first.offset)

    # ------------------------------------------------------------ rewriting

    def _compact(self, works: Sequence[Work]) -> list[_Done]:
        """What was not begun when the job is told to stop is left out, and what can't be read. After another error, as
        of a full disk, no file is left behind.
        """
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
        except CorruptFile as e:
            self._unreadable.append((work, e))
            return None

    def _discard(self, done: Iterable[_Done]) -> None:
        for one in done:
            BucketFiles(self._context, one.work.key).delete(one.result.new_files)

    # ------------------------------------------------------------ publishing

    def _publish(self, done: Sequence[_Done]) -> tuple[Sequence[_Done], CommitConflict | None]:
        """What could not be published because another commit was first, and the conflict. Its files are deleted."""
        lost: list[_Done] = []
        conflict: CommitConflict | None = None
        conflicts = 0
        while done:
            try:
                snapshot_id = self._commit(done)
            except CommitConflict as e:
                conflict = e
                conflicts += 1
                done, lost_now = self._split_by_conflict(done)
                if not lost_now and conflicts < _LOST_IN_A_ROW_MAX:
                    continue  # others were only quicker
                done, lost_now = (done, lost_now) if lost_now else ([], done)
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
        return lost, conflict if lost else None

    def _commit(self, done: Sequence[_Done]) -> int:
        committable = Committable(BATCH_COMMIT_IDENTIFIER, [one.message for one in done])
        commit = TableCommit(self._context, self._commit_user, environment=self._environment, manifests=self._manifests)
        snapshot_id = self._despite_expiry(lambda: commit.commit(committable))
        assert snapshot_id is not None, "only a commit of nothing makes no snapshot"
        return snapshot_id

    def _split_by_conflict(self, done: Sequence[_Done]) -> tuple[list[_Done], list[_Done]]:
        """What can still be published, and what is lost as its files are gone."""
        _, live = self._look()
        there = _places(live)
        standing: list[_Done] = []
        lost: list[_Done] = []
        for one in done:
            (standing if _is_there(one.work.key, one.result.before, there) else lost).append(one)
        return standing, lost

    def _note(self, snapshot_id: int, done: Sequence[_Done]) -> None:
        self._snapshot_ids.append(snapshot_id)
        self._expiry.published(self._context, snapshot_id)
        for one in done:
            self._scope.add(one.work.key, one.result.after)
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


def _impatient(environment: CommitEnvironment, min_wait_ms: float) -> CommitEnvironment:
    most_ms = max(_RETRY_WAIT_MAX_MS, min_wait_ms)
    return replace(environment, sleep_ms=lambda wait_ms: environment.sleep_ms(min(wait_ms, most_ms)))
