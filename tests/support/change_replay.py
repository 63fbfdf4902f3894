"""Applies decoded change records to a table one row at a time: the naive model of a decoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tests.support.cases import recorded_bytes, recorded_lines
from tests.support.recorded_truth import RecordedTable, rows_of
from tidelake.ingest.formats.base import Decoder, FailureKind, JsonView, TableRows, Target
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

    def fold(self, changed: Mapping[str, Any], filled: Mapping[str, tuple[Any, ...]]) -> None:
        """Apply one row. filled: column to the key whose row has the column's value."""
        row = dict(changed)
        kind = RowKind(row.pop(KIND_COLUMN))
        key = tuple(row[name] for name in self._target.schema.primary_keys) or (len(self._rows),)
        if kind.is_retract:
            self._rows.pop(key, None)
            return
        for name, old_key in filled.items():
            assert row[name] is None
            row[name] = self._last[old_key][name]
            self.filled_cells += 1
        self._rows[key] = self._last[key] = row

    def truncate(self) -> None:
        self._rows.clear()

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
    """Every topic of a recording decoded to its end. Truncates empty the table; the decoder must not skip them.

    Fails on the first record that can't be decoded.
    """
    folded = FoldedTable(target)
    for path in recorded.files:
        batches = list(recorded_batches(path))
        places = _places(path, batches, decoder)
        changes: list[tuple[int, Callable[[], None]]] = []
        for batch in batches:
            decoded = decoder.decode(batch)
            for failure in decoded.failures:
                assert failure.kind is FailureKind.TRUNCATE, failure.describe(batch)
                changes.append((places[batch.partition, failure.offset], folded.truncate))
            for rows in decoded.tables:
                at = [places[batch.partition, offset] for offset in rows.offsets.tolist()]
                changes += zip(at, _row_changes(folded, rows, target.schema.primary_keys), strict=True)
        for _, apply in sorted(changes, key=lambda change: change[0]):  # stable: rows of one record keep their order
            apply()
    return folded


def _row_changes(folded: FoldedTable, rows: TableRows, key_columns: tuple[str, ...]) -> Iterator[Callable[[], None]]:
    unavailable = rows.unavailable
    filled: dict[int, dict[str, tuple[Any, ...]]] = {}
    if unavailable is not None:
        for place, row in enumerate(unavailable.rows.tolist()):
            key = tuple(unavailable.keys.column(name)[place].as_py() for name in key_columns)
            filled[row] = {name: key for name, flags in unavailable.columns.items() if flags[place]}
    for number, changed in enumerate(rows_of(rows.rows)):
        yield partial(folded.fold, changed, filled.get(number, {}))


# ---------------------------------------------------------------- the order of changes in several partitions


def _places(path: Path, batches: Sequence[RawBatch], decoder: Decoder) -> Mapping[tuple[int, int], int]:
    """(partition, offset) to the place of the record among all records of a topic, in the order of its source's log.

    If the records don't tell all their positions in one log, the order is that of the file (by time): with several
    partitions it is then a guess for records of the same millisecond.
    """
    in_file = [(line["partition"], line["offset"]) for line in recorded_lines(path)]
    places = {record: place for place, record in enumerate(in_file)}
    if len({partition for partition, _ in in_file}) < 2:
        return places
    positions: dict[tuple[int, int], tuple[int, ...]] = {}
    logs = set()
    for batch in batches:
        for row in np.flatnonzero(batch.values.is_valid().to_numpy(zero_copy_only=False)).tolist():
            value = decoder.value_as_json(batch, row) if isinstance(decoder, JsonView) else batch.values[row].as_py()
            found = _position(json.loads(value))
            if found is None:
                return places
            logs.add(found[0])
            positions[batch.partition, int(batch.offsets[row])] = found[1]
    if len(logs) > 1:
        return places
    ordered = sorted(in_file, key=lambda record: positions.get(record, ()))  # stable; tombstones change nothing
    return {record: place for place, record in enumerate(ordered)}


def _position(record: Mapping[str, Any]) -> tuple[str, tuple[int, ...]] | None:
    """(log, position) of a change at its source; None if the record doesn't tell them."""
    source = (record.get("payload") or record).get("source") or {}
    if source.get("snapshot") == "incremental":  # read in between, at no position
        return None
    match source.get("connector"):
        case "postgresql" if source.get("sequence"):
            last_commit, own = json.loads(source["sequence"])
            return "postgresql", (int(last_commit or 0), int(own))
        case "mysql" | "mariadb" if source.get("file"):
            base, _, number = source["file"].rpartition(".")
            return base, (int(number), source["pos"], source.get("row") or 0)
        case _:
            return None
