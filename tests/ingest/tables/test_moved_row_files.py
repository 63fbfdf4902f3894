"""Moved rows are bounded, and are read back from their file as far as the table still has their columns."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

from tidelake.ingest.formats.base import KeyChange
from tidelake.ingest.tables.moved_row_files import MovedRowFiles
from tidelake.ingest.tables.moved_rows import (
    DROPPED_BY_AGE,
    DROPPED_BY_SIZE,
    MovedRow,
    MovedRows,
    MovedRowsBudget,
)
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import BIGINT, INT, STRING, ArrayType, DataField, DataType

FIELDS: dict[str, DataType] = {"id": BIGINT, "doc": STRING, "tags": ArrayType(STRING)}


def schema(fields: dict[int, tuple[str, DataType]] | None = None) -> TableSchema:
    fields = fields or {number: (name, FIELDS[name]) for number, name in enumerate(FIELDS)}
    return TableSchema(
        0, tuple(DataField(i, name, type_) for i, (name, type_) in fields.items()), max(fields), primary_keys=("id",)
    )


def change(number: int, is_exact: bool = True) -> KeyChange:
    return KeyChange(bytes([is_exact]) + b"%015d" % number, is_exact, f"old {number}", f"new {number}")


def row(number: int, doc: str = "text", since_ms: int = 0, is_exact: bool = True) -> MovedRow:
    values = pa.RecordBatch.from_pylist([{"id": number, "doc": doc, "tags": ["a", None]}], schema().arrow)
    return MovedRow(change(number, is_exact), values, since_ms)


def moved(limit_ms: int = 1_000, limit_bytes: int = 1 << 20, now_ms: int = 0) -> MovedRows:
    return MovedRows("t", MovedRowsBudget(limit_ms, limit_bytes, lambda: now_ms))


def written_and_read(rows: MovedRows, after: TableSchema) -> MovedRows:
    io, directory = MemoryFileIO(), f"memory://{uuid4()}/moved-rows"
    state = MovedRowFiles(io, directory, "me", schema()).write(rows)
    found = moved()
    MovedRowFiles(io, directory, "me", after).read(state, found, only_exact=False)
    return found


def test_rows_are_read_back_from_a_file() -> None:
    rows = moved()
    rows.add_departure(row(1, since_ms=5))
    rows.add_departure(row(2).dropped("a reason"))
    for _ in range(2):
        rows.add_departure(row(3, is_exact=False))
        rows.add_arrival(change(4, is_exact=False))
    rows.add_arrival(change(5))
    found = written_and_read(rows, schema())
    assert found.pairs.early == rows.pairs.early
    kept = [(r.change, r.values and r.values.to_pylist(), r.since_ms, r.why_unknown) for r in found.pairs]
    assert kept == [(r.change, r.values and r.values.to_pylist(), r.since_ms, r.why_unknown) for r in rows.pairs]
    assert len(kept) == 4


def test_columns_are_identified_by_id() -> None:
    rows = moved()
    rows.add_departure(row(1))
    after = schema({0: ("id", BIGINT), 1: ("renamed", STRING), 2: ("tags", INT), 3: ("doc", STRING)})
    (found,) = written_and_read(rows, after).pairs
    assert found.unknown == {"tags", "doc"}
    assert found.values is not None
    assert found.values.select(["id", "renamed"]).to_pylist() == [{"id": 1, "renamed": "text"}]


def test_the_oldest_rows_are_dropped_beyond_the_byte_limit_and_recorded() -> None:
    one = row(0, "x" * 1_000)
    rows = moved(limit_bytes=one.nbytes * 10)
    for number in range(12):
        rows.add_departure(row(number, "x" * 1_000))
    kept = [r.change.old_key for r in rows.pairs if r.values is not None]
    assert kept[-1] == "old 11"
    assert 8 <= len(kept) <= 10
    assert {r.why_unknown for r in rows.pairs if r.values is None} == {DROPPED_BY_SIZE}
    assert len(list(rows.pairs)) == 12


def test_bytes_kept_by_other_tables_count() -> None:
    one = row(0, "x" * 1_000)
    budget = MovedRowsBudget(1_000, one.nbytes * 2, lambda: 0)
    first, second = MovedRows("a", budget), MovedRows("b", budget)
    first.add_departure(row(1, "x" * 1_000))
    first.add_departure(row(2, "x" * 1_000))
    second.add_departure(row(3, "x" * 1_000))
    assert budget.used_bytes <= one.nbytes * 2
    for number in (1, 2):
        first.add_arrival(change(number))
    second.add_arrival(change(3))
    assert budget.used_bytes == 0


@pytest.mark.parametrize(("now_ms", "is_kept"), [(999, True), (1_000, False)])
def test_rows_that_are_too_old_are_dropped_and_recorded(now_ms: int, is_kept: bool) -> None:
    rows = moved(now_ms=now_ms)
    rows.add_departure(row(1))
    rows.expire()
    (found,) = rows.pairs
    assert (found.values is not None, found.why_unknown) == (is_kept, "" if is_kept else DROPPED_BY_AGE)


def test_rows_never_seen_leaving_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.ingest.tables.moved_rows.EARLY_MAX", 3)
    rows = moved()
    for number in range(5):
        rows.add_arrival(change(number))
        rows.add_arrival(change(100 + number, is_exact=False))
    rows.expire()
    assert sorted(id_[0] for id_ in rows.pairs.early) == [0] * 5 + [1] * 3
