"""The type changes that are allowed for a column whose existing files keep the old type.

Existing files are read with a cast, so a change is allowed if such a cast exists. Any other change would break the
table for Java. Some casts lose information (INT to TINYINT wraps, CHAR(10) to CHAR(5) truncates), and Paimon allows
them. Option `disable-explicit-type-casting` of a table forbids the worst of them.

Source: Java `types/DataTypeCasts.java` (what is allowed) and `casting/*CastRule.java` (what can be executed), combined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage.types import INTEGER_ROOTS, STRING, STRING_ROOTS, TIMESTAMP_ROOTS, DataType, Root, nullable

_TEXTS: Final = STRING_ROOTS
_BYTES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_INTEGERS: Final = frozenset(INTEGER_ROOTS)
_NUMBERS: Final = _INTEGERS | {Root.FLOAT, Root.DOUBLE, Root.DECIMAL}
_CASTABLE_TO_TEXT: Final = _NUMBERS | _BYTES | {Root.BOOLEAN, Root.ARRAY, Root.MAP, Root.ROW}
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
