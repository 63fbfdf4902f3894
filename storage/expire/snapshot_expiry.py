"""Removes snapshots that are no longer retained, with the files that only they name.

What stays: the newest ones (`Retention`); what a consumer or a pin has still to read; and of files, what is named by a
snapshot that stays, a changelog that outlives its snapshot (options `changelog.*`), a tag, or another branch
(`storage.expire.references`).

Steps of one round over snapshots begin to end, where `end` is the first that stays, and what a crash after each leaves
    1. The hint EARLIEST is set to `end`: who asks for the earliest snapshot no longer gets one that is about to go.
       *Crash: nothing is gone. Snapshots below the hint are taken up by the next round.*
       On a full disk the hint LATEST goes first, to make room for it; should that not do, the first snapshot file.
       *Crash: readers list the directory, where all that is left can still be read. Files that only the snapshot named
       whose file went are orphans.*
       Then tags and branches are looked for once more: who makes one looks for the hint after it.
    2. Data files that the deltas up to that of `end` delete; changelog files.
       *Crash: snapshots below the hint can't be read; the next round finds in their metadata what remains to do.*
    3. Manifests and index files. 4. Lists, which name them. So metadata is found as long as it names something.
    5. Where changelogs live on, `changelog-N` is written. Then `snapshot-N` goes, smallest first.
       *Crash: the snapshots that remain are taken up by the next round. What they name is gone, which is no error.*

Two processes may do this at a time: both delete what neither needs. Java goes in the order 2, 3 and 4, 5, 1. Here the
hint comes first, so that a table is readable from its earliest snapshot on at any moment.

Source: Java `table/ExpireSnapshotsImpl.java`, `operation/SnapshotDeletion.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from storage.clock import epoch_ms
from storage.expire.deletion_plan import DeletionPlan, DeletionPlanner
from storage.expire.empty_directories import delete_empty_directories
from storage.expire.references import References
from storage.expire.retained_states import Pins, changelog_list, first_needed, metadata_names, state_lists
from storage.expire.retention import Retention
from storage.fileio.disk_space import is_disk_full
from storage.files.data_file import DataFileMeta
from storage.format import FileSource
from storage.manifests.manifest_store import ManifestStore
from storage.options import ChangelogProducer
from storage.snapshots.consumers import remove_stale_consumers
from storage.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from storage.table import TableContext

_PAUSE_MS: Final = 30_000  # after a round that found little to do, or nothing (a slow reader), or failed


@dataclass(frozen=True, slots=True)
class ExpiryRound:
    """What a round removed: snapshots from `first` up to `end`, not included, as far as they were there."""

    first: int
    end: int
    snapshots: int = 0
    data_files: int = 0
    metadata_files: int = 0


class SnapshotExpiry:
    """Expires the snapshots of one branch, round by round; remembers what a next round needs not ask for again.

    pins: ids of snapshots that must stay, with all that follow them; asked for in each round.
    now_ms: wall clock.
    is_cancelled: polled between steps; the next round completes a cancelled one.
    One thread at a time; other processes may do the same.
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
        self._earliest: int | None = None  # as of the last round; None: list the directory
        self._seen_references: frozenset[tuple[str, str, int, int]] | None = None  # before the round was planned
        self._old_enough_at_ms = 0  # when the earliest may go because of its age
        self._pause_until_ms = 0

    def is_due(self, latest_id: int, *, patient: bool = True) -> bool:
        """Whether a round may find something; costs nothing.

        patient: rather later than a little now.
        """
        if latest_id - max(self._retention.num_min, 1) < (self._earliest or FIRST_SNAPSHOT_ID):
            return False
        now_ms = self._now_ms()
        pauses = patient and now_ms < self._pause_until_ms
        if self._earliest is None:
            return not pauses
        too_many = latest_id - self._earliest + 1 - self._retention.num_max
        if pauses:
            return too_many >= self._retention.limit
        return too_many > 0 or now_ms >= self._old_enough_at_ms

    def run(self, latest_id: int | None = None) -> ExpiryRound | None:
        """One round; None when nothing may go.

        latest_id: of a snapshot that was just committed; saves looking.

        Raises OSError and CorruptFile; what was not done then is done by the next round.
        """
        try:
            return self._run(latest_id)
        except BaseException:
            self._earliest = None
            self._pause_until_ms = self._now_ms() + _PAUSE_MS
            raise

    def expirable(self, latest_id: int | None = None) -> range:
        """Ids that a round would remove now."""
        latest = self._store.latest_id() if latest_id is None else latest_id
        begin = self._begin()
        if latest is None or begin is None or latest < begin:
            return range(0)
        seen: dict[int, Snapshot | None] = {}
        return range(begin, self._earliest_to_keep(begin, latest, seen))

    # ------------------------------------------------------------ what goes

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
            self._hint_once(begin)
            self._earliest = begin
            return None
        earliest_kept = self._earliest_kept(end, seen)
        if earliest_kept is None:
            self._earliest = None  # another process expires or rolls back at this moment
            return None
        expiring = [snapshot for i in range(begin, end) if (snapshot := self._find(i, seen)) is not None]
        changelogs_stay = self.keeps_changelogs()
        if self._seen_references is None:
            self._seen_references = self._references.look()
        plan = self._deletion_plan(expiring, earliest_kept, latest, changelogs_stay=changelogs_stay)
        if not self._remove(expiring, earliest_kept, plan, changelogs_stay=changelogs_stay):
            return None
        expired = ExpiryRound(begin, end, len(expiring), plan.data_files, plan.metadata_files)
        self._earliest = earliest_kept.id
        if end - begin < self._retention.limit:
            self._pause_until_ms = self._now_ms() + _PAUSE_MS
        return expired

    def _hint_once(self, earliest: int) -> None:
        """Spares readers of a young table the listing."""
        if self._earliest is None and not self._context.io.exists(self._context.paths.earliest_hint):
            with suppress(OSError):  # on a full disk, say: no reason to fail where nothing is to be done
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
        consumers = not self._context.options.consumer_changelog_only
        needed = first_needed(self._context.io, self._context.paths, self._pins, consumers=consumers)
        end = end if needed is None else min(end, needed)
        if end <= begin:
            self._pause_until_ms = now_ms + _PAUSE_MS
        return end

    def _earliest_kept(self, end: int, seen: dict[int, Snapshot | None]) -> Snapshot | None:
        """The earliest that will be there; `end` itself unless ids are missing."""
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
        plan.retain(self._references.brought_back(candidates, later, first, latest))
        plan.retain(self._references.referenced(candidates, expiring[0].id, earliest_kept.id))
        return plan

    def keeps_changelogs(self) -> bool:
        """Whether changelogs outlive their snapshots: by the options, or because some do still, and what these name
        must stay until they expire.
        """
        return self._context.options.changelog_outlives_snapshots or bool(self._changelogs.ids())

    # ------------------------------------------------------------ deleting

    def _remove(
        self, expiring: Sequence[Snapshot], earliest_kept: Snapshot, plan: DeletionPlan, *, changelogs_stay: bool
    ) -> bool:
        """False when it was cancelled in between."""
        lost_latest = self._move_hint(expiring, earliest_kept, changelogs_stay=changelogs_stay)
        seen, self._seen_references = self._seen_references, self._references.look()
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
        if lost_latest:
            self._store.hint_latest(self._store.latest_id() or earliest_kept.id)
        return True

    def _move_hint(self, expiring: Sequence[Snapshot], earliest_kept: Snapshot, *, changelogs_stay: bool) -> bool:
        """Step 1. Returns whether the hint LATEST had to make room.

        Where that doesn't do, snapshots go before the hint, the smallest first: the earliest that is left can be read,
        with or without a hint. Not where their changelogs are still to be written.
        """
        left = iter(() if changelogs_stay else expiring)
        lost_latest = False
        while True:
            try:
                return self._store.hint_earliest(earliest_kept.id) or lost_latest
            except OSError as error:
                lost_latest = True
                if not is_disk_full(error) or (snapshot := next(left, None)) is None:
                    raise
                self._store.withdraw(snapshot.id)


def _is_appended(file: DataFileMeta) -> bool:
    """Written by a commit: its delta is the commit's changes where no changelog is made."""
    return file.file_source is None or file.file_source is FileSource.APPEND
