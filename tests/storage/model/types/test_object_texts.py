"""Columns of numbers and times print like `partition_text` prints one value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.types import arrow_type
from tidelake.storage.model.types.object_texts import object_texts_of_numbers
from tidelake.storage.model.types.partition_text import partition_text
from tidelake.storage.model.types.type_parser import parse_type

_SECONDS_MAX: Final = 400_000_000_000  # the year 14645
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "DOUBLE": st.floats() | st.floats(1e-4, 1e8) | st.integers(-(10**8), 10**8).map(float),
    "FLOAT": st.floats(width=32) | st.integers(-(10**7), 10**7).map(lambda n: float(np.float32(n / 8))),
    "DECIMAL(20, 7)": st.decimals(-(10**12), 10**12, places=7) | st.just(Decimal("0.0000001")),
    "DECIMAL(5, 0)": st.decimals(-99_999, 99_999, places=0),
    "TIMESTAMP(0)": st.integers(-_SECONDS_MAX, _SECONDS_MAX),
    "TIMESTAMP(3)": st.integers(-_SECONDS_MAX, _SECONDS_MAX).map(lambda n: n * 500)
    | st.integers(-(2**50), 2**50)
    | st.integers(0, 10**6).map(lambda n: n * 60_000),
    "TIMESTAMP(6)": st.integers(-(2**60), 2**60) | st.integers(0, 10**9).map(lambda n: n * 1000),
    "TIMESTAMP(9)": st.integers(-(2**62), 2**62) | st.integers(0, 10**9).map(lambda n: n * 10**6),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": st.integers(-(2**50), 2**50),
}


@pytest.mark.parametrize("sql", VALUES)
def test_a_column_prints_like_its_values(sql: str) -> None:
    data_type = parse_type(sql)

    @settings(max_examples=examples(150))
    @given(st.lists(VALUES[sql] | st.none(), max_size=12))
    def prints(values: list[Any]) -> None:
        column = pa.array(values, arrow_type(data_type))
        texts = [partition_text(value, data_type, legacy=True) if value.is_valid else None for value in column]
        assert object_texts_of_numbers(column, data_type).to_pylist() == texts

    prints()


def test_other_types_are_refused_but_for_nulls() -> None:
    data_type = parse_type("BYTES")
    assert object_texts_of_numbers(pa.nulls(2, arrow_type(data_type)), data_type).to_pylist() == [None, None]
    with pytest.raises(UnsupportedFeature):
        object_texts_of_numbers(pa.array([b"x"], arrow_type(data_type)), data_type)
