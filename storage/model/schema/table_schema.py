"""One version of a table's schema, as it is stored in `schema/schema-<id>`.

Source: Java `schema/SchemaSerializer.java`, `schema/TableSchema.java`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base.pretty_json import pretty_json
from tidelake.storage.model.format import (
    KEY_COLUMN_PREFIX,
    KIND_COLUMN,
    KIND_FIELD_ID,
    LEVEL_COLUMN,
    LEVEL_FIELD_ID,
    POSITION_COLUMN,
    POSITION_FIELD_ID,
    ROW_ID_COLUMN,
    ROW_ID_FIELD_ID,
    SCHEMA_VERSION,
    SEQUENCE_COLUMN,
    SEQUENCE_FIELD_ID,
    SYSTEM_FIELD_ID_START,
)
from tidelake.storage.model.types import (
    BIGINT,
    INT,
    TINYINT,
    ArrayType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    arrow_schema,
    field_from_json,
    field_to_json,
    not_null,
    nullable,
)

SEQUENCE_FIELD = DataField(SEQUENCE_FIELD_ID, SEQUENCE_COLUMN, not_null(BIGINT))
KIND_FIELD = DataField(KIND_FIELD_ID, KIND_COLUMN, not_null(TINYINT))
LEVEL_FIELD = DataField(LEVEL_FIELD_ID, LEVEL_COLUMN, not_null(INT))  # level of the row's file; never stored
ROW_ID_FIELD = DataField(ROW_ID_FIELD_ID, ROW_ID_COLUMN, not_null(BIGINT))  # stored by compactions only
POSITION_FIELD = DataField(POSITION_FIELD_ID, POSITION_COLUMN, not_null(BIGINT))  # position in the file; never stored

# Columns of row tracking, in files that store them
TRACKING_FIELDS: Final = {f.name: DataField(f.id, f.name, BIGINT) for f in (ROW_ID_FIELD, SEQUENCE_FIELD)}


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's columns, keys and options. Immutable: a change is a new version with id + 1.

    highest_field_id: the largest field id ever used, nested and dropped fields included; -1 for no fields.
    primary_keys: column names, in declared order.
    partition_keys: column names, in declared order.
    """

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    time_ms: int = 0

    @cached_property
    def by_name(self) -> Mapping[str, DataField]:
        return {f.name: f for f in self.fields}

    @cached_property
    def by_id(self) -> Mapping[int, DataField]:
        return {f.id: f for f in self.fields}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The table's columns in their in-memory form."""
        return arrow_schema(self.fields)

    @cached_property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """The primary key without partition columns. It sorts and identifies the rows of a partition."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @cached_property
    def key_fields(self) -> tuple[DataField, ...]:
        """The trimmed primary key as the columns `_KEY_<name>` of a data file; empty for an append table."""
        return tuple(
            DataField(f.id + SYSTEM_FIELD_ID_START, KEY_COLUMN_PREFIX + f.name, f.type)
            for f in self.select(self.trimmed_primary_keys)
        )

    @cached_property
    def partition_fields(self) -> tuple[DataField, ...]:
        return self.select(self.partition_keys)

    def has_same_keys(self, other: TableSchema) -> bool:
        """Return whether keys of both schemas can be compared: they have the same columns, with the same types."""
        mine, others = ([(f.id, nullable(f.type)) for f in one.key_fields] for one in (self, other))
        return mine == others

    @property
    def has_primary_key(self) -> bool:
        return bool(self.primary_keys)

    @property
    def crosses_partitions(self) -> bool:
        """Whether the primary key lacks a partition column, so that a key may occur in several partitions."""
        return self.has_primary_key and not set(self.partition_keys) <= set(self.primary_keys)

    def select(self, names: Iterable[str]) -> tuple[DataField, ...]:
        """Return the named columns, in the order given. Raises BadInput if the table lacks one."""
        missing = [name for name in names if name not in self.by_name]
        if missing:
            raise BadInput(f"no column {missing[0]!r}; the table has {', '.join(self.names)}")
        return tuple(self.by_name[name] for name in names)

    def stored_in(self, write_columns: Sequence[str] | None) -> tuple[DataField, ...]:
        """Return the columns of a data file besides keys and kinds: all columns, or those named in its manifest entry.

        Compactions of tables with row tracking also store row ids and sequence numbers. Raises BadInput for other
        names.
        """
        if write_columns is None:
            return self.fields
        return tuple(TRACKING_FIELDS.get(name) or self.select([name])[0] for name in write_columns)

    def to_json(self) -> str:
        """Return the JSON that Java writes, byte for byte.

        Without a comment the member is left out: Java would read null as the text "null".
        """
        members: dict[str, Any] = {
            "version": SCHEMA_VERSION,
            "id": self.id,
            "fields": [field_to_json(f) for f in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
        }
        if self.comment is not None:
            members["comment"] = self.comment
        members["timeMillis"] = self.time_ms
        return pretty_json(members)

    @classmethod
    def from_json(cls, data: bytes, path: str) -> TableSchema:
        """Read a schema of any format version. Members that old versions lack get the defaults of these versions.

        Raises CorruptFile, naming `path`, if this is not the JSON of a schema.
        """
        try:
            members = json.loads(data.decode())  # json.loads would also accept UTF-16
            version = int(members.get("version", 1))
            if version > SCHEMA_VERSION:
                raise CorruptFile(path, f"a schema of version {SCHEMA_VERSION} or older", f"version {version}")
            options = {str(k): str(v) for k, v in members.get("options", {}).items()}
            if version <= 1:
                options.setdefault("bucket", "1")
            if version <= 2:
                options.setdefault("file.format", "orc")
            return cls(
                id=int(members["id"]),
                fields=tuple(field_from_json(f) for f in members["fields"]),
                highest_field_id=int(members["highestFieldId"]),
                partition_keys=tuple(members.get("partitionKeys") or ()),
                primary_keys=tuple(members.get("primaryKeys") or ()),
                options=options,
                comment=members.get("comment"),
                time_ms=int(members.get("timeMillis") or 0),
            )
        except UnicodeDecodeError as e:
            raise CorruptFile(path, "the JSON of a table schema", "bytes that are not UTF-8", e.start) from None
        except json.JSONDecodeError as e:
            raise CorruptFile(path, "the JSON of a table schema", e.msg, e.pos) from None
        except (KeyError, TypeError, ValueError, AttributeError, BadInput) as e:
            raise CorruptFile(path, "the JSON of a table schema", f"{type(e).__name__}: {e}") from None


def walk_fields(fields: Sequence[DataField]) -> Iterator[DataField]:
    """Yield all fields that have an id, nested ones included, depth first."""
    for f in fields:
        yield f
        yield from walk_fields(_nested_fields(f.type))


def _nested_fields(data_type: DataType) -> Sequence[DataField]:
    match data_type:
        case RowType():
            return data_type.fields
        case ArrayType() | MultisetType() | VectorType():
            return _nested_fields(data_type.element)
        case MapType():
            return (*_nested_fields(data_type.key), *_nested_fields(data_type.value))
        case _:
            return ()
