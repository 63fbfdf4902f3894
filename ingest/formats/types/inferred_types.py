"""The column types of a pipeline: the type that a source's type gives, and the types to which it may widen later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelake.ingest.formats.connect_schema import PER_SECOND, VARYING, SemanticType, SourceType
from tidelake.storage.model.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_DECIMAL_PRECISION,
    SMALLINT,
    STRING,
    STRING_ROOTS,
    TINYINT,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    decimal,
    not_null,
    timestamp,
    timestamp_ltz,
)

_CONNECT_TYPES: Final[Mapping[str, DataType]] = {
    "int8": TINYINT,
    "int16": SMALLINT,
    "int32": INT,
    "int64": BIGINT,
    "float": FLOAT,
    "float32": FLOAT,
    "double": DOUBLE,
    "float64": DOUBLE,
    "boolean": BOOLEAN,
}
# Texts with at most nine digits of a second. A value with more than six widens the column.
_TIMESTAMP_TEXTS: Final[Mapping[str, DataType]] = {
    "io.debezium.time.ZonedTimestamp": timestamp_ltz(6),
    "io.debezium.time.IsoTimestamp": timestamp(6),
}
_TIMESTAMP_PRECISION: Final = {PER_SECOND["s"]: 0, PER_SECOND["ms"]: 3, PER_SECOND["us"]: 6, PER_SECOND["ns"]: 9}


def inferred_type(source: SourceType) -> DataType:
    """Return the column type that holds every value of `source`.

    It is STRING if no other type of Paimon holds them:

    - geometries
    - decimals with varying scale, or with a precision above 38
    - times of day finer than a millisecond: a TIME never holds them, whatever precision it declares. MySQL's times are
      sent this way, and may have more hours than a day.
    """
    if source.column_type is not None:
        return source.column_type
    match source.semantic_type:
        case SemanticType.UNSIGNED:
            return decimal(20, 0)
        case SemanticType.DECIMAL:
            precision = source.precision or MAX_DECIMAL_PRECISION
            fits = 0 <= source.scale <= precision <= MAX_DECIMAL_PRECISION
            return decimal(precision, source.scale) if fits else STRING
        case SemanticType.BITS if 0 < source.length < VARYING:
            return AtomicType(Root.BINARY, length=(source.length + 7) // 8)
        case SemanticType.BITS | SemanticType.BASE64 | SemanticType.HEX:
            return BYTES
        case SemanticType.DATE:
            return DATE
        case SemanticType.TIME if source.per_second <= PER_SECOND["ms"]:
            return AtomicType(Root.TIME, precision=_TIMESTAMP_PRECISION[source.per_second])
        case SemanticType.TIME:
            return STRING
        case SemanticType.TIMESTAMP:
            return timestamp(_TIMESTAMP_PRECISION[source.per_second])
    if source.name in _TIMESTAMP_TEXTS:
        return _TIMESTAMP_TEXTS[source.name]
    if source.element is not None:
        return ArrayType(inferred_type(source.element))
    if source.key is not None and source.value is not None:
        return MapType(not_null(inferred_type(source.key)), inferred_type(source.value))
    return _CONNECT_TYPES.get(source.connect, STRING)


_INTEGERS: Final = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
_FLOATS: Final = (Root.FLOAT, Root.DOUBLE)
_BYTES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_BY_PRECISION: Final = frozenset({Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})


def is_widening(old: DataType, new: DataType) -> bool:
    """Return whether a pipeline may change a column of type `old` to `new`. Nullability is ignored.

    A type may only become a wider one of its kind, so that no value loses digits. This is stricter than
    `tidelake.storage.model.schema.type_changes`, which defines the changes that a user may make.

    Source: Paimon `sink/UpdatedDataFieldsProcessFunctionBase.java` (canConvert). There a DECIMAL may get more digits
    after the point and fewer before it; here neither number may decrease.
    """
    if not isinstance(old, AtomicType) or not isinstance(new, AtomicType):
        return False
    for family in (_INTEGERS, _FLOATS):
        if old.root in family and new.root in family:
            return family.index(old.root) <= family.index(new.root)
    for kinds in (STRING_ROOTS, _BYTES):
        if old.root in kinds and new.root in kinds:
            return old.length <= new.length
    if old.root is Root.DECIMAL and new.root is Root.DECIMAL:
        return old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale
    return old.root is new.root and old.root in _BY_PRECISION and old.precision <= new.precision
