"""Normalized keys sort rows in Paimon's key order, and are equal only for equal keys."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelake.errors import UnsupportedFeature
from tidelake.storage.merge.normalized_keys import align_keys, count_rows_up_to, merge_order, normalize_column


def double_order(value: float) -> tuple[int, int]:
    """Java's Double.compare: by bits, with one NaN above everything."""
    if math.isnan(value):
        return (1, 0)
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return (0, bits if bits >= 0 else bits ^ (2**63 - 1))


Order = Callable[[Any], Any]
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Order]] = {
    "TINYINT": (pa.int8(), st.integers(-128, 127), int),
    "BIGINT": (pa.int64(), st.integers(-(2**63), 2**63 - 1), int),
    "BOOLEAN": (pa.bool_(), st.booleans(), int),
    "DATE": (pa.date32(), st.dates(), date.toordinal),
    "TIMESTAMP(3)": (
        pa.timestamp("ms"),
        st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
        lambda t: t - datetime(1970, 1, 1),
    ),
    "DECIMAL(18, 2)": (
        pa.decimal128(18, 2),
        st.integers(-(10**17), 10**17).map(lambda n: Decimal(n).scaleb(-2)),
        Decimal,
    ),
    "DECIMAL(38, 0)": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal), Decimal),
    "DOUBLE": (pa.float64(), st.floats(), double_order),
    "FLOAT": (pa.float32(), st.floats(width=32), double_order),
    "STRING": (pa.string(), st.text("ab\0é😀\uffff", max_size=20), str.encode),
    "BYTES": (pa.binary(), st.binary(max_size=20), bytes),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_normalized_keys_sort_like_their_values(name: str, data: st.DataObject) -> None:
    kind, values_of, order = COLUMNS[name]
    values = data.draw(st.lists(values_of, max_size=30))
    (words,) = align_keys([[normalize_column(pa.array(values, kind), nullable=False)]])
    sorted_by_words = [values[i] for i in np.lexsort(words[::-1])]
    assert [order(v) for v in sorted_by_words] == sorted(order(v) for v in values)


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_equal_normalized_keys_are_equal_keys_across_batches(name: str, data: st.DataObject) -> None:
    kind, values_of, order = COLUMNS[name]
    left, right = data.draw(st.tuples(values_of, values_of))
    words = align_keys([[normalize_column(pa.array([v], kind), nullable=False)] for v in (left, right)])
    numbers = [tuple(word.item() for word in of_batch) for of_batch in words]
    assert (numbers[0] < numbers[1]) == (order(left) < order(right))
    assert (numbers[0] == numbers[1]) == (order(left) == order(right))


@given(st.lists(st.none() | st.text("ab", max_size=9), max_size=20), st.booleans())
def test_nulls_are_smallest_in_either_direction(values: list[str | None], descending: bool) -> None:
    words = normalize_column(pa.array(values, pa.string()), nullable=True, descending=descending)
    ordered = [values[i] for i in np.lexsort(tuple(words)[::-1])]
    present = sorted((v for v in values if v is not None), reverse=descending)
    assert ordered == [None] * values.count(None) + present


@given(st.lists(st.text("ab\0", max_size=9), min_size=1, max_size=20), st.integers(0, 19), st.integers(0, 19))
def test_a_slice_has_the_normalized_keys_of_its_rows(values: list[str], start: int, length: int) -> None:
    whole = pa.array(values)
    (sliced, alone) = align_keys(
        [
            [normalize_column(whole.slice(start, length), nullable=False)],
            [normalize_column(pa.array(values[start : start + length], pa.string()), nullable=False)],
        ]
    )
    assert all((a == b).all() for a, b in zip(sliced, alone, strict=True))


# one beginning for many, zero bytes, and few values much longer than the others: those are distinguished by ranks
HEADS = [b""] * 8 + [b"\0" * 55, b"ab" * 40, b"ab" * 40 + b"\0", b"\xff" * 5000]
SKEWED = st.builds(bytes.__add__, st.sampled_from(HEADS), st.sampled_from([b"", b"\0", b"a", b"b", b"\xff"]))
SHORT_AND_HUGE = [[b"k%d" % i for i in range(40)], [None, b"", b"\xff" * 999, b"\xff" * 1000, b"\xff" * 57]]


@given(st.lists(st.lists(st.none() | SKEWED, max_size=20), min_size=1, max_size=4), st.booleans())
@example(SHORT_AND_HUGE, False)
@example(SHORT_AND_HUGE, True)
def test_values_of_very_different_lengths_compare_across_batches(
    batches: list[list[bytes | None]], descending: bool
) -> None:
    columns = [normalize_column(pa.array(b, pa.binary()), nullable=True, descending=descending) for b in batches]
    aligned = align_keys([[column] for column in columns])
    rows = [row for of_batch in aligned for row in zip(*(word.tolist() for word in of_batch), strict=True)]
    values = [value for batch in batches for value in batch]
    present = sorted({v for v in values if v is not None}, reverse=descending)
    ordered: list[bytes | None] = [*([None] if None in values else []), *present]
    in_order = sorted(set(rows))
    assert [in_order.index(row) for row in rows] == [ordered.index(value) for value in values]


@given(st.lists(SKEWED, min_size=1, max_size=20), st.integers(0, 19), st.integers(0, 9))
@example([b"short"] * 30 + [b"x" * 1000], 20, 3)
def test_the_rest_of_a_batch_compares_like_a_new_batch(values: list[bytes], start: int, made: int) -> None:
    whole = normalize_column(pa.array(values, pa.binary()), nullable=True)
    whole.first(made)
    again = normalize_column(pa.array(values[start:], pa.binary()), nullable=True)
    left, right, _ = align_keys([[whole.slice(start)], [again], [whole]])
    assert all((a == b).all() for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("descending", [False, True])
def test_strings_of_equal_length_need_no_ranks(descending: bool) -> None:
    """Then the words of a batch are made once, however often it is aligned with others."""
    words = normalize_column(pa.array(["ab" * 50, "ab" * 49]), nullable=False, descending=descending)
    assert len(align_keys([[words]])[0]) == words.width == 15
    assert all(a is b for a, b in zip(*(align_keys([[words]])[0] for _ in range(2)), strict=True))


@given(st.lists(st.tuples(st.text("ab", max_size=16), st.integers(0, 3)), min_size=1), st.data())
def test_count_up_to_finds_the_rows_below_a_composite_key(rows: list[tuple[str, int]], data: st.DataObject) -> None:
    rows = sorted(rows)
    last = data.draw(st.sampled_from(rows))
    columns = [pa.array([r[0] for r in rows]), pa.array([r[1] for r in rows])]
    (words,) = align_keys([[normalize_column(c, nullable=False) for c in columns]])
    bound = [word[rows.index(last)].item() for word in words]
    assert count_rows_up_to(words, bound) == sum(row <= last for row in rows)


def test_a_type_without_an_order_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="list<"):
        normalize_column(pa.array([[1]]), nullable=False)


@pytest.mark.parametrize("texts", [["k" * 200_000], ["k" * 200_000, "k" * 199_999 + "l"], ["", "k" * 200_000 + "a"]])
def test_a_long_key_has_few_words_that_order_it(texts: list[str]) -> None:
    (words,) = align_keys([[normalize_column(pa.array(texts), nullable=False)]])
    assert len(words) <= 128
    order, ends = merge_order(words)
    assert [texts[i] for i in order] == sorted(texts)
    assert ends.all()
