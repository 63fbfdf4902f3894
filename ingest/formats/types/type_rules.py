"""Rules for type changes of a pipeline: a type may only become a wider one of its kind, so that no value loses
digits.

The rules are stricter than `tidelake.storage.model.schema.type_changes`, which defines the changes that a user may
make.

Source: Paimon `sink/UpdatedDataFieldsProcessFunctionBase.java` (canConvert). There a DECIMAL may get more digits after
the point and fewer before it; here neither number may decrease.
"""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.types import STRING_ROOTS, AtomicType, DataType, Root

_INTEGERS: Final = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
_FLOATS: Final = (Root.FLOAT, Root.DOUBLE)
_BYTES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_BY_PRECISION: Final = frozenset({Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})


def is_widening(old: DataType, new: DataType) -> bool:
    """Return whether a column of type `old` may become `new`. Nullability is ignored."""
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
