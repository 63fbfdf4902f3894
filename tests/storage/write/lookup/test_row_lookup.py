"""The newest row is found for every key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.write.lookup.row_lookup import lookup_newest_rows


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        pytest.param(pa.float64(), [math.nan, 0.0, -0.0, math.inf, -math.inf, 5e-324], id="DOUBLE"),
        pytest.param(pa.float32(), [math.nan, 0.0, -0.0, math.inf, -math.inf], id="FLOAT"),
        pytest.param(pa.string(), ["", "a", "ü 🌊"], id="STRING"),
    ],
)
def test_every_key_finds_its_own_row(kind: pa.DataType, keys: Sequence[Any]) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    schema = pa.schema([("k", kind), ("v", pa.int32())])
    table = catalog.create_table("db.t", schema, primary_key=["k"], options={"bucket": "3"})
    with table.writer() as writer:
        for start in (0, 100):
            writer.write(
                pa.table({"k": pa.array(keys, kind), "v": pa.array(range(start, start + len(keys)), pa.int32())})
            )
            writer.commit()
    for asked in (slice(None), slice(0, 1), slice(1, None)):
        part = pa.record_batch([pa.array(keys[asked], kind)], ["k"])
        found, rows = lookup_newest_rows(table.context, table.snapshots()[-1], part)
        assert found.all()
        assert rows.column("v").to_pylist() == list(range(100, 100 + len(keys)))[asked]


def test_a_looked_up_row_is_merged_by_the_merge_engine() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    schema = pa.schema([("k", pa.int32()), ("a", pa.int32()), ("b", pa.string())])
    options = {"bucket": "1", "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = catalog.create_table("db.t", schema, primary_key=["k"], options=options)
    commits = [([1, 2, 3], [10, 20, 30], ["x", "y", "z"], [0, 0, 0]), ([1, 2], [11, None], [None, None], [0, 3])]
    with table.writer() as writer:
        for keys, a, b, kinds in commits:
            rows = {"k": keys, "a": a, "b": b, "_VALUE_KIND": pa.array(kinds, pa.int8())}
            writer.write(pa.table(rows))
            writer.commit()
    asked = pa.record_batch([pa.array([3, 2, 2, 1, 4], pa.int32())], ["k"])
    system = [("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8())]
    of_writer = [*table.context.schema.arrow, *(pa.field(name, kind, nullable=False) for name, kind in system)]
    held = pa.RecordBatch.from_pylist(
        [{"k": 3, "a": None, "b": "new", "_SEQUENCE_NUMBER": 9, "_VALUE_KIND": 2}], pa.schema(of_writer)
    )
    found, rows = lookup_newest_rows(table.context, table.snapshots()[-1], asked, [held])
    assert found.tolist() == [True, False, False, True, False]
    assert rows.column("a").to_pylist() == [30, None, None, 11, None]
    assert rows.column("b").to_pylist() == ["new", None, None, "x", None]


def test_a_lookup_does_not_load_all_rows_into_memory() -> None:
    """One key in a table of twenty files, each with all keys between, so that none can be left out."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true"}
    schema = pa.schema([("k", pa.int64()), ("text", pa.string())])
    table = catalog.create_table("db.t", schema, primary_key=["k"], options=options)
    keys = pa.array(np.arange(0, 2_000, 2))
    rows = pa.table({"k": keys, "text": [f"{n:01000}" for n in range(len(keys))]})
    with table.writer() as writer:
        for _ in range(20):
            writer.write(rows)
            writer.commit()
    asked = pa.record_batch([pa.array([1_001])], ["k"])
    pool = pa.default_memory_pool()
    read: list[int] = []

    def held() -> Iterator[pa.RecordBatch]:
        read.append(pool.bytes_allocated() - before)  # all files were looked through
        yield from ()

    before = pool.bytes_allocated()
    found, _ = lookup_newest_rows(table.context, table.snapshots()[-1], asked, held())
    assert not found.any()
    assert read[0] < 5 * rows.nbytes
