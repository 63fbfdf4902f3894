"""The definition of a format table: columns, partition columns, a location, and a format. It has no other metadata.

Source: Java `table/FormatTable.java`, `catalog/CatalogUtils.java` (validateFormatTableOptions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.ddl.schema_creation import columns_from_arrow
from tidelake.storage.kinds.format_tables.format_options import (
    CsvSettings,
    JsonSettings,
    TextSettings,
    check_own_options,
    compression_of,
    format_of_table,
)
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.option_changes import check_spelling
from tidelake.storage.model.options.values import parse_names
from tidelake.storage.model.schema.field_ids import FieldIds
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BINARY_ROOTS, CONSTRUCTED_ROOTS, STRING_ROOTS, DataField, Root, walk_types

FORMAT_TABLE: Final = "format-table"
_ROOTS_WITHOUT_TEXT: Final = frozenset({Root.BLOB, Root.VARIANT, Root.TIMESTAMP_LTZ})


def is_format_table(options: Mapping[str, str] | None) -> bool:
    return (options or {}).get("type", "").strip().lower() == FORMAT_TABLE


def no_ordinary_table(name: str, kind: str = FORMAT_TABLE) -> BadInput:
    """Return the error for an operation that needs snapshots, or a schema change."""
    words = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind.replace('-', ' ')}"
    return BadInput(
        f"{name} is {words}: it has files, but no snapshots, no branches and no schema that changes. Open it with "
        "Catalog.table; drop it and create it again to change it"
    )


def new_format_table(
    columns: pa.Schema | Sequence[DataField],
    *,
    primary_key: Sequence[str],
    partition_by: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
    time_ms: int,
) -> TableSchema:
    """Return the only schema of a new format table.

    Raises BadInput or UnsupportedFeature, with the column or option, for an invalid definition.
    """
    options = dict(options)
    partition_keys = tuple(partition_by) or parse_names(options.pop("partition", ""))
    if primary_key or "primary-key" in options:
        raise BadInput("a format table can't have a primary key, as its rows are never merged; leave it out")
    fields = columns_from_arrow(columns) if isinstance(columns, pa.Schema) else list(columns)
    names = [field.name for field in fields]
    if missing := [name for name in partition_keys if name not in names]:
        raise BadInput(f"partition_by names {missing[0]!r}, which is not a column; the table has {', '.join(names)}")
    for group in (names, partition_keys):
        if repeated := [name for name in group if group.count(name) > 1]:
            raise BadInput(f"column {repeated[0]!r} occurs twice; list it once")
    check_spelling(options)
    check_own_options(options)
    ids = FieldIds()
    made = tuple(ids.column(column) for column in fields)
    schema = TableSchema(0, made, ids.highest, partition_keys, (), options, comment, time_ms)
    check_format_table(schema, TableOptions(options))
    return schema


def check_format_table(schema: TableSchema, options: TableOptions) -> None:
    """Raise BadInput or UnsupportedFeature if this release can't read and write such a table."""
    format_name = format_of_table(options)
    if options.is_on("metastore.partitioned-table"):
        raise UnsupportedFeature(
            "option metastore.partitioned-table = true of a format table",
            "partitions are read from the table's folder; a list of partitions in a catalog is not used",
            "Unset it",
        )
    for field in schema.partition_fields:
        if (
            field.type.root in BINARY_ROOTS
            or field.type.root in CONSTRUCTED_ROOTS
            or field.type.root in _ROOTS_WITHOUT_TEXT
        ):
            raise UnsupportedFeature(
                f"partition column {field.name!r} {field.type}",
                "a directory's name can't hold its values",
                "Partition by a column of another type",
            )
    data = data_fields(schema)
    if not data:
        raise BadInput("all columns are partition columns, so the files would have no column; add a column")
    compression_of(options)
    if format_name == "text" and (len(data) != 1 or data[0].type.root not in STRING_ROOTS):
        raise BadInput(
            "file.format = text stores lines: except for partition columns, the table must have exactly one column, "
            "a STRING; use csv or json for other columns"
        )
    if format_name == "csv":
        _refuse_types(data, format_name, CONSTRUCTED_ROOTS | _ROOTS_WITHOUT_TEXT)
        CsvSettings.of(options)
    elif format_name == "json":
        _refuse_types(data, format_name, _ROOTS_WITHOUT_TEXT | {Root.MULTISET})
        JsonSettings.of(options)
    elif format_name == "text":
        TextSettings.of(options)


def _refuse_types(fields: Sequence[DataField], format_name: str, refused: frozenset[Root]) -> None:
    for field in fields:
        found = next((part for part in walk_types(field.type) if part.root in refused), None)
        if found is None:
            continue
        if found.root is Root.TIMESTAMP_LTZ:
            raise UnsupportedFeature(
                f"column {field.name!r} {field.type} in {format_name} files",
                "Java writes such times in the zone of its process, which the file does not name",
                "Use TIMESTAMP, or file.format = parquet",
            )
        raise UnsupportedFeature(
            f"column {field.name!r} {field.type} in {format_name} files",
            "the format has no representation of it",
            "Use file.format = parquet",
        )


def check_readable(context: TableContext) -> None:
    """Raise UnsupportedFeature if the table can't be read."""
    check_format_table(context.schema, context.options)
    for key in ("scan.ignore-corrupt-files", "scan.ignore-lost-files"):
        if context.options.is_on(key):
            raise UnsupportedFeature(f"{context.name}: option {key} = true", "no file is passed over here", "Unset it")


def check_writable(context: TableContext) -> None:
    """Raise UnsupportedFeature if the table can't be written."""
    check_format_table(context.schema, context.options)
    check_own_options({key: "" for key in context.options if key == "format-table.commit-hive-sync-url"})


def data_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """Return the columns that are stored in files."""
    return tuple(field for field in schema.fields if field.name not in schema.partition_keys)
