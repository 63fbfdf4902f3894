"""Manifests and manifest lists of one table: read, written, remembered.

Both kinds of file never change once they are there, so what was read or written once is kept, up to a bound: a commit
in a process that goes on reads next to nothing.

Source: Java `manifest/ManifestFile.java`, `ManifestList.java`, `io/RollingFileWriter.java`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from storage.binary_row import decode_rows
from storage.errors import CorruptFile
from storage.paths import MetadataFileNames
from storage.snapshots.avro_shapes import MANIFEST_ENTRY_SCHEMA, MANIFEST_LIST_SCHEMA, AvroSchema
from storage.snapshots.manifest_entry import ManifestEntry, entry_from_record, entry_to_record
from storage.snapshots.manifest_list import ManifestFileMeta, describe_manifest, meta_from_record, meta_to_record
from storage.snapshots.metadata_file import RecordWriter, avro_codec, read_records
from storage.snapshots.partition_bounds import partition_stats
from storage.table import TableContext

_CACHED_ENTRIES: Final = 10_000
_CACHED_LISTS: Final = 8  # a commit looks at the two of its base; the next one at those it wrote
_ROLL_CHECK_ENTRIES: Final = 1000  # between two looks at a growing manifest's size, as in Java


class MetadataCache:
    """What files hold, decoded, by path; the least recently used go first. Thread-safe; tables may share one.

    max_weight: of all that is kept. For manifests the number of entries, of 1 to 2 KB each.
    """

    def __init__(self, max_weight: int = _CACHED_ENTRIES) -> None:
        self._max_weight = max_weight
        self._files: OrderedDict[str, tuple[int, tuple[Any, ...]]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> tuple[Any, ...] | None:
        with self._lock:
            if path not in self._files:
                return None
            self._files.move_to_end(path)
            return self._files[path][1]

    def put(self, path: str, records: tuple[Any, ...], weight: int) -> None:
        with self._lock:
            if path in self._files or weight > self._max_weight:
                return
            self._files[path] = weight, records
            self._weight += weight
            while self._weight > self._max_weight:
                _, (dropped, _) = self._files.popitem(last=False)
                self._weight -= dropped


@dataclass(frozen=True, slots=True)
class ListFile:
    """A manifest list's name and size in bytes. The size is None where a snapshot does not tell it."""

    name: str
    size: int | None


class ManifestStore:
    """Raises CorruptFile for files that are missing, cut short or of another kind. Thread-safe.

    cache: of manifests; to be shared with other tables of the process, or None for one of its own.
    """

    def __init__(self, context: TableContext, cache: MetadataCache | None = None) -> None:
        self._io = context.io
        self._paths = context.paths
        self._manifests = cache or MetadataCache()
        self._lists = MetadataCache(_CACHED_LISTS)
        self._names = MetadataFileNames()
        self._options = context.options
        self.partition_types = tuple(field.type for field in context.schema.partition_fields)

    # ------------------------------------------------------------ reading

    def read_list(self, file: ListFile) -> Sequence[ManifestFileMeta]:
        path = self._paths.manifest(file.name)
        metas = self._lists.get(path)
        if metas is None:
            metas = read_records(self._bytes(path), path, meta_from_record, file.size)
            stats = [meta.partition_stats for meta in metas]
            self._check_partitions([bound for s in stats for bound in (s.min_values, s.max_values)], path)
            self._lists.put(path, metas, 1)
        return metas

    def read(self, meta: ManifestFileMeta) -> Sequence[ManifestEntry]:
        """Entries in the order they were written."""
        path = self._paths.manifest(meta.file_name)
        entries = self._manifests.get(path)
        if entries is None:
            entries = read_records(self._bytes(path), path, entry_from_record, meta.file_size)
            self._check_partitions([entry.partition for entry in entries], path)
            self._manifests.put(path, entries, len(entries))
        return entries

    def _check_partitions(self, partitions: Sequence[bytes], path: str) -> None:
        """Here is known which file they come from; many decode them later. Raises CorruptFile."""
        if not self.partition_types:
            return
        try:
            decode_rows(list(set(partitions)), self.partition_types, out_of_range="null")
        except ValueError as e:
            raise CorruptFile(path, f"partitions of {len(self.partition_types)} columns", str(e)) from None

    def _bytes(self, path: str) -> bytes:
        try:
            return self._io.read(path)
        except FileNotFoundError:
            raise CorruptFile(
                path, "a metadata file that a snapshot refers to", "no file (did the snapshot expire meanwhile?)"
            ) from None

    # ------------------------------------------------------------ writing

    def write_list(self, metas: Sequence[ManifestFileMeta]) -> ListFile:
        """Always a new file, also for an empty list."""
        writer = self._writer(MANIFEST_LIST_SCHEMA)
        writer.write(map(meta_to_record, metas))
        name = self._names.manifest_list()
        size = self._write(name, writer)
        self._lists.put(self._paths.manifest(name), tuple(metas), 1)
        return ListFile(name, size)

    def write(self, entries: Iterable[ManifestEntry]) -> list[ManifestFileMeta]:
        """Entries in their order, in as many manifests as `manifest.target-file-size` asks for; none for no entries."""
        remaining = iter(entries)
        metas = []
        while manifest := self._write_one(remaining):
            metas.append(manifest)
        return metas

    def delete(self, names: Iterable[str]) -> None:
        """Remove files that no snapshot names."""
        self._io.delete_all([self._paths.manifest(name) for name in names])

    def _write_one(self, entries: Iterator[ManifestEntry]) -> ManifestFileMeta | None:
        writer = self._writer(MANIFEST_ENTRY_SCHEMA)
        written: list[ManifestEntry] = []
        while chunk := list(islice(entries, _ROLL_CHECK_ENTRIES)):
            writer.write(map(entry_to_record, chunk))
            written += chunk
            if writer.size_bytes >= self._options.manifest_target_file_size_bytes:
                break
        if not written:
            return None
        name = self._names.manifest()
        size = self._write(name, writer)
        self._manifests.put(self._paths.manifest(name), tuple(written), len(written))
        stats = partition_stats([entry.partition for entry in written], self.partition_types)
        return describe_manifest(name, size, written, stats)

    def _writer(self, schema: AvroSchema) -> RecordWriter:
        return RecordWriter(schema, avro_codec(self._options.manifest_compression), self._options.zstd_level)

    def _write(self, name: str, writer: RecordWriter) -> int:
        data = writer.finish()
        with self._io.open_output(self._paths.manifest(name)) as output:
            output.stream.write(data)
        return len(data)
