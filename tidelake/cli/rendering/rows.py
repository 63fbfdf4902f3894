"""Prints rows to standard output: a table for people; JSON lines, CSV or Arrow for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv

from tidelake.cli.exits import UsageError
from tidelake.cli.formatting import cut_text, printable, value_text
from tidelake.cli.output import CommandOutput
from tidelake.cli.rendering.grids import print_grid
from tidelake.errors import BadInput
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.types.json_values import json_rows, json_values
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.number_comparison import is_number_type

if TYPE_CHECKING:
    from rich.text import Text

TABLE_ROWS_MAX = 100  # unless a limit is given, as the width of a column depends on all printed rows
_CELL_WIDTH_MAX = 60

_KIND_STYLES = {
    RowKind.INSERT: "green",
    RowKind.UPDATE_BEFORE: "yellow",
    RowKind.UPDATE_AFTER: "yellow",
    RowKind.DELETE: "red",
}


def print_rows(
    out: CommandOutput,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    row_format: str,
    limit: int | None,
    *,
    vertical: bool = False,
) -> None:
    """Print rows.

    row_format: table, json, csv, arrow or parquet
    limit: the number of rows; None is all, or TABLE_ROWS_MAX in a table
    vertical: print each value of a table on a line of its own
    """
    match row_format:
        case "table":
            _print_table(out, schema, batches, limit, vertical=vertical)
        case "json":
            for batch in _first(batches, limit):
                out.lines(json_rows(batch))
        case "csv":
            _print_csv(out, schema, _first(batches, limit))
        case "arrow" | "parquet" if sys.stdout.isatty():
            raise UsageError(f"--format {row_format} writes binary data; redirect it into a file")
        case "parquet":
            from pyarrow.parquet import ParquetWriter

            with ParquetWriter(out.bytes, schema) as writer:
                for batch in _first(batches, limit):
                    writer.write_batch(batch)
        case "arrow":
            with pa.ipc.new_stream(out.bytes, schema) as stream:
                for batch in _first(batches, limit):
                    stream.write_batch(batch)


def _first(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of all batches. Later batches are not read."""
    left = sys.maxsize if limit is None else limit
    for batch in batches:
        if batch.num_rows:
            yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _print_table(
    out: CommandOutput, schema: pa.Schema, batches: Iterable[pa.RecordBatch], limit: int | None, *, vertical: bool
) -> None:
    shown_max = TABLE_ROWS_MAX if limit is None else limit
    rows = pa.Table.from_batches(_first(batches, shown_max + (limit is None)), schema)
    shown = rows.slice(0, shown_max)
    columns = [[_cell(value, vertical=vertical) for value in json_values(column)] for column in shown.columns]
    print_grid(
        out,
        schema.names,
        list(zip(*columns, strict=True)),
        right=[is_number_type(field.type) for field in schema],
        vertical=vertical,
    )
    if rows.num_rows > shown_max:
        out.note(f"showing the first {shown_max} rows; --limit shows more, --format json, csv or arrow all")
    else:
        out.note(f"{shown.num_rows} row{'' if shown.num_rows == 1 else 's'}")


def _cell(value: object, *, vertical: bool) -> Text:
    from rich.text import Text

    if value is None:
        return Text("null", style="dim italic")
    return Text(value_text(value) if vertical else cut_text(value_text(value), _CELL_WIDTH_MAX))


def _print_csv(out: CommandOutput, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise BadInput(f"CSV can't hold column {nested[0]} ({schema.field(nested[0]).type}); use --format json")
    texts = pa.schema([field.with_type(_csv_type(field.type)) for field in schema])
    with pa.csv.CSVWriter(out.bytes, texts) as writer:
        for batch in batches:
            columns = [
                pa.array(json_values(column), wanted.type) if column.type != wanted.type else column
                for column, wanted in zip(batch.columns, texts, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=texts))


def _csv_type(kind: pa.DataType) -> pa.DataType:
    """Return the CSV type: numbers and texts stay as they are, other types (times, bytes) become texts as in JSON."""
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return kind if is_plain or pa.types.is_string(kind) else pa.string()


# ---------------------------------------------------------------- changes


def print_changes(
    out: CommandOutput, changes: Iterable[ChangeBatch], columns: Iterable[str] | None = None, limit: int | None = None
) -> None:
    """Print one change per line: `#3 +U order_id=7 amount=12.50`, or as JSON.

    limit: the number of lines; no more changes are read then
    """
    left = sys.maxsize if limit is None else limit
    for change in changes:
        rows = change.rows if change.is_break else change.rows.slice(0, left)
        _print_change(out, replace(change, rows=rows), columns)
        left -= 0 if change.is_break else rows.num_rows
        if left <= 0:
            return


def _print_change(out: CommandOutput, change: ChangeBatch, columns: Iterable[str] | None) -> None:
    if change.is_break:
        _print_break(out, change.snapshot_id)
        return
    kinds = [RowKind(kind) for kind in change.rows.column(KIND_COLUMN).to_pylist()]
    names = list(columns) if columns is not None else [n for n in change.rows.schema.names if n != KIND_COLUMN]
    rows = json_rows(change.rows.select(names))
    if out.is_json:
        out.lines(
            {"snapshot": change.snapshot_id, "kind": kind.symbol, "row": row}
            for kind, row in zip(kinds, rows, strict=True)
        )
        return
    from rich.text import Text

    for kind, row in zip(kinds, rows, strict=True):
        line = Text.assemble((f"#{change.snapshot_id}", "dim"), " ", (kind.symbol, _KIND_STYLES[kind]))
        for name, value in row.items():
            line.append(f" {printable(name)}=", style="dim")
            line.append(value_text(value))
        out.console.print(line, soft_wrap=True)


def _print_break(out: CommandOutput, snapshot_id: int) -> None:
    if out.is_json:
        out.lines([{"snapshot": snapshot_id, "break": True}])
    else:
        out.console.print(f"#{snapshot_id} rows were overwritten: a copy must read the table again", style="bold red")
