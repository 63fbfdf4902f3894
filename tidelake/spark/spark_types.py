"""Spark's types of a table's columns, and the conversion of rows to the Arrow form that Spark expects.

Source: PySpark `sql/pandas/types.py`, `sql/worker/plan_data_source_read.py` (what it compares a batch with).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from inspect import signature
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.scan import Scan
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import Root, arrow_type

try:
    from pyspark.sql.types import VariantType
except ImportError:  # PySpark 3.5
    VariantType = None  # type: ignore[assignment,misc]

# PySpark before 4.3 assumes UTC, which needs it as an argument.
_to_arrow_schema: Final[Callable[[StructType], pa.Schema]] = (
    partial(to_arrow_schema, timezone="UTC") if "timezone" in signature(to_arrow_schema).parameters else to_arrow_schema
)

RECORD_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORD_COLUMNS: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
"""The columns of a record, as Spark's own Kafka connector names them."""

_MILLISECONDS_MAX: Final = 9_223_372_036_854_775  # that 64 bits of microseconds can represent


def record_schema(*, has_headers: bool) -> StructType:
    """Return the schema of sources whose rows are records."""
    return spark_schema(RECORD_COLUMNS.append(pa.field("headers", RECORD_HEADERS)) if has_headers else RECORD_COLUMNS)


def spark_schema(columns: pa.Schema, variants: Iterable[str] = ()) -> StructType:
    """Return Spark's schema of columns.

    columns: as a scan returns them
    variants: the names of VARIANT columns
    """
    of_arrow: StructType = from_arrow_schema(
        pa.schema([field.with_type(_spark_arrow_type(field.type)) for field in columns]), prefer_timestamp_ntz=True
    )
    of_variant = frozenset(variants)
    if of_variant and VariantType is None:
        raise UnsupportedFeature(
            f"column {min(of_variant)} of type VARIANT",
            "PySpark 3.5 has no such type",
            "Leave the column out, or use PySpark 4.0 or newer",
        )
    return StructType(
        [
            StructField(field.name, VariantType() if field.name in of_variant else field.dataType, field.nullable)
            for field in of_arrow.fields
        ]
    )


def table_columns(context: TableContext, columns: pa.Schema) -> StructType:
    """Return Spark's schema of a table's columns.

    columns: of the table, or special ones (`rowkind`), as they are read.
    """
    fields = context.schema.by_name
    variants = [
        column.name
        for column in columns
        if column.name in fields
        and fields[column.name].type.root is Root.VARIANT
        and column.type == arrow_type(fields[column.name].type)  # a system table may return another type
    ]
    return spark_schema(columns, variants)


def schema_of(scan: Scan) -> StructType:
    """Return the columns of a scan's result in Spark's types."""
    return table_columns(scan.context, scan.schema)


def arrow_form(schema: StructType) -> pa.Schema:
    """Return the schema that every batch for Spark must have.

    Spark checks the first batch only. A different one ends the JVM's reader, or is read wrongly.
    """
    return _to_arrow_schema(schema)


def in_arrow_form(rows: pa.RecordBatch, form: pa.Schema) -> pa.RecordBatch:
    """Convert rows to the form. Nothing is copied if they already have it.

    Raises BadInput for a value that Spark can't hold: one finer than a microsecond.
    """
    columns = [_cast(column, field) for column, field in zip(rows.columns, form, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=form)


def spark_timestamps(times_ms: NDArray[np.int64], is_null: NDArray[np.bool_] | None = None) -> pa.TimestampArray:
    """Return the timestamps of records, epoch milliseconds (n,).

    They are null if Spark's microseconds can't represent them (after the year 294246): a producer may send any number,
    and one record must not stop a stream.
    """
    beyond = (times_ms > _MILLISECONDS_MAX) | (times_ms < -_MILLISECONDS_MAX)
    mask = beyond if is_null is None else beyond | is_null
    micros = np.where(mask, 0, times_ms) * 1000
    return pa.array(micros, mask=mask if mask.any() else None).cast(pa.timestamp("us", "UTC"))


def check_columns(asked: StructType, own: StructType, table: str) -> None:
    """Raise BadInput for columns of `.schema(…)` that the table lacks, or that have another type there.

    A column that is not nullable may be requested as nullable.
    """
    if not asked.fields:
        raise BadInput(
            f"{table}: the schema of the read has no columns; name at least one column, or leave out .schema(…)"
        )
    by_name = {field.name: field for field in own.fields}
    for field in asked.fields:
        found = by_name.get(field.name)
        if found is None:
            raise BadInput(f"{table} has no column {field.name!r}; it has {', '.join(by_name)}. Correct .schema(…)")
        if not _holds(field.dataType, field.nullable, found.dataType, found.nullable):
            raise BadInput(
                f"{table}: column {field.name!r} is {_described(found)}, but the schema of the read says "
                f"{_described(field)}. Read it with the table's type, and cast it afterwards"
            )


def _spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that PySpark knows: for times of day only time64."""
    if pa.types.is_time32(kind):
        return pa.time64("ns")
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_spark_arrow_type(part.type)) for part in kind])
    if pa.types.is_map(kind):
        value = kind.item_field
        return pa.map_(_spark_arrow_type(kind.key_type), value.with_type(_spark_arrow_type(value.type)))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        value = kind.value_field
        return pa.list_(value.with_type(_spark_arrow_type(value.type)))
    return kind


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise BadInput(
            f"column {field.name!r} has a value that Spark can't hold ({error}). Leave the column out: name the "
            "columns to read with .schema(…)"
        ) from None


def _holds(asked: DataType, is_nullable: bool, own: DataType, may_be_null: bool) -> bool:
    """Return whether each value of type `own` is also a value of type `asked`, unchanged."""
    if may_be_null and not is_nullable:
        return False
    if isinstance(asked, StructType) and isinstance(own, StructType):
        return asked.names == own.names and all(
            _holds(part.dataType, part.nullable, other.dataType, other.nullable)
            for part, other in zip(asked.fields, own.fields, strict=True)
        )
    if isinstance(asked, ArrayType) and isinstance(own, ArrayType):
        return _holds(asked.elementType, asked.containsNull, own.elementType, own.containsNull)
    if isinstance(asked, MapType) and isinstance(own, MapType):
        values_agree = _holds(asked.valueType, asked.valueContainsNull, own.valueType, own.valueContainsNull)
        return values_agree and _holds(asked.keyType, False, own.keyType, False)
    return bool(asked == own)


def _described(field: Any) -> str:
    return f"{field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
