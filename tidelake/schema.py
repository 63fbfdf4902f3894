"""Columns and their types, changes of a schema, views, and definitions of materialized tables."""

from __future__ import annotations

from tidelake.homes import give_home
from tidelake.storage.catalog.view import View
from tidelake.storage.ddl.materialized import MaterializedDefinition
from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnDefault,
    UpdateColumnDescription,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
    UpdatePrimaryKey,
)
from tidelake.storage.model.types.data_types import (
    ArrayType,
    AtomicType,
    DataField,
    MapType,
    MultisetType,
    RowType,
    VectorType,
)

__all__ = [
    "AddColumn",
    "ArrayType",
    "AtomicType",
    "DataField",
    "DropColumn",
    "MapType",
    "MaterializedDefinition",
    "MultisetType",
    "RemoveOption",
    "RenameColumn",
    "RowType",
    "SetOption",
    "UpdateColumnDefault",
    "UpdateColumnDescription",
    "UpdateColumnNullability",
    "UpdateColumnPosition",
    "UpdateColumnType",
    "UpdateComment",
    "UpdatePrimaryKey",
    "VectorType",
    "View",
]

give_home(__name__, __all__, globals())
