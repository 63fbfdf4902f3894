"""How records of one source table, under one schema, become rows of one table: a value decoder and a column decoder
for each column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.base import NeededColumn, Target
from ingest.formats.connect_schema import (
    UNDECLARED,
    ConnectorSettings,
    SemanticType,
    SourceType,
    completed,
    spelled_source_type,
)
from ingest.formats.narrow_columns import NarrowColumn, NarrowColumns, narrow_by_schema
from ingest.formats.source_table import SourceTable
from ingest.formats.types.inferred_types import inferred_type
from ingest.formats.values.column_decoders import ColumnDecoder, column_decoder_for
from ingest.formats.values.dispatch import value_decoder_for
from ingest.formats.values.json_text import BadValue, TooNarrow, ValueDecoder
from ingest.formats.values.nested import UnknownField
from ingest.formats.values.raw_texts import any_value_decoder
from ingest.formats.values.unavailable_placeholders import Placeholders
from storage.format import is_reserved_column
from storage.messages.alter_command import add_column, alter_command, path_text
from storage.types import BINARY_ROOTS, STRING, DataType, arrow_type

S = TypeVar("S")


class UnknownColumns(BadValue):
    """A record has columns that its table lacks.

    needed: the columns, and fields inside columns.
    """

    def __init__(self, target: Target, needed: Sequence[NeededColumn]) -> None:
        self.target = target
        self.needed = tuple(needed)
        self.columns = tuple(".".join(column.path) for column in needed)
        names = ", ".join(map(repr, self.columns))
        missing = f"column {names} is not in table {target.name}"
        if reserved := [column.path[0] for column in needed if is_reserved_column(column.path[0])]:
            super().__init__(
                f"{missing} and can't be added: {', '.join(map(repr, reserved))} is a name that Paimon keeps for "
                "itself. Rename it at the connector, or leave it out there"
            )
            return
        added = [add_column(column.path, column.type or STRING) for column in needed]
        guess = (
            ""
            if None not in [column.type for column in needed]
            else " (or of another type than STRING: the record doesn't say which)"
        )
        super().__init__(
            f"{missing}; add it with "
            f"`{alter_command(target.name, target.location, *added)}`{guess}, or leave it out at the connector"
        )


@dataclass(frozen=True, slots=True)
class RecordSchemaKey(Generic[S]):
    """What decides how a record is read, apart from its target. schema: as the record has it, or names it."""

    source: SourceTable
    connector: str
    schema: S
    key_columns: frozenset[str]


@dataclass(frozen=True)
class RecordColumn:
    """One column of the table and how its values are read. `decode_column` is None where only `decode` can."""

    name: str
    type: DataType
    decode: ValueDecoder
    decode_column: ColumnDecoder | None
    by_value: ColumnDecoder
    in_primary_key: bool

    @cached_property
    def in_memory(self) -> pa.DataType:
        return arrow_type(self.type)

    def check_nulls(self, cells: pa.Array, left_out: NDArray[np.bool_] | None) -> None:
        """left_out: the cells whose values the records left out; outside the primary key they are filled in later.

        Raises ValueError for any other null in a column that is NOT NULL.
        """
        allowed = 0 if left_out is None or self.in_primary_key else int(left_out.sum())
        if not self.type.nullable and cells.null_count > allowed:
            raise ValueError(f"null in column {self.name}")


class RecordSchema:
    """One source table, one schema of its records, one target. Built once, used for many batches.

    declared: column to what the records declare of it; empty where they carry no types.
    undeclared: what is said of all other columns.
    key_columns: the columns in the records' keys; none where they have no key that names columns.
    connector: `source.connector`, "" where there is none.
    placeholders: what stands for a value that did not change.
    rounds: whether digits that a column's type lacks are rounded off or cut, in all columns but the primary key's, and
        not in keys of a MAP.
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
    ) -> None:
        self.target = target
        self.connector = connector
        self.key_columns = key_columns
        self.placeholders = placeholders
        self.declared = declared
        self._spelled = spelled = {n: spelled_source_type(n, word) for n, word in target.source_types.items()}
        # Never keys: rows that differ at the source would become one.
        rounded = frozenset(target.schema.names) if rounds else target.rounded_columns
        self._rounded = rounded - set(target.schema.primary_keys)
        # What a person says of a column overrules its schema.
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
            self._column(f.name, f.type, self.said_of(f.name, undeclared), settings) for f in target.schema.fields
        )
        self.by_name: Mapping[str, RecordColumn] = {column.name: column for column in self.columns}
        self.primary_key = tuple(self.by_name[name] for name in target.schema.primary_keys)
        self.primary_key_places = tuple(self.columns.index(column) for column in self.primary_key)

    def _column(self, name: str, type_: DataType, source: SourceType, settings: ConnectorSettings) -> RecordColumn:
        rounds = name in self._rounded
        if source.word == "longtext" and type_.root in BINARY_ROOTS:  # see `type_mapping`
            source = replace(source, semantic_type=SemanticType.UTF8)
        decode = value_decoder_for(source, type_, self.connector, settings, rounds=rounds)
        whole = completed(source, type_, self.connector, settings)
        decode_column = column_decoder_for(whole, type_, self.placeholders, rounds=rounds)
        by_value = any_value_decoder(whole, decode, type_, self.placeholders)
        return RecordColumn(name, type_, decode, decode_column, by_value, name in self.target.schema.primary_keys)

    def said_of(self, column: str, undeclared: SourceType) -> SourceType:
        """What a person says of a column, else the records, else `undeclared`."""
        return self._spelled.get(column) or self.declared.get(column) or undeclared

    def rounds(self, column: str) -> bool:
        """Whether digits that the column's type lacks are rounded off or cut."""
        return column in self._rounded

    @cached_property
    def key_names_the_row(self) -> bool:
        """Whether a record's key holds the table's whole primary key."""
        return self.key_columns.issuperset(self.target.schema.primary_keys)

    @cached_property
    def needs_old_images(self) -> bool:
        """Whether an update or delete is nothing without an old image: the table takes its values back, or only it can
        say which row goes, because the records' keys name less than the table's primary key.

        Records without a key get the benefit of the doubt.
        """
        return self.target.needs_retractions or (bool(self.key_columns) and not self.key_names_the_row)

    @property
    def needs_old_images_of_deletes(self) -> bool:
        """Whether a delete is nothing without an old image that knows more than the key."""
        return self.needs_old_images or self.target.is_ordered_by_columns

    def check_types(self) -> None:
        """Raises NarrowColumns where the records' schema says of a column what its type can't hold."""
        if self.narrow:
            raise NarrowColumns(self.target, self.narrow)

    def unknown(self, paths: Sequence[tuple[str, ...]]) -> UnknownColumns:
        """The error for columns that a record has and the table lacks, and for fields inside columns."""
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
        """Raises BadValue with the column's name in front; UnknownColumns for a nested field that the table lacks;
        NarrowColumns for a good value that the column can't hold exactly.
        """
        try:
            return column.decode(raw)
        except (UnknownField, TooNarrow) as e:
            if column.name in self.target.fixed_columns:
                path = path_text((column.name, *e.path))
                raise BadValue(f"column {path}: {e}, and the table's schema is left as it is") from None
            if isinstance(e, UnknownField):
                raise self.unknown([(column.name, *e.path)]) from None
            narrow = NarrowColumn((column.name, *e.path), e.target, e.fits, str(e), e.can_round, e.is_in_key)
            raise NarrowColumns(self.target, [narrow]) from None
        except (ValueError, ArithmeticError) as e:
            raise BadValue(f"column {column.name}: {e}") from None


def ignored_fields(target: Target) -> list[tuple[str, Any, Any]]:
    """Fields, for a struct that decodes images, of columns that are passed over."""
    return [
        (f"ignored{i}", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=name))
        for i, name in enumerate(sorted(target.ignored_columns - target.schema.by_name.keys()))
    ]
