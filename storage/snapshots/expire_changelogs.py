"""Removes changelogs that outlived their snapshots, once they are old enough themselves.

Like `storage.snapshots.expire`, hint first and the changelog's own file last, over `changelog/` instead of `snapshot/`.
Where no changelog is made, the changes of a snapshot are the files that it added; such a file stays while the changelog
of the snapshot that deleted it does.

Source: Java `table/ExpireChangelogImpl.java`, `operation/ChangelogDeletion.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from storage.clock import epoch_ms
from storage.snapshots.deletion import DeletionPlanner, Doomed
from storage.snapshots.expire import Expired
from storage.snapshots.held_states import Pins, changelog_list, first_needed, metadata_names, state_lists
from storage.snapshots.long_lived_changelogs import ChangelogStore
from storage.snapshots.manifest_store import ManifestStore
from storage.snapshots.references import References
from storage.snapshots.retention import Retention
from storage.snapshots.snapshot import Snapshot, SnapshotStore
from storage.table import TableContext


class ChangelogExpiry:
    """pins, now_ms, stop: as of SnapshotExpiry. One thread at a time."""

    def __init__(
        self,
        context: TableContext,
        *,
        pins: Pins = tuple,
        retention: Retention | None = None,
        now_ms: Callable[[], int] = epoch_ms,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = context
        self._pins = pins
        self._retention = retention or Retention.of_changelogs(context.options)
        self._now_ms = now_ms
        self._stop = stop
        self._changelogs = ChangelogStore(context.io, context.paths)
        self._snapshots = SnapshotStore(context.io, context.paths)
        self._manifests = ManifestStore(context)
        self._references = References(context, self._manifests)

    def run(self, latest_id: int) -> Expired | None:
        """One round; None when nothing may go. latest_id: the table's newest snapshot, from which numbers are counted.

        Raises OSError and CorruptFile; what was not done then is done by the next round.
        """
        ids = self._changelogs.ids()
        earliest = self._snapshots.earliest() if ids else None
        if earliest is None:
            return None
        begin, end = ids[0], self._first_to_stay(ids, latest_id, earliest.id)
        if end <= begin:
            return None
        going = [found for i in ids if i < end and (found := self._changelogs.find(i)) is not None]
        next_id = next((i for i in ids if i >= end), None)
        survivor = earliest if next_id is None else self._changelogs.find(next_id)
        if survivor is None or not going:
            return None  # somebody else expires at this moment
        doomed = self._doomed(going, survivor, earliest, latest_id)
        self._changelogs.hint_earliest(survivor.id)
        if not doomed.delete(self._context.io, self._stop):
            return None
        for changelog in going:
            self._changelogs.delete(changelog.id)
        return Expired(begin, end, len(going), doomed.data_files, doomed.metadata_files)

    def _first_to_stay(self, ids: Sequence[int], latest_id: int, earliest_id: int) -> int:
        """The newest stays while changelogs outlive snapshots by the options, as in Java; else all go in the end."""
        end = self._retention.first_to_stay(ids[0], latest_id, self._now_ms(), self._time_ms)
        outlive = self._context.options.changelog_outlives_snapshots
        end = min(end, ids[-1] if outlive else ids[-1] + 1, earliest_id)
        if end <= ids[0]:
            return end
        needed = first_needed(self._context.io, self._context.paths, self._pins)
        return end if needed is None else min(end, needed)

    def _time_ms(self, changelog_id: int) -> int | None:
        found = self._changelogs.find(changelog_id)
        return None if found is None else found.time_ms

    def _doomed(self, going: Sequence[Snapshot], survivor: Snapshot, earliest: Snapshot, latest_id: int) -> Doomed:
        """earliest: of the snapshots; survivor: of the changelogs, or the same where none stays."""
        planner = DeletionPlanner(self._context, self._manifests)
        kept = planner.names([*state_lists(survivor), changelog_list(survivor)])
        kept |= metadata_names(self._context, self._manifests, earliest)
        made = [changelog for changelog in going if changelog.changelog_manifest_list is not None]
        without = [changelog for changelog in going if changelog.changelog_manifest_list is None]
        doomed = Doomed(planner.changelog_data(made) | planner.deleted_data(without))
        planner.lists(map(changelog_list, made), kept, doomed)
        planner.lists((file for changelog in without for file in state_lists(changelog)), kept, doomed)
        candidates = doomed.candidates()
        later = self._from(self._references.scan_from(survivor.id, latest_id), latest_id) if without else ()
        doomed.spare(self._references.brought_back(candidates, later, survivor.id, latest_id) if without else set())
        doomed.spare(self._references.named(candidates, going[0].id, survivor.id))
        return doomed

    def _from(self, first: int, latest_id: int) -> Iterator[Snapshot]:
        """Snapshots, and the changelogs that are left of them."""
        for snapshot_id in range(first, latest_id + 1):
            found = self._snapshots.find(snapshot_id) or self._changelogs.find(snapshot_id)
            if found is not None:
                yield found
