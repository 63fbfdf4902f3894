"""SQL text of conditions: which rows it keeps, where a syntax error is marked, and how a condition is written."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelake.errors import BadInput
from tidelake.storage.read.condition_text import condition_text, parse_condition
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.predicate import Predicate, col, like_literal, literal_prefix

ROWS = pa.table(
    {
        "row": [1, 2, 3, 4],
        "amount": pa.array([1, 5, None, 10], pa.int64()),
        "price": pa.array([Decimal("1.10"), Decimal("2.50"), None, Decimal("850")], pa.decimal128(10, 2)),
        "status": ["new", "it's", None, "paid in full"],
        "ratio": pa.array([0.1, 0.2, float("nan"), 1e3], pa.float64()),
        "small": pa.array([0.1, 0.2, None, 0.3], pa.float32()),
        "day": pa.array(["1969-12-31", "2026-05-01", None, "2026-06-01"]).cast(pa.date32()),
        "at": pa.array(["1969-12-31", "2026-05-01", None, "2026-06-01"])
        .cast(pa.timestamp("us"))
        .cast(pa.timestamp("us", "UTC")),
        "ok": [True, False, None, True],
        "odd name": ["a", "b", "c", None],
        'with "quotes"': [1, 2, 3, 4],
        "is": [4, 3, 2, 1],
        "address": [
            {"city": "Bonn", "geo": {"lat": 50}},
            {"city": "Köln", "geo": None},
            None,
            {"city": None, "geo": {}},
        ],
        "a.b": [1, 2, 3, 4],
        "tags": pa.array([{"a b": "x"}, {"it's": "y"}, None, {"a b": "z"}], pa.map_(pa.string(), pa.string())),
    }
)


def kept(condition: str) -> list[int]:
    rows: list[int] = ROWS.filter(as_predicate(condition, ROWS.schema).expression(ROWS.schema))["row"].to_pylist()
    return rows


LONG: Final = "1234567890123456789012345678.0123456789"  # all digits of DECIMAL(38, 10)


@pytest.mark.parametrize(
    ("condition", "is_kept"),
    [
        (f"v = {LONG}", True),
        (f"v in (1, {LONG})", True),
        (f"v between {LONG} and {LONG}", True),
        (f"v > {LONG[:-1]}", True),
        (f"v < {LONG}0000000001", True),
        (f"v >= {LONG}0000000001", False),
        (f"v > -{LONG}e5", True),
        (f"v != {LONG}", False),
        ("v < 1e400", True),
    ],
)
def test_all_digits_of_a_number_count(condition: str, is_kept: bool) -> None:
    rows = pa.table({"v": pa.array([Decimal(LONG)], pa.decimal128(38, 10))})
    assert rows.filter(as_predicate(condition, rows.schema).expression(rows.schema)).num_rows == is_kept


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("amount = 5", [2]),
        ("amount == 5", [2]),
        ("amount != 5", [1, 4]),
        ("amount <> 5", [1, 4]),
        ("amount>=5", [2, 4]),
        ("amount < 2.5", [1]),
        ("amount > -1", [1, 2, 4]),
        ("amount < 123456789012345678901234567890", [1, 2, 4]),
        ("price = 2.5", [2]),
        ("price > 849", [4]),
        ("price < 1e2", [1, 2]),
        ("price > .5", [1, 2, 4]),
        ("ratio = 0.1", [1]),
        ("ratio > 5e2", [4]),
        ("ratio < 1e400", [1, 2, 4]),
        ("small = 0.1", [1]),
        ("status = 'it''s'", [2]),
        ("status like 'paid%'", [4]),
        ("status not like 'paid%'", [1, 2]),
        ("status like '%'", [1, 2, 4]),
        ("status is null", [3]),
        ("status IS NOT NULL", [1, 2, 4]),
        ("status in ('new', 'it''s')", [1, 2]),
        ("status not in ('new')", [2, 4]),
        ("not status in ('new')", [2, 4]),
        ("amount in (1, 2.5, 123456789012345678901234567890)", [1]),
        ("amount between 2 and 10", [2, 4]),
        ("amount not between 2 and 7", [1, 4]),
        ("amount between 2 and 7 or amount = 1", [1, 2]),
        ("day < '1970-01-01'", [1]),
        ("day >= '2026-05-01'", [2, 4]),
        ("at = '2026-05-01T00:00:00Z'", [2]),
        ("ok = true", [1, 4]),
        ("ok = FALSE", [2]),
        ("not ok = true", [2]),
        ("`odd name` >= 'b'", [2, 3]),
        ("\"odd name\" = 'a'", [1]),
        ('"with ""quotes""" = 2', [2]),
        ('"is" > 3', [1]),
        ("tags['a b'] = 'x'", [1]),
        ("tags [ 'a b' ] in ('x', 'z') and amount > 1", [4]),
        ("tags['it''s'] is not null", [2]),
        ("\"tags\"['a b'] is null", [2, 3]),
        ("address.city = 'Bonn'", [1]),
        ("address.city is null", [3, 4]),
        ('address."city" is not null', [1, 2]),
        ("address.geo.lat >= 50", [1]),
        ("not address.city = 'Bonn'", [2]),
        ("address.city like '%ö%'", [2]),
        ("a.b = 2", [2]),
        ("status like '%full'", [4]),
        ("status like '_ew'", [1]),
        ("status like 'it''%'", [2]),
        ("status not like '%w%'", [2, 4]),
        (r"status like 'paid\_in%'", []),
        (r"status like 'p\aid%'", []),
        ("status like 'p_id%l'", [4]),
        ("amount = 1 or amount = 5 and ok = true", [1]),
        ("(amount = 1 or amount = 5) and ok = true", [1]),
        ("not (amount = 1 or amount = 5)", [4]),
        ("not not amount = 5", [2]),
        ("day = date '2026-05-01'", [2]),
        ("day between DATE '1969-01-01' and date '2026-05-01'", [1, 2]),
        ("at < timestamp '2026-05-01 00:00:00+00:00' and ok = true", [1]),
        (" \t amount\n=\n5 ", [2]),
        ("ok", [1, 4]),
        ("not ok", [2]),
        ("(ok) and amount > 1 or not (ok)", [2, 4]),
        ("ok is true", [1, 4]),
        ("ok is not true", [2, 3]),
        ("ok is false", [2]),
        ("ok is not false", [1, 3, 4]),
        ("amount", [1, 2, 4]),
        ("5 = amount", [2]),
        ("2 < amount and 10 >= amount", [2, 4]),
        ("'b' <= `odd name`", [2, 3]),
        ("date '2026-05-01' > day", [1]),
        ("true = ok", [1, 4]),
        ("amount in (5, null)", [2]),
        ("amount not in (5, null)", []),
        ("not amount in (null)", []),
    ],
)
def test_a_condition_keeps_the_rows_that_sql_would(condition: str, rows: list[int]) -> None:
    assert kept(condition) == rows


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("amount > ", "condition: expected a value\n    amount > \n            ^"),
        (
            "amount 3",
            "condition: expected a comparison: = != < <= > >= IN, BETWEEN, LIKE or IS NULL\n    amount 3\n           ^",
        ),
        ("3 < 4", "condition: expected a column\n    3 < 4\n        ^"),
        ("3", "condition: expected = != < <= > or >= and a column after the value\n    3\n     ^"),
        ("ok is 5", "condition: expected NULL, TRUE or FALSE\n    ok is 5\n          ^"),
        (
            "status = new",
            "condition: expected a value; strings are written in single quotes\n    status = new\n             ^",
        ),
        (
            "status = null",
            "condition: nothing equals null: write IS NULL or IS NOT NULL\n    status = null\n             ^",
        ),
        ("amount = 5 ok = true", "condition: expected AND, OR or the end\n    amount = 5 ok = true\n               ^"),
        ("(amount = 5", "condition: expected )\n    (amount = 5\n               ^"),
        ("amount in ()", "condition: expected a value\n    amount in ()\n               ^"),
        ("amount between 1, 2", "condition: expected AND\n    amount between 1, 2\n                    ^"),
        (
            "amount ~ 5",
            "condition: ~ has no meaning here; a column is compared with a value, as in id = 5\n"
            "    amount ~ 5\n           ^",
        ),
        (
            "amount / 2 > 5",
            "condition: / has no meaning here; a column is compared with a value, as in id = 5\n"
            "    amount / 2 > 5\n           ^",
        ),
        ("status = 'open", "condition: the quote ' isn't closed\n    status = 'open\n             ^"),
        ('"" = 5', 'condition: expected a column\'s name between the quotes\n    "" = 5\n    ^'),
        (
            "amount = 5a",
            "condition: not a number; strings are written in single quotes, and there is no arithmetic\n"
            "    amount = 5a\n             ^",
        ),
        (
            "status like 5",
            "condition: LIKE takes a pattern in single quotes, as in 'abc%'\n    status like 5\n                ^",
        ),
        (
            "tags[1] = 'x'",
            "condition: expected a key of a map: a string in single quotes\n    tags[1] = 'x'\n         ^",
        ),
        ("tags['a' = 'x'", "condition: expected ]\n    tags['a' = 'x'\n             ^"),
        ("", "condition: expected a column\n    \n    ^"),
    ],
)
def test_a_syntax_error_is_pointed_at(condition: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_condition(condition)
    assert str(caught.value) == message


@pytest.mark.parametrize("condition", ["nothing = 1", "amount = 'many'", "__import__('os') = 1", "status.upper = 1"])
def test_a_condition_knows_columns_and_values_only(condition: str) -> None:
    with pytest.raises(BadInput):
        kept(condition)


@given(st.text())
@example("amount = '")
@example("((((")
def test_any_text_is_a_condition_or_bad_input(text: str) -> None:
    with suppress(BadInput):
        parse_condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "amount > 3 AND status IN ('a', 'it''s') AND (ok = TRUE OR price <= 2.50)",
        "NOT (amount = 1 OR amount IS NULL)",
        "amount IS NOT NULL",
        "status LIKE 'abc%'",
        "status LIKE '%a_b\\%'",
        "tags['a b'] = 'x'",
        "address.geo.lat > 5",
        "\"odd name\" = 'x'",
        '"is" = 1',
    ],
)
def test_a_condition_is_written_as_the_text_that_it_was_parsed_from(text: str) -> None:
    assert condition_text(parse_condition(text)) == text
    assert condition_text(as_predicate(text, ROWS.schema)) == text


@given(st.text(max_size=8), st.text(max_size=8))
def test_texts_are_found_literally(text: str, other: str) -> None:
    rows = pa.table({"s": [text, other, text + other, other + text, None]})

    def found(condition: Predicate) -> list[str]:
        texts: list[str] = rows.filter(condition.expression(rows.schema))["s"].to_pylist()
        return texts

    values = rows["s"].to_pylist()
    column = col("s")
    assert found(column.contains(text)) == [v for v in values if v is not None and text in v]
    assert found(column.ends_with(text)) == [v for v in values if v is not None and v.endswith(text)]
    assert found(column.like(like_literal(text))) == [v for v in values if v == text]
    assert literal_prefix(like_literal(text) + "%") == text


def test_between_includes_both_ends() -> None:
    condition = col("amount").between(1, 5)
    assert ROWS.filter(condition.expression(ROWS.schema))["row"].to_pylist() == [1, 2]


# ---------------------------------------------------------------- against a naive reading

Truth = bool | None

COLUMN = [1, 5, None, 10]


def leaf(operator: str, value: int) -> tuple[str, list[Truth]]:
    answers: dict[str, Any] = {"=": int.__eq__, "!=": int.__ne__, "<": int.__lt__, ">=": int.__ge__}
    truth = [None if cell is None else answers[operator](cell, value) for cell in COLUMN]
    return f"amount {operator} {value}", truth


def both(one: tuple[str, list[Truth]], other: tuple[str, list[Truth]]) -> tuple[str, list[Truth]]:
    def truth(a: Truth, b: Truth) -> Truth:
        return False if a is False or b is False else None if a is None or b is None else True

    return f"({one[0]} and {other[0]})", [truth(a, b) for a, b in zip(one[1], other[1], strict=True)]


def negated(one: tuple[str, list[Truth]]) -> tuple[str, list[Truth]]:
    return f"not {one[0]}", [None if a is None else not a for a in one[1]]


def either(one: tuple[str, list[Truth]], other: tuple[str, list[Truth]]) -> tuple[str, list[Truth]]:
    text = f"({one[0]} or {other[0]})"
    return text, negated(both(negated(one), negated(other)))[1]


LEAVES = st.one_of(
    st.builds(leaf, st.sampled_from(["=", "!=", "<", ">="]), st.integers(0, 11)),
    st.just(("amount is null", [cell is None for cell in COLUMN])),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.builds(both, inner, inner), st.builds(either, inner, inner), st.builds(negated, inner)),
    max_leaves=6,
)


@given(CONDITIONS)
def test_and_or_not_follow_three_valued_logic(condition: tuple[str, list[Truth]]) -> None:
    text, truth = condition
    assert kept(text) == [row for row, is_true in enumerate(truth, start=1) if is_true]
