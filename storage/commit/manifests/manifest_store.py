"""Reads, writes and caches the manifests, manifest lists and index manifests of one table.

These files never change after their creation. So their content is cached, up to a limit, and a commit of a running
process reads almost nothing.

Source: Java `manifest/ManifestFile.java`, `ManifestList.java`, `io/RollingFileWriter.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from tidelake.errors import CorruptFile
from tidelake.storage.commit.manifests import index_manifest
from tidelake.storage.commit.manifests.avro_schemas import (
    INDEX_ENTRY_SCHEMA,
    MANIFEST_ENTRY_SCHEMA,
    MANIFEST_LIST_SCHEMA,
    AvroSchema,
)
from tidelake.storage.commit.manifests.columnar_records import MetadataWriter, metadata_writer
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry, entry_from_record, entry_to_record
from tidelake.storage.commit.manifests.manifest_file_meta import (
    ManifestFileMeta,
    describe_manifest,
    meta_from_record,
    meta_to_record,
)
from tidelake.storage.commit.manifests.partition_stats import partition_stats
from tidelake.storage.commit.manifests.record_file import format_of_metadata, read_records
from tidelake.storage.fileio.requests import is_remote, read_side_by_side, run_requests
from tidelake.storage.files.data_file import SimpleStats
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.paths import MetadataFileNames
from tidelake.storage.model.table import TableContext

A = TypeVar("A")
T = TypeVar("T")

# Measured sizes in memory, without bytes and numbers that depend on the number of columns.
_ENTRY_BYTES: Final = 900
_META_BYTES: Final = 600
_TEXT_BYTES: Final = 60
_VECTOR_BYTES: Final = 250
_NUMBER_BYTES: Final = 8
_WAITING_BYTES: Final = (
    32 << 20
)  # of new files in memory; beyond it, a rewrite of all manifests puts some of them early
_ROLL_CHECK_ENTRIES: Final = 1000  # entries between two checks of a manifest's size, as in Java


@dataclass(frozen=True, slots=True)
class ListFile:
    """A manifest list's name and size in bytes. The size is None if the snapshot does not record it."""

    name: str
    size: int | None


class ManifestStore:
    """Metadata files of one table. Raises CorruptFile for files that are missing, truncated or invalid. Thread-safe.

    Use `context.shared(ManifestStore)` to get the store of a table.
    """

    def __init__(self, context: TableContext) -> None:
        self._io = context.io
        self._paths = context.paths
        self._cache = context.metadata_cache
        self._names = MetadataFileNames()
        self._options = context.options
        self.formats: dict[str | None, str] = {}  # formats of the files read, each with the path of one file
        self.partition_types = tuple(field.type for field in context.schema.partition_fields)

    # ------------------------------------------------------------ reading

    def read_list(self, file: ListFile) -> Sequence[ManifestFileMeta]:
        path = self._paths.manifest(file.name)
        metas = self._cache.get(path)
        if metas is None:
            metas = read_records(self._bytes(path), path, meta_from_record, file.size)
            stats = [meta.partition_stats for meta in metas]
            self._check_partitions([bound for s in stats for bound in (s.min_values, s.max_values)], path)
            self._cache.put(path, metas, _bytes_of_metas(metas))
        return metas

    def read_lists(self, files: Sequence[ListFile]) -> list[ManifestFileMeta]:
        """Return the manifests of several lists, in their order."""
        return [meta for metas in read_side_by_side(self._paths.location, self.read_list, files) for meta in metas]

    def read(self, meta: ManifestFileMeta) -> Sequence[ManifestEntry]:
        """Return the entries in the order in which they were written."""
        path = self._paths.manifest(meta.file_name)
        entries = self._cache.get(path)
        return self._decoded(meta, self._bytes(path)) if entries is None else entries

    def read_all(self, metas: Sequence[ManifestFileMeta]) -> Iterator[Sequence[ManifestEntry]]:
        """Yield the entries of each manifest. If they are far away, the next ones are fetched while one is decoded."""
        if not is_remote(self._paths.location):
            return map(self.read, metas)
        return map(
            self._decoded_unless_kept, metas, read_side_by_side(self._paths.location, self._kept_or_bytes, metas)
        )

    def _kept_or_bytes(self, meta: ManifestFileMeta) -> Sequence[ManifestEntry] | bytes:
        path = self._paths.manifest(meta.file_name)
        entries = self._cache.get(path)
        return self._bytes(path) if entries is None else entries

    def _decoded_unless_kept(
        self, meta: ManifestFileMeta, found: Sequence[ManifestEntry] | bytes
    ) -> Sequence[ManifestEntry]:
        return self._decoded(meta, found) if isinstance(found, bytes) else found

    def _decoded(self, meta: ManifestFileMeta, data: bytes) -> Sequence[ManifestEntry]:
        path = self._paths.manifest(meta.file_name)
        entries = read_records(data, path, entry_from_record, meta.file_size)
        self._check_partitions([entry.partition for entry in entries], path)
        self._cache.put(path, entries, bytes_of_entries(entries))
        return entries

    def read_bytes(self, metas: Sequence[ManifestFileMeta]) -> list[bytes]:
        """Return the bytes of manifests as stored. Decoding detects a truncated file."""
        paths = [self._paths.manifest(meta.file_name) for meta in metas]
        return list(read_side_by_side(self._paths.location, self._bytes, paths))

    def read_index(self, name: str | None) -> Sequence[IndexEntry]:
        """Return all index files of a snapshot.

        name: None for a snapshot without an index manifest.
        """
        if name is None:
            return ()
        path = self._paths.manifest(name)
        entries = self._cache.get(path)
        if entries is None:
            entries = read_records(self._bytes(path), path, index_manifest.entry_from_record)
            self._cache.put(path, entries, _bytes_of_index(entries))
        return entries

    def pop_cached(self, name: str) -> object | None:
        """Remove and return what was kept under this name. The caller may change it."""
        taken = self._cache.take(self._paths.manifest(name))
        return None if taken is None else taken[0]

    def keep(self, name: str, made: object, size_bytes: int) -> None:
        """Keep an object computed from manifests, as long as the cache has room.

        name: a name that no file has.
        """
        self._cache.put(self._paths.manifest(name), (made,), size_bytes)

    def _check_partitions(self, partitions: Sequence[bytes], path: str) -> None:
        """Raise CorruptFile for invalid partitions. Checked here, because later the file's path is unknown."""
        if not self.partition_types:
            return
        try:
            decode_rows(list(set(partitions)), self.partition_types, out_of_range="null")
        except ValueError as e:
            raise CorruptFile(path, f"partitions of {len(self.partition_types)} columns", str(e)) from None

    def _bytes(self, path: str) -> bytes:
        try:
            data = self._io.read(path)
        except FileNotFoundError:
            raise CorruptFile(
                path, "a metadata file that a snapshot references", "no file (has the snapshot expired?)"
            ) from None
        self.formats.setdefault(format_of_metadata(data), path)
        return data

    # ------------------------------------------------------------ writing

    def write_list(self, metas: Sequence[ManifestFileMeta]) -> ListFile:
        """Write a new file, also for an empty list."""
        writer = self._writer(MANIFEST_LIST_SCHEMA)
        writer.write(map(meta_to_record, metas))
        name = self._names.manifest_list()
        size = self._write(name, writer)
        self._cache.put(self._paths.manifest(name), tuple(metas), _bytes_of_metas(metas))
        return ListFile(name, size)

    def write(self, entries: Iterable[ManifestEntry]) -> list[ManifestFileMeta]:
        """Write the entries in their order to manifests of `manifest.target-file-size`; none without entries."""
        remaining = iter(entries)
        metas = []
        while manifest := self._write_one(remaining):
            metas.append(manifest)
        return metas

    def write_index(self, entries: Sequence[IndexEntry]) -> str:
        """Write the complete index of a table to a new file. Returns its name."""
        writer = self._writer(INDEX_ENTRY_SCHEMA)
        writer.write(map(index_manifest.entry_to_record, entries))
        name = self._names.index_manifest()
        self._write(name, writer)
        self._cache.put(self._paths.manifest(name), tuple(entries), _bytes_of_index(entries))
        return name

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no snapshot names."""
        self._io.delete_all([self._paths.manifest(name) for name in names])

    def _write_one(self, entries: Iterator[ManifestEntry]) -> ManifestFileMeta | None:
        chunk = list(islice(entries, _ROLL_CHECK_ENTRIES))
        if not chunk:
            return None
        writer = self._writer(MANIFEST_ENTRY_SCHEMA)
        written: list[ManifestEntry] = []
        while chunk:
            writer.write(map(entry_to_record, chunk))
            written += chunk
            if writer.size_bytes >= self._options.manifest_target_file_size_bytes:
                break
            chunk = list(islice(entries, _ROLL_CHECK_ENTRIES))
        name = self._names.manifest()
        size = self._write(name, writer)
        self._cache.put(self._paths.manifest(name), tuple(written), bytes_of_entries(written))
        stats = partition_stats([entry.partition for entry in written], self.partition_types)
        return describe_manifest(name, size, written, stats)

    def _writer(self, schema: AvroSchema) -> MetadataWriter:
        options = self._options
        return metadata_writer(schema, options.manifest_format, options.manifest_compression, options.zstd_level)

    def _write(self, name: str, writer: MetadataWriter) -> int:
        data = writer.finish()
        self._put(name, data)
        return len(data)

    def _put(self, name: str, data: bytes) -> None:
        with self._io.open_output(self._paths.manifest(name)) as output:
            output.write(data)


class NewManifests(ManifestStore):
    """The same files, for one snapshot that is being built: what is written waits, so that all can be put at once.

    A manifest list needs the size and the bounds of its manifests, not their files. `put` them before the snapshot is
    published. Until then, `read` finds the new files only as long as they are cached. Not thread-safe.

    names: the names of all files that were written.
    """

    def __init__(self, store: ManifestStore) -> None:
        self.__dict__.update(store.__dict__)
        self.names: list[str] = []
        self._waiting: list[tuple[str, bytes]] = []

    def puts(self) -> list[Callable[[], None]]:
        """Return the requests that put the waiting files. They may run side by side."""
        waiting, self._waiting = self._waiting, []
        return [partial(self._put_now, name, data) for name, data in waiting]

    def _put(self, name: str, data: bytes) -> None:
        self.names.append(name)
        self._waiting.append((name, data))
        if sum(len(waiting) for _, waiting in self._waiting) > _WAITING_BYTES:
            run_requests(self._paths.location, *self.puts())

    def _put_now(self, name: str, data: bytes) -> None:
        super()._put(name, data)


# ---------------------------------------------------------------- sizes in memory


def bytes_of_entries(entries: Sequence[ManifestEntry]) -> int:
    """Return the approximate size. Entries of one file may share a part of it."""
    size = _ENTRY_BYTES * len(entries)
    for entry in entries:
        file = entry.file
        size += len(entry.partition) + len(file.min_key) + len(file.max_key) + len(file.embedded_index or b"")
        size += _bytes_of_stats(file.key_stats) + _bytes_of_stats(file.value_stats)
        for name in (*(file.value_stats_columns or ()), *(file.write_columns or ()), *file.extra_files):
            size += _TEXT_BYTES + len(name)
    return size


def _bytes_of_metas(metas: Sequence[ManifestFileMeta]) -> int:
    return sum(_META_BYTES + _bytes_of_stats(meta.partition_stats) for meta in metas)


def _bytes_of_stats(stats: SimpleStats) -> int:
    return len(stats.min_values) + len(stats.max_values) + _NUMBER_BYTES * len(stats.null_counts)


def _bytes_of_index(entries: Sequence[IndexEntry]) -> int:
    return sum(_META_BYTES + len(entry.partition) + _VECTOR_BYTES * len(entry.file.vectors) for entry in entries)
