"""Merges the manifests of a table at once, whatever their size: for plans after thousands of small commits.

Commits also merge manifests (`tidelake.storage.commit.manifests.manifest_merge`), but only as much as pays off within a
commit.

Source: Java `operation/FileStoreCommitImpl.compactManifest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelake.errors import CommitConflict
from tidelake.storage.commit.commit_changes import CommitChanges
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.commit_request import CommitRequest
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_merge import MergeLimits
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import table_manifests
from tidelake.storage.commit.publisher import CommitEnvironment, Publisher
from tidelake.storage.commit.table_commit import new_commit_user
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_MERGE_ALL_OPTIONS: Final = {"manifest.full-compaction-threshold-size": "1 b", "manifest.merge-min-count": "2"}
_ATTEMPTS: Final = 5  # the retry of a commit merges no manifests


class ManifestCompaction(NamedTuple):
    """The number of manifests before and after.

    snapshot_id: the new snapshot; None if there was nothing to merge, or for a dry run
    """

    manifests_before: int
    manifests_after: int
    snapshot_id: int | None = None


def compact_manifests(context: TableContext, *, dry_run: bool = False) -> ManifestCompaction:
    """Merge a table's manifests, with an empty snapshot of kind COMPACT.

    Manifests of `manifest.target-file-size` stay, unless files that they name were deleted since. Raises CommitConflict
    if other commits were first too often.
    """
    context.identity.check_before_change()
    joining = context.with_options(_MERGE_ALL_OPTIONS)
    for _ in range(_ATTEMPTS):
        latest = context.snapshots.latest()
        before = _manifests(context, latest)
        if dry_run or not _is_due(joining, before):
            return ManifestCompaction(len(before), len(before))
        publisher = Publisher(joining, new_commit_user(context.options), None, CommitEnvironment())
        request = CommitRequest(Committable(BATCH_COMMIT_IDENTIFIER), lambda _: CommitChanges(CommitKind.COMPACT))
        made = publisher.publish(request).snapshot
        if publisher.attempts == 1:
            return ManifestCompaction(len(before), len(_manifests(context, made)), made.id)
    raise CommitConflict(f"{context.name}: other writers committed first {_ATTEMPTS} times in a row; try again")


def _manifests(context: TableContext, snapshot: Snapshot | None) -> Sequence[ManifestFileMeta]:
    return [] if snapshot is None else table_manifests(context.shared(ManifestStore), snapshot)


def _is_due(context: TableContext, metas: Sequence[ManifestFileMeta]) -> bool:
    limits = MergeLimits.of(context.options)
    return sum(map(limits.must_change, metas)) > 1
