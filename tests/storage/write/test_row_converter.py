"""Conversion of incoming rows: which are accepted, in which form, and how the others are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.cases import Case, case_id, check_members, options_of, vectors
from tidelake.errors import BadInput
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DOUBLE, INT, STRING, DataField, decimal, not_null, timestamp_ltz
from tidelake.storage.write.row_converter import RowConverter

FIELDS = (
    DataField(0, "id", not_null(INT)),
    DataField(1, "name", STRING),
    DataField(2, "amount", decimal(10, 2), default="1.50"),
    DataField(3, "seen", timestamp_ltz(3)),
)
KEYED = TableSchema(0, FIELDS, 3, primary_keys=("id",))
APPEND = TableSchema(0, FIELDS, 3)


def convert(rows: pa.RecordBatch, schema: TableSchema = KEYED, **options: str) -> pa.RecordBatch:
    table_options = TableOptions({key.replace("_", "-"): value for key, value in options.items()})
    return RowConverter(schema, table_options, "shop.orders").to_table_schema(rows)


def test_columns_are_matched_by_name_and_returned_in_schema_order_with_row_kinds() -> None:
    got = convert(pa.record_batch({"seen": pa.array([None], pa.timestamp("ms", "UTC")), "name": ["a"], "id": [1]}))
    assert got.schema.names == ["id", "name", "amount", "seen", KIND_COLUMN]
    assert got.to_pylist() == [{"id": 1, "name": "a", "amount": Decimal("1.50"), "seen": None, KIND_COLUMN: 0}]


def test_an_empty_batch_is_accepted() -> None:
    assert convert(pa.RecordBatch.from_pylist([], KEYED.arrow)).num_rows == 0


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param(pa.array([7], pa.int64()), 7, id="a wider integer that fits"),
        pytest.param(pa.array([7.0]), 7, id="a whole float"),
        pytest.param(pa.array([7], pa.uint8()), 7, id="an unsigned integer"),
        pytest.param(pa.array(["7"]).cast(pa.int32()).dictionary_encode(), 7, id="a dictionary"),
    ],
)
def test_lossless_casts_are_made(given: pa.Array, kept: int) -> None:
    assert convert(pa.record_batch({"id": given})).column("id").to_pylist() == [kept]


@dataclass(frozen=True)
class Refusal:
    id: str
    columns: dict[str, Any]
    message: str
    schema: TableSchema = KEYED
    options: dict[str, str] = field(default_factory=dict)


REFUSALS = [
    Refusal("an unknown column", {"id": [1], "colour": ["red"]}, "no column 'colour'"),
    Refusal("a type that loses digits", {"id": [1.5]}, "column 'id' is INT NOT NULL, and double does not fit"),
    Refusal("a number out of range", {"id": [2**40]}, "column 'id' is INT NOT NULL, and int64 does not fit"),
    Refusal("text for a number", {"id": ["one"]}, "column 'id'.*string does not fit"),
    Refusal("a nested value for text", {"id": [1], "name": [[1]]}, "column 'name'.*list"),
    Refusal("too many decimal digits", {"id": [1], "amount": [Decimal("1.005")]}, "column 'amount'"),
    Refusal(
        "a time without zone for an instant",
        {"id": [1], "seen": pa.array([0], pa.timestamp("ms"))},
        "'seen'.*no time zone",
    ),
    Refusal("a null key", {"id": pa.array([1, None], pa.int32())}, "'id' is part of the primary key, but row 1"),
    Refusal("a missing key column", {"name": ["a"]}, "'id' is part of the primary key, but the batch lacks it"),
    Refusal("null in a NOT NULL column", {"name": ["a"]}, "'id' is NOT NULL, but the batch lacks it", APPEND),
    Refusal("an unknown row kind", {"id": [1], KIND_COLUMN: pa.array([4], pa.int8())}, "0 .* 3 .*-D"),
    Refusal("a null row kind", {"id": [1], KIND_COLUMN: pa.array([None], pa.int8())}, "row 0 of the batch holds None"),
    Refusal("a row kind as text", {"id": [1], KIND_COLUMN: ["+I"]}, "int8"),
    Refusal("a delete in an append table", {"id": [1], KIND_COLUMN: pa.array([3], pa.int8())}, "row kind -D", APPEND),
    Refusal(
        "a rowkind.field with another text",
        {"id": [1], "name": ["insert"]},
        "row 0 of the batch holds 'insert'",
        options={"rowkind.field": "name"},
    ),
    Refusal(
        "a rowkind.field with a blank",
        {"id": [1], "name": ["+U "]},
        r"row 0 of the batch holds '\+U '",
        options={"rowkind.field": "name"},
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_values_that_do_not_fit_are_refused_by_name(case: Refusal) -> None:
    with pytest.raises(BadInput, match=case.message):
        RowConverter(case.schema, TableOptions(case.options), "shop.orders").to_table_schema(
            pa.record_batch(case.columns)
        )


def test_a_column_given_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(BadInput, match="'id' occurs 2 times"):
        convert(batch)


def test_rowkind_field_decides_the_kind_and_stays_a_column() -> None:
    got = RowConverter(KEYED, TableOptions({"rowkind.field": "name"}), "t").to_table_schema(
        pa.record_batch({"id": [1, 2, 3, 4, 5], "name": ["+I", "-U", "+U", "-D", "-d"]})
    )
    assert got.column(KIND_COLUMN).to_pylist() == [0, 1, 2, 3, 3]
    assert got.column("name").to_pylist() == ["+I", "-U", "+U", "-D", "-d"]


@pytest.mark.parametrize("case", vectors("write_entry_filter"), ids=case_id)
def test_write_entry_filter(case: Case) -> None:
    kinds = list(RowKind)
    batch = pa.record_batch({"id": np.arange(4), KIND_COLUMN: pa.array(kinds, pa.int8())})
    check_members(case, {"options", "expect_kept"})
    kept = (
        RowConverter(KEYED, TableOptions(options_of(case)), "t").to_table_schema(batch).column(KIND_COLUMN).to_pylist()
    )
    got = {kind.symbol: kind in kept for kind in kinds}
    assert {kind: got[kind] for kind in case["expect_kept"]} == case["expect_kept"]


def test_nan_and_negative_zero_are_unchanged() -> None:
    """Keys and values: Java distinguishes -0.0 from 0.0, and so do we."""
    schema = TableSchema(0, (DataField(0, "d", not_null(DOUBLE)),), 0, primary_keys=("d",))
    got = convert(pa.record_batch({"d": [float("nan"), -0.0, float("inf")]}), schema)
    assert [str(v) for v in got.column("d").to_pylist()] == ["nan", "-0.0", "inf"]
