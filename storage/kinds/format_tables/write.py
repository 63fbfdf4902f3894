"""Writes rows into a format table. Its files become visible when they are committed.

A file is written to its final directory, under a name that readers ignore. The commit renames all files. After that, an
overwrite removes the previous files. So a crash in between can only leave duplicate rows, never lose rows, and a second
overwrite corrects this. Java removes the previous files first.

Source: Java `table/format/FormatTableWrite.java`, `FormatTableCommit.java`, `fs/TwoPhaseOutputStream.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.fileio.base import Output
from tidelake.storage.files.formats import format_named
from tidelake.storage.files.formats.file_format import FormatWriterSettings
from tidelake.storage.kinds.format_tables.csv_lines import csv_header, csv_lines
from tidelake.storage.kinds.format_tables.definition import check_writable, data_fields
from tidelake.storage.kinds.format_tables.format_options import (
    TEXT_FORMATS,
    CsvSettings,
    JsonSettings,
    TextSettings,
    compression_of,
    format_of_table,
    is_standard,
)
from tidelake.storage.kinds.format_tables.json_lines import json_lines
from tidelake.storage.kinds.format_tables.lines import LineWriter, joined
from tidelake.storage.kinds.format_tables.partition_directories import list_files, list_partitions, partition_location
from tidelake.storage.model.paths import DataFileNames, file_extension
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_type, exact_scalar
from tidelake.storage.write.bucket_router import split_by_group
from tidelake.storage.write.row_converter import RowConverter


class FileWriter(Protocol):
    @property
    def written_bytes(self) -> int: ...
    def write(self, rows: pa.RecordBatch) -> None: ...
    def close(self) -> object: ...


class _OpenFile:
    def __init__(self, output: Output, writer: FileWriter) -> None:
        self.output = output
        self.writer = writer
        self.rows = 0


class FormatTableWriter:
    """Writes the rows of one commit after the other. Only one thread may use it at a time.

    After an error of `write` other than BadInput, only `close` may be called.

    overwrite: see `_overwrite_spec`.
    """

    def __init__(self, context: TableContext, overwrite: bool | Mapping[str, Any] | None = None) -> None:
        check_writable(context)
        self._context = context
        self._overwrite = _overwrite_spec(context, overwrite)
        self._written: set[str] = set()
        self._is_open = True
        self._converter = RowConverter(context.schema, context.options, context.name)
        self._fields = data_fields(context.schema)
        self._format = format_of_table(context.options)
        codec = compression_of(context.options)
        self._extension = file_extension(self._format, codec, context.options.is_on("file.suffix.include.compression"))
        self._names = DataFileNames(context.options.data_file_prefix)
        self._open: dict[str, _OpenFile] = {}  # directory -> its open file
        self._finished: list[Output] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows. Columns are matched by name, in any order.

        Raises BadInput if rows don't fit the table; then none of them is written. If rows don't fit the format, all
        uncommitted rows are dropped, and the writer is closed.
        """
        self._check_open()
        converted = self._converter.to_table_schema(rows).select(list(self._context.schema.names))
        self._check_static(converted)
        parts = self._split(converted)
        try:
            for location, part in parts:
                self._write_part(location, part)
                self._written.add(location)
        except BaseException:
            self.close()
            raise

    def _check_open(self) -> None:
        if not self._is_open:
            raise BadInput(f"{self._context.name}: this writer is closed; write uncommitted rows with a new writer")

    def _check_static(self, rows: pa.RecordBatch) -> None:
        if not isinstance(self._overwrite, Mapping):
            return
        for name, value in self._overwrite.items():
            same = pc.equal(rows.column(name), value) if value.is_valid else rows.column(name).is_null()
            if not pc.all(pc.fill_null(same, False), min_count=0).as_py():
                raise BadInput(
                    f"{self._context.name}: overwrite names {name} = {value}, but a row is in another partition; "
                    "filter the rows, or pass overwrite=True to replace the partitions that rows are written to"
                )

    def _split(self, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        keys = list(self._context.schema.partition_keys)
        names = [field.name for field in self._fields]
        if not rows.num_rows:
            return []
        if not keys:
            return [(self._context.location, rows.select(names))]
        codes = np.zeros(rows.num_rows, np.int64)
        for key in keys:
            encoded = rows.column(key).dictionary_encode(null_encoding="encode")
            _, codes = np.unique(
                codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(), return_inverse=True
            )
        _, first, groups = np.unique(codes, return_index=True, return_inverse=True)
        columns = [rows.column(key) for key in keys]
        where = [partition_location(self._context, [column[int(i)] for column in columns]) for i in first]
        parts = split_by_group(rows.select(names), groups, len(where))
        return [(where[group], part) for group, part in parts]

    def _write_part(self, location: str, rows: pa.RecordBatch) -> None:
        most = self._context.options.target_file_row_num
        while rows.num_rows:
            file = self._open.get(location) or self._new_file(location)
            taken = rows.slice(0, most - file.rows)
            file.writer.write(taken)
            file.rows += taken.num_rows
            rows = rows.slice(taken.num_rows)
            size = self._context.options.target_file_size_bytes(has_primary_key=False)
            if file.rows >= most or file.writer.written_bytes >= size:
                self._finish(location)

    def _new_file(self, location: str) -> _OpenFile:
        output = self._context.io.open_output(f"{location}/{self._names.next(self._extension)}")
        output.__enter__()
        try:
            self._open[location] = _OpenFile(output, _writer(output.stream, self._fields, self._context))
        except BaseException as e:
            output.__exit__(type(e), e, None)
            raise
        return self._open[location]

    def _finish(self, location: str) -> None:
        file = self._open[location]
        file.writer.close()
        del self._open[location]
        self._finished.append(file.output)

    def commit(self) -> int:
        """Make all files visible, then remove those that an overwrite replaces. Returns the number of new files.

        Files that other writers add in the meantime stay. After an error only some of the files may be visible: check
        the table, or overwrite again.
        """
        self._check_open()
        try:
            for location in list(self._open):
                self._finish(location)
            replaced = [path for location in self._replaced() for path in list_files(self._context, location)]
            count = len(self._finished)
            while self._finished:
                self._finished.pop(0).__exit__(None, None, None)
        except BaseException:
            self.close()
            raise
        self._context.io.delete_all(replaced)
        self._written = set()
        return count

    def _replaced(self) -> list[str]:
        """Return the directories whose files are removed."""
        if self._overwrite is False:
            return []
        if isinstance(self._overwrite, Mapping):
            return [p.location for p in list_partitions(self._context) if self._matches_overwrite(p.values)]
        return sorted(self._written) if self._context.schema.partition_keys else [self._context.location]

    def _matches_overwrite(self, values: Sequence[pa.Scalar]) -> bool:
        assert isinstance(self._overwrite, Mapping)
        by_name = dict(zip(self._context.schema.partition_keys, values, strict=True))
        return all(by_name[name] == value for name, value in self._overwrite.items())

    def close(self) -> None:
        """Drop uncommitted files, and close the writer."""
        outputs = [*self._finished, *(file.output for file in self._open.values())]
        self._finished, self._open, self._is_open = [], {}, False
        for output in outputs:
            _drop(output)


class _WriteAborted(Exception):
    """Passed to an output that must not become visible."""


def _drop(output: Output) -> None:
    with suppress(OSError):
        output.__exit__(_WriteAborted, _WriteAborted(), None)


def _overwrite_spec(context: TableContext, given: bool | Mapping[str, Any] | None) -> bool | Mapping[str, pa.Scalar]:
    """Return what a writer overwrites.

    False means nothing. True means everything, or in a partitioned table the partitions with new rows. A mapping
    contains the values of partition columns.

    Raises BadInput for a name that is not a partition column, or a value that doesn't fit.
    """
    if given is None or isinstance(given, bool):
        return bool(given)
    if not given:
        raise BadInput(
            f"{context.name}: writer(overwrite={given!r}) doesn't say what to replace; write overwrite=True for all"
        )
    fields = {f.name: f for f in context.schema.partition_fields}
    found = {}
    for name, value in given.items():
        if name not in fields:
            raise BadInput(
                f"{context.name}: {name!r} is not a partition column; the partition columns are "
                f"{', '.join(fields) or 'none'}"
            )
        kind = arrow_type(fields[name].type)
        try:
            found[name] = exact_scalar(value, kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as e:
            raise BadInput(
                f"{context.name}: {value!r} is not a valid value of partition column {name!r}, {kind}"
            ) from e
    return found


def _writer(stream: pa.NativeFile, fields: Sequence[DataField], context: TableContext) -> FileWriter:
    options = context.options
    format_name, codec = format_of_table(options), compression_of(options)
    if format_name not in TEXT_FORMATS:
        settings = FormatWriterSettings(
            compression=codec,
            zstd_level=options.zstd_level,
            block_size_bytes=options.file_block_size_bytes,
            options=options.format_options(format_name),
            target_bytes=options.target_file_size_bytes(has_primary_key=False),
        )
        return format_named(format_name).open_writer(stream, fields, settings)
    if format_name == "csv":
        csv = CsvSettings.of(options)
        return LineWriter(stream, codec, lambda rows: csv_lines(rows, fields, csv), csv_header(fields, csv))
    if format_name == "json":
        json = JsonSettings.of(options)
        return LineWriter(stream, codec, lambda rows: json_lines(rows, fields, json))
    text = TextSettings.of(options)
    return LineWriter(stream, codec, lambda rows: _text_lines(rows.column(0), fields[0].name, text))


def _text_lines(column: pa.Array, name: str, settings: TextSettings) -> bytes:
    if column.null_count:
        raise BadInput(f"column {name!r}: text files can't store NULL; write a string, or use file.format = csv")
    holds = (
        pc.match_substring_regex(column, r"[\r\n]")
        if is_standard(settings.line_end)
        else pc.match_substring(column, settings.line_end)
    )
    if pc.any(holds).as_py():
        raise BadInput(f"column {name!r}: a value contains a line break, where readers begin the next row; use json")
    return joined(column, settings.line_end)
