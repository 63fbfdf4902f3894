"""Which files a snapshot names: what must stay as long as it does.

Source: Java `operation/FileDeletionBase.java` (manifestSkippingSet).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.format import FileKind
from storage.snapshots.index_manifest import read_index_manifest
from storage.snapshots.live_files import delta_list, table_manifests
from storage.snapshots.manifest_store import ListFile, ManifestStore
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """metadata: names of lists, manifests, index manifests, index files, statistics. data: of data files."""

    metadata: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)

    def add(self, other: NamedFiles) -> None:
        self.metadata.update(other.metadata)
        self.data.update(other.data)


def metadata_of(context: TableContext, manifests: ManifestStore, snapshot: Snapshot) -> set[str]:
    """All metadata that a snapshot needs to be read; not its changelog. Raises CorruptFile."""
    names = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
    names.update(meta.file_name for meta in table_manifests(manifests, snapshot))
    return names | index_of(context, snapshot)


def index_of(context: TableContext, snapshot: Snapshot) -> set[str]:
    """Index manifest, index files and statistics."""
    names = {name for name in (snapshot.index_manifest, snapshot.statistics) if name is not None}
    if snapshot.index_manifest is not None:
        names.update(entry.file_name for entry in read_index_manifest(context, snapshot.index_manifest))
    return names


def everything_of(
    context: TableContext, manifests: ManifestStore, snapshots: Iterable[Snapshot], *, with_changelogs: bool
) -> NamedFiles:
    """All that any of these snapshots names. Each manifest is read once. Raises CorruptFile.

    with_changelogs: not for tags; they keep the table, and its changes expire with the snapshot.
    """
    named = NamedFiles()
    for snapshot in snapshots:
        metas = list(table_manifests(manifests, snapshot))
        if with_changelogs and snapshot.changelog_manifest_list is not None:
            named.metadata.add(snapshot.changelog_manifest_list)
            metas += manifests.read_list(
                ListFile(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
            )
        for meta in metas:
            if meta.file_name not in named.metadata:
                named.data.update(e.file.file_name for e in manifests.read(meta) if e.kind is FileKind.ADD)
        named.metadata.update(meta.file_name for meta in metas)
        named.metadata.update({snapshot.base_manifest_list, snapshot.delta_manifest_list})
        named.metadata.update(index_of(context, snapshot))
    return named


def brought_back_by(context: TableContext, manifests: ManifestStore, snapshot: Snapshot) -> NamedFiles:
    """What a snapshot may name again that was deleted before: a rollback that is published as a new snapshot does."""
    added = {
        entry.file.file_name
        for meta in manifests.read_list(delta_list(snapshot))
        for entry in manifests.read(meta)
        if entry.kind is FileKind.ADD
    }
    return NamedFiles(index_of(context, snapshot), added)
