"""The columns and the primary key of a table that does not exist yet, from one record of its source table.

With a schema, Connect's types as Debezium's logical names refine them. Without one every column is STRING, as in
Paimon's own ingestion: one record says too little about the numbers of the next.

Source: Paimon `cdc/format/debezium/DebeziumSchemaUtils.java`, which knows fewer of these types; where it gives up
precision (doubles as FLOAT, a decimal of unknown precision without its scale) this does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ingest.formats.connect_schema import PER_SECOND, VARYING, Meaning, SourceType, source_type
from ingest.formats.debezium.envelope import image_schema, read_envelope, split_schema
from ingest.formats.debezium.record_key import key_members
from ingest.formats.values.json_text import BadValue, read_object
from ingest.raw_batch import RawBatch
from storage.errors import BadInput
from storage.types import (
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
    TINYINT,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    Root,
    decimal,
    not_null,
    timestamp,
    timestamp_ltz,
)


@dataclass(frozen=True, slots=True)
class InferredTable:
    """fields: ids 0, 1, 2, …; columns of the key are NOT NULL, all others nullable, whatever the source says: deletes
    may leave them out, and so does every record once the source has dropped the column.
    primary_key: empty when the record has no key.
    """

    fields: tuple[DataField, ...]
    primary_key: tuple[str, ...]


def infer_table(batch: RawBatch, row: int) -> InferredTable:
    """What the record in that row tells. Raises BadInput, naming its position, for one without a row image."""
    try:
        columns = _columns(batch.values[row].as_py() or b"")
        key: bytes | None = batch.keys[row].as_py()
        primary_key = () if key is None else tuple(name for name in key_members(key) if name in columns)
    except BadValue as e:
        where = f"topic {batch.topic}, partition {batch.partition}, offset {int(batch.offsets[row])}"
        raise BadInput(f"{where}: no table can be derived from this record: {e}") from None
    fields = []
    for number, (name, source) in enumerate(columns.items()):
        column_type = inferred_type(source)
        nullability = not_null(column_type) if name in primary_key else column_type
        fields.append(DataField(number, name, nullability, source.doc))
    return InferredTable(tuple(fields), primary_key)


def _columns(value: bytes) -> Mapping[str, SourceType]:
    schema, payload = split_schema(value)
    if schema is not None:
        return {f.field: source_type(f) for f in image_schema(schema).fields if f.field is not None}
    envelope = read_envelope(payload)
    for image in (envelope.after, envelope.before):
        if bytes(image) != b"null":
            return dict.fromkeys(read_object(image), SourceType("string"))
    raise BadValue("it has no row image")


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
_INSTANTS: Final = frozenset({"io.debezium.time.ZonedTimestamp"})
_TIMESTAMP_PRECISION: Final = {PER_SECOND["s"]: 0, PER_SECOND["ms"]: 3, PER_SECOND["us"]: 6, PER_SECOND["ns"]: 9}


def inferred_type(source: SourceType) -> DataType:
    """The column type that holds every value of `source`, but for what no type of Paimon's does.

    STRING where no type does: for geometries, for decimals whose scale varies or whose precision is beyond 38, and for
    times of day finer than a millisecond: a TIME has no finer ones, whatever it declares. MySQL's come so, and may have
    more hours than a day.
    """
    match source.meaning:
        case Meaning.UNSIGNED:
            return decimal(20, 0)
        case Meaning.DECIMAL:
            precision = source.precision or MAX_DECIMAL_PRECISION
            fits = 0 <= source.scale <= precision <= MAX_DECIMAL_PRECISION
            return decimal(precision, source.scale) if fits else STRING
        case Meaning.BITS if 0 < source.length < VARYING:
            return AtomicType(Root.BINARY, length=(source.length + 7) // 8)
        case Meaning.BITS | Meaning.BASE64 | Meaning.HEX:
            return BYTES
        case Meaning.DATE:
            return DATE
        case Meaning.TIME if source.per_second <= PER_SECOND["ms"]:
            return AtomicType(Root.TIME, precision=_TIMESTAMP_PRECISION[source.per_second])
        case Meaning.TIME:
            return STRING
        case Meaning.TIMESTAMP:
            return timestamp(_TIMESTAMP_PRECISION[source.per_second])
    if source.name in _INSTANTS:
        return timestamp_ltz(6)
    if source.element is not None:
        return ArrayType(inferred_type(source.element))
    if source.key is not None and source.value is not None:
        return MapType(not_null(inferred_type(source.key)), inferred_type(source.value))
    return _CONNECT_TYPES.get(source.connect, STRING)
