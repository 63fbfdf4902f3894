"""Spilled rows merge like rows in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.column_merge import KEY, batch_of_records, merge_function, records_of
from tests.support.row_merge import Record, merge_row_by_row
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN
from tidelake.storage.model.types import BIGINT, INT, STRING, DataType
from tidelake.storage.write import write_buffer
from tidelake.storage.write.write_buffer import WriteBuffer

TYPES: dict[str, DataType] = {KEY: BIGINT, "a": INT, "b": INT, "s": INT, "order": INT}


@dataclass(frozen=True)
class Engine:
    about: str
    options: Mapping[str, str]
    sequence_fields: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("+I", "+U")


DELETES_TOO = ("+I", "+U", "-D")
ENGINES = [
    Engine("deduplicate", {"merge-engine": "deduplicate"}, kinds=DELETES_TOO),
    Engine("deduplicate by a column", {"merge-engine": "deduplicate"}, ("order",), DELETES_TOO),
    Engine("first row", {"merge-engine": "first-row"}),
    Engine("partial update", {"merge-engine": "partial-update"}),
    Engine("partial update by a column", {"merge-engine": "partial-update"}, ("order",)),
    Engine(
        "partial update with deletes",
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        kinds=DELETES_TOO,
    ),
    Engine(
        "partial update with a sequence group",
        {
            "merge-engine": "partial-update",
            "fields.s.sequence-group": "a,b",
            "fields.a.aggregate-function": "sum",
            "partial-update.remove-record-on-sequence-group": "s",
        },
        kinds=DELETES_TOO,
    ),
]


@st.composite
def batches(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[list[Record]]:
    """Rows in arrival order, in batches. After each batch the buffer may be spilled."""
    small = st.none() | st.integers(0, 3)
    row = st.fixed_dictionaries({name: st.integers(1, 3) if name == KEY else small for name in TYPES})
    drawn = draw(
        st.lists(st.lists(st.tuples(st.sampled_from(kinds), row), min_size=1, max_size=5), min_size=1, max_size=6)
    )
    numbers = iter(range(1000))
    return [[Record(kind, next(numbers), row) for kind, row in batch] for batch in drawn]


@pytest.mark.parametrize("engine", [pytest.param(engine, id=engine.about) for engine in ENGINES])
@given(data=st.data())
def test_spilling_changes_nothing(engine: Engine, data: st.DataObject) -> None:
    drawn = data.draw(batches(engine.kinds), label="batches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_buffer, "PIECE_ROWS_MAX", 2)
        buffer = WriteBuffer(MergeOrder((KEY,), engine.sequence_fields), merge_function(TYPES, engine.options), 0, None)
        for batch in drawn:
            buffer.add(batch_of_records(TYPES, batch).drop_columns([SEQUENCE_COLUMN]))
            if data.draw(st.booleans(), label="spill"):
                buffer.spill()
        merged = pa.Table.from_batches(list(buffer.drain())).combine_chunks().to_batches()
    arrived = [record for batch in drawn for record in batch]
    assert [r for rows in merged for r in records_of(rows)] == _merged_row_by_row(engine, arrived)


@pytest.mark.parametrize("engine", [pytest.param(engine, id=engine.about) for engine in (ENGINES[0], ENGINES[5])])
def test_a_flush_holds_little_of_every_segment_even_for_wide_rows(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_buffer, "PIECE_BYTES", 20_000)
    columns = {KEY: BIGINT, "a": STRING}
    buffer = WriteBuffer(MergeOrder((KEY,)), merge_function(columns, engine.options), 0, str(tmp_path))
    rows = [Record("+I", number, {KEY: number, "a": "x" * 1000}) for number in range(200)]
    buffer.add(batch_of_records(columns, rows).drop_columns([SEQUENCE_COLUMN]))
    buffer.spill()
    (segment,) = tmp_path.rglob("*.arrow")
    with pa.ipc.open_stream(segment) as stream:
        pieces = list(stream)
    assert sum(piece.num_rows for piece in pieces) == 200
    assert max(piece.nbytes for piece in pieces) < 25_000


def test_a_buffer_of_many_segments_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush opens them all."""
    monkeypatch.setattr(write_buffer, "SEGMENTS_MAX", 3)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    options = {"bucket": "1", "write-only": "true", "write-buffer-size": "1 kb", "page-size": "100 b"}
    table = catalog.create_table("db.t", schema, primary_key=["k"], options=options)
    segments = []
    with table.writer() as writer:
        for number in range(10):
            writer.write(pa.table([range(100), [number] * 100], schema=schema))
            segments.append(len(list(scratch.rglob("*.arrow"))))
        writer.commit()
    assert segments == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert set(table.scan().to_arrow()["v"].to_pylist()) == {9}


def _merged_row_by_row(engine: Engine, arrived: list[Record]) -> list[Record]:
    def merge_order(record: Record) -> tuple[object, ...]:
        given = [record.row[name] for name in engine.sequence_fields]
        return (record.row[KEY], [() if value is None else (value,) for value in given], record.sequence)

    merged = []
    for _, versions in groupby(sorted(arrived, key=merge_order), key=lambda record: record.row[KEY]):
        name = engine.options["merge-engine"]
        left = merge_row_by_row(name, engine.options, list(TYPES), KEY, list(versions))
        merged += [] if left is None else [left]
    return merged


def test_rows_are_held_once_while_they_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = WriteBuffer(MergeOrder((KEY,)), merge_function({KEY: BIGINT}, {}), 0, None)
    begin_bytes = pa.total_allocated_bytes()
    for number in range(8):
        keys = pc.add(pa.nulls(100_000, pa.int64()).fill_null(number), 1)
        kinds = pa.nulls(len(keys), pa.int8()).fill_null(0)
        buffer.add(pa.record_batch([keys, kinds], schema=pa.schema([(KEY, pa.int64()), (KIND_COLUMN, pa.int8())])))
        del keys, kinds
    held_bytes: list[int] = []

    def merge_batch(rows: pa.RecordBatch, *arguments: object) -> pa.RecordBatch:
        held_bytes.append(pa.total_allocated_bytes() - begin_bytes)
        return rows.slice(0, 1)

    monkeypatch.setattr(write_buffer, "merge_batch", merge_batch)
    assert sum(rows.num_rows for rows in buffer.drain()) == 1
    assert held_bytes[0] < 1.5 * 8 * 100_000 * (8 + 8 + 1)
