"""Values of the suites binary_row and bucket_functions as Arrow columns of one row."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from storage.types import TIMESTAMP_ROOTS, DataType, Root, arrow_type, parse_type
from tests.support.cases import Case


def case_types(case: Case) -> list[DataType]:
    return [parse_type(text) for text in case["types"]]


def case_columns(case: Case) -> list[pa.Array]:
    """Timestamps in microseconds whatever their type: nanoseconds do not reach the years 1 and 9999."""
    columns = []
    for value, data_type in zip(case["values"], case_types(case), strict=True):
        kind = arrow_type(data_type)
        if data_type.root in TIMESTAMP_ROOTS:
            kind = pa.timestamp("us", tz=kind.tz)
        columns.append(pa.array([None if value is None else _python_value(value, data_type)], kind))
    return columns


def _python_value(value: Any, data_type: DataType) -> Any:
    match data_type.root:
        case Root.BINARY | Root.VARBINARY:
            return bytes.fromhex(value["hex"])
        case Root.FLOAT | Root.DOUBLE:
            return float(value)
        case Root.DECIMAL:
            return Decimal(value)
        case Root.DATE:
            return date.fromisoformat(value)
        case Root.TIME:
            return time.fromisoformat(value)
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            return datetime.fromisoformat(value)
        case Root.BOOLEAN | Root.TINYINT | Root.SMALLINT | Root.INT | Root.BIGINT | Root.CHAR | Root.VARCHAR:
            return value
    raise ValueError(f"the vectors have a value of type {data_type}, which this helper can't read: {value!r}")
