"""The value of a variant at a path, as a column of a plain type."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake import BadInput, variant_from_json, variant_get, variant_to_json

DOCUMENT = (
    json.dumps(
        {
            "n": 7,
            "s": "41",
            "t": "day",
            "b": True,
            "d": 12.50,
            "big": 12345678901234567890123456789.25,
            "e": 1e3,
            "z": None,
            "o": {"x y": {"k": [1, 2]}, "": 0},
            "l": [{"i": 1}, {"i": "2"}],
        }
    )
    .replace("12345678901234567890123456789.25", "12345678901234567890123456789.25")
    .replace("12.5", "12.50")
)

CASES = [
    pytest.param("$.n", "BIGINT", 7, id="a number"),
    pytest.param("$.n", "TINYINT", 7, id="a narrower number"),
    pytest.param("$.n", "STRING", "7", id="a number as text"),
    pytest.param("$.n", "DECIMAL(5, 2)", Decimal("7.00"), id="a number as decimal"),
    pytest.param("$.s", "INT", 41, id="a text as number"),
    pytest.param("$.b", "BOOLEAN", True, id="a boolean"),
    pytest.param("$.b", "STRING", "true", id="a boolean as text"),
    pytest.param("$.d", "DOUBLE", 12.5, id="a decimal as double"),
    pytest.param("$.d", "STRING", "12.5", id="a decimal as text, without zeros at its end"),
    pytest.param("$.e", "DOUBLE", 1000.0, id="a double"),
    pytest.param("$.z", "BIGINT", None, id="the JSON null"),
    pytest.param("$.q", "BIGINT", None, id="nothing there"),
    pytest.param("$.n.q", "BIGINT", None, id="a field of a number"),
    pytest.param("$.l[5]", "BIGINT", None, id="behind the end"),
    pytest.param("$['o'][\"x y\"].k[1]", "INT", 2, id="a long way"),
    pytest.param("$.o", "STRING", '{"":0,"x y":{"k":[1,2]}}', id="an object as text"),
    pytest.param("$.l", "ARRAY<ROW<i INT>>", [{"i": 1}, {"i": 2}], id="an array of rows"),
    pytest.param("$.o['x y']", "MAP<STRING, ARRAY<INT>>", [("k", [1, 2])], id="a map"),
    pytest.param("$.l[0]", "ROW<i BIGINT, j INT>", {"i": 1, "j": None}, id="a row with a field that is not there"),
]


@pytest.mark.parametrize(("path", "kind", "expected"), CASES)
def test_a_path_returns_a_value_of_the_requested_type(path: str, kind: str, expected: Any) -> None:
    column = variant_from_json(pa.array([DOCUMENT, None, "{}"]))
    assert variant_get(column, path, kind).to_pylist() == [expected, None, None]


def test_a_part_of_a_variant_is_a_variant() -> None:
    part = variant_get(variant_from_json(pa.array([DOCUMENT])), "$.l")
    assert variant_to_json(part).to_pylist() == ['[{"i":1},{"i":"2"}]']


@pytest.mark.parametrize(("path", "kind"), [("$.t", "INT"), ("$.t", "DATE"), ("$.o", "INT"), ("$.n", "ARRAY<INT>")])
def test_a_failed_cast_raises_or_is_null(path: str, kind: str) -> None:
    column = variant_from_json(pa.array([DOCUMENT, '{"t": "7", "o": "7"}']))
    with pytest.raises(BadInput, match="variant_get"):
        variant_get(column, path, kind)
    assert variant_get(column, path, kind, fail_on_error=False).to_pylist()[0] is None


def test_values_of_many_kinds_become_one_type() -> None:
    column = variant_from_json(pa.array(["1", '"2024-05-01"', '"x"', "null", None]))
    assert variant_get(column, "$", "DATE", fail_on_error=False).to_pylist()[1] == date(2024, 5, 1)
    assert variant_get(column, "$", "STRING").to_pylist() == ["1", "2024-05-01", "x", None, None]


def test_decimals_keep_all_their_digits() -> None:
    digits = "12345678901234567890123456789.012345678"
    column = variant_from_json(pa.array([digits]))
    assert variant_to_json(column).to_pylist() == [digits]
    assert variant_get(column, "$", "DECIMAL(38, 9)").to_pylist() == [Decimal(digits)]


@pytest.mark.parametrize("path", ["", "a", "$.", "$[x]", "$.a[", "$a", "x$.a"])
def test_an_invalid_path_raises(path: str) -> None:
    with pytest.raises(BadInput, match="not a path into a variant"):
        variant_get(variant_from_json(pa.array(["{}"])), path)


@pytest.mark.parametrize("text", ["", "{", "nul", "NaN", '{"a": 1, "a": 2}', "[" * 100_000])
def test_invalid_json_raises(text: str) -> None:
    with pytest.raises(BadInput, match=r"variant"):
        variant_from_json(pa.array([text]))


def test_invalid_variant_bytes_raise() -> None:
    damaged = pa.array([{"value": b"\x02\x05", "metadata": b"\x01\x00\x00"}])
    with pytest.raises(BadInput, match="damaged"):
        variant_to_json(damaged)
    with pytest.raises(BadInput, match="struct of value and metadata"):
        variant_to_json(pa.array(["{}"]))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_a_document_is_read_back(document: Any) -> None:
    text = json.dumps(document)
    shown = variant_to_json(variant_from_json(pa.array([text])))[0].as_py()
    assert json.loads(shown, parse_int=float) == json.loads(text, parse_int=float)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=300, max_size=301), st.integers(0, 299))
def test_large_arrays_and_objects_are_searched_as_small_ones_are(numbers: list[int], at: int) -> None:
    column = variant_from_json(pa.array([json.dumps(numbers), json.dumps({f"k{i}": n for i, n in enumerate(numbers)})]))
    assert variant_get(column, f"$[{at}]", "BIGINT").to_pylist() == [numbers[at], None]
    assert variant_get(column, f"$.k{at}", "BIGINT").to_pylist() == [None, numbers[at]]
