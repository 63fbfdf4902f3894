"""Which types a column may change to. tests/interop/test_schemas.py compares this with Java."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

from tidelake.storage.files.casting import cast
from tidelake.storage.model.schema.type_changes import can_change, type_of_both
from tidelake.storage.model.types import arrow_type, parse_type

TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 0)", "CHAR(3)",
    "VARCHAR(20)", "STRING", "BINARY(4)", "VARBINARY(9)", "BYTES", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(3)",
    "TIMESTAMP(9)", "TIMESTAMP_LTZ(6)", "VARIANT", "ARRAY<INT>", "MAP<STRING, INT>", "MULTISET<STRING>", "ROW<x INT>",
    "VECTOR<FLOAT, 3>",
]  # fmt: skip
LEGAL = [(old, new) for old, new in product(TYPES, TYPES) if can_change(parse_type(old), parse_type(new))]


@pytest.mark.parametrize(("old", "new"), LEGAL)
def test_a_legal_change_is_one_that_old_files_can_be_read_through(old: str, new: str) -> None:
    rows = pa.nulls(2, arrow_type(parse_type(old)))
    assert cast(rows, parse_type(old), parse_type(new)).type == arrow_type(parse_type(new))


@pytest.mark.parametrize(
    ("old", "new", "implicit", "explicit"),
    [
        pytest.param("INT", "BIGINT", True, True, id="wider integer"),
        pytest.param("BIGINT", "INT", False, True, id="narrower integer"),
        pytest.param("BIGINT", "FLOAT", True, True, id="digits lost, as Java has it"),
        pytest.param("DECIMAL(10, 2)", "DECIMAL(5, 0)", True, True, id="decimals of any size"),
        pytest.param("STRING", "CHAR(1)", False, True, id="text cut"),
        pytest.param("DATE", "STRING", False, True, id="date to STRING"),
        pytest.param("DATE", "VARCHAR(20)", False, False, id="date to any other text"),
        pytest.param("TIME(0)", "TIME(3)", False, False, id="time of day to another precision"),
        pytest.param("SMALLINT", "TIMESTAMP(3)", False, False, id="small integer to timestamp"),
        pytest.param("INT", "TIMESTAMP(3)", False, True, id="integer to timestamp"),
        pytest.param("FLOAT", "BOOLEAN", False, False, id="number with a point to truth"),
        pytest.param("ROW<x INT>", "ROW<x INT>", True, True, id="the same row"),
        pytest.param("ROW<x INT>", "ROW<x BIGINT>", False, False, id="another row"),
        pytest.param("ARRAY<INT>", "ARRAY<BIGINT>", False, False, id="another array"),
        pytest.param("VARIANT", "STRING", False, False, id="variant to text"),
    ],
)
def test_the_allowed_type_changes_equal_the_table(old: str, new: str, implicit: bool, explicit: bool) -> None:
    assert can_change(parse_type(old), parse_type(new), explicit=False) is implicit
    assert can_change(parse_type(old), parse_type(new)) is explicit


@pytest.mark.parametrize("old", ["INT", "INT NOT NULL"])
@pytest.mark.parametrize("new", ["BIGINT", "BIGINT NOT NULL"])
def test_nullability_is_irrelevant(old: str, new: str) -> None:
    assert can_change(parse_type(old), parse_type(new), explicit=False)


@pytest.mark.parametrize(
    ("old", "given", "both"),
    [
        pytest.param("INT", "BIGINT", "BIGINT", id="a wider integer"),
        pytest.param("INT", "DOUBLE", "DOUBLE", id="an integer that a double holds"),
        pytest.param("BIGINT", "DOUBLE", None, id="an integer that a double rounds"),
        pytest.param("DOUBLE", "BIGINT", None, id="fractions that an integer cuts"),
        pytest.param("FLOAT", "DOUBLE", "DOUBLE", id="a float"),
        pytest.param("DECIMAL(10, 2)", "DECIMAL(4, 3)", "DECIMAL(11, 3)", id="more digits behind the point"),
        pytest.param("DECIMAL(10, 2)", "DECIMAL(12, 0)", "DECIMAL(14, 2)", id="more digits before the point"),
        pytest.param("DECIMAL(10, 2)", "BIGINT", "DECIMAL(21, 2)", id="an integer for a decimal"),
        pytest.param("BIGINT", "DECIMAL(2, 1)", "DECIMAL(20, 1)", id="a decimal for an integer"),
        pytest.param("DECIMAL(38, 2)", "DECIMAL(38, 3)", None, id="more digits than a decimal has"),
        pytest.param("DECIMAL(10, 2)", "DOUBLE", None, id="a decimal that a double rounds"),
        pytest.param("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6)", id="a finer time"),
        pytest.param("TIMESTAMP(3)", "TIME(3)", None, id="a time without its day"),
        pytest.param("TIMESTAMP(3)", "BIGINT", None, id="a count for a time"),
        pytest.param("DATE", "TIMESTAMP(6)", "TIMESTAMP(6)", id="a time for a day"),
        pytest.param("BOOLEAN", "BIGINT", "BIGINT", id="a number for a truth"),
        pytest.param("INT", "STRING", "STRING", id="a text for a number"),
        pytest.param("STRING", "BYTES", "BYTES", id="bytes for a text"),
        pytest.param("INT", "ARRAY<INT>", None, id="a list for a number"),
    ],
)
def test_a_type_for_old_and_given_values_loses_nothing_of_either(old: str, given: str, both: str | None) -> None:
    expected = None if both is None else parse_type(both)
    assert type_of_both(parse_type(old), parse_type(given)) == expected
    assert type_of_both(parse_type(f"{old} NOT NULL"), parse_type(given)) == expected
    assert expected is None or can_change(parse_type(old), expected)
