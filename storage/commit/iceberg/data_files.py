"""Which files of a table Iceberg readers may read without merging, and how a manifest describes them.

- Append tables: all files.
- Primary-key tables: the files of the highest level, whose keys are unique and which hold no deletes.
- With deletion vectors that Iceberg has, too (bitmap64, format version 3): all files above level 0, and the vectors.

Source: Java `iceberg/IcebergCommitCallback.java`, `iceberg/manifest/IcebergDataFileMeta.java`. When Java begins anew,
it also shows files of lower levels that no other file overlaps, and a compaction may hide their rows again; here they
are never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelake.errors import CorruptFile
from tidelake.storage.commit.iceberg.manifest_files import Status
from tidelake.storage.commit.iceberg.vector_files import VectorFiles
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.record_file import Record
from tidelake.storage.files.bucket_directory import data_file_path, partition_directories
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.iceberg.row_bounds import bounds_of_row
from tidelake.storage.model.iceberg.values import column_values
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField

_PUFFIN: Final = "puffin"
_DATA: Final = 0
_POSITION_DELETES: Final = 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file with its path."""

    path: str
    entry: ManifestEntry


class DataFiles:
    """Describes data files of one table to Iceberg readers.

    directory: that of the Iceberg metadata.
    """

    def __init__(self, context: TableContext, directory: str) -> None:
        self._context = context
        self._vector_files = VectorFiles(context, directory)
        self._has_key = context.schema.has_primary_key
        self._max_level = context.options.num_levels - 1
        self.has_vectors = context.options.iceberg_has_deletion_vectors

    def is_visible(self, file: DataFileMeta) -> bool:
        if not self._has_key:
            return True
        return file.level > 0 if self.has_vectors else file.level >= self._max_level

    def located(self, entries: Sequence[ManifestEntry]) -> list[DataFile]:
        """Return the files with their paths, in order."""
        directories = self._directories(entry.partition for entry in entries)
        buckets = self._context.paths.bucket_directory
        return [DataFile(data_file_path(buckets(directories[e.partition], e.bucket), e.file), e) for e in entries]

    def added(self, files: Sequence[DataFile], snapshot_id: int) -> list[Record]:
        """Return the manifest entries of files that a snapshot adds, in order."""
        partitions = self._partitions({file.entry.partition for file in files})
        return [
            _entry(snapshot_id, _data_file(file, partitions[file.entry.partition], *self._statistics(file.entry.file)))
            for file in files
        ]

    def vectors(self, index: Sequence[IndexEntry], snapshot_id: int) -> list[Record]:
        """Return the manifest entries of all deletion vectors of a snapshot. Writes missing Puffin files."""
        entries = [entry for entry in index if entry.file.holds_deletion_vectors]
        partitions = self._partitions({entry.partition for entry in entries})
        directories = self._directories(entry.partition for entry in entries)
        found = []
        for entry in entries:
            bucket = self._context.paths.bucket_directory(directories[entry.partition], entry.bucket)
            places, size_bytes = self._vector_files.places(entry, bucket)
            for place in places:
                file = {
                    "content": _POSITION_DELETES,
                    "file_path": self._vector_files.path(entry),
                    "file_format": _PUFFIN,
                    "partition": partitions[entry.partition],
                    "record_count": place.cardinality,
                    "file_size_in_bytes": size_bytes,
                    "null_value_counts": None,
                    "lower_bounds": None,
                    "upper_bounds": None,
                    "referenced_data_file": place.data_file,
                    "content_offset": place.offset,
                    "content_size_in_bytes": place.length,
                    "first_row_id": None,
                }
                found.append(_entry(snapshot_id, file))
        return found

    # ------------------------------------------------------------ partitions

    def _directories(self, partitions: Iterable[bytes]) -> dict[bytes, str]:
        distinct = list(dict.fromkeys(partitions))
        return dict(zip(distinct, partition_directories(self._context, distinct), strict=True))

    def _partitions(self, partitions: Iterable[bytes]) -> dict[bytes, Record]:
        fields, distinct = self._context.schema.partition_fields, list(partitions)
        if not fields:
            return {partition: {} for partition in distinct}
        columns = decode_rows(distinct, [field.type for field in fields])
        values = [
            column_values(field.type, column, keep_nan=True) for field, column in zip(fields, columns, strict=True)
        ]
        names = [field.name for field in fields]
        return {
            partition: dict(zip(names, row, strict=True))
            for partition, row in zip(distinct, zip(*values, strict=True), strict=True)
        }

    # ------------------------------------------------------------ statistics

    def _statistics(self, file: DataFileMeta) -> tuple[dict[int, int], dict[int, bytes], dict[int, bytes]]:
        """Return the null counts, the lower and the upper bounds of a file, by column id."""
        current, stats, names = self._context.schema, file.value_stats, file.value_stats_columns
        schema = current if file.schema_id == current.id else self._context.schemas.get(file.schema_id)
        fields = schema.fields if names is None else [schema.by_name[name] for name in names if name in schema.by_name]
        nulls = {f.id: n for f, n in zip(fields, stats.null_counts, strict=False) if n is not None}
        lower, upper = _bounds(stats.min_values, fields, file), _bounds(stats.max_values, fields, file)
        known = [key for key in lower if key in upper]
        return nulls, {key: lower[key] for key in known}, {key: upper[key] for key in known}


def _bounds(row: bytes, fields: Sequence[DataField], file: DataFileMeta) -> dict[int, bytes]:
    try:
        return bounds_of_row(row, fields)
    except ValueError as e:
        raise CorruptFile(file.file_name, f"bounds of {len(fields)} columns in its manifest entry", str(e)) from None


def _data_file(
    file: DataFile,
    partition: Record,
    null_counts: Mapping[int, int],
    lower: Mapping[int, bytes],
    upper: Mapping[int, bytes],
) -> Record:
    meta = file.entry.file
    return {
        "content": _DATA,
        "file_path": file.path,
        "file_format": meta.file_name.rpartition(".")[2],
        "partition": partition,
        "record_count": meta.row_count,
        "file_size_in_bytes": meta.file_size,
        "null_value_counts": _pairs(null_counts),
        "lower_bounds": _pairs(lower),
        "upper_bounds": _pairs(upper),
        "referenced_data_file": None,
        "content_offset": None,
        "content_size_in_bytes": None,
        "first_row_id": None,
    }


def _pairs(by_column: Mapping[int, Any]) -> list[Record]:
    return [{"key": key, "value": value} for key, value in by_column.items()]


def _entry(snapshot_id: int, data_file: Record) -> Record:
    return {
        "status": int(Status.ADDED),
        "snapshot_id": snapshot_id,
        "sequence_number": snapshot_id,
        "file_sequence_number": snapshot_id,
        "data_file": data_file,
    }
