"""Follows a table for one committer: finds new snapshots, and checks that the snapshots seen before still exist.

Source: Java `operation/FileStoreCommitImpl.java` (filterCommitted) for identifiers that are already committed. The
check that snapshots still exist is an addition: Java on a local disk can replace a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.errors import CommitConflict
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.snapshots.table_identity import TableIdentity


@dataclass(frozen=True, slots=True)
class NewSnapshots:
    """Snapshots committed since the last refresh, oldest first.

    is_complete: False if snapshots between the last one seen and the first one here expired before this refresh.
    """

    snapshots: Sequence[Snapshot]
    is_complete: bool = True

    def followed_by(self, later: NewSnapshots) -> NewSnapshots:
        return NewSnapshots([*self.snapshots, *later.snapshots], self.is_complete and later.is_complete)


class SnapshotTracker:
    """A committer's view of a table's snapshots. Not thread-safe.

    latest: the newest snapshot at the last refresh; None for a table without snapshots
    latest_of_user: our user's newest numbered snapshot, as far as known; None if it has none
    identity: checked if the last snapshot seen is not found again, which would prove that the table is the same
    """

    def __init__(self, store: SnapshotStore, commit_user: str, table_name: str, identity: TableIdentity) -> None:
        self._store = store
        self._identity = identity
        self._commit_user = commit_user
        self._table_name = table_name
        self._seen_id: int | None = None  # id of `latest`, 0 if the table has none; None before the first refresh
        self._has_searched_own = False
        self.latest: Snapshot | None = None
        self.latest_of_user: Snapshot | None = None

    def refresh(self, *, search_own: bool, expects_others: bool = False) -> NewSnapshots:
        """Return the new snapshots since the last refresh; none at the first.

        search_own: unless done before, also read backwards to the newest numbered snapshot of our user, and return it
            and all later ones. So an already committed identifier is recognised, and a fence set meanwhile is seen.
        expects_others: there probably are new snapshots, so it isn't worth asking whether there are none.
        Raises CommitConflict if the last snapshot seen was replaced or rolled back, or if the table is another one.
        """
        newest = self._store.latest_since(None if expects_others else self.latest)
        if self.latest is None or not self._still_exists(self.latest, newest):
            self._identity.check_before_change()  # only now: then the snapshot found surely belongs to this table
        newest_id = newest.id if newest is not None else 0
        first_new = self._seen_id + 1 if self._seen_id is not None else newest_id + 1
        searching = search_own and not self._has_searched_own
        snapshots: list[Snapshot] = []
        for snapshot in self._store.backwards_from(newest) if newest is not None else ():
            if snapshot.id < first_new and not searching:
                break
            snapshots.append(snapshot)
            searching = searching and not self._is_own(snapshot)
        snapshots.reverse()
        self.latest, self._seen_id = newest, newest_id
        self._has_searched_own |= search_own
        for snapshot in snapshots:
            self._remember(snapshot)
        return NewSnapshots(snapshots, newest_id < first_new or any(snapshot.id == first_new for snapshot in snapshots))

    @property
    def has_looked(self) -> bool:
        """Whether there was a refresh."""
        return self._seen_id is not None

    def knows_latest(self, *, search_own: bool) -> bool:
        """Return whether `latest` is a snapshot, and a refresh has searched for our own if this is wanted."""
        return self.latest is not None and (self._has_searched_own or not search_own)

    def is_latest_unchanged(self) -> bool:
        """Return whether the file of `latest` exists, with the same content. There may be newer snapshots."""
        return self.latest is not None and self._store.find(self.latest.id) == self.latest

    def published(self, snapshot: Snapshot) -> None:
        """Learn that we published this snapshot as the table's next one."""
        self.latest, self._seen_id = snapshot, snapshot.id
        self._remember(snapshot)

    def _remember(self, snapshot: Snapshot) -> None:
        if self._is_own(snapshot):
            self.latest_of_user = snapshot

    def _is_own(self, snapshot: Snapshot) -> bool:
        return snapshot.commit_user == self._commit_user and snapshot.is_numbered

    def _still_exists(self, seen: Snapshot, newest: Snapshot | None) -> bool:
        """Return False if the snapshot expired. Raises CommitConflict if it was replaced or rolled back."""
        if newest is None or newest.id < seen.id:
            state = "the table has no snapshot now" if newest is None else f"the latest is {newest.id} now"
            raise CommitConflict(
                f"{self._table_name}: snapshot {seen.id} of {seen.commit_user} no longer exists ({state}): the table "
                "was rolled back, dropped or created again. Open the table and write again. Start a pipeline again: "
                "it then checks the table's position"
            )
        now = newest if newest.id == seen.id else self._store.find(seen.id)
        if now is not None and now != seen:
            whose = "which this writer committed" if seen.commit_user == self._commit_user else f"of {seen.commit_user}"
            raise CommitConflict(
                f"{self._table_name}: snapshot {seen.id}, {whose}, was replaced by one of {now.commit_user} (uuid "
                f"{now.uuid} instead of {seen.uuid}). The other writer publishes snapshots without excluding "
                "concurrent writers (as Java Paimon does on a local disk or a plain object store): let only one of "
                "them commit at a time, or use a catalog lock for both. Open the table and write the lost rows again"
            )
        return now is not None
