"""Removes changelogs that outlived their snapshots, once they are old enough themselves.

Like `storage.expire.snapshot_expiry`, over `changelog/`: hint first, the changelog's own file last.
Where no changelog is made, the changes of a snapshot are the files that it added; such a file stays while the changelog
of the snapshot that deleted it does.

Source: Java `table/ExpireChangelogImpl.java`, `operation/ChangelogDeletion.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from storage.clock import epoch_ms
from storage.expire.deletion_plan import DeletionPlan, DeletionPlanner
from storage.expire.references import References
from storage.expire.retained_states import Pins, changelog_list, first_needed, metadata_names, state_lists
from storage.expire.retention import Retention
from storage.expire.snapshot_expiry import ExpiryRound
from storage.manifests.manifest_store import ManifestStore
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext


class ChangelogExpiry:
    """pins, now_ms, is_cancelled: as of SnapshotExpiry. One thread at a time."""

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
        """One round; None when nothing may go.

        latest_id: the table's newest snapshot, from which numbers are counted.

        Raises OSError and CorruptFile; what was not done then is done by the next round.
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
            return None  # another process expires at this moment
        plan = self._deletion_plan(expiring, earliest_kept, earliest, latest_id)
        self._changelogs.hint_earliest(earliest_kept.id)
        if not plan.delete(self._context.io, self._is_cancelled):
            return None
        for changelog in expiring:
            self._changelogs.delete(changelog.id)
        return ExpiryRound(begin, end, len(expiring), plan.data_files, plan.metadata_files)

    def _earliest_to_keep(self, ids: Sequence[int], latest_id: int, earliest_id: int) -> int:
        """The newest stays while changelogs outlive snapshots by the options, as in Java; else all go in the end."""
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
        """earliest: of the snapshots; earliest_kept: of the changelogs, or the same where none stays."""
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
        plan.retain(self._references.brought_back(candidates, later, earliest_kept.id, latest_id) if without else set())
        plan.retain(self._references.referenced(candidates, expiring[0].id, earliest_kept.id))
        return plan

    def _from(self, first: int, latest_id: int) -> Iterator[Snapshot]:
        """Snapshots, and the changelogs that are left of them."""
        for snapshot_id in range(first, latest_id + 1):
            found = self._snapshots.find(snapshot_id) or self._changelogs.find(snapshot_id)
            if found is not None:
                yield found
