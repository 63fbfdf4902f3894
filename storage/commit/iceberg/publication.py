"""Publishes the Iceberg metadata of a table after each of its snapshots.

Steps for snapshot N, and what remains after a crash in each step
    1. Find the newest metadata that shows a snapshot of the table's history, usually N-1. After a rollback, it is
       what the newest metadata shows of this history.
       *Crash: nothing remains.*
    2. Write the manifests and the manifest list of each snapshot after it, up to N. If a snapshot is missing, or there
       is no such metadata, begin anew with N alone.
       *Crash: orphans remain, files that no metadata names.*
    3. Write `vN.metadata.json`, then the hint. **From then on readers see N.**
       *Crash between them: the next commit finds the file after the one that the hint names.*
    4. Delete old metadata files, and the manifests of Iceberg snapshots that have expired.
       *Crash: orphans remain.*

These files are not fsynced, as they can be made again from the table: an fsync of each would take as long as the
commit. After a power cut, the first commit of a process finds incomplete files, and begins anew.

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
from itertools import islice
from typing import Final

from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.iceberg.iceberg_commit import IcebergSnapshots, Inheritance
from tidelake.storage.commit.iceberg.manifest_files import IcebergManifests
from tidelake.storage.commit.iceberg.metadata_directory import METADATA, MetadataDirectory, metadata_directory
from tidelake.storage.commit.manifests.record_file import Record
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.iceberg.table_metadata import IcebergMetadata, IcebergSnapshot
from tidelake.storage.model.options.iceberg_options import MetadataLocation
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


def refresh_iceberg_metadata(context: TableContext) -> None:
    """Let Iceberg metadata follow a change other than a commit: of tags, a rollback. Logs errors, and raises none."""
    try:
        publication = iceberg_publication_of(context)
        if publication is not None:
            publication.refresh()
    except Exception as error:
        _log_behind(context, None, error)


def delete_metadata_outside(context: TableContext) -> None:
    """Delete the Iceberg metadata that is not in the directory of the table: the table was dropped or renamed."""
    options = context.options
    if options.iceberg_enabled and options.iceberg_metadata_location is MetadataLocation.CATALOG:
        with suppress(UnsupportedFeature):  # then there is none
            context.io.delete_directory(metadata_directory(context).removesuffix(METADATA))


def _log_behind(context: TableContext, snapshot_id: int | None, error: Exception) -> None:
    _log.warning(
        "Iceberg metadata is behind",
        table=context.name,
        snapshot=snapshot_id,
        error=f"{type(error).__name__}: {error}",
        remedy="the next commit publishes it, or `tidelake table iceberg`",
    )


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
        self._is_checked = False

    def publish_committed(self, snapshot: Snapshot) -> None:
        """Publish metadata up to this snapshot, which was just committed. Logs errors, and raises none."""
        try:
            self.publish(snapshot)
        except Exception as error:
            _log_behind(self._context, snapshot.id, error)

    def publish(self, snapshot: Snapshot) -> None:
        """Publish metadata up to this snapshot, unless there is a later one or it is published already."""
        if self._context.snapshots.exists(snapshot.id + 1):
            return
        base = self._base()
        if base is not None and not self._is_checked:
            self._is_checked = True
            base = None if self._is_damaged(base.snapshots[-1:]) else base
        if base is not None and base.current.shows(snapshot):
            self._directory.write_hint(snapshot.id)
            return
        found = self._after(base, snapshot) if base is not None else None
        if base is None or found is None:
            self._publish_anew(snapshot)
        else:
            self._publish(self._current(found), base)

    def refresh(self) -> None:
        """Publish the latest snapshot, if it is not published, and the tags of now, as references."""
        latest = self._context.snapshots.latest()
        if latest is None:
            return
        base = self._base()
        if base is None or not base.current.shows(latest):
            self.publish(latest)
            return
        tagged = self._tagged(base)
        if tagged.refs != base.refs:
            self._directory.write(tagged)

    def repair(self, *, anew: bool = False) -> str | None:
        """Publish the latest snapshot if the metadata does not show it, or if a file of the metadata is lost.

        anew: in any case. New metadata has at most the newest 100 snapshots, and their tags.
        Returns the path of the newest metadata file; None for a table without snapshots.
        """
        latest = self._context.snapshots.latest()
        if latest is None:
            return None
        base = self._base()
        if anew or base is None or self._is_damaged(base.snapshots):
            self._publish_anew(latest, with_history=True)
        else:
            self.refresh()
        return self._directory.metadata_path(latest.id)

    def _is_damaged(self, snapshots: Sequence[IcebergSnapshot]) -> bool:
        """Return whether a file is missing, or is not complete because the power was cut."""
        try:
            for shown in snapshots:
                for meta in self._manifests.read_list(shown.manifest_list):
                    if self._context.io.size_bytes(meta["manifest_path"]) != meta["manifest_length"]:
                        return True
        except (CorruptFile, FileNotFoundError):
            return True
        return False

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

    def _publish_anew(self, snapshot: Snapshot, *, with_history: bool = False) -> None:
        """Publish new metadata of this snapshot, under the identity of the newest metadata that can be read.

        with_history: also of the retained snapshots before it.
        """
        versions = self._directory.versions()
        old = next((found for v in reversed(versions) if (found := self._directory.find(v)) is not None), None)
        is_known = old is not None and any(shown.shows(snapshot) for shown in old.snapshots)
        if snapshot.id == FIRST_SNAPSHOT_ID and not is_known:  # what is there belongs to a table that was dropped
            self._directory.delete_all()
            versions, old = [], None
        if old is None:
            inherited = Inheritance(self._identity())
        else:
            inherited = Inheritance(old.table_uuid, old.last_column_id, old.next_row_id or 0)
        made = None if with_history or old is None else self._continued(old, snapshot)
        if made is None:
            # the first commit of a table may be two snapshots: its rows, and their compaction
            is_first = old is None and snapshot.id == FIRST_SNAPSHOT_ID + 1
            first = self._first_retained(snapshot) if with_history or is_first else snapshot
            made = self._snapshots.first(first, inherited)
            if first != snapshot:
                made = self._after(made, snapshot)
        metadata = self._current(made or self._snapshots.first(snapshot, inherited))
        self._directory.write(metadata)
        self._directory.write_hint(snapshot.id)
        self._directory.delete_versions([version for version in versions if version != snapshot.id])
        if old is not None:
            self._expire(old.snapshots, metadata.snapshots)

    def _continued(self, old: IcebergMetadata, snapshot: Snapshot) -> IcebergMetadata | None:
        """Return metadata up to this snapshot from what old metadata shows of its history: the table was rolled back.

        None if it shows nothing of it, or if a file is missing.
        """
        if old.format_version != self._options.iceberg_format_version or old.location != self._context.location:
            return None
        shown = [s for s in old.snapshots if s.id <= snapshot.id]
        while shown and not ((own := self._context.snapshots.find(shown[-1].id)) and shown[-1].shows(own)):
            shown.pop()
        if not shown or self._is_damaged(shown):
            return None
        base = replace(old, snapshots=tuple(shown), current_schema_id=shown[-1].schema_id)
        return base if base.current.shows(snapshot) else self._after(base, snapshot)

    def _identity(self) -> str:
        """Return the same identity each time, so that readers know the table again after its metadata was lost."""
        created_ms = self._context.schemas.get(0).time_ms
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._context.location}#{created_ms}"))

    def _first_retained(self, latest: Snapshot) -> Snapshot:
        first = latest
        for snapshot in islice(self._context.snapshots.backwards_from(latest), _MISSED_MAX):
            if self._is_expired(snapshot.id, snapshot.time_ms, latest.id) or snapshot.schema_id > first.schema_id:
                break
            first = snapshot
        earliest = self._context.snapshots.earliest()
        return earliest if earliest is not None and earliest.id > first.id else first

    def _current(self, metadata: IcebergMetadata) -> IcebergMetadata:
        """Return the metadata without expired snapshots, with the tags of now and the time of now."""
        tagged = {snapshot.id for snapshot in self._tags().values()}
        kept = [
            s
            for s in metadata.snapshots[:-1]
            if s.id in tagged or not self._is_expired(s.id, s.time_ms, metadata.current.id)
        ]
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

    def _is_expired(self, snapshot_id: int, time_ms: int, current_id: int) -> bool:
        """Return whether the table's own expiry, which comes after the commit, removes this snapshot."""
        options = self._options
        if snapshot_id > current_id - options.snapshot_num_retained_min:
            return False
        if snapshot_id <= current_id - options.snapshot_num_retained_max:
            return True
        return time_ms < epoch_ms() - options.snapshot_time_retained_ms

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
