"""Makes the first version of a table's schema from the arguments of `create_table`.

Source: Java `schema/Schema.java` (keys out of options, nullability of keys), `schema/TableSchema.java` (create).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.ddl.schema_validation import check_new_schema
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.values import parse_names
from tidelake.storage.model.schema.field_ids import FieldIds
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField, DataType, description_from_arrow, type_from_arrow


def create_schema(
    columns: pa.Schema | Sequence[DataField],
    *,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    time_ms: int,
) -> TableSchema:
    """Return schema 0 of a new table.

    columns: an Arrow schema (metadata `description` of a field describes it), or columns with Paimon's own types, whose
        ids are ignored. Fields are numbered as Java numbers them.
    options: Paimon's options, stored as given. The default of `bucket` is -1: an index assigns buckets to keys, and
        tables without a primary key have no buckets.
    time_ms: now, epoch milliseconds.

    Raises BadInput, naming the column or option, if the arguments conflict.
    """
    if isinstance(columns, pa.Schema):
        columns = columns_from_arrow(columns)
    ids = FieldIds()
    fields = tuple(ids.column(column) for column in columns)
    schema = normalize_keys(
        TableSchema(
            id=0,
            fields=fields,
            highest_field_id=ids.highest,
            primary_keys=_names("primary_key", primary_key),
            partition_keys=_names("partition_by", partition_by),
            options=_texts(options or {}),
            comment=comment,
            time_ms=time_ms,
        )
    )
    check_new_schema(schema)
    return schema


def columns_from_arrow(schema: pa.Schema) -> list[DataField]:
    """Return columns with Paimon's types, all with id 0. Raises BadInput for types that Paimon cannot hold."""
    return [DataField(0, field.name, _type_of(field), description_from_arrow(field)) for field in schema]


def _type_of(field: pa.Field) -> DataType:
    try:
        return type_from_arrow(field.type, repeat(0).__next__, column=field.name, is_nullable=field.nullable)
    except RecursionError:
        raise BadInput(f"column {field.name!r}: its type contains itself; flatten it") from None


def normalize_keys(schema: TableSchema) -> TableSchema:
    """Return the schema with keys moved out of options `primary-key` and `partition`.

    Key columns become NOT NULL, or nullable with option `primary-key.nullable`.

    Raises BadInput if keys are given both as arguments and as options.
    """
    options = dict(schema.options)
    primary_keys = _from_option("primary-key", options, schema.primary_keys)
    partition_keys = _from_option("partition", options, schema.partition_keys)
    are_nullable = TableOptions(options).is_on("primary-key.nullable")
    fields = tuple(
        replace(f, type=replace(f.type, nullable=are_nullable)) if f.name in primary_keys else f for f in schema.fields
    )
    return replace(schema, fields=fields, primary_keys=primary_keys, partition_keys=partition_keys, options=options)


def _from_option(key: str, options: dict[str, str], given: tuple[str, ...]) -> tuple[str, ...]:
    if key not in options:
        return given
    text = options.pop(key)
    if given:
        raise BadInput(f"option {key} = {text!r}, but the schema also names {', '.join(given)}; name the columns once")
    return parse_names(text)


def _names(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise BadInput(f"{what} = {names!r}: pass a list of column names, [{names!r}]")
    return tuple(names)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    texts = {key: value for key, value in options.items() if isinstance(value, str)}
    for key, value in options.items():
        if key not in texts:
            raise BadInput(f"option {key} = {value!r}: options must be strings; write {str(value).lower()!r}")
    return texts
