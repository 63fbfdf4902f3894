"""Removes changelogs that outlived their snapshots, once they are old enough themselves.

Like `storage.snapshots.expire`, hint first and the changelog's own file last, over `changelog/` instead of `snapshot/`.
Where no changelog is made, the changes of a snapshot are the files that it added; such a file stays while the changelog
of the snapshot that deleted it does.

Source: Java `table/ExpireChangelogImpl.java`, `operation/ChangelogDeletion.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.clock import epoch_ms
from storage.snapshots.consumers import needed_by_consumers
from storage.snapshots.deletion import DeletionPlanner, Doomed, TagFiles, changelog_list, table_lists
from storage.snapshots.expire import Expired, Pins
from storage.snapshots.long_lived_changelogs import ChangelogStore
from storage.snapshots.manifest_store import ManifestStore
from storage.snapshots.named_files import metadata_of
from storage.snapshots.retention import Retention
from storage.snapshots.snapshot import Snapshot, SnapshotStore
from storage.snapshots.tags import tagged_snapshots
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
        self._manifests = ManifestStore(context)

    def run(self, latest_id: int) -> Expired | None:
        """One round; None when nothing may go. latest_id: the table's newest snapshot, from which numbers are counted.

        Raises OSError and CorruptFile; what was not done then is done by the next round.
        """
        ids = self._changelogs.ids()
        if not ids:
            return None
        begin, newest = ids[0], ids[-1]
        end = self._retention.first_to_stay(begin, latest_id, self._now_ms(), self._time_ms)
        end = min([end, newest, *self._pins()])
        by_consumers = needed_by_consumers(self._context.io, self._context.paths) if end > begin else None
        end = end if by_consumers is None else min(end, by_consumers)
        if end <= begin:
            return None
        going = [found for i in ids if i < end and (found := self._changelogs.find(i)) is not None]
        survivor_id = next(i for i in ids if i >= end)
        survivor = self._changelogs.find(survivor_id)
        if survivor is None:
            return None  # somebody else expires at this moment
        doomed = self._doomed(going, survivor)
        self._changelogs.hint_earliest(survivor_id)
        if not doomed.delete(self._context.io, self._stop):
            return None
        for changelog in going:
            self._changelogs.delete(changelog.id)
        return Expired(begin, end, len(going), len(doomed.data), len(doomed.metadata) + len(doomed.lists))

    def _time_ms(self, changelog_id: int) -> int | None:
        found = self._changelogs.find(changelog_id)
        return None if found is None else found.time_ms

    def _doomed(self, going: Sequence[Snapshot], survivor: Snapshot) -> Doomed:
        context = self._context
        tagged = TagFiles(context, self._manifests, tagged_snapshots(context.io, context.paths))
        planner = DeletionPlanner(context, self._manifests)
        kept = planner.names([*table_lists(survivor), changelog_list(survivor)])
        earliest = SnapshotStore(context.io, context.paths).earliest()
        for staying in (*([] if earliest is None else [earliest]), *tagged.around(going[0].id, survivor.id)):
            kept |= metadata_of(context, self._manifests, staying)
        told = [changelog for changelog in going if changelog.changelog_manifest_list is not None]
        untold = [changelog for changelog in going if changelog.changelog_manifest_list is None]
        doomed = Doomed(planner.changelog_data(told))
        doomed.data += planner.deleted_data(
            untold, lambda changelog: lambda entry: entry.file.file_name in tagged.before(changelog.id)
        )
        planner.lists(map(changelog_list, told), kept, doomed)
        planner.lists((file for changelog in untold for file in table_lists(changelog)), kept, doomed)
        return doomed
