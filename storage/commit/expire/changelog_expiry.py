"""Removes long-lived changelogs, which outlived their snapshots, when they are old enough.

The steps are those of `tidelake.storage.commit.expire.snapshot_expiry`, applied to `changelog/`: the hint is moved
first, the changelog's own file is deleted last. Without a changelog producer, the changes of a snapshot are the files
that it added. Such a file is kept as long as the changelog of the snapshot that deleted it.

Source: Java `table/ExpireChangelogImpl.java`, `operation/ChangelogDeletion.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.expire.deletion_plan import DeletionPlan, DeletionPlanner
from tidelake.storage.commit.expire.file_references import References
from tidelake.storage.commit.expire.retained_states import (
    Pins,
    changelog_list,
    first_needed,
    metadata_names,
    state_lists,
)
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.expire.snapshot_expiry import ExpiryRound
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


class ChangelogExpiry:
    """Expires the long-lived changelogs of one branch. Not thread-safe.

    The parameters are those of SnapshotExpiry.
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
        self._pins = pins
        self._retention = retention or Retention.of_changelogs(context.options)
        self._now_ms = now_ms
        self._is_cancelled = is_cancelled
        self._changelogs = context.changelogs
        self._snapshots = context.snapshots
        self._manifests = context.shared(ManifestStore)
        self._references = References(context, self._manifests)

    def run(self, latest_id: int) -> ExpiryRound | None:
        """Run one round. Returns None if no changelog may be removed.

        latest_id: the table's newest snapshot, from which numbers are counted.

        Raises OSError and CorruptFile; the next round completes this one.
        """
        ids = self._changelogs.ids()
        earliest = self._snapshots.earliest() if ids else None
        if earliest is None:
            return None
        begin, end = ids[0], self._earliest_to_keep(ids, latest_id, earliest.id)
        if end <= begin:
            return None
        expiring = [found for i in ids if i < end and (found := self._changelogs.find(i)) is not None]
        next_id = next((i for i in ids if i >= end), None)
        earliest_kept = earliest if next_id is None else self._changelogs.find(next_id)
        if earliest_kept is None or not expiring:
            return None  # another process is expiring
        plan = self._deletion_plan(expiring, earliest_kept, earliest, latest_id)
        self._changelogs.hint_earliest(earliest_kept.id)
        if not plan.delete(self._context.io, self._is_cancelled):
            return None
        for changelog in expiring:
            self._changelogs.delete(changelog.id)
        return ExpiryRound(begin, end, len(expiring), plan.data_files, plan.metadata_files)

    def _earliest_to_keep(self, ids: Sequence[int], latest_id: int, earliest_id: int) -> int:
        """Return the first changelog to keep.

        If changelogs outlive snapshots by the options, the newest changelog stays, as in Java. Otherwise all expire in
        the end.
        """
        end = self._retention.earliest_to_keep(ids[0], latest_id, self._now_ms(), self._time_ms)
        outlive = self._context.options.changelog_outlives_snapshots
        end = min(end, ids[-1] if outlive else ids[-1] + 1, earliest_id)
        if end <= ids[0]:
            return end
        needed = first_needed(self._context.io, self._context.paths, self._pins)
        return end if needed is None else min(end, needed)

    def _time_ms(self, changelog_id: int) -> int | None:
        found = self._changelogs.find(changelog_id)
        return None if found is None else found.time_ms

    def _deletion_plan(
        self, expiring: Sequence[Snapshot], earliest_kept: Snapshot, earliest: Snapshot, latest_id: int
    ) -> DeletionPlan:
        """Plan the files to delete.

        earliest: the earliest snapshot.
        earliest_kept: the earliest changelog to keep, or the earliest snapshot if no changelog is kept.
        """
        planner = DeletionPlanner(self._context, self._manifests)
        kept = planner.names([*state_lists(earliest_kept), changelog_list(earliest_kept)])
        kept |= metadata_names(self._context, self._manifests, earliest)
        made = [changelog for changelog in expiring if changelog.changelog_manifest_list is not None]
        without = [changelog for changelog in expiring if changelog.changelog_manifest_list is None]
        plan = DeletionPlan(planner.changelog_data(made) | planner.deleted_data(without))
        planner.lists(map(changelog_list, made), kept, plan)
        planner.lists((file for changelog in without for file in state_lists(changelog)), kept, plan)
        candidates = plan.candidates()
        later = self._from(self._references.scan_from(earliest_kept.id, latest_id), latest_id) if without else ()
        plan.retain(
            self._references.restored_by_overwrites(candidates, later, earliest_kept.id, latest_id)
            if without
            else set()
        )
        plan.retain(self._references.referenced(candidates, expiring[0].id, earliest_kept.id))
        return plan

    def _from(self, first: int, latest_id: int) -> Iterator[Snapshot]:
        """Yield the snapshots from first to latest_id, or their long-lived changelogs."""
        for snapshot_id in range(first, latest_id + 1):
            found = self._snapshots.find(snapshot_id) or self._changelogs.find(snapshot_id)
            if found is not None:
                yield found
