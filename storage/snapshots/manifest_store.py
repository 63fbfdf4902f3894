"""Manifests and manifest lists of one table: read, written, remembered.

Both kinds of file never change once they are there, so what was read or written once is kept, up to a bound: a commit in a
process that goes on reads next to nothing.

Source: Java `manifest/ManifestFile.java`, `ManifestList.java`, `io/RollingFileWriter.java`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from storage.errors import CorruptFile
from storage.paths import MetadataFileNames
from storage.snapshots.avro_shapes import MANIFEST_ENTRY_SCHEMA, MANIFEST_LIST_SCHEMA, AvroSchema
from storage.snapshots.manifest_entry import ManifestEntry, entry_from_record, entry_to_record
from storage.snapshots.manifest_list import ManifestFileMeta, describe_manifest, meta_from_record, meta_to_record
from storage.snapshots.metadata_file import Record, RecordWriter, avro_codec, read_records
from storage.snapshots.partition_bounds import partition_stats
from storage.table import TableContext

T = TypeVar("T")

_DEFAULT_CACHE_RECORDS: Final = 20_000
_ROLL_CHECK_RECORDS: Final = 1000  # entries between two looks at a growing manifest's size, as in Java


class MetadataCache:
    """Decoded records of files, by path; the least recently used go first. Thread-safe; tables may share one.

    max_records: entries and manifest descriptions held together; one is 1 to 2 KB.
    """

    def __init__(self, max_records: int = _DEFAULT_CACHE_RECORDS) -> None:
        self._max_records = max_records
        self._files: OrderedDict[str, tuple[Any, ...]] = OrderedDict()
        self._records = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> tuple[Any, ...] | None:
        with self._lock:
            found = self._files.get(path)
            if found is not None:
                self._files.move_to_end(path)
            return found

    def put(self, path: str, records: tuple[Any, ...]) -> None:
        with self._lock:
            if path in self._files or _weight(records) > self._max_records:
                return
            self._files[path] = records
            self._records += _weight(records)
            while self._records > self._max_records:
                _, dropped = self._files.popitem(last=False)
                self._records -= _weight(dropped)


def _weight(records: tuple[Any, ...]) -> int:
    return len(records) + 1  # an empty file counts too


@dataclass(frozen=True, slots=True)
class ListFile:
    """A manifest list's name and size in bytes. The size is None where a snapshot does not tell it."""

    name: str
    size: int | None


class ManifestStore:
    """Raises CorruptFile for files that are missing, cut short or of another kind. Thread-safe."""

    def __init__(self, context: TableContext, cache: MetadataCache | None = None) -> None:
        self._io = context.io
        self._paths = context.paths
        self._cache = cache or MetadataCache()
        self._names = MetadataFileNames()
        self._options = context.options
        self.partition_types = tuple(field.type for field in context.schema.partition_fields)

    # ------------------------------------------------------------ reading

    def read_list(self, file: ListFile) -> Sequence[ManifestFileMeta]:
        return self._read(file.name, file.size, meta_from_record)

    def read(self, meta: ManifestFileMeta) -> Sequence[ManifestEntry]:
        """Entries in the order they were written."""
        return self._read(meta.file_name, meta.file_size, entry_from_record)

    def _read(self, name: str, size: int | None, decode: Callable[[Record], T]) -> tuple[T, ...]:
        path = self._paths.manifest(name)
        known = self._cache.get(path)
        if known is not None:
            return known
        try:
            data = self._io.read(path)
        except FileNotFoundError:
            raise CorruptFile(
                path, "a metadata file that a snapshot refers to", "no file (did the snapshot expire meanwhile?)"
            ) from None
        records = read_records(data, path, size)
        try:
            decoded = tuple(map(decode, records))
        except (KeyError, TypeError, ValueError) as e:
            what = f"records without {e}" if isinstance(e, KeyError) else str(e)
            raise CorruptFile(path, "the records of a manifest or manifest list", what) from e
        self._cache.put(path, decoded)
        return decoded

    # ------------------------------------------------------------ writing

    def write_list(self, metas: Sequence[ManifestFileMeta]) -> ListFile:
        """Always a new file, also for an empty list."""
        writer = self._writer(MANIFEST_LIST_SCHEMA)
        writer.write(map(meta_to_record, metas))
        name = self._names.manifest_list()
        return ListFile(name, self._write(name, writer, tuple(metas)))

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
        while chunk := list(islice(entries, _ROLL_CHECK_RECORDS)):
            writer.write(map(entry_to_record, chunk))
            written += chunk
            if writer.size_bytes >= self._options.manifest_target_file_size_bytes:
                break
        if not written:
            return None
        name = self._names.manifest()
        size = self._write(name, writer, tuple(written))
        stats = partition_stats([entry.partition for entry in written], self.partition_types)
        return describe_manifest(name, size, written, stats)

    def _writer(self, schema: AvroSchema) -> RecordWriter:
        return RecordWriter(schema, avro_codec(self._options.manifest_compression), self._options.zstd_level)

    def _write(self, name: str, writer: RecordWriter, records: tuple[Any, ...]) -> int:
        data = writer.finish()
        path = self._paths.manifest(name)
        with self._io.open_output(path) as output:
            output.stream.write(data)
        self._cache.put(path, records)
        return len(data)
