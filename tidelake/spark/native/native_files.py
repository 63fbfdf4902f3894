"""Selects the data files of a scan that Spark's own Parquet reader may read.

Their rows must be the table's rows, and Spark must read the same values as we do. In case of doubt a file is not
selected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

from tidelake.scan import Scan
from tidelake.storage.fileio.location import LOCAL_SCHEME, MEMORY_SCHEME, scheme_of
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import written_fields
from tidelake.storage.merge.sorted_run import Section
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    same_ignoring_nullability,
)
from tidelake.storage.read.split import Split

FileKey: TypeAlias = tuple[bytes, int, str]
"""Partition (serialized BinaryRow), bucket, name."""

_MICROSECONDS: Final = 6
_MILLISECONDS: Final = 3
_EXACT: Final = frozenset(
    {
        *(Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE, Root.DECIMAL),
        *(Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY, Root.DATE),
    }
)
# Spark leaves out such files when it lists them, even if they are given (HadoopFSUtils.shouldFilterOutPathName).
_HIDDEN: Final = ("_", ".")
_COPYING_SUFFIX: Final = "._COPYING_"


def native_files(scan: Scan, *, any_store: bool) -> dict[FileKey, str]:
    """Return the paths of the files that Spark may read.

    Returns no files if Spark would return other values than we do for the type of a column that is read.

    any_store: whether Spark can read each store that we can; otherwise only files of this machine.
    """
    if not all(is_native(scan.context.schema.by_name[name].type) for name in scan.schema.names):
        return {}
    rule = _NativeReadRule(scan.context, tuple(scan.schema.names), any_store)
    found: dict[FileKey, str] = {}
    for split in scan.splits():
        if split.of_fallback_branch:
            continue
        directory = bucket_directory(scan.context, split.partition, split.bucket)
        # with several runs, versions of a key may be in more than one file
        for file in (file for section in split.sections if len(section) == 1 for file in section[0]):
            path = data_file_path(directory, file)
            if file.file_name not in split.deletion_files and rule.holds(file, path):
                found[split.partition, split.bucket, file.file_name] = path
    return found


def without_files(splits: Iterable[Split], files: Collection[FileKey]) -> list[Split]:
    """Return the splits without these files."""
    left = []
    for split in splits:
        native_names = {
            file.file_name for file in split.files if (split.partition, split.bucket, file.file_name) in files
        }
        if not native_names:
            left.append(split)
        elif sections := tuple(kept for section in split.sections if (kept := _without_files(section, native_names))):
            left.append(replace(split, sections=sections))
    return left


def is_native(kind: DataType) -> bool:
    """Return whether Spark's reader returns the same value as ours, for each value of the type."""
    match kind:
        case AtomicType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ):
            return kind.precision <= _MICROSECONDS  # finer ones are INT96
        case AtomicType():
            return kind.root in _EXACT
        case ArrayType():
            return is_native(kind.element)
        case MapType():
            return is_native(kind.key) and is_native(kind.value)
        case RowType():
            # its fields are filtered like columns
            return bool(kind.fields) and all(is_native(f.type) and not has_unsafe_pushdown(f.type) for f in kind.fields)
    return False


def has_unsafe_pushdown(kind: DataType) -> bool:
    """Return whether Spark, when it skips row groups of Parquet by a filter, would skip rows that match.

    Bounds of floating-point numbers don't include NaN, which Spark considers the greatest value, and a dictionary with
    -0.0 has no 0.0. For milliseconds Spark rounds the filter's value, which has microseconds (TIMESTAMP, not
    TIMESTAMP_NTZ).

    Source: Spark `ParquetFilters.scala`, Parquet `DictionaryFilter.java`.
    """
    if kind.root is Root.TIMESTAMP_LTZ:
        return isinstance(kind, AtomicType) and kind.precision <= _MILLISECONDS
    return kind.root in (Root.FLOAT, Root.DOUBLE)


def _without_files(section: Section, names: Collection[str]) -> Section:
    return [kept for run in section if (kept := [file for file in run if file.file_name not in names])]


@dataclass(frozen=True)
class _NativeReadRule:
    context: TableContext
    columns: tuple[str, ...]
    any_store: bool

    def holds(self, file: DataFileMeta, path: str) -> bool:
        return (
            not self.context.options.data_evolution_enabled
            and format_of(file.file_name) == "parquet"
            and self._has_final_rows(file)
            and self._is_listed(path)
            and self._has_current_columns(file)
        )

    def _has_final_rows(self, file: DataFileMeta) -> bool:
        if self.context.schema.has_primary_key:
            # files of level 0 may hold -D rows that were not counted
            return file.level > 0 and not file.may_hold_deletes
        # 0 is a file that was migrated into the table: its writer is unknown, and it mostly lacks partition columns.
        return file.max_sequence_number > 0

    def _is_listed(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        scheme = scheme_of(path)
        is_reached = scheme == LOCAL_SCHEME or (self.any_store and scheme != MEMORY_SCHEME)
        return is_reached and not name.startswith(_HIDDEN) and not name.endswith(_COPYING_SUFFIX)

    def _has_current_columns(self, file: DataFileMeta) -> bool:
        if file.write_columns is not None:
            return False
        if file.schema_id not in self._known:
            self._known[file.schema_id] = self._has_same_columns(written_fields(self.context, file))
        return self._known[file.schema_id]

    @cached_property
    def _known(self) -> dict[int, bool]:
        """By schema id, whether its files have the columns as they are read."""
        return {}

    def _has_same_columns(self, written: Iterable[DataField]) -> bool:
        by_id: Mapping[int, DataField] = {field.id: field for field in written}
        names = [field.name.lower() for field in by_id.values()]
        if len(set(names)) < len(names) or any(map(_has_duplicate_field_names, (f.type for f in by_id.values()))):
            return False  # by default, Spark does not distinguish such names
        own = self.context.schema.by_name
        return all(_is_same(by_id.get(own[name].id), own[name]) for name in self.columns)


def _is_same(written: DataField | None, wanted: DataField) -> bool:
    return written is not None and written.name == wanted.name and same_ignoring_nullability(written.type, wanted.type)


def _has_duplicate_field_names(kind: DataType) -> bool:
    match kind:
        case RowType():
            names = {field.name.lower() for field in kind.fields}
            return len(names) < len(kind.fields) or any(_has_duplicate_field_names(field.type) for field in kind.fields)
        case ArrayType():
            return _has_duplicate_field_names(kind.element)
        case MapType():
            return _has_duplicate_field_names(kind.key) or _has_duplicate_field_names(kind.value)
    return False
