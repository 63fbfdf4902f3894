"""Converts column types to Hive's names of types, and back.

Source: Java `hive/HiveTypeUtils.java`.
"""

from __future__ import annotations

import re
from typing import Final

from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    parse_type,
)

_CHAR_LENGTH_MAX: Final = 255
_VARCHAR_LENGTH_MAX: Final = 65_535
_PLAIN: Final = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "tinyint",
    Root.SMALLINT: "smallint",
    Root.INT: "int",
    Root.BIGINT: "bigint",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
    Root.BLOB: "binary",
    Root.DATE: "date",
    Root.TIME: "string",
    Root.TIMESTAMP: "timestamp",
    Root.TIMESTAMP_LTZ: "timestamp with local time zone",
    Root.VARIANT: "struct<value:binary,metadata:binary>",
}
# Hive's name of a type -> Paimon's.
_SPELLED: Final = {
    **{_PLAIN[root]: root.value for root in list(_PLAIN)[:7]},
    "string": "STRING",
    "binary": "BYTES",
    "date": "DATE",
    "timestamp": "TIMESTAMP(6)",
    "timestamp with local time zone": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}
_WITH_LENGTH: Final = re.compile(r"(char|varchar)\(\d+\)|decimal\(\d+,\d+\)", re.IGNORECASE)


def hive_type(data_type: DataType) -> str:
    """Return Hive's name of a type, as Hive and Spark see the column. The exact type is in the table's schema."""
    match data_type:
        case ArrayType() | VectorType():
            return f"array<{hive_type(data_type.element)}>"
        case MultisetType():
            return f"map<{hive_type(data_type.element)},int>"
        case MapType():
            return f"map<{hive_type(data_type.key)},{hive_type(data_type.value)}>"
        case RowType():
            return f"struct<{','.join(f'{field.name}:{hive_type(field.type)}' for field in data_type.fields)}>"
    match data_type.root:
        case Root.DECIMAL:
            return f"decimal({data_type.precision},{data_type.scale})"
        case Root.CHAR:
            return "string" if data_type.length > _CHAR_LENGTH_MAX else f"char({data_type.length})"
        case Root.VARCHAR:
            return "string" if data_type.length > _VARCHAR_LENGTH_MAX else f"varchar({data_type.length})"
    found = _PLAIN.get(data_type.root)
    if found is None:
        raise UnsupportedFeature(f"column type {data_type}", "Hive has no such type", "Choose another type")
    return found


def type_of_hive(text: str) -> DataType:
    """Return the type for one of Hive's names. `hive_type` is not the exact inverse: a TIME is a string in Hive.

    Raises UnsupportedFeature if Paimon has no such type.
    """
    text = text.strip()
    name, inner = _split_type(text)
    match name:
        case "array":
            return ArrayType(type_of_hive(inner[0]))
        case "map":
            return MapType(type_of_hive(inner[0]), type_of_hive(inner[1]))
        case "struct":
            fields = [part.partition(":") for part in inner]
            return RowType(tuple(DataField(n, name, type_of_hive(t)) for n, (name, _, t) in enumerate(fields)))
    spelled = _SPELLED.get(text.lower(), text.upper() if _WITH_LENGTH.fullmatch(text) else None)
    if spelled is None:
        raise UnsupportedFeature(f"column type {text} of Hive", "Paimon has no such type", "Use another type in Hive")
    return parse_type(spelled)


def _split_type(text: str) -> tuple[str, list[str]]:
    """Split `map<int,array<int>>` into `map`, and `int` and `array<int>`. Other types give an empty name and list."""
    name, opening, rest = text.partition("<")
    if not opening or not rest.endswith(">"):
        return "", []
    parts, depth = [""], 0
    for character in rest[:-1]:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return name.strip().lower(), parts
