"""Arrow tables as pandas DataFrames, with no value changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.frames.readable import check_installed

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(rows: pa.Table, types_mapper: Callable[[pa.DataType], Any] | None) -> pd.DataFrame:
    """Return the rows as a DataFrame.

    types_mapper: chooses the types of all columns; None: the exact types, by the nullability of each column
    """
    check_installed("pandas", "to_pandas()")
    if types_mapper is not None:
        return rows.to_pandas(types_mapper=types_mapper)
    return _exact(rows)


def _exact(rows: pa.Table) -> pd.DataFrame:
    import pandas as pd

    made = {}
    for number, field in enumerate(rows.schema):
        kind = _pandas_type(field, pd)
        mapper = None if kind is None else (lambda _, kind=kind: kind)
        made[number] = rows.column(number).to_pandas(types_mapper=mapper)
    frame = pd.DataFrame(made, index=pd.RangeIndex(rows.num_rows), copy=False)
    frame.columns = pd.Index(rows.schema.names, dtype=object)
    return frame


def _pandas_type(field: pa.Field, pd: Any) -> Any:
    """Return the pandas type that holds each value of a column; None if that of pyarrow does.

    A NumPy column has no place for a null: an integer would become a float, which has 53 bits, and NaN and null would
    be one value.
    """
    kind = field.type
    if pa.types.is_nested(kind):
        return pd.ArrowDtype(kind)  # NumPy arrays inside would have the same problem
    if not field.nullable:
        return None
    if pa.types.is_floating(kind):
        return pd.ArrowDtype(kind)  # `Float64` of pandas 3 takes NaN for null
    nullable = {
        pa.bool_(): pd.BooleanDtype,
        pa.int8(): pd.Int8Dtype,
        pa.int16(): pd.Int16Dtype,
        pa.int32(): pd.Int32Dtype,
        pa.int64(): pd.Int64Dtype,
    }
    made = nullable.get(kind)
    return None if made is None else made()
