"""Column types, as a schema declares them.

Source: Java `types/*Type.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

MAX_LENGTH: Final = 2**31 - 1  # VARCHAR of this length is written STRING, VARBINARY is written BYTES
MAX_DECIMAL_PRECISION: Final = 38


class Root(StrEnum):
    """The family of a type without parameters, named as in schema files."""

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
INTEGER_ROOTS: Final = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)  # from narrow to wide
TIMESTAMP_ROOTS: Final = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
CONSTRUCTED_ROOTS: Final = frozenset({Root.ARRAY, Root.MAP, Root.MULTISET, Root.ROW, Root.VECTOR})


@dataclass(frozen=True, slots=True)
class AtomicType:
    """A type without inner types.

    length: in characters or bytes. Parameters that the type doesn't have are 0.
    """

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
    """A column of a table or a field of a ROW. Its id never changes; its name may."""

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
    """Return the types of which this type is directly composed; none for atomic types."""
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
    """Yield the type, then all types inside it, depth first."""
    yield data_type
    for inner in inner_types(data_type):
        yield from walk_types(inner)


def same_ignoring_nullability(one: DataType, other: DataType) -> bool:
    return one == other or nullable(one) == nullable(other)
