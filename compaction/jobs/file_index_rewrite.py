"""Rewrites the file indexes of existing data files by the table's current options. Data files are not rewritten.

One COMPACT snapshot replaces the manifest entry of each file whose indexes changed: the same file, with other indexes.
Files of the old indexes are deleted when the snapshots that name them expire.

Source: Java `index/FileIndexProcessor.java`, `spark/procedure/RewriteFileIndexProcedure.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.errors import CommitOutcomeUnknown
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.commit_steps import retry_on_conflict
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.file_index.container import container_bytes
from tidelake.storage.files.file_index.file_indexer import FileIndexer
from tidelake.storage.files.file_index.index_settings import FileIndexSettings
from tidelake.storage.files.file_indexes import index_file_name
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.paths import file_index_name, is_file_index_name, next_file_index_name
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.scan import wanted_partitions

_ATTEMPTS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class FileIndexRewrite:
    """The result of rewriting file indexes.

    checked: the number of files that were read
    rewritten: the number of files whose indexes changed
    snapshot_id: the new snapshot; None if nothing changed, or for a dry run
    """

    checked: int = 0
    rewritten: int = 0
    snapshot_id: int | None = None


def rewrite_file_indexes(
    context: TableContext, *, where: Predicate | None = None, dry_run: bool = False
) -> FileIndexRewrite:
    """Rewrite the file indexes of a table, with its newest schema.

    where: a condition on partition columns; only these partitions are rewritten.
    dry_run: reads everything, writes nothing.

    Raises CommitConflict if others changed the same files too often, BadInput and UnsupportedFeature for an impossible
    request, CommitOutcomeUnknown (the written files are kept, as they may be part of the table).
    """
    context = context.with_schema(context.schemas.latest() or context.schema)
    CompactionRequest(where=where).prepare(context)
    return retry_on_conflict(_ATTEMPTS_MAX, lambda: _Rewriter(context, dry_run).run(where))


class _Rewriter:
    def __init__(self, context: TableContext, dry_run: bool) -> None:
        self._context = context
        self._settings = FileIndexSettings.of(context.options)
        self._dry_run = dry_run
        self._written: list[str] = []  # paths of new index files

    def run(self, where: Predicate | None) -> FileIndexRewrite:
        snapshot = self._context.snapshots.latest()
        if snapshot is None:
            return FileIndexRewrite()
        try:
            with raise_if_snapshot_expired(self._context, snapshot.id):
                entries = self._wanted(live_entries(self._context, snapshot), where)
                changed = [(e, new) for e in entries if (new := self._rewritten(e)) is not None]
            if not changed or self._dry_run:
                return FileIndexRewrite(len(entries), len(changed))
            return FileIndexRewrite(len(entries), len(changed), self._commit(changed))
        except CommitOutcomeUnknown:
            raise
        except BaseException:
            self._context.io.delete_all(self._written)
            raise

    def _wanted(self, entries: list[ManifestEntry], where: Predicate | None) -> list[ManifestEntry]:
        if where is None:
            return entries
        partitions = wanted_partitions(self._context, {entry.partition for entry in entries}, where)
        return [entry for entry in entries if entry.partition in partitions]

    def _commit(self, changed: Iterable[tuple[ManifestEntry, DataFileMeta]]) -> int | None:
        messages = [
            CommitMessage(
                entry.bucket_id,
                CommitIncrement(compacted=CompactResult(before=(entry.file,), after=(file,), reason="file indexes")),
                CommitBase(total_buckets=entry.total_buckets),
            )
            for entry, file in changed
        ]
        commit = TableCommit(self._context, new_commit_user(self._context.options))
        return commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, messages))

    def _rewritten(self, entry: ManifestEntry) -> DataFileMeta | None:
        """Return the file with the indexes that it should have; None if it has them already."""
        file = entry.file
        directory = bucket_directory(self._context, entry.partition, entry.bucket)
        path = data_file_path(directory, file)
        present = index_file_name(file)
        data = self._container(file, path, entry.partition)
        if data == self._present(file, path, present):
            return None
        others = tuple(name for name in file.extra_files if not is_file_index_name(name))
        if data is None:
            return replace(file, embedded_index=None, extra_files=others)
        if len(data) <= self._settings.in_manifest_threshold_bytes:
            return replace(file, embedded_index=data, extra_files=others)
        name = self._write(path, file.file_name, present, data)
        return replace(file, embedded_index=None, extra_files=(*others, name))

    def _present(self, file: DataFileMeta, path: str, index_name: str | None) -> bytes | None:
        """Return the container of the file. None if it has none, or one in the wrong place."""
        threshold = self._settings.in_manifest_threshold_bytes
        if file.embedded_index is not None:
            return file.embedded_index if len(file.embedded_index) <= threshold else b""
        if index_name is None:
            return None
        try:
            found = self._context.io.read(f"{path.rpartition('/')[0]}/{index_name}")
        except FileNotFoundError:
            return b""  # it is lost, so write it again
        return found if len(found) > threshold else b""

    def _container(self, file: DataFileMeta, path: str, partition: bytes) -> bytes | None:
        """Return the container for the file's columns under its own schema: an index stores the file's values."""
        schema = self._context.schema
        is_current = file.schema_id == schema.id
        own = self._context if is_current else self._context.with_schema(self._context.schemas.get(file.schema_id))
        names = {f.name: stored.name for f in schema.fields if (stored := own.schema.by_id.get(f.id)) is not None}
        settings = self._settings.renamed(names).supported(own.schema.by_name)
        if not settings:
            return None
        fields = own.schema.select([name for name in own.schema.names if name in settings.columns])
        indexer = FileIndexer(settings, own.schema.by_name)
        for batch in read_data_file(own, file, path, fields, partition=partition):
            indexer.add(batch)
        indexes = indexer.indexes()
        return container_bytes(indexes) if indexes else None

    def _write(self, path: str, file_name: str, present: str | None, data: bytes) -> str:
        """Write an index under an unused name: an earlier index may be kept until its snapshots expire."""
        directory = path.rpartition("/")[0]
        name = file_index_name(file_name) if present is None else next_file_index_name(file_name, present)
        while self._context.io.exists(f"{directory}/{name}"):
            name = next_file_index_name(file_name, name)
        if not self._dry_run:
            self._written.append(f"{directory}/{name}")
            with self._context.io.open_output(self._written[-1]) as output:
                output.write(data)
        return name
