"""Messages of schema changes: what a client makes of a change, a server reads as the same change."""

from __future__ import annotations

import json

import pytest

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.rest.change_messages import change_message, parse_changes
from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateColumnDefault,
    UpdateColumnDescription,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
    apply_changes,
)
from tidelake.storage.ddl.schema_creation import create_schema
from tidelake.storage.model.types import DataField, parse_type

COLUMNS = {"id": "BIGINT", "v": "VARCHAR(10)", "r": "ROW<a INT, b INT>", "n": "INT"}
SCHEMA = create_schema(
    [DataField(0, name, parse_type(text)) for name, text in COLUMNS.items()],
    primary_key=["id"],
    options={"bucket": "1"},
    comment="before",
    time_ms=1,
)

CHANGES: list[SchemaChange] = [
    AddColumn("x", "DECIMAL(10, 2)", "in euros"),
    AddColumn("x", "ROW<a ARRAY<INT NOT NULL>, b MAP<STRING, TIMESTAMP(3)>>", first=True),
    AddColumn("x", "INT", after="id"),
    AddColumn(("r", "c"), "INT", first=True),
    AddColumn(("r", "c"), "INT", after="a"),
    DropColumn("n"),
    DropColumn(("r", "a")),
    RenameColumn("v", "w"),
    RenameColumn(("r", "a"), "c"),
    UpdateColumnType("v", "VARCHAR(20)"),
    UpdateColumnType(("r", "a"), "BIGINT"),
    UpdateColumnNullability("n", True),
    UpdateColumnDescription("n", "a number"),
    UpdateColumnDescription("n", None),
    UpdateColumnDefault("n", "7"),
    UpdateColumnDefault("n", None),
    UpdateColumnPosition("n", first=True),
    UpdateColumnPosition("n", after="id"),
    UpdateColumnPosition("n", before="id"),
    UpdateColumnPosition("n", before="v"),
    SetOption("write-only", "true"),
    RemoveOption("bucket"),
    UpdateComment("after"),
    UpdateComment(None),
]


@pytest.mark.parametrize("change", CHANGES, ids=repr)
def test_a_server_makes_the_change_that_its_client_means(change: SchemaChange) -> None:
    message = json.loads(json.dumps(change_message(change)))
    understood = parse_changes([message], SCHEMA)

    def after(changes: list[SchemaChange]) -> object:
        return apply_changes(SCHEMA, changes, has_snapshots=False, time_ms=2)

    assert after(understood) == after([change])


NO_CHANGES = {
    "no action": {},
    "an unknown action": {"action": "explode"},
    "no members": {"action": "renameColumn"},
    "members of another kind": {"action": "addColumn", "fieldNames": 3, "dataType": "INT"},
    "an unknown type": {"action": "addColumn", "fieldNames": ["x"], "dataType": "WORD"},
    "a place behind a missing column": {
        "action": "updateColumnPosition",
        "move": {"fieldName": "n", "referenceFieldName": "x", "type": "BEFORE"},
    },
    "a nested column before another one": {
        "action": "addColumn",
        "fieldNames": ["r", "c"],
        "dataType": "INT",
        "move": {"fieldName": "c", "referenceFieldName": "a", "type": "BEFORE"},
    },
}


@pytest.mark.parametrize("message", NO_CHANGES.values(), ids=NO_CHANGES)
def test_what_is_no_change_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        parse_changes([message], SCHEMA)


def test_the_primary_key_stays() -> None:
    with pytest.raises(UnsupportedFeature, match="drops the primary key"):
        parse_changes([{"action": "dropPrimaryKey"}], SCHEMA)
