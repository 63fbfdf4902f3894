"""Field ids in data files: the ids of columns, derived ids for nested parts without one, and the leaves that have them.

A leaf is what Parquet calls a column: a part of a column that is stored separately. Leaves are numbered in file order,
over all columns. Arrow's writer identifies them by their paths (`a`, `l.list.element`), which are not always unique,
because names may contain dots.

Source: Java `table/SpecialFields.java`, `format/parquet/ParquetSchemaConverter.java`, `format/orc/OrcTypeUtil.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelake.storage.model.format import NESTED_FIELD_ID_BASE, NESTED_FIELD_ID_DEPTH_LIMIT
from tidelake.storage.model.types import (
    INT,
    ArrayType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
)


def with_field_ids(schema: pa.Schema, fields: Sequence[DataField], key: str) -> pa.Schema:
    """Return the schema with an id in the metadata of each field, including nested fields.

    schema: a schema of the same shape as `fields`. Its leaves may have other types.
    key: the key of the id in the metadata.
    """
    return pa.schema([_tagged(s, f.type, f.id, f.id, 0, key) for s, f in zip(schema, fields, strict=True)])


def _tagged(field: pa.Field, data_type: DataType, own_id: int, column_id: int, depth: int, key: str) -> pa.Field:
    """Add the ids to a field.

    column_id: the id of the nearest enclosing field that has an id.
    depth: the number of lists and maps between that field and this one.
    """
    kind = field.type
    step = column_id * NESTED_FIELD_ID_DEPTH_LIMIT + depth + 1

    def inner(part: pa.Field, part_type: DataType, derived_id: int) -> pa.Field:
        return _tagged(part, part_type, derived_id, column_id, depth + 1, key)

    match data_type:
        case RowType():
            kind = pa.struct(
                [_tagged(part, f.type, f.id, f.id, 0, key) for part, f in zip(kind, data_type.fields, strict=True)]
            )
        case ArrayType() | VectorType():
            element = inner(kind.value_field, data_type.element, NESTED_FIELD_ID_BASE + step)
            kind = pa.list_(element, kind.list_size if isinstance(data_type, VectorType) else -1)
        case MapType() | MultisetType():
            key_type, value_type = _entry_types(data_type)
            kind = pa.map_(
                inner(kind.key_field, key_type, NESTED_FIELD_ID_BASE - step),
                inner(kind.item_field, value_type, NESTED_FIELD_ID_BASE + step),
            )
        case _ if data_type.root is Root.VARIANT:
            kind = pa.struct([part.with_metadata({key: str(number)}) for number, part in enumerate(kind)])
    return pa.field(field.name, kind, field.nullable, {key: str(own_id)})


def _entry_types(data_type: MapType | MultisetType) -> tuple[DataType, DataType]:
    return (data_type.key, data_type.value) if isinstance(data_type, MapType) else (data_type.element, INT)


def leaves_of(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield (path, type) of each leaf of a column, in file order."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves_of(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from leaves_of(f"{path}.key_value.key", kind.key_type)
        yield from leaves_of(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from leaves_of(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def leaf_numbers(schema: pa.Schema) -> dict[str, range]:
    """Return the numbers of each column's leaves."""
    numbers: dict[str, range] = {}
    first = 0
    for field in schema:
        count = sum(1 for _ in leaves_of(field.name, field.type))
        numbers[field.name] = range(first, first + count)
        first += count
    return numbers
