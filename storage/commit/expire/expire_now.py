"""Expires all that may be expired, round after round: for a user, or for a dedicated job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.expire.changelog_expiry import ChangelogExpiry
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class ExpiryResult:
    """The numbers of expired snapshots, of expired long-lived changelogs, and of the files deleted with them."""

    snapshots: int = 0
    changelogs: int = 0
    data_files: int = 0
    metadata_files: int = 0


def expire_now(
    context: TableContext,
    *,
    retention: Retention | None = None,
    now_ms: Callable[[], int] = epoch_ms,
) -> ExpiryResult:
    """Expire snapshots and changelogs until no more may be expired.

    retention: of snapshots. None uses the table's options, which always apply to changelogs.

    Raises OSError and CorruptFile. A later call continues where this one stopped.
    """
    snapshots = changelogs = data_files = metadata_files = 0
    expiry = SnapshotExpiry(context, retention=retention, now_ms=now_ms)
    while (expired := expiry.run()) is not None:
        snapshots += expired.snapshots
        data_files += expired.data_files
        metadata_files += expired.metadata_files
    latest_id = context.snapshots.latest_id()
    if latest_id is not None and expiry.keeps_changelogs():
        changelog_expiry = ChangelogExpiry(context, now_ms=now_ms)
        while (expired := changelog_expiry.run(latest_id)) is not None:
            changelogs += expired.snapshots
            data_files += expired.data_files
            metadata_files += expired.metadata_files
    return ExpiryResult(snapshots, changelogs, data_files, metadata_files)
