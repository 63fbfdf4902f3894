"""A left-out value is that of the newest row before it: in the batch, in the table, under the key the row had."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from ingest.formats.base import TableRows, Target, Unchanged
from ingest.unchanged_values import Wanted, fill_unchanged
from storage.format import KIND_COLUMN
from storage.schema import TableSchema
from storage.types import BIGINT, STRING, ArrayType, DataField

SCHEMA = TableSchema(
    0,
    (
        DataField(0, "shop", STRING),
        DataField(1, "id", BIGINT),
        DataField(2, "text", STRING),
        DataField(3, "tags", ArrayType(STRING)),
    ),
    3,
    primary_keys=("shop", "id"),
)
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
Key = tuple[str, int]


@dataclass
class KnownRows:
    """A table with these rows: key to (text, tags)."""

    visible: dict[Key, tuple[str | None, list[str] | None]] = field(default_factory=dict)
    deleted: dict[Key, tuple[str | None, list[str] | None]] = field(default_factory=dict)
    asked: list[Key] = field(default_factory=list)

    def newest(self, keys: pa.RecordBatch, deleted_too: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        wanted = [tuple(key.values()) for key in keys.to_pylist()]
        self.asked += wanted
        rows, found = [], []
        for key, too in zip(wanted, deleted_too.tolist(), strict=True):
            row = self.visible.get(key) or (self.deleted.get(key) if too else None)
            found.append(row is not None)
            text, tags = row or (None, None)
            rows.append(
                {"shop": key[0], "id": key[1], "text": text, "tags": tags} if row else dict.fromkeys(SCHEMA.names)
            )
        return np.array(found, np.bool_), pa.RecordBatch.from_pylist(rows, SCHEMA.arrow)


@dataclass(frozen=True)
class Row:
    """kept: the columns whose values were left out. under: the key that has them, if not the row's own."""

    key: Key
    text: str | None = None
    tags: list[str] | None = None
    kind: int = INSERT
    kept: tuple[str, ...] = ()
    under: Key | None = None


def fill(batch: list[Row], table: KnownRows) -> tuple[list[tuple[str | None, list[str] | None]], list[int]]:
    """(text, tags) of each row afterwards, and the rows that could not be filled."""
    cells = [{"shop": r.key[0], "id": r.key[1], "text": r.text, "tags": r.tags, KIND_COLUMN: r.kind} for r in batch]
    rows = pa.RecordBatch.from_pylist(cells, SCHEMA.arrow.append(pa.field(KIND_COLUMN, pa.int8())))
    flagged = [at for at, row in enumerate(batch) if row.kept]
    names = sorted({name for row in batch for name in row.kept})
    keys = [dict(zip(("shop", "id"), batch[at].under or batch[at].key, strict=True)) for at in flagged]
    unchanged = Unchanged(
        np.array(flagged, np.int64),
        {name: np.array([name in batch[at].kept for at in flagged]) for name in names},
        pa.RecordBatch.from_pylist(keys, pa.schema([SCHEMA.arrow.field("shop"), SCHEMA.arrow.field("id")])),
    )
    filled, lost = fill_unchanged(
        TableRows(Target("t", SCHEMA), rows, np.arange(len(batch)), unchanged), unchanged, table
    )
    assert filled.schema == rows.schema
    return list(zip(filled["text"].to_pylist(), filled["tags"].to_pylist(), strict=True)), np.flatnonzero(lost).tolist()


A1, A2, B1 = ("a", 1), ("a", 2), ("b", 1)


@dataclass(frozen=True)
class Case:
    id: str
    batch: list[Row]
    values: list[tuple[str | None, list[str] | None]]
    lost: list[int] = field(default_factory=list)
    table: KnownRows = field(default_factory=KnownRows)


CASES = [
    Case(
        "from the table",
        [Row(A1, tags=["new"], kept=("text",))],
        [("old", ["new"])],
        table=KnownRows({A1: ("old", ["x"])}),
    ),
    Case("from the same batch", [Row(A1, "old", ["x"]), Row(A1, kept=("text", "tags"))], [("old", ["x"])] * 2),
    Case(
        "the nearest before it, not after it",
        [Row(A1, "first"), Row(A1, "second"), Row(A1, kept=("text",)), Row(A1, "third")],
        [("first", None), ("second", None), ("second", None), ("third", None)],
    ),
    Case(
        "the batch wins over the table",
        [Row(A1, "new"), Row(A1, kept=("text",))],
        [("new", None)] * 2,
        table=KnownRows({A1: ("old", None)}),
    ),
    Case(
        "through rows that left it out, too",
        [Row(A1, tags=["1"], kept=("text",)), Row(A1, tags=["2"], kept=("text",)), Row(A1, kept=("text", "tags"))],
        [("old", ["1"]), ("old", ["2"]), ("old", ["2"])],
        table=KnownRows({A1: ("old", ["0"])}),
    ),
    Case("a null is a value", [Row(A1, None), Row(A1, kept=("text",))], [(None, None)] * 2),
    Case(
        "keys are compared as a whole",
        [Row(A1, "a1"), Row(A2, "a2"), Row(B1, "b1"), Row(A2, kept=("text",)), Row(B1, kept=("text",))],
        [("a1", None), ("a2", None), ("b1", None), ("a2", None), ("b1", None)],
    ),
    Case(
        "a retraction is no value",
        [Row(A1, "v", kind=INSERT), Row(A1, "garbage", kind=DELETE), Row(A1, kept=("text",))],
        [("v", None), ("garbage", None), ("v", None)],
    ),
    Case("nobody has it", [Row(A1, "x"), Row(A2, kept=("text",))], [("x", None), (None, None)], lost=[1]),
    Case(
        "what depends on a lost value is lost",
        [Row(A1, kept=("text",)), Row(A1, kept=("text",)), Row(A1, "found"), Row(A1, kept=("text",))],
        [(None, None), (None, None), ("found", None), ("found", None)],
        lost=[0, 1],
    ),
    Case(
        "a row that moved to another key",
        [Row(A1, "v", ["x"]), Row(A1, kind=DELETE), Row(A2, tags=["y"], kept=("text",), under=A1)],
        [("v", ["x"]), (None, None), ("v", ["y"])],
    ),
    Case(
        "a row that moved, deleted before this batch",
        [Row(A2, kept=("text",), under=A1)],
        [("v", None)],
        table=KnownRows(deleted={A1: ("v", None)}),
    ),
    Case(
        "a deleted row does not count for a row that did not move",
        [Row(A1, kept=("text",))],
        [(None, None)],
        lost=[0],
        table=KnownRows(deleted={A1: ("v", None)}),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_left_out_values(case: Case) -> None:
    assert fill(case.batch, case.table) == (case.values, case.lost)


def test_the_table_is_asked_only_for_what_the_batch_lacks() -> None:
    table = KnownRows({B1: ("b", None)})
    fill([Row(A1, "a"), Row(A1, kept=("text",)), Row(B1, kept=("text",))], table)
    assert table.asked == [B1]


def test_without_a_primary_key_nothing_can_be_looked_up() -> None:
    rows = pa.RecordBatch.from_pylist([{"text": "a", KIND_COLUMN: 0}, {"text": None, KIND_COLUMN: 0}])
    no_keys = pa.RecordBatch.from_pylist([{}], pa.schema([]))
    unchanged = Unchanged(np.array([1]), {"text": np.array([True])}, no_keys)
    batch = TableRows(Target("t", SCHEMA), rows, np.arange(2), unchanged)
    filled, lost = fill_unchanged(batch, unchanged, KnownRows())
    assert (filled, lost.tolist()) == (rows, [False, True])


KEY_TYPES = [
    pytest.param(pa.float64(), [1.0, float("nan")], float("nan"), True, id="a NaN is a key like any other"),
    pytest.param(pa.float64(), [1.0, 0.0], -0.0, False, id="-0.0 is another key than 0.0"),
    pytest.param(pa.float64(), [-0.0], -0.0, True, id="-0.0"),
    pytest.param(pa.decimal128(38, 2), [Decimal("1.00")], Decimal("1.00"), True, id="a decimal"),
    pytest.param(pa.binary(), [b"", b"\xff"], b"\xff", True, id="bytes"),
    pytest.param(pa.timestamp("us"), [datetime(1969, 12, 31, 23)], datetime(1969, 12, 31, 23), True, id="before 1970"),
    pytest.param(pa.bool_(), [False], True, False, id="a flag"),
    pytest.param(pa.string(), [], "ü", False, id="no rows"),
]


@pytest.mark.parametrize(("type_", "ids", "wanted", "is_in"), KEY_TYPES)
def test_a_row_is_wanted_for_its_key(type_: pa.DataType, ids: list[object], wanted: object, is_in: bool) -> None:
    rows = pa.record_batch({"id": pa.array(ids, type_), "shop": pa.array(["s"] * len(ids), pa.string())})
    batch = TableRows(Target("t", SCHEMA), rows, np.arange(len(ids)))
    key = pa.array([wanted], type_)
    assert Wanted(7, "t", pa.record_batch({"shop": ["s"], "id": key})).may_be_in(batch) == is_in
    assert not Wanted(7, "other table", pa.record_batch({"shop": ["s"], "id": key})).may_be_in(batch)
    assert not Wanted(7, "t", pa.record_batch({"shop": ["other"], "id": key})).may_be_in(batch)
