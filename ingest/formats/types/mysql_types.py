"""Parses MySQL's column types in change records (`bigint(20) unsigned`) into source types with a column type.

Source: Paimon `cdc/mysql/MySqlTypeUtils.java`. The column type differs from Paimon's if Paimon's can't hold every
value: for TIME, which may have more hours than a day, and for BINARY and BIT without a length.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tidelake.ingest.formats.connect_schema import JSON_VALUE, SemanticType, SourceType
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
    TINYINT,
    ArrayType,
    AtomicType,
    DataType,
    Root,
    decimal,
    timestamp,
)

_TYPE: Final = re.compile(r"\s*(?P<name>[a-z][a-z0-9 ]*)(?:\((?P<inside>.*)\))?[^()]*", re.DOTALL)
_LABEL: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'|\"((?:[^\"\\]|\"\"|\\.)*)\"", re.DOTALL)
_PLAIN: Final = {
    "bool": BOOLEAN,
    "boolean": BOOLEAN,
    "tinyint": TINYINT,
    "smallint": SMALLINT,
    "mediumint": INT,
    "int": INT,
    "integer": INT,
    "year": INT,
    "bigint": BIGINT,
    "long": BIGINT,
    "date": DATE,
    "serial": decimal(20, 0),
}
_UNSIGNED: Final = {
    "tinyint": SMALLINT,
    "smallint": INT,
    "mediumint": BIGINT,
    "int": BIGINT,
    "integer": BIGINT,
    "bigint": decimal(20, 0),
}
_BLOBS: Final = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
_DECIMALS: Final = frozenset({"decimal", "numeric", "fixed", "dec"})
_BARE_DECIMAL: Final = decimal(38, 18)  # as in Paimon
_BITS_MAX: Final = 64


@lru_cache(4_096)
def mysql_source_type(text: str) -> SourceType:
    """Return the source type of a MySQL type. A type unknown to MySQL gives a STRING column with unchanged values."""
    return replace(_source_type(text), word=" ".join(text.lower().split()))


def _source_type(text: str) -> SourceType:
    match = _TYPE.fullmatch(text.lower())
    if match is None:
        return _declared(STRING)
    name, inside = match["name"].strip(), match["inside"] or ""
    labels = _labels(text[match.start("inside") : match.end("inside")]) if inside else ()
    if name.endswith((" unsigned", " zerofill")):
        name = name.split(" ")[0]
    is_unsigned = "unsigned" in text.lower() or "zerofill" in text.lower()
    numbers = [int(part) for part in re.findall(r"\d{1,9}", inside)]
    length = numbers[0] if numbers else 0
    match name:
        case "tinyint" if length == 1 and not is_unsigned:
            return _declared(BOOLEAN)
        case "bit" if length <= 1:
            return _declared(BOOLEAN)
        case "bit" if length <= _BITS_MAX:
            return _declared(AtomicType(Root.BINARY, length=(length + 7) // 8), SemanticType.BIT_NUMBER, length=length)
        case "float":
            return _declared(FLOAT, connect="float")
        case "double" | "double precision" | "real":
            return _declared(DOUBLE, connect="double")
        case "datetime" | "timestamp":
            return _declared(timestamp(length) if length <= 9 else STRING)
        case "char" | "varchar" if length:
            return _declared(AtomicType(Root.CHAR if name == "char" else Root.VARCHAR, length=length))
        case "binary" | "varbinary":
            return _declared(AtomicType(Root.VARBINARY, length=length) if length else BYTES, SemanticType.LATIN1)
        case "enum" | "set" if not labels:  # TiCDC's canal-json sends numbers, without the labels
            return _declared(STRING if name == "enum" else ArrayType(STRING), SemanticType.NUMBERED_LABEL)
        case "enum":
            return SourceType(JSON_VALUE.connect, labels=labels, column_type=STRING)
        case "set":
            return SourceType(JSON_VALUE.connect, SemanticType.SET, flags=labels, column_type=ArrayType(STRING))
    if name in _DECIMALS:
        return _declared(_decimal(numbers))
    if name in _BLOBS:
        return _declared(BYTES, SemanticType.LATIN1)
    return _declared((_UNSIGNED if is_unsigned else _PLAIN).get(name) or _PLAIN.get(name, STRING))


def _declared(
    column_type: DataType,
    semantic_type: SemanticType = SemanticType.PLAIN,
    *,
    connect: str = JSON_VALUE.connect,
    length: int = 0,
) -> SourceType:
    return SourceType(connect, semantic_type, length=length, column_type=column_type)


def _decimal(numbers: list[int]) -> DataType:
    if not numbers:
        return _BARE_DECIMAL
    precision, scale = (*numbers, 0)[:2]
    return decimal(precision, scale) if 0 < precision <= MAX_DECIMAL_PRECISION and scale <= precision else STRING


def _labels(inside: str) -> tuple[str, ...]:
    """Return the labels of an ENUM or SET. inside: the text between its parentheses, such as 'a','it''s'."""
    found = (match[1] if match[1] is not None else match[2] for match in _LABEL.finditer(inside))
    return tuple(re.sub(r"''|\"\"|\\(.)", lambda m: m[1] or m[0][0], label) for label in found)
