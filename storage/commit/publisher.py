"""Commits one snapshot, safe against concurrent commits and unknown answers of the store.

Invariants
    A. snapshot-N is created only if absent, and counts only if it was built on the current snapshot N-1. So states form
       one chain, and no commit is lost.
    B. (commit user, identifier, kind) is published at most once, except COMPACT snapshots of level 0 (`is_more`), which
       change no rows. An identifier below its user's newest is an error.
    C. A file that a snapshot may reference is never deleted, even if the outcome of its publication is unknown.

Steps of one attempt, and what remains after a crash in each step
    1. Refresh: read the newest snapshot, and all since the last refresh. Check that the snapshots seen before still
       exist, that the table is the same, and whether the identifier is already committed or an earlier attempt was
       published. The guard may refuse the commit: a newer writer fenced this one.
       *Crash: nothing remains.*
    2. Compute the changes from that snapshot, and check them for conflicts (`conflict_check`).
       *Crash: nothing remains.*
    3. Write manifests and manifest lists under new names.
       *Crash: orphans remain, files that no snapshot names.*
    4. Pass it to the catalog's `SnapshotCommit`. **This is the commit.** The one of the file system
       (`file_system_commit`)
       a. creates snapshot-N if absent.
          *Crash: it is published, or orphans remain; step 1 of the next process finds out which.*
       b. checks that it is the next snapshot, and withdraws it if it is not.
          *Crash before that: a file outside of the chain remains, which no reader follows.*
       c. writes the hint.
          *Crash: the hint is outdated; readers list the directory.*

Answers of step 4
    True        Committed.
    False       Lost: another snapshot has this id. Delete our orphans, and start again.
    an error    Unknown: our file may still appear. Start again: step 1 finds it, or finds that another snapshot has N
                (lost), or N is free and the next attempt competes with the first; only one of them can win.
CommitOutcomeUnknown is raised if attempts or time run out, or anything else fails, while an outcome is unknown.

Source: Java `operation/FileStoreCommitImpl.java`.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelake.errors import BadInput, CommitConflict, CommitOutcomeUnknown, TidelakeError, UnsupportedFeature
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.commit_request import CommitRequest, CommitResult
from tidelake.storage.commit.concurrent_writes import OwnSnapshots
from tidelake.storage.commit.conflict_check import ConflictCheck
from tidelake.storage.commit.file_system_commit import snapshot_commit_of
from tidelake.storage.commit.iceberg.publication import iceberg_publication_of
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.owner_process import OwnerProcess
from tidelake.storage.commit.snapshot_builder import (
    CommitMetadata,
    PreparedSnapshot,
    SnapshotBuilder,
    partition_statistics,
)
from tidelake.storage.commit.snapshot_tracker import NewSnapshots, SnapshotTracker
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.table import TableContext

Guard = Callable[[Sequence[Snapshot]], None]


@dataclass(frozen=True, slots=True)
class CommitEnvironment:
    """Clock, randomness and uuids. Tests replace them.

    random: returns a number from 0 up to, not including, 1.
    """

    now_ms: Callable[[], int] = epoch_ms
    monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000
    sleep_ms: Callable[[float], None] = lambda wait_ms: time.sleep(wait_ms / 1000)
    random: Callable[[], float] = random.random
    new_uuid: Callable[[], str] = lambda: str(uuid.uuid4())


class Publisher:
    """Publishes the snapshots of one commit user to one table.

    guard: gets all snapshots since the last refresh; raises WriterFenced to stop a commit before it is published
    attempts: number of attempts to commit a snapshot since this was created; each retry counts
    Not thread-safe, and only for the process that created it.
    """

    def __init__(
        self,
        context: TableContext,
        commit_user: str,
        guard: Guard | None,
        environment: CommitEnvironment,
    ) -> None:
        self._context = context
        self._owner = OwnerProcess(f"{context.name}: the writer that commits as {commit_user!r}")
        self._options = context.options
        self._commit_user = commit_user
        self._guard = guard
        self._unguarded = NewSnapshots([])  # known to us, but not yet passed to the guard
        self.attempts = 0
        self._environment = environment
        self._manifests = context.shared(ManifestStore)
        self._snapshot_commit = snapshot_commit_of(context)
        self._store = context.snapshots
        self._tracker = SnapshotTracker(self._store, commit_user, context.name, context.identity)
        self._builder = SnapshotBuilder(context)
        self._schema_id = context.schema.id  # the latest one that is known
        self._own = OwnSnapshots()
        self._in_doubt: set[str | None] = set()  # the uuids of our attempts that may be published
        self._conflicts = ConflictCheck(context, self._own)
        self._iceberg = iceberg_publication_of(context)

    def adopt_schema(self, context: TableContext) -> None:
        """Use this version of the schema for later commits. The table and its keys must be the same."""
        self._context = self._conflicts.context = context
        self._builder = SnapshotBuilder(context)
        self._iceberg = iceberg_publication_of(context)

    def publish(self, request: CommitRequest) -> CommitResult:
        """Publish the snapshot, with retries until the outcome is known.

        Raises CommitOutcomeUnknown. After any other error, including errors of the store, this call has published
        nothing and never will. After an interrupt (not an `Exception`) the outcome is unknown.
        """
        self._owner.check()
        unknown: list[PreparedSnapshot] = []  # published, but the store did not answer whether it succeeded
        last_error: Exception | None = None
        started_ms = self._environment.monotonic_ms()
        retry = 0
        while True:
            try:
                result = self._attempt(request, unknown, retry)
            except TidelakeError as e:
                if unknown and not isinstance(e, CommitOutcomeUnknown):
                    raise self._outcome_unknown_error(request, e) from e
                raise
            except Exception as e:
                if not unknown:
                    raise
                last_error, result = e, None
            if result is not None:
                if self._iceberg is not None:
                    self._iceberg.publish_committed(result.snapshot)
                return result
            if self._is_exhausted(retry, started_ms):
                if unknown:
                    raise self._outcome_unknown_error(request, last_error) from last_error
                raise CommitConflict(
                    f"{self._context.name}: other writers committed first {retry + 1} times in a row, and nothing of "
                    "this commit was published. Commit again, or raise commit.max-retries"
                )
            self._environment.sleep_ms(self._wait_ms(retry))
            retry += 1

    def latest_of_user(self) -> Snapshot | None:
        """Return our user's newest numbered snapshot now. The next commit passes it and later ones to the guard."""
        self._refresh(search_own=True)
        return self.known_latest_of_user

    @property
    def known_latest_of_user(self) -> Snapshot | None:
        """Our user's newest known numbered snapshot. Reads nothing."""
        return self._tracker.latest_of_user

    @property
    def snapshots_since_guard(self) -> Sequence[Snapshot]:
        """Known snapshots since the last call of the guard; before it, since our newest snapshot. Reads nothing."""
        return self._unguarded.snapshots

    def snapshots_of_user(self, identifier: int) -> Sequence[Snapshot] | None:
        """Return our snapshots of the newest known identifier: that of its rows, of its compaction, or both.

        Returns None if one may have expired.
        """
        found: list[Snapshot] = []
        newest = self._tracker.latest_of_user
        for snapshot in self._store.backwards_from(newest) if newest is not None else ():
            if snapshot.commit_user == self._commit_user and snapshot.is_numbered:
                if snapshot.commit_identifier != identifier:
                    return found
                found.append(snapshot)
                if snapshot.commit_kind is not CommitKind.COMPACT:
                    return found
            if snapshot.id == FIRST_SNAPSHOT_ID:
                return found
        return None

    # ------------------------------------------------------------ one attempt

    def _attempt(self, request: CommitRequest, unknown: list[PreparedSnapshot], retry: int) -> CommitResult | None:
        """Return None to try again. Updates `unknown`."""
        self.attempts += 1
        self._refresh(search_own=request.is_numbered or self._guard is not None)
        published = self._find_published(unknown)
        if published is not None:
            return self._resolve(
                published, unknown, self._snapshot_commit.is_committed(published.base, published.snapshot)
            )
        # Before the identifier is looked up: it may count as committed because the writer that fenced us used it.
        self._run_guard()
        committed = self._find_already_committed(request)
        if committed is not None:
            return committed

        base = self._tracker.latest
        self._schema_id = self._context.schemas.latest_id_from(self._schema_id)
        checked = self._conflicts.check(request, base, self._schema_id)
        prepared = self._builder.build(
            base,
            checked.changes,
            checked.index,
            self._metadata(request),
            schema_id=self._schema_id,
            merge=retry == 0,
        )
        unknown.append(prepared)
        self._in_doubt.add(prepared.snapshot.uuid)
        try:
            is_committed = self._snapshot_commit.commit(
                base, prepared.snapshot, lambda: partition_statistics(checked.changes.entries)
            )
        except (UnsupportedFeature, CommitConflict):
            self._discard(prepared, unknown)
            raise
        return self._resolve(prepared, unknown, is_committed)

    def _refresh(self, *, search_own: bool) -> None:
        new_snapshots = self._tracker.refresh(search_own=search_own)
        for snapshot in new_snapshots.snapshots:
            if snapshot.uuid in self._in_doubt:  # it was published, though the store gave no answer
                self._own.add(snapshot.id)
            self._conflicts.observe(snapshot)
        if self._guard is not None:
            self._unguarded = self._unguarded.followed_by(new_snapshots)

    def _find_published(self, unknown: list[PreparedSnapshot]) -> PreparedSnapshot | None:
        """Return our attempt that was published after all. Attempts whose id another snapshot has are lost."""
        newest_id = self._tracker.latest.id if self._tracker.latest is not None else 0
        for prepared in [prepared for prepared in unknown if prepared.snapshot.id <= newest_id]:
            found = self._store.find(prepared.snapshot.id)
            if found is None:
                raise CommitOutcomeUnknown(
                    f"{self._context.name}: snapshot {prepared.snapshot.id} expired before it was known whether it is "
                    "this commit"
                )
            if found == prepared.snapshot:
                return prepared
            self._discard(prepared, unknown)
        return None

    def _resolve(
        self, prepared: PreparedSnapshot, unknown: list[PreparedSnapshot], is_committed: bool
    ) -> CommitResult | None:
        if not is_committed:
            self._discard(prepared, unknown)
            return None
        unknown.remove(prepared)
        self._in_doubt.discard(prepared.snapshot.uuid)
        self._own.add(prepared.snapshot.id)
        for other in list(unknown):  # this snapshot has their id
            self._discard(other, unknown)
        if self._tracker.latest is None or self._tracker.latest.id < prepared.snapshot.id:
            self._tracker.published(prepared.snapshot)
        self._conflicts.observe(prepared.snapshot)
        return CommitResult(prepared.snapshot)

    def _discard(self, prepared: PreparedSnapshot, unknown: list[PreparedSnapshot]) -> None:
        """Delete the metadata files of a snapshot that surely is not published, and never will be."""
        unknown.remove(prepared)
        self._in_doubt.discard(prepared.snapshot.uuid)
        with suppress(Exception):  # files that are left are orphans
            self._manifests.delete(prepared.files)

    # ------------------------------------------------------------ identifiers, fencing

    def _find_already_committed(self, request: CommitRequest) -> CommitResult | None:
        """Return the snapshot of the same identifier and kind, if it is already committed; otherwise None.

        Raises BadInput for an identifier below our user's newest.
        """
        identifier, newest = request.committable.identifier, self._tracker.latest_of_user
        if not request.is_numbered or newest is None or newest.commit_identifier < identifier:
            return None
        if newest.commit_identifier == identifier:
            if request.is_more:
                return None
            is_same = request.is_first or newest.commit_kind is CommitKind.COMPACT
            return CommitResult(newest, is_already_committed=True) if is_same else None
        raise BadInput(
            f"{self._context.name}: identifier {identifier} is below {newest.commit_identifier}, the newest one that "
            f"{self._commit_user!r} committed. The identifiers of a commit user must increase: continue with a larger "
            "one, or use another commit user"
        )

    def _run_guard(self) -> None:
        if self._guard is None:
            return
        self._guard(self._unguarded.snapshots)
        if not self._unguarded.is_complete:
            raise CommitConflict(
                f"{self._context.name}: snapshots have expired since the last check, so it is unknown whether a newer "
                "writer took over. Nothing was published. Open the table and write again"
            )
        self._unguarded = NewSnapshots([])

    # ------------------------------------------------------------ helpers

    def _metadata(self, request: CommitRequest) -> CommitMetadata:
        committable = request.committable
        return CommitMetadata(
            self._commit_user,
            committable.identifier,
            committable.watermark,
            committable.properties,
            request.operation,
            self._environment.new_uuid(),
            self._environment.now_ms(),
        )

    def _is_exhausted(self, retry: int, started_ms: float) -> bool:
        timeout_ms = self._options.commit_timeout_ms
        too_long = timeout_ms is not None and self._environment.monotonic_ms() - started_ms > timeout_ms
        return too_long or retry >= self._options.commit_max_retries

    def _wait_ms(self, retry: int) -> float:
        options = self._options
        backoff = ExponentialBackoff(
            options.commit_min_retry_wait_ms, options.commit_max_retry_wait_ms, jitter=(1.0, 1.2)
        )
        return backoff.wait_ms(retry, self._environment.random)

    def _outcome_unknown_error(self, request: CommitRequest, error: Exception | None) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"{self._context.name}: the commit of {self._commit_user!r}, identifier {request.committable.identifier}, "
            f"may or may not have been published ({error}). Nothing was deleted. Commit again with the same user and "
            "identifier: a commit that was published is recognised"
        )
