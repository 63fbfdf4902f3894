"""Reads the rows of a format table file by file, with the values of partition columns from the directories' names.

Source: Java `table/format/FormatReadBuilder.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from tidelake.errors import CorruptFile
from tidelake.storage.files.formats import format_named
from tidelake.storage.files.formats.file_format import batch_of
from tidelake.storage.files.reader import DEFAULT_BATCH_ROWS
from tidelake.storage.kinds.format_tables.csv_lines import read_csv
from tidelake.storage.kinds.format_tables.definition import check_readable, data_fields
from tidelake.storage.kinds.format_tables.format_options import CsvSettings, JsonSettings, TextSettings, format_of_table
from tidelake.storage.kinds.format_tables.json_lines import read_json
from tidelake.storage.kinds.format_tables.lines import read_lines
from tidelake.storage.kinds.format_tables.partition_directories import Partition, list_files, list_partitions
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_schema
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.predicate import Predicate


def scan_format_table(
    context: TableContext, columns: Sequence[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that exist now, in the order of the files' names. Batches are never empty.

    columns: the columns to return, in this order.
    predicate: the condition that rows must match; None returns all rows.

    Raises UnsupportedFeature for tables that can't be read. Raises CorruptFile.
    """
    check_readable(context)
    whole = context.schema.arrow
    needed = set(columns) | (set() if predicate is None else predicate.columns)
    condition = None if predicate is None else predicate.expression(whole)
    schema = pa.schema([whole.field(name) for name in columns])
    for partition in list_partitions(context, predicate):
        for path in list_files(context, partition.location):
            for rows in _file(context, partition, path, needed, predicate):
                kept = rows if condition is None else matching_rows(rows, condition)
                if kept.num_rows:
                    yield kept.select(columns).cast(schema) if columns else kept.select([])


def _file(
    context: TableContext, partition: Partition, path: str, needed: set[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """Yield the needed columns of a file, in the order of the schema."""
    wanted = [f for f in data_fields(context.schema) if f.name in needed]
    fields = [f for f in context.schema.fields if f.name in needed]
    schema = arrow_schema(fields)
    constants = dict(zip(context.schema.partition_keys, partition.values, strict=True))
    for stored in _stored(context, path, wanted, predicate):
        columns = []
        for field in fields:
            if field.name in constants:
                columns.append(pa.repeat(constants[field.name], stored.num_rows).cast(schema.field(field.name).type))
                continue
            column = stored.column(field.name)
            if column.null_count and not field.type.nullable:
                raise CorruptFile(path, f"values in column {field.name!r}, which is NOT NULL", "a null")
            columns.append(column)
        yield batch_of(columns, stored.num_rows, schema)


def _stored(
    context: TableContext, path: str, wanted: Sequence[DataField], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    options, source = context.options, context.io.open_input(path)
    match format_of_table(options):
        case "csv":
            return read_csv(source, path, data_fields(context.schema), wanted, CsvSettings.of(options))
        case "json":
            return read_json(source, path, wanted, JsonSettings.of(options))
        case "text":
            return _read_text(source, path, wanted, TextSettings.of(options))
        case format_name:
            within = None if predicate is None else predicate.within(frozenset(f.name for f in wanted))
            schema = arrow_schema(wanted)
            nullable = [replace(f, type=replace(f.type, nullable=True)) for f in wanted]
            return format_named(format_name).read(
                source,
                path,
                nullable,
                batch_rows=DEFAULT_BATCH_ROWS,
                chunk_filter=None if within is None else lambda bounds: within.may_match(bounds, schema),
            )


def _read_text(
    source: pa.NativeFile, path: str, wanted: Sequence[DataField], settings: TextSettings
) -> Iterator[pa.RecordBatch]:
    for lines in read_lines(source, path, settings.line_end):
        yield batch_of([lines] if wanted else [], len(lines), arrow_schema(wanted))
