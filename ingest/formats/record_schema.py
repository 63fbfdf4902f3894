"""The decoders for records of one source table with one schema into rows of one table.

Each column has a value decoder and a column decoder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import NeededColumn, Target
from tidelake.ingest.formats.connect_schema import (
    UNDECLARED,
    ConnectorSettings,
    SemanticType,
    SourceType,
    completed,
    spelled_source_type,
)
from tidelake.ingest.formats.narrow_columns import NarrowColumn, NarrowColumns, narrow_by_schema
from tidelake.ingest.formats.source_keys import WiderSourceKey, columns_outside
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.ingest.formats.values.conversion import ColumnDecoder
from tidelake.ingest.formats.values.dispatch import any_value_decoder, column_decoder_for, value_decoder_for
from tidelake.ingest.formats.values.json_text import BadValue, TooNarrow, ValueDecoder
from tidelake.ingest.formats.values.nested import UnknownField
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders
from tidelake.storage.model.format import is_reserved_column
from tidelake.storage.model.messages import add_column, alter_command, path_text
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    INTEGER_ROOTS,
    STRING,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    AtomicType,
    DataType,
    Root,
    arrow_type,
    nullable,
)

S = TypeVar("S")

_DATES: Final = frozenset({Root.DATE, *TIMESTAMP_ROOTS})
_ZERO_DATE: Final = re.compile(rb'"\d{4}-(?:00-\d\d|\d\d-00)(?:[ T][\d:.]*Z?)?"')
_KINDS: Final = (INTEGER_ROOTS, (Root.FLOAT, Root.DOUBLE), STRING_ROOTS, BINARY_ROOTS, TIMESTAMP_ROOTS)
"""Families of column types. A type of no family is a kind by itself."""


class UnknownColumns(BadValue):
    """A record has columns that its table lacks.

    needed: the missing columns, and missing fields inside columns.
    """

    def __init__(self, target: Target, needed: Sequence[NeededColumn]) -> None:
        self.target = target
        self.needed = tuple(needed)
        self.columns = tuple(".".join(column.path) for column in needed)
        names = ", ".join(map(repr, self.columns))
        missing = f"column {names} is not in table {target.name}"
        if reserved := [column.path[0] for column in needed if is_reserved_column(column.path[0])]:
            super().__init__(
                f"{missing} and can't be added: the name {', '.join(map(repr, reserved))} is reserved by Paimon. "
                "Rename the column at the connector, or exclude it there"
            )
            return
        added = [add_column(column.path, column.type or STRING) for column in needed]
        guess = (
            ""
            if None not in [column.type for column in needed]
            else " (or of another type than STRING: the record doesn't say which)"
        )
        super().__init__(
            f"{missing}; add it with `{alter_command(target.name, target.location, *added)}`{guess}, or exclude it at "
            "the connector"
        )


@dataclass(frozen=True, slots=True)
class RecordSchemaKey(Generic[S]):
    """The properties of a record, in addition to its target, on which its record schema depends.

    source: the source table.
    connector: `source.connector`.
    schema: the record's schema, or an identifier of it.
    key_columns: the columns in the record's key.
    """

    source: SourceTable
    connector: str
    schema: S
    key_columns: frozenset[str]


@dataclass(frozen=True)
class RecordColumn:
    """One column of the table with the decoders of its values.

    type: the column's type.
    decode: the value decoder.
    decode_column: the column decoder; None if the column has none, so that only `decode` reads its values.
    by_value: a column decoder that reads any value, if necessary by `decode`.
    in_primary_key: whether it is a column of the table's primary key.
    """

    name: str
    type: DataType
    decode: ValueDecoder
    decode_column: ColumnDecoder | None
    by_value: ColumnDecoder
    in_primary_key: bool

    @cached_property
    def in_memory(self) -> pa.DataType:
        return arrow_type(self.type)

    def check_nulls(self, values: pa.Array, left_out: NDArray[np.bool_] | None) -> None:
        """Raise ValueError for a null in a NOT NULL column, unless the value is filled in later.

        left_out: flags of the values that the records left out. Outside the primary key they are filled in later.
        """
        allowed = 0 if left_out is None or self.in_primary_key else int(left_out.sum())
        if not self.type.nullable and values.null_count > allowed:
            raise ValueError(f"null in column {self.name}")


class RecordSchema:
    """The columns of a target with decoders for records of one source table and one schema. It serves many batches.

    declared: column name to the type that the records declare; empty if they declare no types.
    undeclared: the type of all other columns.
    key_columns: the columns in the records' keys; empty if the records have no key with column names.
    connector: `source.connector`; "" if the records have none.
    placeholders: the placeholders of values that did not change.
    rounds: whether digits that a column's type lacks are rounded off or cut. Columns of the primary key and keys of a
        MAP are never rounded.
    zero_dates_are_null: whether a date of MySQL whose month or day is zero is NULL. Otherwise it is a bad value.
    """

    def __init__(
        self,
        target: Target,
        declared: Mapping[str, SourceType],
        key_columns: frozenset[str],
        connector: str,
        settings: ConnectorSettings,
        *,
        placeholders: Placeholders,
        undeclared: SourceType = UNDECLARED,
        rounds: bool = False,
        zero_dates_are_null: bool = False,
    ) -> None:
        self.target = target
        self._zero_dates_are_null = zero_dates_are_null
        self.connector = connector
        self.key_columns = key_columns
        self.placeholders = placeholders
        self.declared = declared
        self._spelled = spelled = {n: spelled_source_type(n, word) for n, word in target.source_types.items()}
        # Keys are never rounded: rows that differ at the source would get the same key.
        rounded = frozenset(target.schema.names) if rounds else target.rounded_columns
        self._rounded = rounded - set(target.schema.primary_keys)
        # A type in the configuration overrules the record's schema.
        self.narrow = tuple(
            narrow
            for f in target.schema.fields
            if f.name in declared and f.name not in spelled and f.name not in target.fixed_columns
            for narrow in narrow_by_schema(
                (f.name,),
                declared[f.name],
                f.type,
                settings,
                rounds=f.name in self._rounded,
                follows_types=target.follows_types,
                follows_texts=target.follows_texts,
            )
        )
        self.columns = tuple(
            self._column(f.name, f.type, self.source_type_of(f.name, undeclared), settings)
            for f in target.schema.fields
        )
        self.by_name: Mapping[str, RecordColumn] = {column.name: column for column in self.columns}
        self.primary_key = tuple(self.by_name[name] for name in target.schema.primary_keys)
        self.primary_key_places = tuple(self.columns.index(column) for column in self.primary_key)

    def _column(self, name: str, type_: DataType, source: SourceType, settings: ConnectorSettings) -> RecordColumn:
        rounds = name in self._rounded
        if source.word == "longtext" and type_.root in BINARY_ROOTS:  # see `type_mapping`
            source = replace(source, semantic_type=SemanticType.UTF8)
        decode = value_decoder_for(source, type_, self.connector, settings, rounds=rounds)
        if self._zero_dates_are_null and type_.root in _DATES:
            decode = _null_for_zero_dates(decode)
        whole = completed(source, type_, self.connector, settings)
        decode_column = column_decoder_for(whole, type_, self.placeholders, rounds=rounds)
        by_value = any_value_decoder(whole, decode, type_, self.placeholders)
        return RecordColumn(name, type_, decode, decode_column, by_value, name in self.target.schema.primary_keys)

    def source_type_of(self, column: str, undeclared: SourceType) -> SourceType:
        """Return the column's type from the configuration, else from the records, else `undeclared`."""
        return self._spelled.get(column) or self.declared.get(column) or undeclared

    def rounds_inexact_values(self, column: str) -> bool:
        """Return whether digits that the column's type lacks are rounded off or cut."""
        return column in self._rounded

    @cached_property
    def has_wider_key(self) -> bool:
        """Whether the records' keys have columns outside of the primary key, so that no row may be written."""
        target = self.target
        return target.compares_keys and bool(columns_outside(self.key_columns, target.schema.primary_keys))

    def check_key(self) -> None:
        """Raise WiderSourceKey if the records' keys have columns outside of the primary key."""
        if self.has_wider_key:
            raise WiderSourceKey(self.target, self.key_columns)

    @cached_property
    def key_has_primary_key(self) -> bool:
        """Whether a record's key contains the table's whole primary key."""
        return self.key_columns.issuperset(self.target.schema.primary_keys)

    @cached_property
    def needs_old_images(self) -> bool:
        """Whether updates and deletes without an old image are bad records.

        They are if the table retracts old values, or if the records' keys lack columns of the table's primary key, so
        that only the old image identifies the row. For records without a key only the first condition is checked.
        """
        return self.target.needs_retractions or (bool(self.key_columns) and not self.key_has_primary_key)

    @property
    def needs_old_images_of_deletes(self) -> bool:
        """Whether a delete is a bad record unless its old image has more columns than the key."""
        return self.needs_old_images or self.target.is_ordered_by_columns

    def check_types(self) -> None:
        """Raise NarrowColumns if the records' schema declares a type whose values a column can't hold."""
        if self.narrow:
            raise NarrowColumns(self.target, self.narrow)

    def unknown(self, paths: Sequence[tuple[str, ...]]) -> UnknownColumns:
        """Return the error for columns, and fields inside columns, that a record has and the table lacks."""
        return UnknownColumns(self.target, [self._needed(path) for path in paths])

    def _needed(self, path: tuple[str, ...]) -> NeededColumn:
        source = self._source_type_at(path)
        if source is None:
            return NeededColumn(path, None, None)
        return NeededColumn(path, None, inferred_type(source), source.doc, source)

    def _source_type_at(self, path: tuple[str, ...]) -> SourceType | None:
        source: SourceType | None = self.declared.get(path[0])
        for step in path[1:]:
            if source is None:
                break
            source = {"element": source.element, "value": source.value}.get(step) or source.fields.get(step)
        return source

    def read_value(self, column: RecordColumn, raw: bytes) -> object:
        """Return the value of a column that `raw` encodes.

        Raises UnknownColumns for a nested field that the table lacks, NarrowColumns for a valid value that the column
        can't hold exactly, and BadValue, which begins with the column's name, for any other value.
        """
        try:
            return column.decode(raw)
        except (UnknownField, TooNarrow) as e:
            if column.name in self.target.fixed_columns:
                path = path_text((column.name, *e.path))
                raise BadValue(f"column {path}: {e}, and `schema_evolution` does not change this column") from None
            if isinstance(e, UnknownField):
                raise self.unknown([(column.name, *e.path)]) from None
            narrow = NarrowColumn((column.name, *e.path), e.target, e.fits, str(e), e.can_round, e.is_in_key)
            raise NarrowColumns(self.target, [narrow]) from None
        except (ValueError, ArithmeticError) as e:
            if (declared := self._declared_other_kind(column)) is not None:
                reason = f"{e}, and the records declare {nullable(declared)}"
                raise NarrowColumns(
                    self.target, [NarrowColumn((column.name,), column.type, declared, reason, False)]
                ) from None
            raise BadValue(f"column {column.name}: {e}") from None

    def _declared_other_kind(self, column: RecordColumn) -> DataType | None:
        """Return the type that the records declare if it is of another kind than the column's type, else None.

        Then the column's type was changed at the source, and a value that the column can't hold is a good value.
        """
        source = self.declared.get(column.name)
        if source is None or column.name in self._spelled or column.name in self.target.fixed_columns:
            return None
        declared = inferred_type(source)
        if not isinstance(declared, AtomicType) or not isinstance(column.type, AtomicType):
            return None
        return None if _kind_of_type(declared) == _kind_of_type(column.type) else declared


def _kind_of_type(type_: AtomicType) -> object:
    return next((number for number, roots in enumerate(_KINDS) if type_.root in roots), type_.root)


def _null_for_zero_dates(decode: ValueDecoder) -> ValueDecoder:
    return lambda raw: None if _ZERO_DATE.fullmatch(raw) else decode(raw)


def ignored_fields(target: Target) -> list[tuple[str, Any, Any]]:
    """Return struct fields for the ignored columns, for a struct that decodes row images."""
    return [
        (f"ignored{i}", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=name))
        for i, name in enumerate(sorted(target.ignored_columns - target.schema.by_name.keys()))
    ]
