"""Converts values of the suites binary_row and bucket_functions to Arrow columns of one row."""

from __future__ import annotations

import pyarrow as pa

from tests.support.case_values import python_value
from tests.support.cases import Case
from tidelake.storage.model.types import TIMESTAMP_ROOTS, DataType, arrow_type, parse_type


def case_types(case: Case) -> list[DataType]:
    return [parse_type(text) for text in case["types"]]


def case_columns(case: Case) -> list[pa.Array]:
    """Returns the columns of a case.

    All timestamps are in microseconds unless they have more digits, because nanoseconds don't reach the years 1 and
    9999.
    """
    columns = []
    for written, data_type in zip(case["values"], case_types(case), strict=True):
        kind, value = arrow_type(data_type), python_value(written, data_type)
        if data_type.root in TIMESTAMP_ROOTS and not isinstance(value, int):
            kind = pa.timestamp("us", tz=kind.tz)
        columns.append(pa.array([value], kind))
    return columns
