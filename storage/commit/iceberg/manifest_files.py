"""Reads and writes Iceberg's manifests and manifest lists of one table. They never change after their creation.

Entries are records as in the Avro file, but dates and times of partitions are numbers
(`tidelake.storage.model.iceberg.values`).

Source: Java `iceberg/manifest/IcebergManifestFile.java`, `IcebergManifestList.java`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import count
from typing import Any, Final

from tidelake.errors import CorruptFile
from tidelake.storage.base import env
from tidelake.storage.commit.manifests.record_file import AvroRecordWriter, Record, avro_codec, read_records
from tidelake.storage.model.iceberg.manifest_schemas import AvroSchema, manifest_list_schema, manifest_schema
from tidelake.storage.model.iceberg.values import bound, number_of
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataType

# Measured sizes in memory.
_ENTRY_BYTES: Final = 2500
_META_BYTES: Final = 1000
_PATH_BYTES: Final = 200
_ROLL_CHECK_ENTRIES: Final = 100


class Status(IntEnum):
    """The status of a manifest's entry. On disk: never renumber."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class Content(IntEnum):
    """What the files of a manifest are. On disk: never renumber."""

    DATA = 0
    DELETES = 1


def is_live(entry: Record) -> bool:
    return bool(entry["status"] != Status.DELETED)


class IcebergManifests:
    """Not thread-safe: it numbers the files that it writes."""

    def __init__(self, context: TableContext, directory: str) -> None:
        options = context.options
        version = options.iceberg_format_version
        self._io = context.io
        self._cache = context.metadata_cache
        self.directory = directory
        self._codec = avro_codec(options.iceberg_manifest_compression, "metadata.iceberg.manifest-compression")
        self._zstd_level = options.zstd_level
        self._target_bytes = options.manifest_target_file_size_bytes
        self._partition_fields = context.schema.partition_fields
        self._entry_schema = manifest_schema(self._partition_fields, version)
        self._is_legacy = options.iceberg_manifest_legacy_version
        self._list_schema = manifest_list_schema(version, self._is_legacy)
        self._uuid = env.new_uuid()
        self._numbers = count(1)
        self._list_numbers = count(1)

    # ------------------------------------------------------------ manifest lists

    def read_list(self, path: str) -> Sequence[Record]:
        """Return the manifests of a snapshot. Raises CorruptFile."""
        metas = self._cache.get(path)
        if metas is None:
            metas = read_records(self._bytes(path), path, _with_new_names)
            self._cache.put(path, metas, _META_BYTES * len(metas))
        return metas

    def write_list(self, metas: Sequence[Record]) -> str:
        """Write the manifests of a snapshot. Returns the path."""
        path = f"{self.directory}/snap-{next(self._list_numbers)}-{self._uuid}.avro"
        stored = [_with_legacy_names(meta) for meta in metas] if self._is_legacy else metas
        self._write(path, self._list_schema, stored)
        self._cache.put(path, tuple(metas), _META_BYTES * len(metas))
        return path

    # ------------------------------------------------------------ manifests

    def read(self, meta: Record) -> Sequence[Record]:
        """Return the entries of a manifest. Raises CorruptFile."""
        path = meta["manifest_path"]
        entries = self._cache.get(path)
        if entries is None:
            entries = read_records(self._bytes(path), path, _with_numbers, meta["manifest_length"])
            self._cache.put(path, entries, _ENTRY_BYTES * len(entries))
        return entries

    def live_paths(self, meta: Record) -> frozenset[str]:
        """Return the paths of the live files of a manifest. Raises CorruptFile."""
        name = f"{meta['manifest_path']}#live"  # no file has such a name
        known = self._cache.get(name)
        if known is None:
            known = (frozenset(entry["data_file"]["file_path"] for entry in self.read(meta) if is_live(entry)),)
            self._cache.put(name, known, _PATH_BYTES * len(known[0]))
        paths: frozenset[str] = known[0]
        return paths

    def write(self, entries: Sequence[Record], snapshot_id: int, content: Content = Content.DATA) -> list[Record]:
        """Write entries to manifests of `manifest.target-file-size`; none without entries. Returns their metadata."""
        metas = []
        rest = list(entries)
        while rest:
            writer = self._writer(self._entry_schema)
            end = 0
            while end < len(rest) and writer.size_bytes < self._target_bytes:
                writer.write(rest[end : end + _ROLL_CHECK_ENTRIES])
                end += _ROLL_CHECK_ENTRIES
            path = f"{self.directory}/{self._uuid}-m{next(self._numbers)}.avro"
            written, rest = rest[:end], rest[end:]
            size = self._write_bytes(path, writer.finish())
            self._cache.put(path, tuple(written), _ENTRY_BYTES * len(written))
            metas.append(self._meta(path, size, written, snapshot_id, content))
        return metas

    def delete(self, paths: Iterable[str]) -> None:
        self._io.delete_all(paths)

    def _meta(
        self, path: str, size_bytes: int, entries: Sequence[Record], snapshot_id: int, content: Content
    ) -> Record:
        files = dict.fromkeys(Status, 0)
        rows = dict.fromkeys(Status, 0)
        for entry in entries:
            files[entry["status"]] += 1
            rows[entry["status"]] += entry["data_file"]["record_count"]
        partitions = [entry["data_file"]["partition"] for entry in entries]
        meta = {
            "manifest_path": path,
            "manifest_length": size_bytes,
            "partition_spec_id": 0,
            "content": int(content),
            "sequence_number": snapshot_id,
            "min_sequence_number": min(entry["sequence_number"] for entry in entries),
            "added_snapshot_id": snapshot_id,
            "added_files_count": files[Status.ADDED],
            "existing_files_count": files[Status.EXISTING],
            "deleted_files_count": files[Status.DELETED],
            "added_rows_count": rows[Status.ADDED],
            "existing_rows_count": rows[Status.EXISTING],
            "deleted_rows_count": rows[Status.DELETED],
            "partitions": [
                _summary(field.type, [partition[field.name] for partition in partitions])
                for field in self._partition_fields
            ],
            "first_row_id": None,
        }
        return meta

    # ------------------------------------------------------------ files

    def _bytes(self, path: str) -> bytes:
        try:
            return self._io.read(path)
        except FileNotFoundError:
            raise CorruptFile(path, "a file that Iceberg metadata references", "no file") from None

    def _writer(self, schema: AvroSchema) -> AvroRecordWriter:
        return AvroRecordWriter(schema, self._codec, self._zstd_level)

    def _write(self, path: str, schema: AvroSchema, records: Iterable[Record]) -> None:
        writer = self._writer(schema)
        writer.write(records)
        self._write_bytes(path, writer.finish())

    def _write_bytes(self, path: str, data: bytes) -> int:
        self._io.write(path, data, durable=False)
        return len(data)


def _summary(data_type: DataType, values: Sequence[Any]) -> Record:
    known = [value for value in values if value is not None and not _is_nan(value)]
    return {
        "contains_null": any(value is None for value in values),
        "contains_nan": any(map(_is_nan, values)),
        "lower_bound": bound(data_type, min(known)) if known else None,
        "upper_bound": bound(data_type, max(known)) if known else None,
    }


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _with_numbers(entry: Record) -> Record:
    file = entry["data_file"]
    file["partition"] = {name: number_of(value) for name, value in file["partition"].items()}
    file.setdefault("first_row_id", None)
    return entry


_LEGACY_NAMES: Final = {f"{kind}_files_count": f"{kind}_data_files_count" for kind in ("added", "existing", "deleted")}
_NEW_NAMES: Final = {old: new for new, old in _LEGACY_NAMES.items()}


def _with_legacy_names(meta: Record) -> Record:
    return {_LEGACY_NAMES.get(name, name): value for name, value in meta.items()}


def _with_new_names(meta: Record) -> Record:
    return {"first_row_id": None, **{_NEW_NAMES.get(name, name): value for name, value in meta.items()}}
