"""The type changes that are allowed for a column whose existing files keep the old type, and the uses that forbid all.

Existing files are read with a cast, so a change is allowed if such a cast exists. Any other change would break the
table for Java. Some casts lose information (INT to TINYINT wraps, CHAR(10) to CHAR(5) truncates), and Paimon allows
them. Option `disable-explicit-type-casting` of a table forbids the worst of them. Keys, partitions, buckets and indexes
are computed from the values of a column, and fix its type.

Source: Java `types/DataTypeCasts.java` (what is allowed) and `casting/*CastRule.java` (what can be executed), combined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelake.storage.model.binary_row.row_layout import COMPACT_DECIMAL_PRECISION
from tidelake.storage.model.options.values import parse_names
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    BYTES,
    DOUBLE,
    INTEGER_ROOTS,
    MAX_DECIMAL_PRECISION,
    STRING,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    AtomicType,
    DataType,
    Root,
    decimal,
    nullable,
)

_TEXTS: Final = STRING_ROOTS
_BYTES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_INTEGERS: Final = frozenset(INTEGER_ROOTS)
_NUMBERS: Final = _INTEGERS | {Root.FLOAT, Root.DOUBLE, Root.DECIMAL}
_CASTABLE_TO_TEXT: Final = _NUMBERS | _BYTES | {Root.BOOLEAN, Root.ARRAY, Root.MAP, Root.ROW}
_IN_DOUBLE: Final = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.FLOAT, Root.DOUBLE})  # without rounding
_INTEGER_DIGITS: Final = {Root.TINYINT: 3, Root.SMALLINT: 5, Root.INT: 10, Root.BIGINT: 19}
_ONLY_AS_STRING: Final = TIMESTAMP_ROOTS | {Root.DATE, Root.TIME}  # no cast to CHAR(n) or VARCHAR(n)

# New root -> old roots. Always allowed.
IMPLICIT: Final[Mapping[Root, frozenset[Root]]] = {
    Root.CHAR: frozenset({Root.CHAR}),
    Root.VARCHAR: _TEXTS,
    Root.BINARY: frozenset({Root.BINARY}),
    Root.VARBINARY: _BYTES,
    Root.TINYINT: frozenset({Root.TINYINT}),
    Root.SMALLINT: frozenset({Root.TINYINT, Root.SMALLINT}),
    Root.INT: frozenset({Root.TINYINT, Root.SMALLINT, Root.INT}),
    Root.BIGINT: _INTEGERS,
    Root.FLOAT: _NUMBERS - {Root.DOUBLE},
    Root.DOUBLE: _NUMBERS,
    Root.DECIMAL: _NUMBERS,
    Root.DATE: frozenset({Root.TIMESTAMP}),
    Root.TIME: frozenset({Root.TIMESTAMP}),
    Root.TIMESTAMP: TIMESTAMP_ROOTS,
    Root.TIMESTAMP_LTZ: TIMESTAMP_ROOTS,
}

# New root -> old roots. Allowed unless the table forbids explicit casts.
EXPLICIT: Final[Mapping[Root, frozenset[Root]]] = {
    Root.CHAR: _TEXTS | _CASTABLE_TO_TEXT,
    Root.VARCHAR: _CASTABLE_TO_TEXT,
    Root.BOOLEAN: _TEXTS | _INTEGERS,
    Root.BINARY: _TEXTS | _BYTES,
    Root.VARBINARY: _TEXTS,
    Root.TINYINT: _NUMBERS | _TEXTS | {Root.BOOLEAN},
    Root.SMALLINT: _NUMBERS | _TEXTS | {Root.BOOLEAN},
    Root.INT: _NUMBERS | _TEXTS | TIMESTAMP_ROOTS | {Root.BOOLEAN},
    Root.BIGINT: _NUMBERS | _TEXTS | TIMESTAMP_ROOTS | {Root.BOOLEAN},
    Root.FLOAT: _NUMBERS | _TEXTS | {Root.BOOLEAN},
    Root.DOUBLE: _TEXTS | {Root.BOOLEAN},
    Root.DECIMAL: _TEXTS | {Root.BOOLEAN},
    Root.DATE: _TEXTS | TIMESTAMP_ROOTS,
    Root.TIME: _TEXTS | TIMESTAMP_ROOTS,
    Root.TIMESTAMP: _TEXTS | {Root.DATE, Root.TIME, Root.INT, Root.BIGINT},
    Root.TIMESTAMP_LTZ: _TEXTS | {Root.DATE, Root.TIME, Root.INT, Root.BIGINT},
}


def can_change(old: DataType, new: DataType, *, explicit: bool = True) -> bool:
    """Return whether a column of type `old` may become `new`. Nullability is ignored.

    explicit: whether casts count that SQL requires to be explicit.
    """
    old, new = nullable(old), nullable(new)
    if old == new or old.root in IMPLICIT.get(new.root, ()):
        return True
    if not explicit:
        return False
    return old.root in EXPLICIT.get(new.root, ()) or (new == STRING and old.root in _ONLY_AS_STRING)


def is_wider_key(old: DataType, new: DataType) -> bool:
    """Return whether a column of the key can become `new` when all rows are rewritten: no two keys become equal, and
    their order stays.
    """
    old, new = nullable(old), nullable(new)
    if not isinstance(old, AtomicType) or not isinstance(new, AtomicType):
        return False
    if {old.root, new.root} <= _INTEGERS:
        return INTEGER_ROOTS.index(new.root) >= INTEGER_ROOTS.index(old.root)
    if old.root is new.root is Root.DECIMAL:  # with the same bytes, so that a rewrite can be read while unfinished
        is_compact = old.precision <= COMPACT_DECIMAL_PRECISION
        keeps_bytes = new.scale == old.scale and is_compact == (new.precision <= COMPACT_DECIMAL_PRECISION)
        return keeps_bytes and new.precision >= old.precision
    return old.root in _TEXTS and new.root is Root.VARCHAR and new.length >= old.length


def type_of_both(old: DataType, given: DataType) -> DataType | None:
    """Return the type that a column of type `old` can change to so that it also holds values of type `given`.

    No value that the column has already is rounded, cut or lost. None if there is no such type.
    """
    old, given = nullable(old), nullable(given)
    if not isinstance(old, AtomicType) or not isinstance(given, AtomicType):
        return None
    if {old.root, given.root} <= _NUMBERS:
        return _number_of_both(old, given)
    if old.root == given.root and old.root in TIMESTAMP_ROOTS:
        return AtomicType(old.root, precision=max(old.precision, given.precision))
    keeps_all = given == STRING or (old.root, given.root) == (Root.DATE, Root.TIMESTAMP)
    keeps_all |= old.root is Root.BOOLEAN and given.root in _INTEGERS
    keeps_all |= old.root in _TEXTS and given == BYTES
    return given if keeps_all and can_change(old, given) else None


def _number_of_both(old: AtomicType, given: AtomicType) -> DataType | None:
    if {old.root, given.root} <= _INTEGERS:
        return max(old, given, key=lambda one: INTEGER_ROOTS.index(one.root))
    if {old.root, given.root} & {Root.FLOAT, Root.DOUBLE}:
        return DOUBLE if {old.root, given.root} <= _IN_DOUBLE and old.root is not Root.DOUBLE else None
    scale = max(old.scale, given.scale)
    precision = max(_INTEGER_DIGITS.get(one.root, one.precision - one.scale) for one in (old, given)) + scale
    return decimal(precision, scale) if precision <= MAX_DECIMAL_PRECISION else None


def use_that_fixes_type(schema: TableSchema, column: str) -> str | None:
    """Return what is computed from the values of a column, for example "bucket key"; None if nothing is.

    With another type, the keys, partitions, buckets and indexes of existing rows would no longer be found.
    """
    uses = {
        "primary key": schema.primary_keys,
        "partition": schema.partition_keys,
        "bucket key": parse_names(schema.options.get("bucket-key", "")),
        "index": indexed_columns(schema),
    }
    return next((use for use, columns in uses.items() if column in columns), None)


def indexed_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return the columns that have an index of the primary-key table, of whatever kind."""
    kinds = ("vector", "btree", "bitmap", "multivalue", "full-text")
    return tuple(name for kind in kinds for name in parse_names(schema.options.get(f"pk-{kind}.index.columns", "")))
