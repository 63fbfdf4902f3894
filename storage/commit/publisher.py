"""Commits one snapshot, safe against concurrent commits and unknown answers of the store.

Invariants
    A. snapshot-N is created only if absent, and counts only if it was built on the current snapshot N-1. So states form
       one chain, and no commit is lost.
    B. (commit user, identifier, kind) is published at most once, except COMPACT snapshots of level 0 (`is_more`), which
       change no rows. An identifier below its user's newest is an error.
    C. A file that a snapshot may reference is never deleted, even if the outcome of its publication is unknown.

Steps of one attempt, and what remains after a crash in each step
    0. If our last attempt published the newest snapshot, and no other writer was met since, step 1 is left out. The
       next snapshot is built on it, and during step 3 the store is asked whether it and the schema are still the same.
       If not, or if step 2 finds a conflict, the attempt begins with step 1 (docs/decisions/0016).
    1. Refresh: read the newest snapshot, and all since the last refresh. Check that the snapshots seen before still
       exist, that the table is the same, and whether the identifier is already committed or an earlier attempt was
       published. The guard may refuse the commit: a newer writer fenced this one.
       *Crash: nothing remains.*
    2. Compute the changes from that snapshot, and check them for conflicts (`conflict_check`).
       *Crash: nothing remains.*
    3. Write manifests and manifest lists under new names, side by side.
       *Crash: orphans remain, files that no snapshot names.*
    4. Pass it to the catalog's `SnapshotCommit`. **This is the commit.** The one of the file system
       (`file_system_commit`)
       a. creates snapshot-N if absent.
          *Crash: it is published, or orphans remain; step 1 of the next process finds out which.*
       b. checks that it is the next snapshot, and withdraws it if it is not.
          *Crash before that: a file outside of the chain remains, which no reader follows.*
       c. writes the hint.
          *Crash: the hint is outdated; readers list the directory.*
       If a compaction follows the rows, its steps 2 and 3 are done beside step a, and its step a before step b of both.

Answers of step 4
    True        Committed.
    False       Lost: another snapshot has this id. Delete our orphans, and start again.
    an error    Unknown: our file may still appear. Start again: step 1 finds it, or finds that another snapshot has N
                (lost), or N is free and the next attempt competes with the first; only one of them can win.
CommitOutcomeUnknown is raised if attempts or time run out, or anything else fails, while an outcome is unknown. If the
same commit is repeated, its earlier attempts are still looked for: their snapshot may have expired meanwhile.

Source: Java `operation/FileStoreCommitImpl.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from tidelake.errors import (
    BadInput,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptFile,
    TidelakeError,
    UnsupportedFeature,
)
from tidelake.storage.base import env
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
)
from tidelake.storage.commit.snapshot_tracker import NewSnapshots, SnapshotTracker
from tidelake.storage.fileio.requests import run_requests
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import StepwiseCommit
from tidelake.storage.model.table import TableContext

Guard = Callable[[Sequence[Snapshot]], None]

_Numbered: TypeAlias = tuple[int, bool, bool]
"""The identifier of a commit, and which of its snapshots it is: `is_first` and `is_more` of CommitRequest."""


@dataclass(frozen=True, slots=True)
class CommitEnvironment:
    """Clock, randomness and uuids. Tests replace them.

    random: returns a number from 0 up to, not including, 1.
    """

    now_ms: Callable[[], int] = epoch_ms
    monotonic_ms: Callable[[], float] = lambda: env.monotonic_s() * 1000
    sleep_ms: Callable[[float], None] = lambda wait_ms: env.sleep(wait_ms / 1000)
    random: Callable[[], float] = lambda: env.random_fraction()
    new_uuid: Callable[[], str] = lambda: str(env.new_uuid())


@dataclass(slots=True)
class _Ahead:
    """What was done for a request while the one before it was published.

    prepared: the snapshot, whose metadata is written.
    is_committed: it is in the table.
    error: its creation failed, or its confirmation, so that it may be in the table.
    """

    request: CommitRequest
    prepared: PreparedSnapshot
    is_committed: bool = False
    error: Exception | None = None


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
        self._undecided: dict[_Numbered, list[PreparedSnapshot]] = {}  # attempts of calls that ended without an answer
        self._is_latest_ours = False  # whether our last attempt published the newest snapshot, and nothing came between
        self._has_company = False  # whether the last refresh found snapshots of others, or a snapshot's id was taken
        self._ahead: _Ahead | None = None
        self._conflicts = ConflictCheck(context, self._own)
        self._iceberg = iceberg_publication_of(context)

    def adopt_schema(self, context: TableContext) -> None:
        """Use this version of the schema for later commits. The table and its keys must be the same."""
        self._context = self._conflicts.context = context
        self._builder = SnapshotBuilder(context)
        self._iceberg = iceberg_publication_of(context)

    def publish(self, request: CommitRequest, then: CommitRequest | None = None) -> CommitResult:
        """Publish the snapshot, with retries until the outcome is known.

        then: the request that will be published next, if this one is published and was not committed before: a
            compaction. Its work is done ahead as far as possible.

        Raises CommitOutcomeUnknown. After any other error, including errors of the store, this call has published
        nothing and never will. After an interrupt (not an `Exception`) the outcome is unknown.
        """
        self._owner.check()
        result = self._publish(request, then)
        if self._iceberg is not None:
            self._iceberg.publish_committed(result.snapshot)
        return result

    def _publish(self, request: CommitRequest, then: CommitRequest | None) -> CommitResult:
        number = (request.committable.identifier, request.is_first, request.is_more)
        unknown = self._undecided.pop(number, []) if request.is_numbered else []
        earlier = [prepared.snapshot for prepared in unknown]
        try:
            result = self._publish_until_known(request, then, unknown)
            return CommitResult(result.snapshot, is_already_committed=True) if result.snapshot in earlier else result
        except BaseException:  # also an interrupt, after which a process may commit again
            if unknown and request.is_numbered:
                self._undecided[number] = unknown
            raise

    def _publish_until_known(
        self, request: CommitRequest, then: CommitRequest | None, unknown: list[PreparedSnapshot]
    ) -> CommitResult:
        """unknown: published, but the store did not answer whether it succeeded. First those of earlier calls. It is
        updated.
        """
        last_error: Exception | None = None
        earlier = tuple(unknown)
        ahead = self._take_ahead(request)
        if ahead is not None and ahead.is_committed:
            self.attempts += 1
            return self._published(ahead.prepared, [ahead.prepared])
        if ahead is not None and ahead.error is not None:
            unknown.append(ahead.prepared)
            last_error, ahead = ahead.error, None
        started_ms = self._environment.monotonic_ms()
        retry = 0
        while True:
            try:
                result = self._attempt(request, unknown, retry, then, ahead if retry == 0 else None)
            except TidelakeError as e:
                if unknown and not isinstance(e, CommitOutcomeUnknown):
                    raise self._outcome_unknown_error(request, e) from e
                raise
            except Exception as e:
                if all(prepared in earlier for prepared in unknown):  # this call has published nothing
                    raise
                last_error, result = e, None
            if result is not None:
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
    def known_latest(self) -> Snapshot | None:
        """The newest known snapshot of the table, including our own. Reads nothing."""
        return self._tracker.latest

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

    def _attempt(
        self,
        request: CommitRequest,
        unknown: list[PreparedSnapshot],
        retry: int,
        then: CommitRequest | None,
        ahead: _Ahead | None,
    ) -> CommitResult | None:
        """Return None to try again. Updates `unknown`."""
        self.attempts += 1
        search_own = request.is_numbered or self._guard is not None
        knows_latest = self._is_latest_ours and not unknown and self._tracker.knows_latest(search_own=search_own)
        self._is_latest_ours = False
        prepared = ahead.prepared if ahead is not None else None
        if prepared is None and knows_latest:
            self._run_guard()
            committed = self._find_already_committed(request)
            if committed is not None:
                return committed
            prepared = self._prepared_without_looking(request)
        if prepared is None:
            self._refresh(search_own=search_own)
            published = self._find_published(unknown)
            if published is not None:
                return self._resolve(published, unknown, self._is_committed(published))
            # Before the identifier is looked up: it may count as committed because the writer that fenced us used it.
            self._run_guard()
            committed = self._find_already_committed(request)
            if committed is not None:
                return committed
            self._schema_id = self._context.schemas.latest_id_from(self._schema_id)
            base = self._tracker.latest
            try:
                prepared = self._prepare(request, base, merge=retry == 0)
            except (CorruptFile, FileNotFoundError):
                if base is None or not self._conflicts.has_expired(base):
                    raise
                return None  # others have published newer snapshots meanwhile, and the base expires while it is read
            assert prepared is not None, "nothing was assumed"
        unknown.append(prepared)
        self._in_doubt.add(prepared.snapshot.uuid)
        try:
            is_committed = self._commit(prepared) if then is None else self._commit_ahead_of(then, prepared)
        except (UnsupportedFeature, CommitConflict):
            self._discard(prepared, unknown)
            raise
        return self._resolve(prepared, unknown, is_committed)

    def _prepared_without_looking(self, request: CommitRequest) -> PreparedSnapshot | None:
        """Prepare the snapshot that follows our last one. Returns None if the table must be looked at first.

        Nobody asks whether there is a newer snapshot: if there is, the id of this one is taken. While the metadata is
        written, the store is asked whether our last snapshot and the latest schema are still the same.
        """
        latest, schema_id = self._tracker.latest, self._schema_id
        still_true = (
            self._tracker.is_latest_unchanged,
            lambda: self._context.schemas.latest_id_from(schema_id) == schema_id,
        )
        try:
            return self._prepare(request, latest, merge=True, still_true=still_true)
        except TidelakeError:  # of a conflict with a state that may be outdated, or of files that may have expired
            return None

    def _prepare(
        self,
        request: CommitRequest,
        base: Snapshot | None,
        *,
        merge: bool,
        still_true: Sequence[Callable[[], bool]] = (),
    ) -> PreparedSnapshot | None:
        """Check the request, and write its metadata. Returns None if an answer of `still_true` is False."""
        checked = self._conflicts.check(request, base, self._schema_id)
        return self._builder.build(
            base,
            checked.changes,
            checked.index,
            self._metadata(request),
            schema_id=self._schema_id,
            merge=merge,
            still_true=still_true,
        )

    def _commit(self, prepared: PreparedSnapshot) -> bool:
        return self._snapshot_commit.commit(prepared.base, prepared.snapshot, prepared.statistics)

    def _is_committed(self, published: PreparedSnapshot) -> bool:
        """Return whether an attempt that the table has is part of its history."""
        commit, ahead = self._snapshot_commit, self._ahead
        if isinstance(commit, StepwiseCommit) and ahead is not None:
            return bool(commit.confirm(published.base, [published.snapshot], doubtful=ahead.prepared.snapshot))
        return commit.is_committed(published.base, published.snapshot)

    # ------------------------------------------------------------ one attempt, and the next request

    def _commit_ahead_of(self, then: CommitRequest, prepared: PreparedSnapshot) -> bool:
        """Pass the snapshot to the catalog, and prepare the next one meanwhile. It is published, too, if that helps."""
        commit = self._snapshot_commit
        self._ahead = None  # of an earlier attempt: its files are kept, because its outcome is unknown
        found: list[PreparedSnapshot] = []
        is_taken = False

        def create() -> bool:
            nonlocal is_taken
            is_done = commit.create(prepared.snapshot) if isinstance(commit, StepwiseCommit) else self._commit(prepared)
            is_taken = not is_done
            return is_done

        def prepare_next() -> bool:
            with suppress(Exception):  # its own call to `publish` prepares it again, and raises the error
                if not is_taken and (next_one := self._prepare(then, prepared.snapshot, merge=True)) is not None:
                    found.append(next_one)
            return True

        try:
            is_done, _ = run_requests(self._context.location, create, prepare_next)
        except Exception:
            self._delete_files(found)
            raise
        if not is_done:
            self._delete_files(found)
            return False
        if isinstance(commit, StepwiseCommit):
            return self._confirm(commit, prepared, _Ahead(then, found[0]) if found else None)
        self._ahead = _Ahead(then, found[0]) if found else None
        return True

    def _confirm(self, commit: StepwiseCommit, first: PreparedSnapshot, ahead: _Ahead | None) -> bool:
        """Return whether a snapshot that was created is the next one. Creates the next one before it asks."""
        if ahead is None:
            return bool(commit.confirm(first.base, [first.snapshot]))
        second = ahead.prepared
        self._in_doubt.add(second.snapshot.uuid)
        self._ahead = ahead
        try:
            is_created = commit.create(second.snapshot)
        except Exception as error:
            ahead.error = error
            if commit.confirm(first.base, [first.snapshot], doubtful=second.snapshot):
                return True
            raise CommitOutcomeUnknown(
                f"{self._context.name}: snapshot {first.snapshot.id} was withdrawn, but one that was built on it may "
                f"still appear ({error}). Nothing was deleted. Commit again with the same user and identifier"
            ) from error
        self._has_company = self._has_company or not is_created
        try:
            created = [first.snapshot, second.snapshot] if is_created else [first.snapshot]
            confirmed = commit.confirm(first.base, created)
        except Exception as error:
            if is_created:
                ahead.error = error
            else:
                self._drop_ahead(second)
            raise
        ahead.is_committed = len(confirmed) > 1
        if not ahead.is_committed:
            self._drop_ahead(second)
        return bool(confirmed)

    def _drop_ahead(self, second: PreparedSnapshot) -> None:
        """Forget what was done ahead: another snapshot has its id, or it was withdrawn."""
        self._ahead = None
        self._in_doubt.discard(second.snapshot.uuid)
        self._delete_files([second])

    def _take_ahead(self, request: CommitRequest) -> _Ahead | None:
        """Return what was done ahead for this request."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.request is request:
            return ahead
        if not ahead.is_committed and ahead.error is None:
            self._delete_files([ahead.prepared])
        return None

    def _refresh(self, *, search_own: bool) -> None:
        is_first = not self._tracker.has_looked
        new_snapshots = self._tracker.refresh(search_own=search_own, expects_others=self._has_company)
        self._has_company = False
        for snapshot in new_snapshots.snapshots:
            if snapshot.uuid in self._in_doubt:  # it was published, though the store gave no answer
                self._own.add(snapshot.id)
            else:
                self._has_company = not is_first
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
                    "this commit. Nothing was deleted. Look whether its rows are in the table before you commit them "
                    "again; keep snapshots longer than a commit takes (snapshot.time-retained)"
                )
            if found == prepared.snapshot:
                return prepared
            self._discard(prepared, unknown)
        return None

    def _resolve(
        self, prepared: PreparedSnapshot, unknown: list[PreparedSnapshot], is_committed: bool
    ) -> CommitResult | None:
        if is_committed:
            return self._published(prepared, unknown)
        self._discard(prepared, unknown)
        self._has_company = True
        return None

    def _published(self, prepared: PreparedSnapshot, unknown: list[PreparedSnapshot]) -> CommitResult:
        unknown.remove(prepared)
        self._in_doubt.discard(prepared.snapshot.uuid)
        self._own.add(prepared.snapshot.id)
        for other in list(unknown):  # this snapshot has their id
            self._discard(other, unknown)
        if self._tracker.latest is None or self._tracker.latest.id < prepared.snapshot.id:
            self._tracker.published(prepared.snapshot)
        self._is_latest_ours = self._tracker.latest == prepared.snapshot and not self._has_company
        self._conflicts.observe(prepared.snapshot)
        return CommitResult(prepared.snapshot)

    def _discard(self, prepared: PreparedSnapshot, unknown: list[PreparedSnapshot]) -> None:
        """Delete the metadata files of a snapshot that surely is not published, and never will be."""
        unknown.remove(prepared)
        self._in_doubt.discard(prepared.snapshot.uuid)
        self._delete_files([prepared])

    def _delete_files(self, unpublished: Sequence[PreparedSnapshot]) -> None:
        for prepared in unpublished:
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
