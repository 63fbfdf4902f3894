"""Schemas created and changed by Java and by Tidelake are equal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused
from tidelake.errors import BadInput
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    ColumnPath,
    DropColumn,
    Redefinition,
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
    UpdatePrimaryKey,
)
from tidelake.storage.ddl.schema_creation import columns_from_arrow
from tidelake.storage.fileio import open_file_io
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField, field_to_json, parse_type, type_to_json

TABLE = "shop.orders"


def catalog_at(folder: Path) -> FileSystemCatalog:
    catalog = FileSystemCatalog(open_file_io(str(folder)), str(folder))
    catalog.create_database("shop", if_not_exists=True)
    return catalog


def create_with_java(
    oracle: JavaOracle, warehouse: Path, columns: Sequence[DataField], keys: Mapping[str, Any], options: dict[str, str]
) -> None:
    """The same call as FileSystemCatalog.create_table, with Java."""
    declared = [
        {
            "name": c.name,
            "type": _without_ids(type_to_json(c.type)),
            "nullable": c.type.nullable,
            **({"comment": c.description} if c.description is not None else {}),
            **({"default": c.default} if c.default is not None else {}),
        }
        for c in columns
    ]
    oracle.create(
        warehouse,
        TABLE,
        declared,
        primary_keys=keys.get("primary_key", ()),
        partition_keys=keys.get("partition_by", ()),
        options=options,
    )


def _without_ids(members: Any) -> Any:
    match members:
        case dict():
            return {k: _without_ids(v) for k, v in members.items() if k != "id"}
        case list():
            return [_without_ids(m) for m in members]
    return members


def content(schema: TableSchema) -> dict[str, Any]:
    """All that a schema file says but when it was written; the options in any order, for Java's have none."""
    members: dict[str, Any] = json.loads(schema.to_json())
    del members["timeMillis"]
    return members


# ---------------------------------------------------------------- creation


@dataclass(frozen=True)
class Made:
    id: str
    columns: Sequence[DataField]
    keys: Mapping[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)


def columns(**types: str) -> list[DataField]:
    return [DataField(0, name, parse_type(data_type)) for name, data_type in types.items()]


EVERY_TYPE = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38, 18)", "CHAR(3)", "VARCHAR(20)",
    "STRING", "BINARY(4)", "VARBINARY(9)", "BYTES", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(9)",
    "TIMESTAMP_LTZ(6)", "VARIANT", "ARRAY<INT NOT NULL>", "MAP<STRING NOT NULL, ARRAY<DATE>>", "MULTISET<STRING>",
    "VECTOR<FLOAT, 3>",
    "ROW<x INT, y ROW<z STRING NOT NULL, u ARRAY<ROW<v INT>>> NOT NULL>", "INT NOT NULL",
]  # fmt: skip
ARROW = pa.schema(
    [
        pa.field("k", pa.int64(), metadata={"description": "the key, «ключ»"}),
        ("day", pa.date32()),
        (
            "r",
            pa.struct(
                [
                    ("a", pa.struct([("b", pa.int32()), ("c", pa.int32())])),
                    ("d", pa.list_(pa.struct([("e", pa.int8())]))),
                ]
            ),
        ),
        ("m", pa.map_(pa.string(), pa.struct([("f", pa.decimal128(9, 2)), ("g", pa.timestamp("us", "UTC"))]))),
    ]
)
KEYED: dict[str, Any] = {"primary_key": ["k", "day"], "partition_by": ["day"]}
MADE = [
    Made("every type", columns(**{f"c{i}": text for i, text in enumerate(EVERY_TYPE)})),
    Made("nested columns from Arrow, keys, partitions", columns_from_arrow(ARROW), KEYED, {"bucket": "2"}),
    Made("keys become NOT NULL", columns(v="STRING", k="INT"), {"primary_key": ["k"]}, {"bucket": "1"}),
    Made(
        "keys among the options",
        columns(k="INT", p="DATE"),
        {},
        {"bucket": "3", "primary-key": "k,p", "partition": "p"},
    ),
    Made("a default and a description", [DataField(0, "d", parse_type("INT"), 'a "quoted" one', "5")]),
    Made("nothing said of buckets", columns(v="STRING", k="INT"), {"primary_key": ["k"]}, {}),
    Made(
        "nothing said of buckets, partitions outside of the key",
        columns(k="INT", p="DATE"),
        {"primary_key": ["k"], "partition_by": ["p"]},
        {},
    ),
    Made("a bucket key", columns(a="INT", b="STRING"), {}, {"bucket": "4", "bucket-key": "b"}),
]


@pytest.mark.parametrize("case", MADE, ids=lambda c: c.id)
def test_our_table_has_the_schema_that_java_would_create(java_oracle: JavaOracle, case: Made, tmp_path: Path) -> None:
    ours, javas = catalog_at(tmp_path / "ours"), catalog_at(tmp_path / "java")
    ours.create_table(TABLE, case.columns, options=case.options, **case.keys)
    create_with_java(java_oracle, tmp_path / "java", case.columns, case.keys, case.options)
    assert content(ours.load(TABLE).schema) == content(javas.load(TABLE).schema)


def test_java_lists_and_describes_our_tables(java_oracle: JavaOracle, tmp_path: Path) -> None:
    catalog = catalog_at(tmp_path)
    catalog.create_table(TABLE, ARROW, **KEYED, options={"sequence.field": "k"}, comment="né")
    schema = catalog.load(TABLE).schema
    (described,) = java_oracle.system(tmp_path, TABLE, "schemas")
    assert described["schema_id"] == 0
    assert json.loads(described["fields"]) == [field_to_json(f) for f in schema.fields]
    assert json.loads(described["primary_keys"]) == ["k", "day"]
    assert json.loads(described["partition_keys"]) == ["day"]
    assert json.loads(described["options"]) == {"sequence.field": "k"}
    assert described["comment"] == "né"


def test_java_writes_into_our_table(java_oracle: JavaOracle, tmp_path: Path) -> None:
    catalog = catalog_at(tmp_path)
    catalog.create_table(TABLE, pa.schema([("k", pa.int64()), ("v", pa.string())]), primary_key=["k"])
    java_oracle.write(tmp_path, TABLE, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}, {"k": 1, "v": "c"}])
    catalog.alter_table(TABLE, [RenameColumn("v", "w"), AddColumn("n", "INT", first=True)])
    java_oracle.write(tmp_path, TABLE, [{"k": 2, "w": "d", "n": 5}])
    assert sorted(java_oracle.read(tmp_path, TABLE), key=lambda row: int(row["k"])) == [
        {"n": None, "k": 1, "w": "c"},
        {"n": 5, "k": 2, "w": "d"},
    ]


# ---------------------------------------------------------------- changes


def java_spelling(change: SchemaChange) -> dict[str, Any]:
    """A change as the oracle takes it."""

    def at(name: ColumnPath) -> str | list[str]:
        return name if isinstance(name, str) else list(name)

    def given(members: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in members.items() if value}

    match change:
        case AddColumn():
            assert isinstance(change.type, str)
            where = given({"comment": change.description, "first": change.first, "after": change.after})
            return {"add": {"name": at(change.name), "type": _type_json(change.type), **where}}
        case DropColumn():
            return {"drop": {"name": at(change.name)}}
        case RenameColumn():
            return {"rename": {"name": at(change.name), "to": change.new_name}}
        case UpdateColumnType():
            assert isinstance(change.type, str)
            return {"type": {"name": at(change.name), "type": _type_json(change.type)}}
        case UpdateColumnNullability():
            return {"nullability": {"name": at(change.name), "nullable": change.nullable}}
        case UpdateColumnDescription():
            return {"comment": {"name": at(change.name), "comment": change.description}}
        case UpdateColumnDefault():
            return {"default": {"name": at(change.name), "value": change.default}}
        case UpdateColumnPosition():
            where = given({"first": change.first, "after": change.after, "before": change.before})
            return {"move": {"name": change.name, **where}}
        case SetOption():
            return {"set": {"key": change.key, "value": change.value}}
        case RemoveOption():
            return {"unset": {"key": change.key}}
        case UpdateComment():
            return {"tableComment": change.comment}
        case UpdatePrimaryKey() | Redefinition():
            raise AssertionError("Java rewrites no tables")


def _type_json(text: str) -> Any:
    return _without_ids(type_to_json(parse_type(text)))


BASE = columns(
    k="INT",
    p="DATE",
    v="STRING",
    n="INT",
    s="BIGINT NOT NULL",
    r="ROW<x INT, y ROW<z STRING>>",
    l="ARRAY<ROW<x INT, y ROW<z STRING>>>",
    m="MAP<STRING, ROW<q INT>>",
    a="ARRAY<ARRAY<INT>>",
)


@dataclass(frozen=True)
class Evolution:
    """versions: lists of changes, one for each new version of the schema."""

    id: str
    versions: Sequence[Sequence[SchemaChange]]
    options: dict[str, str] = field(default_factory=dict)


EVOLUTIONS = [
    Evolution(
        "columns added everywhere",
        [
            [AddColumn("a1", "INT"), AddColumn("a2", "STRING", "said", first=True), AddColumn("a3", "DATE", after="v")],
            [AddColumn("a4", "ROW<x INT, y ROW<z STRING, u ARRAY<ROW<w INT>>>>"), AddColumn("a5", "INT")],
        ],
    ),
    Evolution(
        "columns added before the partition", [[AddColumn("a1", "INT")]], {"add-column-before-partition": "true"}
    ),
    Evolution(
        "columns added inside others",
        [
            [AddColumn(("r", "n1"), "INT", after="x"), AddColumn(("r", "y", "n2"), "ROW<a INT>", first=True)],
            [AddColumn(("l", "element", "n3"), "INT", "deep"), AddColumn(("l", "element", "y", "n4"), "INT")],
            [AddColumn(("m", "value", "n5"), "ARRAY<ROW<b INT>>")],
        ],
    ),
    Evolution(
        "a column dropped and added again",
        [[DropColumn("n")], [AddColumn("n", "INT")], [DropColumn("n"), AddColumn("n", "STRING")]],
    ),
    Evolution("dropped inside others", [[DropColumn(("r", "x")), DropColumn(("l", "element", "y"))]]),
    Evolution(
        "renamed everywhere",
        [
            [RenameColumn("k", "id")],
            [RenameColumn("v", "w"), RenameColumn(("r", "y", "z"), "zz")],
            [RenameColumn(("m", "value", "q"), "qq")],
        ],
    ),
    Evolution(
        "renamed in options",
        [[RenameColumn("n", "nn"), RenameColumn("s", "ss")]],
        {
            "merge-engine": "partial-update",
            "sequence.field": "s",
            "fields.v.aggregate-function": "last_value",
            "fields.n.sequence-group": "v",
        },
    ),
    Evolution("the bucket key renamed", [[RenameColumn("k", "id")]], {"bucket": "3", "bucket-key": "k"}),
    Evolution(
        "other types",
        [
            [
                UpdateColumnType("n", "BIGINT"),
                UpdateColumnType("s", "DECIMAL(20, 0)"),
                UpdateColumnType("v", "VARCHAR(7)"),
            ],
            [UpdateColumnType("v", "INT"), UpdateColumnType(("r", "y", "z"), "BYTES")],
            [
                UpdateColumnType(("l", "element", "x"), "BIGINT"),
                UpdateColumnType(("a", "element", "element"), "DOUBLE"),
            ],
            [UpdateColumnType(("m", "value", "q"), "STRING")],
        ],
    ),
    Evolution(
        "nulls",
        [
            [UpdateColumnNullability("s", True)],
            [UpdateColumnNullability("v", False), UpdateColumnNullability(("r", "x"), False)],
            [UpdateColumnNullability(("a", "element"), False), UpdateColumnNullability(("m", "value"), False)],
        ],
        {"alter-column-null-to-not-null.disabled": "false"},
    ),
    Evolution(
        "descriptions and defaults",
        [
            [UpdateColumnDescription("v", "«text»"), UpdateColumnDescription(("l", "element", "x"), "deep")],
            [UpdateColumnDefault("v", "none"), UpdateColumnDefault("n", "'7'"), UpdateColumnDefault(("r", "x"), "3")],
            [RenameColumn("v", "w"), UpdateComment("a table")],
        ],
    ),
    Evolution(
        "moves",
        [
            [UpdateColumnPosition("n", first=True)],
            [UpdateColumnPosition("n", after="r"), UpdateColumnPosition("a", before="k")],
            [UpdateColumnPosition("a", after="m"), UpdateColumnPosition("v", before="s")],
        ],
    ),
    Evolution(
        "options",
        [
            [SetOption("write-only", "true"), SetOption("num-levels", "4"), SetOption("bucket", "8")],
            [RemoveOption("write-only"), RemoveOption("never-set"), SetOption("num-levels", "5")],
        ],
    ),
]


@pytest.mark.parametrize("case", EVOLUTIONS, ids=lambda c: c.id)
def test_the_same_changes_make_the_same_schemas(java_oracle: JavaOracle, case: Evolution, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"primary_key": ["k", "p"], "partition_by": ["p"]}
    options = {"bucket": "2", **case.options}
    ours, javas = catalog_at(tmp_path / "ours"), catalog_at(tmp_path / "java")
    ours.create_table(TABLE, BASE, options=options, **keys)
    create_with_java(java_oracle, tmp_path / "java", BASE, keys, options)
    for changes in case.versions:
        ours.alter_table(TABLE, changes)
        java_oracle.alter(tmp_path / "java", TABLE, [java_spelling(change) for change in changes])
        assert content(ours.load(TABLE).schema) == content(javas.load(TABLE).schema)
    assert ours.load(TABLE).schema.id == len(case.versions)


@pytest.mark.parametrize("case", EVOLUTIONS, ids=lambda c: c.id)
def test_each_continues_schema_changes_of_the_other(java_oracle: JavaOracle, case: Evolution, tmp_path: Path) -> None:
    """Java makes every second version, we the others; Java reads the last one."""
    catalog = catalog_at(tmp_path)
    catalog.create_table(
        TABLE, BASE, primary_key=["k", "p"], partition_by=["p"], options={"bucket": "2", **case.options}
    )
    for turn, changes in enumerate(case.versions):
        if turn % 2:
            catalog.alter_table(TABLE, changes)
        else:
            java_oracle.alter(tmp_path, TABLE, [java_spelling(change) for change in changes])
    last = max(java_oracle.system(tmp_path, TABLE, "schemas"), key=lambda version: int(version["schema_id"]))
    schema = catalog.load(TABLE).schema
    assert last["schema_id"] == schema.id == len(case.versions)
    assert json.loads(last["fields"]) == [field_to_json(f) for f in schema.fields]


# ---------------------------------------------------------------- refusals of both


BOTH_REFUSE = [
    pytest.param(change, id=str(java_spelling(change)))
    for change in (
        AddColumn("v", "INT"),
        AddColumn("z", "INT", after="zz"),
        AddColumn("_SEQUENCE_NUMBER", "BIGINT"),
        DropColumn("q"),
        DropColumn("k"),
        DropColumn("p"),
        DropColumn("s"),
        DropColumn(("r", "q")),
        DropColumn(("r", "y", "z")),
        RenameColumn("q", "w"),
        RenameColumn("v", "n"),
        RenameColumn("p", "w"),
        UpdateColumnType("k", "BIGINT"),
        UpdateColumnType("p", "STRING"),
        UpdateColumnType("n", "DATE"),
        UpdateColumnType("r", "INT"),
        UpdateColumnNullability("k", True),
        UpdateColumnNullability("v", False),
        UpdateColumnDefault("n", "many"),
        UpdateColumnPosition("q", first=True),
        UpdateColumnPosition("v", after="q"),
        UpdateColumnPosition("v", after="v"),
        SetOption("bucket-key", "k"),
        SetOption("merge-engine", "aggregation"),
        SetOption("rowkind.field", "v"),
        SetOption("bucket", "-1"),
        SetOption("deletion-vectors.enabled", "true"),
        SetOption("sequence.field", "q"),
        SetOption("fields.q.stats-mode", "full"),
        SetOption("type", "object-table"),
        SetOption("snapshot.num-retained.min", "0"),
        RemoveOption("bucket"),
    )
]


@pytest.mark.parametrize("change", BOTH_REFUSE)
def test_java_refuses_the_same_change(java_oracle: JavaOracle, change: SchemaChange, tmp_path: Path) -> None:
    catalog = catalog_at(tmp_path)
    catalog.create_table(
        TABLE, BASE, primary_key=["k", "p"], partition_by=["p"], options={"bucket": "2", "sequence.field": "s"}
    )
    java_oracle.write(tmp_path, TABLE, [{"k": 1, "p": "2024-01-01", "s": 1}])
    with pytest.raises(BadInput):
        catalog.alter_table(TABLE, [change])
    with pytest.raises(Refused):
        java_oracle.alter(tmp_path, TABLE, java_spelling(change))


# ---------------------------------------------------------------- types


TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "CHAR(3)", "VARCHAR(20)",
    "STRING", "BINARY(4)", "VARBINARY(9)", "BYTES", "DATE", "TIME(0)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(6)", "VARIANT",
    "ARRAY<INT>", "MAP<STRING, INT>", "MULTISET<STRING>", "ROW<x INT>", "VECTOR<FLOAT, 3>",
]  # fmt: skip
OTHERS = ["DECIMAL(5, 3)", "CHAR(9)", "VARCHAR(5)", "BINARY(2)", "VARBINARY(3)", "TIME(3)", "TIMESTAMP(9)"]


@pytest.mark.parametrize("explicit", [True, False], ids=["explicit casts", "implicit casts only"])
@pytest.mark.parametrize("old", TYPES)
def test_a_column_type_changes_only_where_java_allows_it(
    java_oracle: JavaOracle, old: str, explicit: bool, tmp_path: Path
) -> None:
    new_types = [new for new in (*TYPES, *OTHERS) if new != old]
    options = {} if explicit else {"disable-explicit-type-casting": "true"}
    catalog = catalog_at(tmp_path)
    catalog.create_table(TABLE, columns(**{f"c{i}": old for i in range(len(new_types))}), options=options)
    ours, javas = set(), set()
    for i, new in enumerate(new_types):
        change = UpdateColumnType(f"c{i}", new)
        try:
            java_oracle.alter(tmp_path, TABLE, java_spelling(change))
            javas.add(new)
        except Refused:
            pass
    catalog.drop_table(TABLE)
    catalog.create_table(TABLE, columns(**{f"c{i}": old for i in range(len(new_types))}), options=options)
    for i, new in enumerate(new_types):
        try:
            catalog.alter_table(TABLE, [UpdateColumnType(f"c{i}", new)])
            ours.add(new)
        except BadInput:
            pass
    assert ours == javas
