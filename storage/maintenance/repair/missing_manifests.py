"""Removes missing manifests from the table: manifests that the latest snapshot names, but that don't exist.

Their content is unknown. Files that they added are no longer part of the table (they are orphans), and files that they
deleted are part of it again. `missing_files` removes those of the latter that don't exist.

Source: Java `flink/action/RemoveUnexistingManifestsAction.java`, `FileStoreCommitImpl.replaceManifestList`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.errors import CommitConflict
from tidelake.storage.commit.file_system_commit import snapshot_commit_of
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import merged, table_manifests
from tidelake.storage.commit.snapshot_builder import writer_version
from tidelake.storage.commit.table_commit import new_commit_user
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


def remove_missing_manifests(context: TableContext, *, dry_run: bool = False) -> list[str]:
    """Commit a snapshot of kind OVERWRITE on the latest one, without the missing manifests. Returns their names.

    Nothing is committed if no manifest is missing. Raises CorruptFile if a manifest list is missing, or if the
    remaining manifests contradict each other; CommitConflict if another writer commits meanwhile.
    """
    context.identity.check_before_change()
    latest = context.snapshots.latest()
    if latest is None:
        return []
    store = context.shared(ManifestStore)
    metas = table_manifests(store, latest)
    present = [meta for meta in metas if context.io.exists(context.paths.manifest(meta.file_name))]
    kept = {meta.file_name for meta in present}
    lost = [meta.file_name for meta in metas if meta.file_name not in kept]
    if lost and not dry_run:
        _publish(context, store, latest, present)
    return lost


def _publish(context: TableContext, store: ManifestStore, latest: Snapshot, metas: Sequence[ManifestFileMeta]) -> None:
    live = [e for e in merged(store, metas, f"{context.name}, snapshot {latest.id}") if e.kind is FileKind.ADD]
    base, delta = store.write_list(metas), store.write_list([])
    snapshot = replace(
        latest,
        id=latest.id + 1,
        base_manifest_list=base.name,
        base_manifest_list_size=base.size,
        delta_manifest_list=delta.name,
        delta_manifest_list_size=delta.size,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
        commit_user=new_commit_user(context.options),
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.OVERWRITE,
        time_ms=epoch_ms(),
        total_record_count=sum(entry.file.row_count for entry in live),
        delta_record_count=0,
        operation=None,
        uuid=str(uuid.uuid4()),
        writer_version=writer_version(),
    )
    if not snapshot_commit_of(context).commit(latest, snapshot, list):
        store.delete([base.name, delta.name])
        raise CommitConflict(f"{context.name}: another process has committed snapshot {snapshot.id} since; try again")
