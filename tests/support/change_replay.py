"""Applies decoded change records to a table one row at a time: the naive model of a decoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tests.support.cases import recorded_bytes, recorded_lines
from tests.support.recorded_truth import RecordedTable, rows_of
from tidelake.ingest.formats.base import Decoder, TableRows, Target
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.raw_batch import Headers, RawBatch
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField, not_null, type_from_arrow

_BATCH_LINES: Final = 500


def table_schema(schema: pa.Schema, primary_key: tuple[str, ...], partition_keys: tuple[str, ...] = ()) -> TableSchema:
    ids = iter(range(len(schema), 1_000))
    fields = tuple(
        DataField(i, f.name, type_from_arrow(f.type, lambda: next(ids), column=f.name, is_nullable=f.nullable))
        for i, f in enumerate(schema)
    )
    fields = tuple(DataField(f.id, f.name, not_null(f.type)) if f.name in primary_key else f for f in fields)
    return TableSchema(0, fields, 999, partition_keys, primary_key, {"bucket": "1"})


def target_of(recorded: RecordedTable, emit_update_before: bool = False) -> Target:
    schema = table_schema(recorded.schema, recorded.primary_key)
    return Target(f"shop.{recorded.name}", schema, emit_update_before, recorded.source_types)


def raw_batch(topic: str, partition: int, records: list[dict[str, Any]]) -> RawBatch:
    """Lines of one partition (`recorded/README.md`) as a batch."""

    def column(name: str) -> pa.Array:
        return pa.array([recorded_bytes(record, name) for record in records], pa.binary())

    headers: dict[int, Headers] = {}
    for row, record in enumerate(records):
        kept = tuple(
            (name, text.encode()) for name, text in record.get("headers", ()) if name in DebeziumJson.KEPT_HEADERS
        )
        if kept:
            headers[row] = kept
    offsets = np.array([r["offset"] for r in records], np.int64)
    times = np.array([r.get("timestamp_ms", -1) for r in records], np.int64)
    return RawBatch(topic, partition, offsets, times, column("key"), column("value"), int(offsets[-1]) + 1, headers)


def recorded_batches(path: Path, batch_lines: int = _BATCH_LINES) -> Iterator[RawBatch]:
    """A recorded topic in its order, cut every few lines, and there by partition."""
    lines: list[dict[str, Any]] = [dict(line) for line in recorded_lines(path)]
    for start in range(0, len(lines), batch_lines):
        cut = lines[start : start + batch_lines]
        for partition in sorted({line["partition"] for line in cut}):
            records = [line for line in cut if line["partition"] == partition]
            yield raw_batch(records[0]["topic"], partition, records)


class FoldedTable:
    """Rows by key (or all rows, without a key), after applying +I, +U and -D.

    Unavailable values are taken from the row under the key that the decoder names, even if that row was deleted.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._last: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.filled_cells = 0

    def fold(self, table_rows: TableRows) -> None:
        key_columns = self._target.schema.primary_keys
        rows = rows_of(table_rows.rows)
        unchanged = table_rows.unavailable
        places = {} if unchanged is None else {int(row): place for place, row in enumerate(unchanged.rows)}
        for number, row in enumerate(rows):
            kind = RowKind(row.pop(KIND_COLUMN))
            key = tuple(row[name] for name in key_columns) or (len(self._rows),)
            if number in places and unchanged is not None and not kind.is_retract:
                place = places[number]
                old = self._last[tuple(unchanged.keys.column(name)[place].as_py() for name in key_columns)]
                for name, flags in unchanged.columns.items():
                    if flags[place]:
                        assert row[name] is None
                        row[name] = old[name]
                        self.filled_cells += 1
            if kind.is_retract:
                self._rows.pop(key, None)
            else:
                self._rows[key] = self._last[key] = row

    def table(self) -> pa.Table:
        columns = []
        for column in self._target.schema.arrow:
            cells = [row[column.name] for row in self._rows.values()]
            if pa.types.is_timestamp(column.type):
                columns.append(pa.array(cells, pa.timestamp("us", column.type.tz)))
            else:
                columns.append(pa.array(cells, column.type))
        return pa.Table.from_arrays(columns, self._target.schema.names)


def fold_recording(recorded: RecordedTable, decoder: Decoder, target: Target) -> FoldedTable:
    """Every topic of a recording decoded to its end. Fails on the first record that can't be decoded."""
    folded = FoldedTable(target)
    for path in recorded.files:
        for batch in recorded_batches(path):
            decoded = decoder.decode(batch)
            assert not decoded.failures, decoded.failures[0].describe(batch)
            for rows in decoded.tables:
                folded.fold(rows)
    return folded
