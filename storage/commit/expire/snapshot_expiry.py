"""Removes snapshots that are no longer retained, with the files that only they name.

Kept snapshots: the newest ones (`Retention`), and those that a consumer or a pin has not read yet. Kept files: those
named by a kept snapshot, by a changelog that outlives its snapshot (options `changelog.*`), by a tag, or by another
branch (`tidelake.storage.commit.expire.file_references`).

Steps of one round over snapshots begin to end, where `end` is the first kept one, and what a crash after each leaves
    1. The hint EARLIEST is set to `end`, so that readers of the earliest snapshot don't get one that is being deleted.
       *Crash: nothing is deleted. The next round removes the snapshots below the hint.*
       On a full disk the hint LATEST is deleted first, to make room for it; if that is not enough, the first snapshot
       file, too.
       *Crash: readers list the directory, and can read all snapshots in it. Files that only the snapshot without a file
       named are orphans.*
       Then tags and branches are listed once more: a process that creates one reads the hint afterwards.
    2. Data files that the deltas up to that of `end` delete, and changelog files, are deleted.
       *Crash: snapshots below the hint can't be read; their metadata tells the next round which files remain.*
    3. Manifests and index files are deleted.
    4. The lists that name them are deleted. So metadata exists as long as it names existing files.
    5. If changelogs outlive snapshots, `changelog-N` is written. Then `snapshot-N` is deleted, smallest id first.
       *Crash: the next round removes the remaining snapshots. That their files are missing is no error.*

Two processes may do this at the same time: both delete files that neither needs. Java's order is 2, 3 and 4, 5, 1. Here
the hint is first, so that a table can be read from its earliest snapshot on at any time.

Source: Java `table/ExpireSnapshotsImpl.java`, `operation/SnapshotDeletion.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidelake.errors import CorruptFile
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.expire.deletion_plan import DeletionPlan, DeletionPlanner, delete_empty_directories
from tidelake.storage.commit.expire.file_references import References
from tidelake.storage.commit.expire.retained_states import (
    Pins,
    changelog_list,
    first_needed,
    metadata_names,
    state_lists,
)
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.fileio.disk_space import is_disk_full
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.snapshots.consumers import remove_stale_consumers
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.table import TableContext

_PAUSE_MS: Final = 30_000  # after a round that failed, or found little or nothing to do (because of a slow reader)


@dataclass(frozen=True, slots=True)
class ExpiryRound:
    """What a round removed: the snapshots from `first` up to `end`, not included."""

    first: int
    end: int
    snapshots: int = 0
    data_files: int = 0
    metadata_files: int = 0


class SnapshotExpiry:
    """Expires the snapshots of one branch, round by round. It remembers what the next round need not read again.

    pins: called in each round. Returns ids of snapshots that are kept with all later ones.
    now_ms: wall clock.
    is_cancelled: polled between steps; the next round completes a cancelled one.

    Not thread-safe; other processes may expire snapshots at the same time.
    """

    def __init__(
        self,
        context: TableContext,
        *,
        pins: Pins = tuple,
        retention: Retention | None = None,
        now_ms: Callable[[], int] = epoch_ms,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = context
        self._identity = context.identity
        self._pins = pins
        self._retention = retention or Retention.of_snapshots(context.options)
        self._now_ms = now_ms
        self._is_cancelled = is_cancelled
        self._store = context.snapshots
        self._changelogs = context.changelogs
        self._manifests = context.shared(ManifestStore)
        self._references = References(context, self._manifests)
        self._earliest: int | None = None  # after the last round; None: list the directory
        self._seen_references: frozenset[tuple[str, str, int, int]] | None = None  # before the round was planned
        self._old_enough_at_ms = 0  # when the earliest snapshot may expire because of its age
        self._pause_until_ms = 0

    def is_due(self, latest_id: int, *, respect_interval: bool = True) -> bool:
        """Return whether a round may find something to do. Reads nothing.

        respect_interval: False also returns True for work that could wait a little longer.
        """
        if latest_id - max(self._retention.num_min, 1) < (self._earliest or FIRST_SNAPSHOT_ID):
            return False
        now_ms = self._now_ms()
        pauses = respect_interval and now_ms < self._pause_until_ms
        if self._earliest is None:
            return not pauses
        too_many = latest_id - self._earliest + 1 - self._retention.num_max
        if pauses:
            return too_many >= self._retention.limit
        return too_many > 0 or now_ms >= self._old_enough_at_ms

    def run(self, latest_id: int | None = None) -> ExpiryRound | None:
        """Run one round. Returns None if no snapshot may be removed.

        latest_id: the snapshot that was just committed. It saves a listing.

        Raises OSError and CorruptFile; the next round completes this one.
        """
        try:
            return self._run(latest_id)
        except BaseException:
            self._earliest = None
            self._pause_until_ms = self._now_ms() + _PAUSE_MS
            raise

    def expirable(self) -> range:
        """Return the ids that a round would remove now."""
        latest = self._store.latest_id()
        begin = self._begin()
        if latest is None or begin is None or latest < begin:
            return range(0)
        seen: dict[int, Snapshot | None] = {}
        return range(begin, self._earliest_to_keep(begin, latest, seen))

    # ------------------------------------------------------------ which snapshots

    def _run(self, latest_id: int | None) -> ExpiryRound | None:
        self._identity.check_before_change()
        self._remove_stale_consumers()
        latest = self._store.latest_id() if latest_id is None else latest_id
        begin = self._begin()
        if latest is None or begin is None or latest < begin:
            return None
        seen: dict[int, Snapshot | None] = {}
        end = self._earliest_to_keep(begin, latest, seen)
        if end <= begin:
            self._write_missing_hint(begin)
            self._earliest = begin
            return None
        earliest_kept = self._earliest_kept(end, seen)
        if earliest_kept is None:
            self._earliest = None  # another process is expiring or rolling back
            return None
        expiring = [snapshot for i in range(begin, end) if (snapshot := self._find(i, seen)) is not None]
        changelogs_stay = self.keeps_changelogs()
        if self._seen_references is None:
            self._seen_references = self._references.branches_and_tags()
        try:
            plan = self._deletion_plan(expiring, earliest_kept, latest, changelogs_stay=changelogs_stay)
        except (CorruptFile, FileNotFoundError):
            if not self._is_overtaken(earliest_kept):
                raise
            self._earliest = None
            return None
        if not self._remove(expiring, earliest_kept, plan, changelogs_stay=changelogs_stay):
            return None
        expired = ExpiryRound(begin, end, len(expiring), plan.data_files, plan.metadata_files)
        self._earliest = earliest_kept.id
        if end - begin < self._retention.limit:
            self._pause_until_ms = self._now_ms() + _PAUSE_MS
        return expired

    def _write_missing_hint(self, earliest: int) -> None:
        """Write the hint of a young table, so that readers need not list the directory."""
        if self._earliest is None and not self._context.io.exists(self._context.paths.earliest_hint):
            with suppress(OSError):  # for example on a full disk: nothing has to be expired, so don't fail
                self._store.hint_earliest(earliest)

    def _begin(self) -> int | None:
        if self._earliest is None:
            return min(self._store.ids(), default=None)
        return self._earliest

    def _earliest_to_keep(self, begin: int, latest: int, seen: dict[int, Snapshot | None]) -> int:
        now_ms = self._now_ms()

        def followed_at(snapshot_id: int) -> int | None:
            successor = self._find(snapshot_id + 1, seen)
            return None if successor is None else successor.time_ms

        end = self._retention.earliest_to_keep(begin, latest, now_ms, followed_at)
        if end <= begin:
            followed_ms = followed_at(begin)
            self._old_enough_at_ms = (followed_ms if followed_ms is not None else now_ms) + self._retention.time_ms + 1
            return end
        needed = self._first_needed()
        end = end if needed is None else min(end, needed)
        if end <= begin:
            self._pause_until_ms = now_ms + _PAUSE_MS
        return end

    def _earliest_kept(self, end: int, seen: dict[int, Snapshot | None]) -> Snapshot | None:
        """Return the earliest snapshot that is kept: `end`, or a later one if ids are missing."""
        found = self._find(end, seen)
        if found is not None:
            return found
        later = min((i for i in self._store.ids() if i >= end), default=None)
        return None if later is None else self._store.find(later)

    def _find(self, snapshot_id: int, seen: dict[int, Snapshot | None]) -> Snapshot | None:
        if snapshot_id not in seen:
            seen[snapshot_id] = self._store.find(snapshot_id)
        return seen[snapshot_id]

    def _remove_stale_consumers(self) -> None:
        expiration_ms = self._context.options.consumer_expiration_ms
        if expiration_ms is not None:
            remove_stale_consumers(self._context.io, self._context.paths, self._now_ms() - expiration_ms)

    # ------------------------------------------------------------ which files

    def _deletion_plan(
        self, expiring: Sequence[Snapshot], earliest_kept: Snapshot, latest: int, *, changelogs_stay: bool
    ) -> DeletionPlan:
        if not expiring:
            return DeletionPlan()
        deltas_stay = changelogs_stay and self._context.options.changelog_producer is ChangelogProducer.NONE
        planner = DeletionPlanner(self._context, self._manifests)
        keep = _is_appended if deltas_stay else lambda _: False
        plan = DeletionPlan(planner.deleted_data([*expiring[1:], earliest_kept], keep))
        kept = metadata_names(self._context, self._manifests, earliest_kept)
        if not changelogs_stay:
            plan.data |= planner.changelog_data(expiring)
            planner.lists(map(changelog_list, expiring), kept, plan)
        if not deltas_stay:
            planner.lists((file for snapshot in expiring for file in state_lists(snapshot)), kept, plan)
        for snapshot in expiring:
            planner.index(snapshot, kept, plan)
        candidates, first = plan.candidates(), earliest_kept.id + 1
        later = self._store.range(self._references.scan_from(first, latest), latest)
        plan.retain(self._references.restored_by_overwrites(candidates, later, first, latest))
        plan.retain(self._references.referenced(candidates, expiring[0].id, earliest_kept.id))
        return plan

    def keeps_changelogs(self) -> bool:
        """Return whether changelogs outlive their snapshots: by the options, or because long-lived ones still exist.

        Their files must stay until they expire.
        """
        return self._context.options.changelog_outlives_snapshots or bool(self._changelogs.ids())

    # ------------------------------------------------------------ deleting

    def _remove(
        self, expiring: Sequence[Snapshot], earliest_kept: Snapshot, plan: DeletionPlan, *, changelogs_stay: bool
    ) -> bool:
        """Delete files and snapshots. Returns False if it was cancelled in between."""
        lost_latest = self._move_hint(expiring, earliest_kept, changelogs_stay=changelogs_stay)
        if self._is_needed_again(expiring, earliest_kept):
            return False
        seen, self._seen_references = self._seen_references, self._references.branches_and_tags()
        if expiring and seen != self._seen_references:  # the creator of a new tag may not have seen the hint
            plan.retain(self._references.referenced(plan.candidates(), expiring[0].id, earliest_kept.id))
        if not plan.delete(self._context.io, self._is_cancelled):
            return False
        if self._context.options.snapshot_clean_empty_directories:
            delete_empty_directories(self._context, (path for file in plan.data.values() for path in file.paths))
        if changelogs_stay:
            self._changelogs.keep(expiring)
        for snapshot in expiring:
            if self._is_cancelled():
                return False
            self._context.io.delete(self._context.paths.snapshot(snapshot.id))
        self._correct_hint(earliest_kept.id)
        if lost_latest:
            self._store.hint_latest(self._store.latest_id() or earliest_kept.id)
        return True

    def _is_needed_again(self, expiring: Sequence[Snapshot], earliest_kept: Snapshot) -> bool:
        """Return whether a consumer came after they were read, and has not seen the hint. Moves the hint back then."""
        needed = self._first_needed()
        if needed is None or needed >= earliest_kept.id or not expiring:
            return False
        if self._store.earliest_hint() == earliest_kept.id:
            self._store.hint_earliest(max(needed, expiring[0].id))
        self._earliest = None
        return True

    def _first_needed(self) -> int | None:
        consumers = not self._context.options.consumer_changelog_only
        return first_needed(self._context.io, self._context.paths, self._pins, consumers=consumers)

    def _correct_hint(self, earliest: int) -> None:
        """Move the hint on if another expiry, which goes less far, has put it back meanwhile."""
        hint = self._store.earliest_hint()
        if hint is not None and hint < earliest:
            self._store.hint_earliest(earliest)

    def _is_overtaken(self, earliest_kept: Snapshot) -> bool:
        """Return whether another expiry goes further: it may delete what this snapshot names."""
        hint = self._store.earliest_hint()
        return hint is not None and hint > earliest_kept.id and self._store.exists(hint)

    def _move_hint(self, expiring: Sequence[Snapshot], earliest_kept: Snapshot, *, changelogs_stay: bool) -> bool:
        """Do step 1. Returns whether the hint LATEST was deleted to make room.

        If that is not enough, snapshots are deleted before the hint is written, smallest id first: the earliest
        remaining one can be read, with or without a hint. This is not done if their changelogs must still be written.

        A hint that another expiry has moved further stays: readers would take its half-deleted snapshots for whole.
        """
        if self._is_overtaken(earliest_kept):
            return False
        left = iter(() if changelogs_stay else expiring)
        lost_latest = False
        while True:
            try:
                lost_latest = self._store.hint_earliest(earliest_kept.id) or lost_latest
                if not self._store.exists(earliest_kept.id):  # another expiry, which went further, has ended meanwhile
                    self._correct_hint(min(self._store.ids(), default=earliest_kept.id))
                return lost_latest
            except OSError as error:
                lost_latest = True
                if not is_disk_full(error) or (snapshot := next(left, None)) is None:
                    raise
                self._store.delete_snapshot_file(snapshot.id)


def _is_appended(file: DataFileMeta) -> bool:
    """Return whether a commit wrote the file, not a compaction.

    Without a changelog producer, the delta of a commit is its changes.
    """
    return file.file_source is None or file.file_source is FileSource.APPEND
