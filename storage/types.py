"""Column types: Paimon's names and JSON, and the Arrow types that hold their values in memory.

One value has one Arrow form everywhere in this code base (`arrow_type`):

    BOOLEAN bool · TINYINT..BIGINT int8..int64 · FLOAT, DOUBLE float32, float64 · CHAR, VARCHAR string
    BINARY, VARBINARY, BLOB binary · DECIMAL(p, s) decimal128 · DATE date32 · TIME(any p) time32[ms]
    TIMESTAMP(p) timestamp[s, ms, us or ns for p = 0, 1-3, 4-6, 7-9]; local-zoned ones the same with tz=UTC
    ARRAY list · MAP map · MULTISET map to int32 · ROW struct · VECTOR fixed_size_list
    VARIANT struct<value: binary, metadata: binary>

Source: Java `types/*Type.java`, `types/DataTypeJsonParser.java`; the in-memory forms are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

import pyarrow as pa

from storage.errors import BadInput

MAX_LENGTH: Final = 2**31 - 1  # VARCHAR(this) is spelled STRING, VARBINARY(this) BYTES
MAX_DECIMAL_PRECISION: Final = 38


class Root(StrEnum):
    """The family of a type without parameters, spelled as in schema files."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    VARIANT = "VARIANT"
    BLOB = "BLOB"
    ARRAY = "ARRAY"
    MAP = "MAP"
    MULTISET = "MULTISET"
    ROW = "ROW"
    VECTOR = "VECTOR"


STRING_ROOTS: Final = frozenset({Root.CHAR, Root.VARCHAR})
BINARY_ROOTS: Final = frozenset({Root.BINARY, Root.VARBINARY, Root.BLOB})
INTEGER_ROOTS: Final = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)  # narrow to wide
TIMESTAMP_ROOTS: Final = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
CONSTRUCTED_ROOTS: Final = frozenset({Root.ARRAY, Root.MAP, Root.MULTISET, Root.ROW, Root.VECTOR})


@dataclass(frozen=True, slots=True)
class AtomicType:
    """A type without inner types. `length` counts characters or bytes; unused parameters are 0."""

    root: Root
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return self._spelling() + ("" if self.nullable else " NOT NULL")

    def _spelling(self) -> str:
        match self.root:
            case Root.VARCHAR if self.length == MAX_LENGTH:
                return "STRING"
            case Root.VARBINARY if self.length == MAX_LENGTH:
                return "BYTES"
            case Root.CHAR | Root.VARCHAR | Root.BINARY | Root.VARBINARY:
                return f"{self.root}({self.length})"
            case Root.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case Root.TIME | Root.TIMESTAMP:
                return f"{self.root}({self.precision})"
            case Root.TIMESTAMP_LTZ:
                return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
            case _:
                return str(self.root)


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: DataType
    nullable: bool = True
    root = Root.ARRAY

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class MultisetType:
    element: DataType
    nullable: bool = True
    root = Root.MULTISET

    def __str__(self) -> str:
        return f"MULTISET<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class VectorType:
    element: DataType
    length: int
    nullable: bool = True
    root = Root.VECTOR

    def __str__(self) -> str:
        return f"VECTOR<{self.element}, {self.length}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class MapType:
    key: DataType
    value: DataType
    nullable: bool = True
    root = Root.MAP

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class DataField:
    """A column of a table or a field of a ROW. `id` names it for ever; the name may change."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class RowType:
    fields: tuple[DataField, ...]
    nullable: bool = True
    root = Root.ROW

    def __str__(self) -> str:
        inner = ", ".join(f"`{f.name}` {f.type}" for f in self.fields)
        return f"ROW<{inner}>" + ("" if self.nullable else " NOT NULL")


DataType: TypeAlias = AtomicType | ArrayType | MultisetType | VectorType | MapType | RowType

BOOLEAN: Final = AtomicType(Root.BOOLEAN)
TINYINT: Final = AtomicType(Root.TINYINT)
SMALLINT: Final = AtomicType(Root.SMALLINT)
INT: Final = AtomicType(Root.INT)
BIGINT: Final = AtomicType(Root.BIGINT)
FLOAT: Final = AtomicType(Root.FLOAT)
DOUBLE: Final = AtomicType(Root.DOUBLE)
STRING: Final = AtomicType(Root.VARCHAR, length=MAX_LENGTH)
BYTES: Final = AtomicType(Root.VARBINARY, length=MAX_LENGTH)
DATE: Final = AtomicType(Root.DATE)


def decimal(precision: int, scale: int) -> AtomicType:
    return AtomicType(Root.DECIMAL, precision=precision, scale=scale)


def timestamp(precision: int) -> AtomicType:
    return AtomicType(Root.TIMESTAMP, precision=precision)


def timestamp_ltz(precision: int) -> AtomicType:
    return AtomicType(Root.TIMESTAMP_LTZ, precision=precision)


def not_null(data_type: DataType) -> DataType:
    return replace(data_type, nullable=False)


def nullable(data_type: DataType) -> DataType:
    return replace(data_type, nullable=True)


def inner_types(data_type: DataType) -> tuple[DataType, ...]:
    """The types that this one is directly made of; empty for atomic ones."""
    match data_type:
        case RowType():
            return tuple(f.type for f in data_type.fields)
        case ArrayType() | MultisetType() | VectorType():
            return (data_type.element,)
        case MapType():
            return data_type.key, data_type.value
        case AtomicType():
            return ()


def walk_types(data_type: DataType) -> Iterator[DataType]:
    """The type, then all types inside it, depth first."""
    yield data_type
    for inner in inner_types(data_type):
        yield from walk_types(inner)


def same_ignoring_nullability(one: DataType, other: DataType) -> bool:
    return one == other or nullable(one) == nullable(other)


# ---------------------------------------------------------------- schema file JSON


def type_to_json(data_type: DataType) -> str | dict[str, Any]:
    """The form a schema file holds: text for atomic types, an object for constructed ones."""
    if isinstance(data_type, AtomicType):
        return str(data_type)
    word = str(data_type.root) + ("" if data_type.nullable else " NOT NULL")
    match data_type:
        case RowType():
            return {"type": word, "fields": [field_to_json(f) for f in data_type.fields]}
        case MapType():
            return {"type": word, "key": type_to_json(data_type.key), "value": type_to_json(data_type.value)}
        case VectorType():
            return {"type": word, "element": type_to_json(data_type.element), "length": data_type.length}
        case ArrayType() | MultisetType():
            return {"type": word, "element": type_to_json(data_type.element)}


def type_from_json(value: object) -> DataType:
    """Undoes `type_to_json`; also reads what pypaimon writes. Raises BadInput for anything else."""
    if isinstance(value, str):
        return parse_type(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise BadInput(f"not a column type: {value!r}")
    word: str = value["type"].upper()
    is_nullable = "NOT NULL" not in word
    try:
        if word.startswith(Root.ARRAY):
            return ArrayType(type_from_json(value["element"]), is_nullable)
        if word.startswith(Root.MULTISET):
            return MultisetType(type_from_json(value["element"]), is_nullable)
        if word.startswith(Root.VECTOR):
            return VectorType(type_from_json(value["element"]), int(value["length"]), is_nullable)
        if word.startswith(Root.MAP):
            return MapType(type_from_json(value["key"]), type_from_json(value["value"]), is_nullable)
        if word.startswith(Root.ROW):
            return RowType(tuple(field_from_json(f) for f in value["fields"]), is_nullable)
    except KeyError as missing:
        raise BadInput(f"column type {value!r} lacks {missing}") from None
    return parse_type(value["type"])


def field_to_json(field: DataField) -> dict[str, Any]:
    out: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        out["description"] = field.description
    if field.default is not None:
        out["defaultValue"] = field.default
    return out


def field_from_json(value: Mapping[str, Any]) -> DataField:
    return DataField(
        int(value["id"]),
        str(value["name"]),
        type_from_json(value["type"]),
        value.get("description"),
        value.get("defaultValue"),
    )


# ---------------------------------------------------------------- type text

_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z_]\w*)|(\d+)|`([^`]*)`|'((?:[^']|'')*)'|([(),<>]))")
_SYNONYMS: Final = {"INTEGER": Root.INT, "DEC": Root.DECIMAL, "NUMERIC": Root.DECIMAL}
_DEFAULT_PRECISION: Final = {Root.TIME: 0, Root.TIMESTAMP: 6, Root.TIMESTAMP_LTZ: 6}


def parse_type(text: str) -> DataType:
    """SQL text such as `DECIMAL(10, 2) NOT NULL` or `MAP<STRING, ARRAY<INT>>`. ROW fields get ids 0, 1, 2, …

    Source: Java `DataTypeJsonParser`. Raises BadInput with the text.
    """
    return _TypeParser(text).parse()


class _TypeParser:
    """Recursive descent over the tokens of one type text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._next = 0
        self._next_field_id = 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong()
            word, number, quoted, literal, mark = match.groups()
            if quoted is not None:
                self._tokens.append("`" + quoted)
            else:
                self._tokens.append(word or number or mark or "'" + literal)
            position = match.end()

    def parse(self) -> DataType:
        parsed = self._type()
        if self._next != len(self._tokens):
            raise self._wrong()
        return parsed

    def _wrong(self) -> BadInput:
        return BadInput(f"not a column type: {self._text!r}")

    def _peek(self) -> str:
        return self._tokens[self._next].upper() if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        if self._next >= len(self._tokens):
            raise self._wrong()
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, *words: str) -> bool:
        ahead = [t.upper() for t in self._tokens[self._next : self._next + len(words)]]
        if ahead != list(words):
            return False
        self._next += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._wrong()

    def _type(self) -> DataType:
        parsed = self._nullability(self._head())
        while self._peek() in (Root.ARRAY, Root.MULTISET):  # the suffix form: INT ARRAY
            make = ArrayType if self._take().upper() == Root.ARRAY else MultisetType
            parsed = self._nullability(make(parsed))
        return parsed

    def _nullability(self, parsed: DataType) -> DataType:
        if self._accept("NOT", "NULL"):
            return replace(parsed, nullable=False)
        self._accept("NULL")
        return parsed

    def _head(self) -> DataType:
        word = self._take().upper()
        match word:
            case "STRING":
                return STRING
            case "BYTES":
                return BYTES
            case "DOUBLE":
                self._accept("PRECISION")
                return DOUBLE
            case "ARRAY" | "MULTISET":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return ArrayType(element) if word == Root.ARRAY else MultisetType(element)
            case "VECTOR":
                self._expect("<")
                element = self._type()
                self._expect(",")
                length = int(self._take())
                self._expect(">")
                return VectorType(element, length)
            case "MAP":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return MapType(key, value)
            case "ROW":
                return self._row()
        root = _SYNONYMS.get(word) or (Root(word) if word in Root.__members__ else None)
        if root is None or root in CONSTRUCTED_ROOTS:
            raise self._wrong()
        return self._atomic(root)

    def _row(self) -> RowType:
        self._expect("<")
        fields: list[DataField] = []
        while not self._accept(">"):
            if fields:
                self._expect(",")
            name = self._take().removeprefix("`")
            field_id = self._next_field_id
            self._next_field_id += 1
            field_type = self._type()
            described = self._take()[1:] if self._peek().startswith("'") else None
            fields.append(DataField(field_id, name, field_type, described))
        return RowType(tuple(fields))

    def _atomic(self, root: Root) -> AtomicType:
        parameters: list[int] = []
        if self._accept("("):
            while True:
                digits = self._take()
                if not digits.isdigit():
                    raise self._wrong()
                parameters.append(int(digits))
                if self._accept(")"):
                    break
                self._expect(",")
        if root is Root.TIMESTAMP and self._accept("WITH", "LOCAL", "TIME", "ZONE"):
            root = Root.TIMESTAMP_LTZ
        elif root in (Root.TIME, Root.TIMESTAMP):
            self._accept("WITHOUT", "TIME", "ZONE")
        return self._checked(root, parameters)

    def _checked(self, root: Root, parameters: Sequence[int]) -> AtomicType:
        match root, parameters:
            case ((Root.CHAR | Root.VARCHAR | Root.BINARY | Root.VARBINARY), ([] | [_])):
                length = parameters[0] if parameters else 1
                if length <= MAX_LENGTH:
                    return AtomicType(root, length=length)
            case Root.DECIMAL, ([] | [_] | [_, _]):
                precision = parameters[0] if parameters else 10
                scale = parameters[1] if len(parameters) == 2 else 0
                if 1 <= precision <= MAX_DECIMAL_PRECISION and scale <= precision:
                    return decimal(precision, scale)
            case ((Root.TIME | Root.TIMESTAMP | Root.TIMESTAMP_LTZ), ([] | [_])):
                precision = parameters[0] if parameters else _DEFAULT_PRECISION[root]
                if precision <= 9:
                    return AtomicType(root, precision=precision)
            case _, []:
                return AtomicType(root)
        raise self._wrong()


# ---------------------------------------------------------------- Arrow

_ARROW_ATOMS: Final[Mapping[Root, pa.DataType]] = {
    Root.BOOLEAN: pa.bool_(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.CHAR: pa.string(),
    Root.VARCHAR: pa.string(),
    Root.BINARY: pa.binary(),
    Root.VARBINARY: pa.binary(),
    Root.BLOB: pa.binary(),
    Root.DATE: pa.date32(),
    Root.TIME: pa.time32("ms"),
}


def timestamp_unit(precision: int) -> str:
    """Arrow unit of TIMESTAMP(precision): the coarsest that keeps every declared digit."""
    return "s" if precision == 0 else "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def arrow_type(data_type: DataType) -> pa.DataType:
    """The one in-memory form of this type's values (see the module docstring)."""
    match data_type:
        case AtomicType(root=Root.DECIMAL):
            return pa.decimal128(data_type.precision, data_type.scale)
        case AtomicType(root=Root.TIMESTAMP):
            return pa.timestamp(timestamp_unit(data_type.precision))
        case AtomicType(root=Root.TIMESTAMP_LTZ):
            return pa.timestamp(timestamp_unit(data_type.precision), tz="UTC")
        case AtomicType(root=Root.VARIANT):
            return pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
        case AtomicType():
            return _ARROW_ATOMS[data_type.root]
        case ArrayType():
            return pa.list_(pa.field("element", arrow_type(data_type.element), data_type.element.nullable))
        case VectorType():
            return pa.list_(pa.field("element", arrow_type(data_type.element), False), data_type.length)
        case MultisetType():
            return pa.map_(arrow_type(data_type.element), pa.field("value", pa.int32(), False))
        case MapType():
            value = pa.field("value", arrow_type(data_type.value), data_type.value.nullable)
            return pa.map_(arrow_type(data_type.key), value)
        case RowType():
            return pa.struct([arrow_field(f) for f in data_type.fields])


def arrow_field(field: DataField) -> pa.Field:
    return pa.field(field.name, arrow_type(field.type), field.type.nullable)


def arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    return pa.schema([arrow_field(f) for f in fields])


def type_from_arrow(
    given: pa.DataType, next_field_id: Callable[[], int], *, column: str, is_nullable: bool = True
) -> DataType:
    """The column type for a user's Arrow type. `next_field_id` numbers the fields of nested ROWs, depth first.

    Unsigned integers take the next wider signed type (uint64: DECIMAL(20, 0)). Raises BadInput, naming `column`,
    for what Paimon cannot hold: durations, intervals, times finer than a millisecond, unions, nulls.
    """
    found = _type_from_arrow(given, next_field_id, column)
    return found if is_nullable else not_null(found)


def description_from_arrow(given: pa.Field) -> str | None:
    """What the metadata of a user's Arrow field says under `description`."""
    text = (given.metadata or {}).get(b"description")
    return text.decode() if text is not None else None


_FROM_ARROW: Final[Mapping[pa.DataType, DataType]] = {
    pa.bool_(): BOOLEAN,
    pa.int8(): TINYINT,
    pa.int16(): SMALLINT,
    pa.int32(): INT,
    pa.int64(): BIGINT,
    pa.uint8(): SMALLINT,
    pa.uint16(): INT,
    pa.uint32(): BIGINT,
    pa.uint64(): decimal(20, 0),
    pa.float16(): FLOAT,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.binary_view(): BYTES,
    pa.date32(): DATE,
    pa.date64(): DATE,
    pa.time32("s"): AtomicType(Root.TIME, precision=0),
    pa.time32("ms"): AtomicType(Root.TIME, precision=3),
}
_TIMESTAMP_PRECISION: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _type_from_arrow(given: pa.DataType, next_field_id: Callable[[], int], column: str) -> DataType:
    def inner(field: pa.Field, part: str) -> DataType:
        return type_from_arrow(field.type, next_field_id, column=f"{column}.{part}", is_nullable=field.nullable)

    if given in _FROM_ARROW:
        return _FROM_ARROW[given]
    if isinstance(given, pa.DictionaryType):
        return _type_from_arrow(given.value_type, next_field_id, column)
    if isinstance(given, pa.TimestampType):
        precision = _TIMESTAMP_PRECISION[given.unit]
        return timestamp(precision) if given.tz is None else timestamp_ltz(precision)
    if isinstance(given, pa.FixedSizeBinaryType) and not pa.types.is_decimal(given):
        return AtomicType(Root.BINARY, length=given.byte_width)
    if pa.types.is_decimal(given):
        if given.precision > MAX_DECIMAL_PRECISION or not 0 <= given.scale <= given.precision:
            raise BadInput(f"column {column}: {given} does not fit DECIMAL(38, s) with 0 <= s <= precision")
        return decimal(given.precision, given.scale)
    if pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given):
        return ArrayType(inner(given.value_field, "element"))
    if pa.types.is_map(given):
        return MapType(inner(given.key_field, "key"), inner(given.item_field, "value"))
    if pa.types.is_struct(given):
        fields = []
        for position in range(given.num_fields):
            part = given.field(position)
            field_id = next_field_id()
            fields.append(DataField(field_id, part.name, inner(part, part.name), description_from_arrow(part)))
        return RowType(tuple(fields))
    if pa.types.is_time(given):
        raise BadInput(f"column {column}: Paimon keeps times of day in milliseconds; cast {given} to time32('ms')")
    raise BadInput(f"column {column}: no Paimon type holds Arrow's {given}")
