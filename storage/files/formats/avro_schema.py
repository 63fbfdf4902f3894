"""Makes the Avro schema of a data file.

Source: Java `format/avro/AvroSchemaConverter.java`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.format import AVRO_NAMESPACE, AVRO_RECORD
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    INT,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
)

AvroType: TypeAlias = Any  # a name, a mapping, or a list, as in JSON

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final[Mapping[Root, AvroType]] = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.DATE: {"type": "int", "logicalType": "date"},
    Root.TIME: {"type": "int", "logicalType": "time-millis"},
    **dict.fromkeys(STRING_ROOTS, "string"),
    **dict.fromkeys(BINARY_ROOTS, "bytes"),
}


def avro_schema(fields: Sequence[DataField]) -> AvroType:
    """Return the schema. Raises UnsupportedFeature, with the column, for types that Avro or Java can't represent."""
    for f in fields:
        try:
            _avro_type(f.type, AVRO_RECORD)
        except _UnsupportedType as problem:
            raise UnsupportedFeature(
                f"{problem} in Avro files", f"column {f.name!r} can't be stored", "Set file.format = parquet"
            ) from None
    _check_names(fields)
    record = _record(fields, AVRO_RECORD)
    return {**record, "namespace": AVRO_NAMESPACE}


class _UnsupportedType(Exception):
    """Avro has no form for a type. The message is the type."""


def _check_names(fields: Sequence[DataField]) -> None:
    for f in fields:
        if not _NAME.fullmatch(f.name):
            raise UnsupportedFeature(
                f"column name {f.name!r} in Avro files",
                "Avro's names are made of ASCII letters, digits and underscores",
                "Rename the column, or set file.format = parquet",
            )


def _record(fields: Sequence[DataField], name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(f.name, f.type, f"{name}_{f.name}") for f in fields]}


def _field(name: str, data_type: DataType, record_name: str) -> dict[str, Any]:
    default = {"default": None} if data_type.nullable else {}
    return {"name": name, "type": _avro_type(data_type, record_name), **default}


def _avro_type(data_type: DataType, record_name: str) -> AvroType:
    """Return the Avro type of a column or a nested value.

    record_name: the name of the record, if the type needs one. Nested records are named by their path.
    """
    plain = _plain_type(data_type, record_name)
    return ["null", plain] if data_type.nullable else plain  # null comes first: Java uses the position


def _plain_type(data_type: DataType, record_name: str) -> AvroType:
    match data_type:
        case RowType():
            _check_names(data_type.fields)
            return _record(data_type.fields, record_name)
        case MapType():
            return _map(data_type.key, data_type.value, record_name)
        case MultisetType():
            return _map(data_type.element, INT, record_name)
        case ArrayType() | VectorType():
            return {"type": "array", "items": _avro_type(data_type.element, record_name)}
        case AtomicType(root=Root.DECIMAL):
            parameters = {"precision": data_type.precision, "scale": data_type.scale}
            return {"type": "bytes", "logicalType": "decimal", **parameters}
        case AtomicType(precision=precision) if data_type.root in TIMESTAMP_ROOTS and precision <= 6:
            # Java uses Avro's names with the opposite meaning.
            local = "local-" if data_type.root is Root.TIMESTAMP_LTZ else ""
            unit = "millis" if precision <= 3 else "micros"
            return {"type": "long", "logicalType": f"{local}timestamp-{unit}"}
        case AtomicType(root=Root.TIME, precision=precision) if precision > 3:
            raise _UnsupportedType(str(data_type))
    if data_type.root not in _PRIMITIVES:
        raise _UnsupportedType(str(data_type))
    return _PRIMITIVES[data_type.root]


def _map(key: DataType, value: DataType, record_name: str) -> AvroType:
    """Return the Avro type of a map. Avro's maps have text keys; other maps become an array of entries."""
    if key.root in STRING_ROOTS:
        return {"type": "map", "values": _avro_type(value, record_name)}
    entry = [_field("key", key, f"{record_name}_key"), _field("value", value, f"{record_name}_value")]
    entry[0].pop("default", None)
    items = {"type": "record", "name": record_name, "fields": entry}
    return {"type": "array", "items": items, "logicalType": "map"}
