"""Publishes the Iceberg metadata of a table after each of its snapshots.

Steps for snapshot N, and what remains after a crash in each step
    1. Find the newest metadata that shows a snapshot of the table's history, usually N-1.
       *Crash: nothing remains.*
    2. Write the manifests and the manifest list of each snapshot after it, up to N. If a snapshot is missing, or there
       is no such metadata, begin anew with N alone.
       *Crash: orphans remain, files that no metadata names.*
    3. Write `vN.metadata.json`, then the hint. **From then on readers see N.**
       *Crash between them: the next commit finds the file after the one that the hint names.*
    4. Delete old metadata files, and the manifests of Iceberg snapshots that have expired.
       *Crash: orphans remain.*

The table's commit is done before step 1. So an error here does not fail it: it is logged, and the next commit, or
`tidelake table iceberg`, makes up for it. If another process has already committed N+1, then this is left to it.

Source: Java `iceberg/IcebergCommitCallback.java`. Java begins anew after each missed snapshot, which forgets older
snapshots and tags.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.iceberg.iceberg_commit import IcebergSnapshots, Inheritance
from tidelake.storage.commit.iceberg.manifest_files import IcebergManifests
from tidelake.storage.commit.iceberg.metadata_directory import MetadataDirectory, metadata_directory
from tidelake.storage.commit.manifests.record_file import Record
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.iceberg.table_metadata import IcebergMetadata, IcebergSnapshot
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)

_MISSED_MAX: Final = 100  # with more missed snapshots, beginning anew is cheaper


def iceberg_publication_of(context: TableContext) -> IcebergPublication | None:
    """Return None for a table without Iceberg metadata. Only the main branch has it.

    Raises UnsupportedFeature if the metadata has no place.
    """
    if not context.options.iceberg_enabled or context.branch != DEFAULT_BRANCH:
        return None
    return IcebergPublication(context)


class IcebergPublication:
    """The Iceberg metadata of one table. Not thread-safe; several processes may publish at the same time."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._options = context.options
        self._directory = MetadataDirectory(context.io, metadata_directory(context))
        self._manifests = IcebergManifests(context, self._directory.path)
        self._snapshots = IcebergSnapshots(context, self._manifests)
        self._tag_files: list[tuple[str, int, int]] = []
        self._known_tags: dict[str, Snapshot] = {}

    def publish_committed(self, snapshot: Snapshot) -> None:
        """Publish metadata up to this snapshot, which was just committed. Logs errors, and raises none."""
        try:
            self.publish(snapshot)
        except Exception as error:
            _log.warning(
                "Iceberg metadata is behind",
                table=self._context.name,
                snapshot=snapshot.id,
                error=f"{type(error).__name__}: {error}",
                remedy="the next commit publishes it, or `tidelake table iceberg`",
            )

    def publish(self, snapshot: Snapshot) -> None:
        """Publish metadata up to this snapshot, unless there is a later one or it is published already."""
        if self._context.snapshots.exists(snapshot.id + 1):
            return
        base = self._base()
        if base is not None and base.current.shows(snapshot):
            self._directory.write_hint(snapshot.id)
            return
        found = self._after(base, snapshot) if base is not None else None
        if base is None or found is None:
            self._publish_anew(snapshot)
        else:
            self._publish(self._current(found), base)

    def rebuild(self) -> IcebergMetadata | None:
        """Replace all metadata by new metadata of the latest snapshot. Returns None for a table without snapshots."""
        latest = self._context.snapshots.latest()
        return None if latest is None else self._publish_anew(latest)

    def update_tags(self) -> None:
        """Write the table's tags into the newest metadata file, as references."""
        base = self._base()
        if base is not None:
            tagged = self._tagged(base)
            if tagged.refs != base.refs:
                self._directory.write(tagged)

    # ------------------------------------------------------------ what is published already

    def _base(self) -> IcebergMetadata | None:
        """Return the newest metadata if it continues the table's history and is of the table's format version."""
        version = self._directory.hint()
        if version is None:
            return None
        while self._directory.exists(version + 1):  # a crash, or another process, left the hint behind
            version += 1
        found = self._directory.find(version)
        if found is None or found.format_version != self._options.iceberg_format_version:
            return None
        shown = self._context.snapshots.find(found.current.id)
        is_of_table = shown is not None and found.current.shows(shown) and found.location == self._context.location
        return found if is_of_table else None

    def _after(self, base: IcebergMetadata, snapshot: Snapshot) -> IcebergMetadata | None:
        """Return metadata with the snapshots after those of base; None if one of them, or a manifest, is missing."""
        first = base.current.id
        if not first < snapshot.id <= first + _MISSED_MAX or base.current_schema_id > snapshot.schema_id:
            return None
        missed = [self._context.snapshots.find(i) for i in range(first, snapshot.id)]
        found = base
        try:
            for before, after in zip(missed, [*missed[1:], snapshot], strict=True):
                if before is None or after is None:
                    return None
                found = self._snapshots.after(found, before, after)
        except CorruptFile as error:
            _log.warning("Iceberg metadata begins anew", table=self._context.name, error=str(error))
            return None
        return found

    # ------------------------------------------------------------ publishing

    def _publish(self, metadata: IcebergMetadata, base: IcebergMetadata) -> None:
        version = metadata.current.id
        self._directory.write(metadata)
        if self._context.snapshots.exists(version + 1):
            return  # the process that committed it publishes it, and may have read this file as its base
        self._directory.write_hint(version)
        if self._directory.exists(version + 1):  # published meanwhile: the hint must not go back
            self._directory.write_hint(version + 1)
        keep = self._options.iceberg_previous_versions_max
        if self._options.iceberg_deletes_old_metadata:
            self._directory.delete_versions(list(range(max(1, base.current.id - keep), version - keep)))
        self._expire(base.snapshots, metadata.snapshots)

    def _publish_anew(self, snapshot: Snapshot) -> IcebergMetadata:
        """Publish metadata of this snapshot alone, under the identity of the newest metadata that can be read."""
        versions = self._directory.versions()
        old = next((found for v in reversed(versions) if (found := self._directory.find(v)) is not None), None)
        if snapshot.id == FIRST_SNAPSHOT_ID:  # what is there belongs to a table that was dropped
            self._directory.delete_all()
            versions, old = [], None
        if old is None:
            inherited = Inheritance(str(uuid.uuid4()))
        else:
            inherited = Inheritance(old.table_uuid, old.last_column_id, old.next_row_id or 0)
        metadata = self._current(self._snapshots.first(snapshot, inherited))
        self._directory.write(metadata)
        self._directory.write_hint(snapshot.id)
        self._directory.delete_versions([version for version in versions if version != snapshot.id])
        if old is not None:
            self._expire(old.snapshots, metadata.snapshots)
        return metadata

    def _current(self, metadata: IcebergMetadata) -> IcebergMetadata:
        """Return the metadata without expired snapshots, with the tags of now and the time of now."""
        tagged = {snapshot.id for snapshot in self._tags().values()}
        kept = [s for s in metadata.snapshots[:-1] if s.id in tagged or not self._is_expired(s, metadata.current)]
        return self._tagged(
            replace(
                metadata, snapshots=(*kept, metadata.current), last_updated_ms=max(epoch_ms(), metadata.current.time_ms)
            )
        )

    def _tagged(self, metadata: IcebergMetadata) -> IcebergMetadata:
        shown = {snapshot.id: snapshot for snapshot in metadata.snapshots}
        refs = {
            name: snapshot.id
            for name, snapshot in self._tags().items()
            if snapshot.id in shown and shown[snapshot.id].shows(snapshot)
        }
        return replace(metadata, refs=refs)

    def _tags(self) -> dict[str, Snapshot]:
        """Return the table's tags. Reads them again only if a file has changed."""
        paths = self._context.paths
        files = sorted(
            (e.name, e.modified_ms, e.size_bytes) for e in self._context.io.list_directory(paths.tag_directory)
        )
        if files != self._tag_files:
            found = {}
            for name in self._context.tags.names() if files else ():
                with suppress(BadInput):  # another process deleted it
                    found[name] = self._context.tags.get(name)
            self._tag_files, self._known_tags = files, found
        return self._known_tags

    # ------------------------------------------------------------ expiry

    def _is_expired(self, snapshot: IcebergSnapshot, current: IcebergSnapshot) -> bool:
        """Return whether the table's own expiry removes this snapshot: it comes after the commit."""
        options = self._options
        if snapshot.id > current.id - options.snapshot_num_retained_min:
            return False
        if snapshot.id <= current.id - options.snapshot_num_retained_max:
            return True
        return snapshot.time_ms < epoch_ms() - options.snapshot_time_retained_ms

    def _expire(self, before: Sequence[IcebergSnapshot], after: Sequence[IcebergSnapshot]) -> None:
        """Delete the manifest lists, and the manifests, that only expired snapshots name.

        A manifest is in the lists of consecutive snapshots. So if the nearest kept ones don't have it, none has.
        """
        kept = {snapshot.manifest_list for snapshot in after}
        gone: list[str] = []
        order = [*before, *(snapshot for snapshot in after if snapshot.id > before[-1].id)]
        for position, snapshot in enumerate(order):
            if snapshot.manifest_list in kept:
                continue
            neighbours = [
                next((s for s in reversed(order[:position]) if s.manifest_list in kept), None),
                next((s for s in order[position:] if s.manifest_list in kept), None),
            ]
            try:
                used = {meta["manifest_path"] for s in neighbours if s is not None for meta in self._read(s)}
                gone += [path for meta in self._read(snapshot) if (path := meta["manifest_path"]) not in used]
            except CorruptFile:  # deleted by another process, or by a crash: its manifests are orphans
                pass
            gone.append(snapshot.manifest_list)
        self._manifests.delete(dict.fromkeys(gone))

    def _read(self, snapshot: IcebergSnapshot) -> Sequence[Record]:
        return self._manifests.read_list(snapshot.manifest_list)
