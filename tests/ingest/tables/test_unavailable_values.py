"""An unavailable value is taken from the previous row: in the batch, in the table, or from the moved row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tidelake.ingest.formats.base import KeyChange, KeyChanges, TableRows, Target, UnavailableValues
from tidelake.ingest.tables.moved_rows import MovedRows, MovedRowsBudget
from tidelake.ingest.tables.unavailable_values import certain_source_values, fill_unavailable
from tidelake.storage.model.format import KIND_COLUMN
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import BIGINT, STRING, ArrayType, DataField

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
    asked: list[Key] = field(default_factory=list)

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        wanted = [tuple(key.values()) for key in keys.to_pylist()]
        self.asked += wanted
        rows, found = [], []
        for key in wanted:
            row = self.visible.get(key)
            found.append(row is not None)
            text, tags = row or (None, None)
            rows.append(
                {"shop": key[0], "id": key[1], "text": text, "tags": tags} if row else dict.fromkeys(SCHEMA.names)
            )
        return np.array(found, np.bool_), pa.RecordBatch.from_pylist(rows, SCHEMA.arrow)


@dataclass(frozen=True)
class Row:
    """kept: the columns whose values were left out. under: the key that has them, if not the row's own. change: the
    number of the key change that the record is half of, exact from 100 on. record: its offset.
    """

    key: Key
    text: str | None = None
    tags: list[str] | None = None
    kind: int = INSERT
    kept: tuple[str, ...] = ()
    under: Key | None = None
    change: int | None = None
    record: int | None = None


def key_change(number: int, old_key: str = "old", new_key: str = "new") -> KeyChange:
    return KeyChange(b"%016d" % number, number >= 100, old_key, new_key)


def moved_rows() -> MovedRows:
    return MovedRows("t", MovedRowsBudget(1_000, 1 << 20, lambda: 0))


def table_rows(batch: list[Row], target: Target | None = None) -> TableRows:
    cells = [{"shop": r.key[0], "id": r.key[1], "text": r.text, "tags": r.tags, KIND_COLUMN: r.kind} for r in batch]
    rows = pa.RecordBatch.from_pylist(cells, SCHEMA.arrow.append(pa.field(KIND_COLUMN, pa.int8())))
    flagged = [at for at, row in enumerate(batch) if row.kept]
    names = sorted({name for row in batch for name in row.kept})
    keys = [dict(zip(("shop", "id"), batch[at].under or batch[at].key, strict=True)) for at in flagged]
    unavailable = UnavailableValues(
        np.array(flagged, np.int64),
        {name: np.array([name in batch[at].kept for at in flagged]) for name in names},
        pa.RecordBatch.from_pylist(keys, pa.schema([SCHEMA.arrow.field("shop"), SCHEMA.arrow.field("id")])),
    )
    changes = [(at, key_change(row.change)) for at, row in enumerate(batch) if row.change is not None]
    return TableRows(
        target or Target("t", SCHEMA),
        rows,
        np.array([at if row.record is None else row.record for at, row in enumerate(batch)]),
        unavailable,
        KeyChanges(np.array([at for at, _ in changes], np.int64), [change for _, change in changes])
        if changes
        else None,
    )


def fill(
    batch: list[Row], table: KnownRows, moved: MovedRows | None = None, read_again: bool = False
) -> tuple[list[tuple[str | None, list[str] | None]], list[int]]:
    """(text, tags) of each row afterwards, and the rows that could not be filled."""
    rows = table_rows(batch)
    assert rows.unavailable is not None
    again = np.full(len(batch), read_again)
    filled = fill_unavailable(rows, rows.unavailable, table, moved or moved_rows(), again)
    assert filled.rows.schema == rows.rows.schema
    values = zip(filled.rows["text"].to_pylist(), filled.rows["tags"].to_pylist(), strict=True)
    assert filled.reasons.keys() == set(np.flatnonzero(filled.lost).tolist())
    return list(values), np.flatnonzero(filled.lost).tolist()


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
        "an old image is no value",
        [Row(A1, "v", kind=INSERT), Row(A1, "garbage", kind=UPDATE_BEFORE), Row(A1, kept=("text",))],
        [("v", None), ("garbage", None), ("v", None)],
    ),
    Case(
        "nor is the row that lay under the key before it was deleted",
        [Row(A1, "v", kind=INSERT), Row(A1, "garbage", kind=DELETE), Row(A1, kept=("text",))],
        [("v", None), ("garbage", None), (None, None)],
        lost=[2],
        table=KnownRows({A1: ("older", None)}),
    ),
    Case("nobody has it", [Row(A1, "x"), Row(A2, kept=("text",))], [("x", None), (None, None)], lost=[1]),
    Case(
        "what depends on a lost value is lost",
        [Row(A1, kept=("text",)), Row(A1, kept=("text",)), Row(A2, "found"), Row(A2, kept=("text",))],
        [(None, None), (None, None), ("found", None), ("found", None)],
        lost=[0, 1],
    ),
    Case(
        "a row that moved to another key",
        [Row(A1, "v", ["x"]), Row(A1, kind=DELETE, change=1), Row(A2, tags=["y"], kept=("text",), under=A1, change=1)],
        [("v", ["x"]), (None, None), ("v", ["y"])],
    ),
    Case(
        "a row that moved, from the table",
        [Row(A1, kind=DELETE, change=100), Row(A2, tags=["y"], kept=("text",), under=A1, change=100)],
        [(None, None), ("v", ["y"])],
        table=KnownRows({A1: ("v", ["x"])}),
    ),
    Case(
        "a row that moved on and on",
        [
            Row(A1, "v"),
            Row(A1, kind=DELETE, change=1),
            Row(A2, kept=("text",), under=A1, change=1),
            Row(A2, kind=DELETE, change=2),
            Row(B1, kept=("text",), under=A2, change=2),
        ],
        [("v", None), (None, None), ("v", None), (None, None), ("v", None)],
    ),
    Case(
        "a row that moved, and another that came under its old key since",
        [
            Row(A1, "v"),
            Row(A1, kind=DELETE, change=1),
            Row(A1, "another"),
            Row(A2, kept=("text",), under=A1, change=1),
        ],
        [("v", None), (None, None), ("another", None), ("v", None)],
    ),
    Case(
        "two rows that moved between the same keys",
        [
            Row(A1, "first"),
            Row(A1, kind=DELETE, change=1),
            Row(A1, "second"),
            Row(A1, kind=DELETE, change=1),
            Row(A2, kept=("text",), under=A1, change=1),
            Row(A2, kept=("text",), under=A1, change=1),
        ],
        [("first", None), (None, None), ("second", None), (None, None), ("first", None), ("second", None)],
    ),
    Case(
        "a row that was not seen leaving, though a row lies under its old key",
        [Row(A1, "stale"), Row(A2, kept=("text",), under=A1, change=1)],
        [("stale", None), (None, None)],
        lost=[1],
    ),
    Case(
        "a row that left before it was seen coming there",
        [Row(A1, kind=DELETE, change=1), Row(A2, kept=("text",), under=A1, change=1)],
        [(None, None), (None, None)],
        lost=[1],
    ),
    Case(
        "a record that moves its row by itself",
        [
            Row(A1, "v", record=0),
            Row(A1, "made up", kind=DELETE, record=1),
            Row(A2, kept=("text",), under=A1, record=1),
        ],
        [("v", None), ("made up", None), ("v", None)],
    ),
    Case(
        "a key change that is sent again, where the row has changed since",
        [
            Row(A1, "v"),
            Row(A1, kind=DELETE, change=100),
            Row(A2, kept=("text",), under=A1, change=100),
            Row(A2, "newer"),
            Row(A1, kind=DELETE, change=100),
            Row(A2, kept=("text",), under=A1, change=100),
        ],
        [("v", None), (None, None), ("v", None), ("newer", None), (None, None), ("newer", None)],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_unavailable_values_are_completed(case: Case) -> None:
    assert fill(case.batch, case.table) == (case.values, case.lost)


REPLACED = [
    pytest.param([Row(A1, kept=("text",)), Row(A1, "whole")], [0], {}, id="by a whole row"),
    pytest.param([Row(A1, kept=("text",)), Row(A1, kind=DELETE)], [0], {}, id="by a delete"),
    pytest.param(
        [Row(A1, kept=("text",)), Row(A1, kept=("text",)), Row(A1, kind=DELETE)], [0, 1], {}, id="by the one after next"
    ),
    pytest.param([Row(A1, kept=("text",)), Row(A1, kept=("text",))], [0, 1], {0, 1}, id="not by one that lost it, too"),
    pytest.param([Row(A1, "whole", kind=DELETE), Row(A1, kept=("text",))], [1], {1}, id="not by one before it"),
    pytest.param([Row(A1, kept=("text",)), Row(A2, "whole")], [0], {0}, id="not by that of another key"),
    pytest.param([Row(A1, kept=("text",)), Row(A1, "old", kind=UPDATE_BEFORE)], [0], {0}, id="not by an old image"),
    pytest.param(
        [Row(B1, kind=DELETE, record=0), Row(A1, kept=("text",), record=0), Row(A1, "whole", record=1)],
        [1],
        {1},
        id="not where the record takes the row from another key",
    ),
]


@pytest.mark.parametrize(("batch", "lost", "needed"), REPLACED)
def test_an_unavailable_value_is_ignored_if_a_later_record_replaces_the_row(
    batch: list[Row], lost: list[int], needed: set[int]
) -> None:
    rows = table_rows(batch)
    assert rows.unavailable is not None
    filled = fill_unavailable(rows, rows.unavailable, KnownRows(), moved_rows(), np.zeros(len(batch), np.bool_))
    assert (np.flatnonzero(filled.lost).tolist(), set(filled.reasons)) == (lost, set(needed))


def test_with_sequence_columns_no_later_record_replaces_an_earlier_one() -> None:
    rows = table_rows([Row(A1, kept=("text",)), Row(A1, "whole")], Target("t", SCHEMA, last_record_wins=False))
    assert rows.unavailable is not None
    filled = fill_unavailable(rows, rows.unavailable, KnownRows(), moved_rows(), np.zeros(2, np.bool_))
    assert set(filled.reasons) == {0}


def test_only_values_missing_in_the_batch_are_looked_up_in_the_table() -> None:
    table = KnownRows({B1: ("b", None)})
    fill([Row(A1, "a"), Row(A1, kept=("text",)), Row(B1, kept=("text",))], table)
    assert table.asked == [B1]


def test_without_a_primary_key_nothing_can_be_looked_up() -> None:
    rows = pa.RecordBatch.from_pylist([{"text": "a", KIND_COLUMN: 0}, {"text": None, KIND_COLUMN: 0}])
    no_keys = pa.RecordBatch.from_pylist([{}], pa.schema([]))
    unavailable = UnavailableValues(np.array([1]), {"text": np.array([True])}, no_keys)
    batch = TableRows(Target("t", SCHEMA), rows, np.arange(2), unavailable)
    filled = fill_unavailable(batch, unavailable, KnownRows(), moved_rows(), np.zeros(2, np.bool_))
    assert (filled.rows, filled.lost.tolist()) == (rows, [False, True])


KEY_TYPES = [
    pytest.param(pa.float64(), [1.0, float("nan")], float("nan"), True, id="a NaN is a key like any other"),
    pytest.param(pa.decimal128(38, 2), [Decimal("1.00")], Decimal("1.00"), True, id="a decimal"),
    pytest.param(pa.binary(), [b"", b"\xff"], b"\xff", True, id="bytes"),
    pytest.param(pa.timestamp("us"), [datetime(1969, 12, 31, 23)], datetime(1969, 12, 31, 23), True, id="before 1970"),
    pytest.param(pa.bool_(), [False], True, False, id="a flag"),
    pytest.param(pa.string(), ["u"], "ü", False, id="a text"),
]


@pytest.mark.parametrize(("type_", "ids", "wanted", "is_in"), KEY_TYPES)
def test_a_row_of_the_batch_is_found_by_its_key(
    type_: pa.DataType, ids: list[object], wanted: object, is_in: bool
) -> None:
    schema = TableSchema(0, (DataField(0, "id", BIGINT), DataField(1, "text", STRING)), 1, primary_keys=("id",))
    rows = pa.record_batch(
        {
            "id": pa.array([*ids, wanted], type_),
            "text": pa.array([*("v" for _ in ids), None], pa.string()),
            KIND_COLUMN: pa.array([INSERT] * (len(ids) + 1), pa.int8()),
        }
    )
    unavailable = UnavailableValues(
        np.array([len(ids)]), {"text": np.array([True])}, rows.select(["id"]).slice(len(ids))
    )
    batch = TableRows(Target("t", schema), rows, np.arange(len(rows)), unavailable)

    class Nothing:
        def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
            return np.zeros(len(keys), np.bool_), rows.slice(0, 0).take(pa.nulls(len(keys), pa.int64()))

    filled = fill_unavailable(batch, unavailable, Nothing(), moved_rows(), np.zeros(len(rows), np.bool_))
    assert filled.lost.tolist() == [False] * len(ids) + [not is_in]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        pytest.param(pa.array(["", "a text that no connector makes up" * 9, None]), [False, True, False], id="texts"),
        pytest.param(pa.array([[], ["a"], None]), [False, True, False], id="lists"),
        pytest.param(
            pa.array(
                [[("k", "v")], [], [("k", "v")], None, [("k", "v"), ("l", None)]], pa.map_(pa.string(), pa.string())
            ),
            [True, False, True, False, True],
            id="maps",
        ),
        pytest.param(pa.array([1, None]), [False, False], id="numbers, which a connector may make up"),
    ],
)
def test_a_before_image_is_trusted_if_its_values_cannot_be_defaults(column: pa.Array, expected: list[bool]) -> None:
    assert certain_source_values(column).tolist() == expected
    assert certain_source_values(column.slice(1)).tolist() == expected[1:]
