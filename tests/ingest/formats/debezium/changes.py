"""Debezium records made for tests, decoded by both paths."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.ingest.formats.base import DecodedBatch, Target
from tidelake.ingest.raw_batch import Headers, RawBatch
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField, not_null, parse_type

TOPIC: Final = "shop.public.orders"
SOURCE: Final = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "orders"}
_KEY_OF_IMAGE: Final = object()


def orders_schema(columns: Mapping[str, str], primary_key: Sequence[str] = ("id",)) -> TableSchema:
    """Columns as name and SQL type; those of the key become NOT NULL."""
    fields = tuple(
        DataField(i, name, not_null(parse_type(text)) if name in primary_key else parse_type(text))
        for i, (name, text) in enumerate(columns.items())
    )
    return TableSchema(0, fields, len(fields) - 1, (), tuple(primary_key), {"bucket": "1"})


def orders(
    columns: Mapping[str, str] | None = None,
    primary_key: Sequence[str] = ("id",),
    emit_update_before: bool = False,
    source_types: Mapping[str, str] | None = None,
) -> Target:
    """The table that most cases use: id BIGINT, note STRING, qty INT."""
    schema = orders_schema(columns or {"id": "BIGINT", "note": "STRING", "qty": "INT"}, primary_key)
    return Target("shop.orders", schema, emit_update_before, source_types or {})


@dataclass(frozen=True)
class Record:
    """key and value as bytes, and the headers a source keeps."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def change(
    op: str | None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    *,
    key: Any = _KEY_OF_IMAGE,
    source: Mapping[str, Any] | None = SOURCE,
    headers: Headers = (),
    **others: Any,
) -> Record:
    """A record without a schema. Unless given, the key is the `id` of its image."""
    payload: dict[str, Any] = {"before": before, "after": after, "op": op, "ts_ms": 1, "transaction": None, **others}
    if source is not None:
        payload["source"] = source
    if op is None:
        del payload["op"], payload["before"], payload["after"]
    image = after or before
    if key is _KEY_OF_IMAGE:
        key = {"id": image["id"]} if image and "id" in image else None
    return Record(None if key is None else as_json(key), as_json(payload), headers)


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def raw(value: bytes | str | None, key: bytes | None = None) -> Record:
    return Record(key, value.encode() if isinstance(value, str) else value)


def batch_of(records: Sequence[Record], first_offset: int = 100, topic: str = TOPIC) -> RawBatch:
    """One partition, offsets rising by one."""
    n = len(records)
    offsets = np.arange(first_offset, first_offset + n, dtype=np.int64)
    return RawBatch(
        topic,
        0,
        offsets,
        np.full(n, -1, np.int64),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        first_offset + n,
        {row: record.headers for row, record in enumerate(records) if record.headers},
    )


def rows_of(decoded: DecodedBatch, table: str = "shop.orders") -> list[tuple[Any, ...]]:
    """(kind, cells …) of each row of one table."""
    for found in decoded.tables:
        if found.target.name == table:
            return [
                (RowKind(row.pop(KIND_COLUMN)).symbol, *row.values())
                for row in pa.Table.from_batches([found.rows]).to_pylist()
            ]
    return []


def assert_same(one: DecodedBatch, other: DecodedBatch) -> None:
    """Equal in everything, and in every bit of every value."""
    assert one.failures == other.failures
    assert (dict(one.skipped), dict(one.unrouted)) == (dict(other.skipped), dict(other.unrouted))
    assert [found.target.name for found in one.tables] == [found.target.name for found in other.tables]
    for found, expected in zip(one.tables, other.tables, strict=True):
        found.rows.validate(full=True)
        assert found.rows.schema == expected.rows.schema
        assert _bits(found.rows) == _bits(expected.rows)
        assert np.array_equal(found.offsets, expected.offsets)
        assert (found.unavailable is None) == (expected.unavailable is None)
        if found.unavailable is not None and expected.unavailable is not None:
            assert np.array_equal(found.unavailable.rows, expected.unavailable.rows)
            assert found.unavailable.keys.equals(expected.unavailable.keys)
            assert found.unavailable.columns.keys() == expected.unavailable.columns.keys()
            for name, flags in found.unavailable.columns.items():
                assert np.array_equal(flags, expected.unavailable.columns[name])


def _bits(rows: pa.RecordBatch) -> list[list[str]]:
    """repr, not equality: NaN is like NaN, and -0.0 unlike 0.0. Dates as integers: Python doesn't know all years."""
    return [[repr(value) for value in _countable(column).to_pylist()] for column in rows.columns]


def _countable(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return column.view(pa.int32())
    return column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
