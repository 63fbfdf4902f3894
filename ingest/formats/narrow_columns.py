"""Columns whose type is narrower than the source's type in the record's schema, or than a value.

A declared type is wider than the column if values could lose digits silently: more digits of a DECIMAL, a DOUBLE for a
FLOAT, a finer TIMESTAMP. Declared types of integers, texts and bytes are ignored: a value that is too large is noticed,
and Connect's type may be wider than the source's (MySQL's TINYINT is sent as int16). Times of day are ignored as well,
because MySQL's are always sent in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.ingest.formats.base import NeededColumn, Target
from tidelake.ingest.formats.connect_schema import DOUBLE_WORDS, PER_SECOND, ConnectorSettings, SemanticType, SourceType
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.ingest.formats.values.decimals import wide_decimal
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.storage.model.messages import alter_command, path_text, rewrite_command, set_type
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.schema.type_changes import can_change, is_wider_key, use_that_fixes_type
from tidelake.storage.model.types import (
    DOUBLE,
    STRING,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
    VectorType,
    nullable,
    timestamp_unit,
)

_INTEGERS: Final = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
_BYTES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_PRECISE_UNITS: Final = frozenset({"microseconds", "nanoseconds"})  # their unit is not the source's precision


@dataclass(frozen=True, slots=True)
class NarrowColumn:
    """A column, or a member of it, whose type is too narrow.

    path: the column and the names of its nested members.
    type: its current type.
    fits: a type that holds the new values and all values of the current type.
    reason: what doesn't fit.
    can_round: whether rounding digits off would make the values fit, and is allowed here.
    is_in_map_key: whether it is the key of a MAP, or part of one.
    """

    path: tuple[str, ...]
    type: DataType
    fits: DataType
    reason: str
    can_round: bool
    is_in_map_key: bool = False


class NarrowColumns(BadValue):
    """A record has valid values that the table's columns can't hold exactly."""

    def __init__(self, target: Target, found: Sequence[NarrowColumn]) -> None:
        self.target = target
        self.columns = tuple(".".join(column.path) for column in found)
        self.needed = tuple(NeededColumn(column.path, column.type, column.fits) for column in found)
        what = "; ".join(
            f"column {path_text(c.path)} of {target.name} is {nullable(c.type)}: {c.reason}" for c in found
        )
        super().__init__(f"{what}. {_remedy(target, found)}")


def narrow_by_schema(
    path: tuple[str, ...],
    source: SourceType,
    target: DataType,
    settings: ConnectorSettings,
    *,
    rounds: bool = False,
    is_in_map_key: bool = False,
    follows_types: bool = False,
    follows_texts: bool = False,
) -> Iterator[NarrowColumn]:
    """Yield the column, or its members, if they can't hold values of the type in the record's schema.

    source: the type that the record's schema declares.
    target: the column's type.
    rounds: whether digits may get lost. They never may in keys of a MAP, as two keys could become one.
    follows_types: also yield columns for wider integers, texts and bytes, though a value that is too large is noticed.
    follows_texts: with `follows_types`, also yield columns of other types for which the schema declares a text.
    """
    if rounds and not is_in_map_key and isinstance(target, AtomicType):
        return
    fits = _wider(source, target, settings)
    can_round = fits is not None
    if fits is None and follows_types:
        fits = _wider_declared_type(source, target)
        if fits is None and follows_texts and target.root not in STRING_ROOTS and _is_text(source):
            fits = STRING
    if fits is not None:
        reason = f"the record's schema says {nullable(inferred_type(source))}"
        yield NarrowColumn(path, target, fits, reason, can_round and not is_in_map_key, is_in_map_key)
    for step, inner_source, inner_target in _members(source, target):
        if inner_source is not None:
            yield from narrow_by_schema(
                (*path, step),
                inner_source,
                inner_target,
                settings,
                rounds=rounds,
                is_in_map_key=is_in_map_key or (isinstance(target, MapType) and step == "key"),
                follows_types=follows_types,
                follows_texts=follows_texts,
            )


def _is_text(source: SourceType) -> bool:
    if source.column_type is not None:
        return source.column_type.root in STRING_ROOTS
    return source.connect == "string" and source.semantic_type is SemanticType.PLAIN and not source.name


def _wider_declared_type(source: SourceType, target: DataType) -> DataType | None:
    """Return the declared type if it is a longer type of the same family as the column's, else None.

    Debezium's connectors send a TINYINT as an int16, so an int16 does not widen a TINYINT. A declared text without a
    length does not widen a column, because Connect's texts never have a length.
    """
    declared = inferred_type(source)
    if not isinstance(target, AtomicType) or not isinstance(declared, AtomicType):
        return None
    if target.root in _INTEGERS and declared.root in _INTEGERS:
        is_tinyint = target.root is Root.TINYINT and source.connect == "int16"
        return declared if _INTEGERS.index(declared.root) > _INTEGERS.index(target.root) and not is_tinyint else None
    if source.column_type is None:
        return None
    for family, longest in ((STRING_ROOTS, Root.VARCHAR), (_BYTES, Root.VARBINARY)):
        if target.root in family and declared.root in family and declared.length > target.length:
            return AtomicType(longest, length=declared.length)
    return None


def _wider(source: SourceType, target: DataType, settings: ConnectorSettings) -> DataType | None:
    """Return a type that holds all values of the source's and the column's type; None if the column's does already."""
    if not isinstance(target, AtomicType):
        return None
    if isinstance(source.column_type, AtomicType):
        return _wider_of(source.column_type, target)
    match source.semantic_type:
        case SemanticType.DECIMAL if target.root is Root.DECIMAL:
            whole_digits = max(0, source.precision - source.scale) if source.precision else 0
            if source.scale > target.scale or whole_digits > target.precision - target.scale:
                return wide_decimal(target, whole_digits, source.scale)
        case SemanticType.TIMESTAMP if (
            target.root in TIMESTAMP_ROOTS and settings.time_precision_mode not in _PRECISE_UNITS
        ):
            # Debezium counts whole seconds in milliseconds, too.
            if source.per_second > max(PER_SECOND["ms"], PER_SECOND[timestamp_unit(target.precision)]):
                return AtomicType(target.root, precision=len(str(source.per_second)) - 1)
        case SemanticType.PLAIN if target.root is Root.FLOAT and source.connect in DOUBLE_WORDS:
            return DOUBLE
    return None


def _wider_of(declared: AtomicType, target: AtomicType) -> DataType | None:
    match declared.root:
        case Root.DECIMAL if target.root is Root.DECIMAL:
            whole_digits = declared.precision - declared.scale
            if declared.scale > target.scale or whole_digits > target.precision - target.scale:
                return wide_decimal(target, whole_digits, declared.scale)
        case Root.TIMESTAMP if target.root in TIMESTAMP_ROOTS:
            if PER_SECOND[timestamp_unit(declared.precision)] > PER_SECOND[timestamp_unit(target.precision)]:
                return AtomicType(target.root, precision=declared.precision)
        case Root.DOUBLE if target.root is Root.FLOAT:
            return DOUBLE
    return None


def _members(source: SourceType, target: DataType) -> Iterator[tuple[str, SourceType | None, DataType]]:
    match target:
        case ArrayType() | VectorType():
            yield "element", source.element, target.element
        case MapType():
            yield "key", source.key, target.key
            yield "value", source.value, target.value
        case RowType():
            for field in target.fields:
                yield field.name, source.fields.get(field.name), field.type


# ---------------------------------------------------------------- what can be done


def _remedy(target: Target, found: Sequence[NarrowColumn]) -> str:
    changes = [set_type(c.path, c.fits) for c in found if _may_change(c, target.schema)]
    fixed = [
        f"{path_text(c.path)} {nullable(c.fits)}"
        for c in found
        if not _may_change(c, target.schema) and not _may_be_rewritten(c, target.schema)
    ]
    parts = []
    if changes:
        fits = ", ".join(str(nullable(c.fits)) for c in found if _may_change(c, target.schema))
        parts.append(f"change the column to {fits}: `{alter_command(target.name, target.location, *changes)}`")
    if wider := [c for c in found if _may_be_rewritten(c, target.schema)]:
        command = rewrite_command(target.name, target.location, *(set_type(c.path, c.fits) for c in wider))
        parts.append(f"all rows must be rewritten for it: `{command}`")
    if fixed:
        parts.append(f"its type can't be changed any more: create a new table with {', '.join(fixed)}")
    if all(c.can_round and c.path[0] not in target.schema.primary_keys for c in found):
        parts.append(
            "or round the values: set `inexact_values: round` in `format_options`, or `rounded_columns` of the table "
            "for only these columns"
        )
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _may_change(column: NarrowColumn, schema: TableSchema) -> bool:
    is_fixed = len(column.path) == 1 and use_that_fixes_type(schema, column.path[0]) is not None
    return not is_fixed and not column.is_in_map_key and can_change(column.type, column.fits)


def _may_be_rewritten(column: NarrowColumn, schema: TableSchema) -> bool:
    """Return whether the column of the key becomes wider when all rows of the table are rewritten."""
    use = use_that_fixes_type(schema, column.path[0]) if len(column.path) == 1 else None
    return use == "primary key" and is_wider_key(column.type, column.fits)
