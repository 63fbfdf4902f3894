"""Plans the migration of an Apache Iceberg table: which of its files become files of a table, unchanged.

The files of its current snapshot are migrated if a reader of Paimon gets the same rows from them: Parquet files with
the columns of the current schema, partitioned by columns themselves, without deletes. Anything else is refused by name.

Source: Java `iceberg/migrate/IcebergMigrator.java` (earlier releases: paimon#4639, #4878), which reads files by their
columns' names without comparing ids; Iceberg's specification, "Table Metadata", "Manifests", "Column Projection".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.commit.manifests.record_file import Record, read_records
from tidelake.storage.ddl.schema_creation import columns_from_arrow
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.location import LOCAL_SCHEME, S3_SCHEMES, absolute, local_path, scheme_of
from tidelake.storage.files.formats.file_format import corruption
from tidelake.storage.kinds.format_tables.partition_directories import Partition
from tidelake.storage.maintenance.migration.foreign_files import ForeignFile
from tidelake.storage.maintenance.migration.migration import MigrationPlan, SourceFolder
from tidelake.storage.model.types import DataField, arrow_type

METADATA_SUFFIX: Final = ".metadata.json"
_DIRECTORY: Final = "metadata"
_HINT: Final = "version-hint.text"
_FORMAT_VERSIONS: Final = (1, 2)
_NO_SNAPSHOT: Final = (None, -1)
_DELETED: Final = 2  # the status of an entry
_DATA: Final = 0  # the content of a manifest, and of an entry
_FIELD_ID: Final = b"PARQUET:field_id"
_NAME_MAPPING: Final = "schema.name-mapping.default"
_REWRITE: Final = "Rewrite the table's files with Iceberg (in Spark: CALL system.rewrite_data_files), and call it again"
_COPY: Final = "Read the rows, for example by PyIceberg, and write them into a table"

_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED: Final = re.compile(r"fixed\[(\d+)\]")
_REFUSED: Final = {
    "time": "data files have microseconds, and files of a table have milliseconds",
    "uuid": "Paimon has no such type",
}


@dataclass(frozen=True, slots=True)
class _Table:
    """The current state that a metadata file describes.

    schema: the JSON of the current schema
    partition_columns: names of columns, in the order of the partition spec
    """

    io: FileIO
    path: str
    members: Mapping[str, Any]
    schema: Mapping[str, Any]
    partition_columns: tuple[str, ...]

    @property
    def location(self) -> str:
        return str(self.members["location"])

    def refusal(self, feature: str, reason: str, remedy: str) -> UnsupportedFeature:
        return UnsupportedFeature(f"migration of the Iceberg table {self.location}: {feature}", reason, remedy)


def find_iceberg_metadata(io: FileIO, source: str) -> str | None:
    """Return the path of the current metadata file; None if the source is no Iceberg table.

    source: a metadata file, or the folder of a table in a Hadoop catalog

    Raises BadInput for the folder of a table whose catalog alone knows which metadata file is the current one.
    """
    if source.endswith(METADATA_SUFFIX):
        return source
    directory = f"{source}/{_DIRECTORY}"
    names = sorted(entry.name for entry in io.list_directory(directory) if not entry.is_directory)
    files = [name for name in names if name.endswith(METADATA_SUFFIX)]
    if not files:
        return None
    if _HINT in names:
        version = io.read(f"{directory}/{_HINT}").decode().strip()
        for name in (f"v{version}{METADATA_SUFFIX}", version):
            if name in files:
                return f"{directory}/{name}"
    raise BadInput(
        f"{source} is an Iceberg table with {len(files)} metadata files, and only its catalog knows which one is "
        f"current; name it, such as {directory}/{files[-1]} (PyIceberg: table.metadata_location)"
    )


def plan_iceberg_migration(io: FileIO, metadata_path: str, *, is_committed: bool) -> MigrationPlan:
    """Read the metadata and all footers.

    is_committed: an earlier call has committed, so that files may be missing, which it has removed

    Raises BadInput, UnsupportedFeature and CorruptFile for a table that can't be migrated.
    """
    table = _table(io, metadata_path)
    columns = tuple(columns_from_arrow(_arrow_schema(table)))
    by_name = {column.name: column for column in columns}
    listed = list(_live_files(table))
    if not listed:
        raise BadInput(f"the Iceberg table {table.location} has no rows; create the table instead of migrating it")
    footers = map_parallel(lambda found: _read_file(table, columns, found[1], is_committed=is_committed), listed)
    keys = {name: by_name[name].type for name in table.partition_columns}
    files = []
    for (partition, _), file in zip(listed, footers, strict=True):
        if file is not None:
            values = tuple(pa.scalar(partition[number], arrow_type(kind)) for number, kind in enumerate(keys.values()))
            files.append((Partition(file.path.rpartition("/")[0], values), file))
    source = SourceFolder(io, absolute(_own_path(io, table.location)).rstrip("/"), "parquet", keys)
    rest = [column for column in columns if column.name not in keys]
    return MigrationPlan(source, (*rest, *(by_name[name] for name in keys)), tuple(files))


# ---------------------------------------------------------------- metadata


def _table(io: FileIO, path: str) -> _Table:
    try:
        members = json.loads(io.read(path))
        version = members["format-version"]
        schemas = members.get("schemas") or [{**members["schema"], "schema-id": 0}]
        current = members.get("current-schema-id", 0)
        schema = next(found for found in schemas if found.get("schema-id", 0) == current)
        table = _Table(io, path, members, schema, ())
        if version not in _FORMAT_VERSIONS:
            raise table.refusal(
                f"format version {version}", "its deletion vectors and row ids are no part of files", _COPY
            )
        return _Table(io, path, members, schema, _partition_columns(table))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; name the current metadata file of the Iceberg table") from None
    except (KeyError, ValueError, TypeError, StopIteration) as e:
        raise CorruptFile(path, "the JSON of Iceberg metadata", f"{type(e).__name__}: {e}") from None


def _partition_columns(table: _Table) -> tuple[str, ...]:
    members = table.members
    specs = members.get("partition-specs") or [{"spec-id": 0, "fields": members.get("partition-spec", [])}]
    spec = next(found for found in specs if found["spec-id"] == members.get("default-spec-id", 0))
    names = {field["id"]: field["name"] for field in table.schema["fields"]}
    columns = []
    for field in spec["fields"]:
        if field["transform"] != "identity" or field["source-id"] not in names:
            raise table.refusal(
                f"partition field {field['name']} = {field['transform']}",
                "a table is partitioned by columns themselves, and a file has the rows of one of their values",
                "Partition it by a column with the identity transform, or " + _COPY[0].lower() + _COPY[1:],
            )
        columns.append(names[field["source-id"]])
    return tuple(columns)


def _live_files(table: _Table) -> Iterator[tuple[tuple[Any, ...], Record]]:
    """Yield the data files of the current snapshot, each with its partition's values."""
    current = table.members.get("current-snapshot-id")
    if current in _NO_SNAPSHOT:
        return
    found = next((s for s in table.members.get("snapshots", ()) if s["snapshot-id"] == current), None)
    if found is None or not (found.get("manifest-list") or found.get("manifests")):
        raise CorruptFile(table.path, f"the snapshot {current}", "none with this id and a manifest list")
    spec_id = table.members.get("default-spec-id", 0)
    for meta in _manifests(table, found):
        if meta.get("content", _DATA) != _DATA:
            if meta.get("added_files_count", 1) or meta.get("existing_files_count", 1):
                _check_no_deletes(table, meta["manifest_path"])
            continue
        for entry in _records(table, meta["manifest_path"]):
            if entry["status"] == _DELETED:
                continue
            if meta.get("partition_spec_id", spec_id) != spec_id:
                raise table.refusal("files of an older partition spec", "all files must be partitioned alike", _REWRITE)
            yield tuple(entry["data_file"]["partition"].values()), entry["data_file"]


def _manifests(table: _Table, snapshot: Mapping[str, Any]) -> Sequence[Record]:
    if "manifest-list" in snapshot:
        return _records(table, snapshot["manifest-list"])
    return [{"manifest_path": path} for path in snapshot["manifests"]]  # format version 1


def _check_no_deletes(table: _Table, manifest: str) -> None:
    if any(entry["status"] != _DELETED for entry in _records(table, manifest)):
        raise table.refusal(
            "delete files", "readers of Paimon would show the deleted rows", f"{_REWRITE}, with delete-file-threshold 1"
        )


def _records(table: _Table, location: str) -> tuple[Record, ...]:
    path = _own_path(table.io, location)
    try:
        return read_records(table.io.read(path), path, lambda record: record)
    except FileNotFoundError:
        raise CorruptFile(path, f"a file that {table.path} names", "no file") from None


def _own_path(io: FileIO, location: str) -> str:
    """Return a location as our file access takes it. Iceberg names S3 by three schemes."""
    scheme = scheme_of(location)
    if scheme == LOCAL_SCHEME:
        return local_path(location)
    return f"s3{location[len(scheme) :]}" if scheme in S3_SCHEMES else location


# ---------------------------------------------------------------- columns


def _arrow_schema(table: _Table) -> pa.Schema:
    return pa.schema([_arrow_field(table, field) for field in table.schema["fields"]])


def _arrow_field(table: _Table, field: Mapping[str, Any]) -> pa.Field:
    kind = _arrow_type(table, field["type"], field["name"])
    return pa.field(field["name"], kind, nullable=not field["required"])


def _arrow_type(table: _Table, kind: Any, column: str) -> pa.DataType:
    if isinstance(kind, Mapping):
        match kind["type"]:
            case "struct":
                return pa.struct([_arrow_field(table, field) for field in kind["fields"]])
            case "list":
                element = _arrow_type(table, kind["element"], column)
                return pa.list_(pa.field("element", element, nullable=not kind["element-required"]))
            case "map":
                value = _arrow_type(table, kind["value"], column)
                return pa.map_(
                    _arrow_type(table, kind["key"], column),
                    pa.field("value", value, nullable=not kind["value-required"]),
                )
    elif kind in _TYPES:
        return _TYPES[kind]
    elif match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    elif match := _FIXED.fullmatch(kind):
        return pa.binary(int(match[1]))
    reason = _REFUSED.get(str(kind), "it is no type of format version 2")
    raise table.refusal(f"column {column!r} of type {kind}", reason, _COPY)


def _read_file(
    table: _Table, columns: Sequence[DataField], data_file: Record, *, is_committed: bool
) -> ForeignFile | None:
    """Read the footer of a data file. Returns None for a file that an earlier call has removed."""
    path = _own_path(table.io, data_file["file_path"])
    if str(data_file["file_format"]).lower() != "parquet":
        raise table.refusal(f"file {path}", "only the columns of Parquet files are known by their ids", _REWRITE)
    if data_file.get("content", _DATA) != _DATA:
        raise table.refusal("delete files", "readers of Paimon would show the deleted rows", _REWRITE)
    try:
        with table.io.open_input(path) as source, corruption(path, "a file in parquet"):
            size = source.size()
            footer = pq.ParquetFile(source).metadata
            schema, rows = footer.schema.to_arrow_schema(), footer.num_rows
    except FileNotFoundError:
        if is_committed:
            return None
        raise BadInput(
            f"{path} does not exist, which {table.path} names: the table was moved, or this is not its current "
            "metadata file"
        ) from None
    _check_columns(table, columns, schema, path)
    return ForeignFile(path, size, rows, tuple(columns))


def _check_columns(table: _Table, columns: Sequence[DataField], found: pa.Schema, path: str) -> None:
    """Raise UnsupportedFeature unless the file has the columns of the current schema under their names and types.

    A column of Iceberg is known by its id, one of Paimon's files by its name.
    """
    _check_names(table, table.schema["fields"], list(found), "", path)
    own = columns_from_arrow(
        pa.schema([found.field(column.name).with_nullable(True).remove_metadata() for column in columns])
    )
    for column, of_file in zip(columns, own, strict=True):
        if _plain(column) != _plain(of_file):
            raise table.refusal(
                f"column {column.name!r} is {column.type}",
                f"it was altered, and {path} has {of_file.type}; files of one table must have the same columns",
                _REWRITE,
            )


def _plain(column: DataField) -> str:
    return str(arrow_type(column.type)).replace(" not null", "")


def _check_names(
    table: _Table, expected: Sequence[Mapping[str, Any]], found: Sequence[pa.Field], prefix: str, path: str
) -> None:
    ids = _ids(table, found, prefix)
    by_name = {field.name: field for field in found}
    for field in expected:
        name, shown = field["name"], f"{prefix}{field['name']}"
        if ids.get(name) == field["id"]:
            inner = by_name[name].type
            if isinstance(field["type"], Mapping) and field["type"]["type"] == "struct" and pa.types.is_struct(inner):
                fields = [inner.field(number) for number in range(inner.num_fields)]
                _check_names(table, field["type"]["fields"], fields, f"{shown}.", path)
            continue
        old = next((other for other, number in ids.items() if number == field["id"]), None)
        if old is not None:
            reason = f"it was renamed, and {path} has it under the name {old!r}; a table finds columns by their names"
        elif name in by_name:
            reason = f"it was dropped and added again, and {path} has the values of the older one"
        else:
            reason = f"it was added later, and {path} does not have it; files of one table must have the same columns"
        raise table.refusal(f"column {shown!r}", reason, _REWRITE)


def _ids(table: _Table, found: Sequence[pa.Field], prefix: str) -> dict[str, int]:
    """Return the ids of columns by name: those in the file, or for files without ids those of the name mapping."""
    own = {field.name: int(field.metadata[_FIELD_ID]) for field in found if _FIELD_ID in (field.metadata or {})}
    if own or prefix:
        return own
    mapping = json.loads(table.members.get("properties", {}).get(_NAME_MAPPING, "[]"))
    by_name = {name: entry["field-id"] for entry in mapping for name in entry["names"]}
    return {field.name: by_name[field.name] for field in found if field.name in by_name}
