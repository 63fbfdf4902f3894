"""Manifest entries: a data file that was added or deleted.

Source: Java `manifest/ManifestEntry.java`, `manifest/FileEntry.java`, `io/DataFileMeta.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from tidelake.storage.commit.manifests.record_file import Record, file_name
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import MANIFEST_ENTRY_VERSION, FileKind, FileSource

# partition, bucket, level, file name, extra files, embedded index, external path: equal values mean the same entry.
Identity: TypeAlias = tuple[bytes, int, int, str, tuple[str, ...], bytes | None, str | None]

# Lookup tables, because calling the enum types takes a tenth of the time to read 100,000 entries
_KINDS: Final = {int(kind): kind for kind in FileKind}
_SOURCES: Final[dict[int | None, FileSource | None]] = {None: None, **{int(source): source for source in FileSource}}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A data file that was added to or deleted from a bucket.

    partition: serialized BinaryRow (arity prefix included).
    total_buckets: number of buckets of the partition when the file was written; -1 for dynamic or unaware buckets.
    """

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def identity(self) -> Identity:
        """Identifies the entry. It includes the level: moving a file to another level is a DELETE and an ADD."""
        file = self.file
        return (
            self.partition,
            self.bucket,
            file.level,
            file.file_name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )

    def as_delete(self, *, drop_stats: bool = False) -> ManifestEntry:
        """Return the DELETE entry of the file.

        drop_stats: option `manifest.delete-file-drop-stats`.
        """
        file = replace(self.file, value_stats=EMPTY_STATS, value_stats_columns=()) if drop_stats else self.file
        return replace(self, kind=FileKind.DELETE, file=file)


class _Entry(Protocol):
    @property
    def kind(self) -> FileKind: ...
    @property
    def identity(self) -> Identity: ...


Entry = TypeVar("Entry", bound=_Entry)


def merge_entries(entries: Iterable[Entry], merged: dict[Identity, Entry] | None = None) -> dict[Identity, Entry]:
    """Return the entries that remain after the given ones, which must be in the order of commits.

    A DELETE removes the entry that it names. A DELETE without such an entry remains (its ADD is in a manifest that was
    not read). Raises ValueError if a file is added that already exists or was deleted before: files are lost or
    duplicated then.

    merged: the remaining entries of earlier manifests. It is changed and returned; after an error it is unusable.
    """
    merged = {} if merged is None else merged
    for entry in entries:
        identity = entry.identity
        known = merged.get(identity)
        if entry.kind is FileKind.DELETE:
            if known is None:
                merged[identity] = entry
            else:
                del merged[identity]
        elif known is None:
            merged[identity] = entry
        else:
            what = "already exists" if known.kind is FileKind.ADD else "was deleted by an earlier entry"
            raise ValueError(f"file {identity[3]} is added, which {what}")
    return merged


# ---------------------------------------------------------------- as records


def entry_to_record(entry: ManifestEntry) -> Record:
    file = entry.file
    return {
        "_VERSION": MANIFEST_ENTRY_VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.file_name,
            "_FILE_SIZE": file.file_size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": stats_to_record(file.key_stats),
            "_VALUE_STATS": stats_to_record(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": file.extra_files,
            "_CREATION_TIME": file.creation_time_ms,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_index,
            "_FILE_SOURCE": None if file.file_source is None else int(file.file_source),
            "_VALUE_STATS_COLS": _list(file.value_stats_columns),
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": _list(file.write_columns),
            "_WRITE_COLS_SEQUENCES": _list(file.write_columns_sequences),
        },
    }


def entry_from_record(record: Record) -> ManifestEntry:
    """Decode an entry. Fields that an older writer did not know are None.

    Raises KeyError, TypeError or ValueError for any other deviation.
    """
    version = record["_VERSION"]
    if version != MANIFEST_ENTRY_VERSION:
        raise ValueError(f"manifest entries of version {version}, not {MANIFEST_ENTRY_VERSION}")
    file = record["_FILE"]
    return ManifestEntry(
        _KINDS[kind] if (kind := record["_KIND"]) in _KINDS else FileKind(kind),
        _row(record["_PARTITION"]),
        record["_BUCKET"],
        record["_TOTAL_BUCKETS"],
        DataFileMeta(
            file_name(file["_FILE_NAME"]),
            file["_FILE_SIZE"],
            file["_ROW_COUNT"],
            _row(file["_MIN_KEY"]),
            _row(file["_MAX_KEY"]),
            stats_from_record(file["_KEY_STATS"]),
            stats_from_record(file["_VALUE_STATS"]),
            file["_MIN_SEQUENCE_NUMBER"],
            file["_MAX_SEQUENCE_NUMBER"],
            file["_SCHEMA_ID"],
            file["_LEVEL"],
            tuple(map(file_name, file["_EXTRA_FILES"] or ())),
            _milliseconds(file.get("_CREATION_TIME")),
            file.get("_DELETE_ROW_COUNT"),
            file.get("_EMBEDDED_FILE_INDEX"),
            _SOURCES[source] if (source := file.get("_FILE_SOURCE")) in _SOURCES else FileSource(source),
            _tuple(file.get("_VALUE_STATS_COLS")),
            None if (path := file.get("_EXTERNAL_PATH")) is None else file_name(path),
            file.get("_FIRST_ROW_ID"),
            _tuple(file.get("_WRITE_COLS")),
            _tuple(file.get("_WRITE_COLS_SEQUENCES")),
        ),
    )


def stats_to_record(stats: SimpleStats) -> Record:
    return {"_MIN_VALUES": stats.min_values, "_MAX_VALUES": stats.max_values, "_NULL_COUNTS": list(stats.null_counts)}


def stats_from_record(record: Record) -> SimpleStats:
    counts = tuple(record["_NULL_COUNTS"] or ())
    if not counts and record["_MIN_VALUES"] == EMPTY_ROW == record["_MAX_VALUES"]:
        return EMPTY_STATS  # the same object for most files of append tables
    return SimpleStats(record["_MIN_VALUES"], record["_MAX_VALUES"], counts)


def _row(data: bytes) -> bytes:
    return EMPTY_ROW if data == EMPTY_ROW else data


def _list(values: tuple[Any, ...] | None) -> list[Any] | None:
    """Return a list, because fastavro interprets a tuple in a union as (name of the branch, value)."""
    return None if values is None else list(values)


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _milliseconds(value: datetime | int | None) -> int | None:
    """Return the number of milliseconds. Avro and Parquet readers return a datetime for the column's time type."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
    return value
