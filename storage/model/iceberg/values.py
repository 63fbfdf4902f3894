"""Values of columns as Iceberg's manifests hold them: partition values, and bounds as bytes.

A value is a Python object of the Avro type that Iceberg prescribes: days for a date, microseconds for a time,
microseconds or nanoseconds for a timestamp.

Source: Java `iceberg/manifest/IcebergConversions.java`; Iceberg's specification, "Binary single-value serialization".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from tidelake.storage.model.iceberg.schemas import MICROSECOND_PRECISION
from tidelake.storage.model.types import CONSTRUCTED_ROOTS, TIMESTAMP_ROOTS, AtomicType, DataType, Root

_EXACT: Final = Context(prec=40)  # more digits than a decimal has
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_WITHOUT_BOUNDS: Final = CONSTRUCTED_ROOTS | {Root.VARIANT, Root.BLOB}

_INT: Final = struct.Struct("<i").pack
_LONG: Final = struct.Struct("<q").pack

_ENCODERS: Final[Mapping[Root, Callable[[Any], bytes]]] = {
    Root.BOOLEAN: lambda value: b"\1" if value else b"\0",
    Root.TINYINT: _INT,
    Root.SMALLINT: _INT,
    Root.INT: _INT,
    Root.DATE: _INT,
    Root.BIGINT: _LONG,
    Root.TIME: _LONG,
    Root.TIMESTAMP: _LONG,
    Root.TIMESTAMP_LTZ: _LONG,
    Root.FLOAT: struct.Struct("<f").pack,
    Root.DOUBLE: struct.Struct("<d").pack,
    Root.CHAR: str.encode,
    Root.VARCHAR: str.encode,
    Root.BINARY: bytes,
    Root.VARBINARY: bytes,
}


def has_bounds(data_type: DataType) -> bool:
    return data_type.root not in _WITHOUT_BOUNDS


def bound(data_type: DataType, value: Any) -> bytes:
    """Return the bytes of one value that is not null."""
    if data_type.root is Root.DECIMAL:
        return _decimal(value, data_type.scale if isinstance(data_type, AtomicType) else 0)
    return _ENCODERS[data_type.root](value)


def _decimal(value: Decimal, scale: int) -> bytes:
    return number_bytes(int(value.scaleb(scale, _EXACT)))


def number_bytes(number: int) -> bytes:
    """Return the unscaled number of a decimal, in as few bytes as possible."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def column_values(data_type: DataType, column: pa.Array, *, keep_nan: bool = False) -> list[Any]:
    """Return the values of a column in its in-memory form.

    keep_nan: NaN is a value. Otherwise it is None, as no bound may be NaN.
    """
    root = data_type.root
    if root is Root.DATE:
        return list(column.cast(pa.int32()).to_pylist())
    if root is Root.TIME:
        per_second = _PER_SECOND[column.type.unit]
        whole = column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64())
        return [None if v is None else v * 10**6 // per_second for v in whole.to_pylist()]
    if isinstance(data_type, AtomicType) and root in TIMESTAMP_ROOTS:
        ours = 10**9 if data_type.precision > MICROSECOND_PRECISION else 10**6
        stored = _PER_SECOND[column.type.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if v is None else v * ours // stored for v in numbers]
    values: list[Any] = column.to_pylist()
    if root in (Root.FLOAT, Root.DOUBLE) and not keep_nan:
        return [None if v is None or math.isnan(v) else v for v in values]
    return values


def number_of(value: Any) -> Any:
    """Return a value as `column_values` does, for one that an Avro reader has converted to a date or time."""
    match value:
        case datetime():
            passed = value.replace(tzinfo=UTC) - _EPOCH
            return (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
        case date():
            return value.toordinal() - _EPOCH_DAY
        case time():
            return (value.hour * 3600 + value.minute * 60 + value.second) * 10**6 + value.microsecond
    return value
