"""The results of `apply_changes`, and the refused changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from tidelake.errors import BadInput
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
from tidelake.storage.model.schema.table_schema import TableSchema, walk_fields
from tidelake.storage.model.types import INT, field_to_json, type_to_json

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 5

ROW = pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
COLUMNS = pa.schema(
    [
        ("k", pa.int64()),
        ("p", pa.date32()),
        ("v", pa.string()),
        ("n", pa.int32()),
        pa.field("s", pa.string(), nullable=False),
        ("r", ROW),
        ("l", pa.list_(ROW)),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)


def table(options: Mapping[str, str] | None = None, **arguments: Any) -> TableSchema:
    """k, p | primary key (k, p), partitioned by p, one bucket. Ids: k 0, p 1, v 2, n 3, s 4, r 5 (x 6, z 7, y 8),
    l 9 (…), m 13.
    """
    keys = {"primary_key": ["k", "p"], "partition_by": ["p"], **arguments}
    bucket = {"bucket": "1"} if keys["primary_key"] else {}
    return create_schema(COLUMNS, options={**bucket, **(options or {})}, time_ms=NOW_MS, **keys)


def alter(schema: TableSchema, *changes: SchemaChange, has_snapshots: bool = True) -> TableSchema:
    return apply_changes(schema, changes, has_snapshots=has_snapshots, time_ms=LATER_MS)


def type_of(schema: TableSchema, column: str) -> Any:
    return type_to_json(schema.by_name[column].type)


def ids(schema: TableSchema) -> dict[str, int]:
    return {f.name: f.id for f in schema.fields}


def test_a_change_makes_the_next_version_and_leaves_the_old_one_alone() -> None:
    before = table()
    text = before.to_json()
    after = alter(before, UpdateComment("new"))
    assert (after.id, after.time_ms, after.comment) == (1, LATER_MS, "new")
    assert before.to_json() == text
    assert replace(after, id=0, time_ms=NOW_MS, comment=None) == before


def test_all_changes_of_a_list_make_one_version_each_seeing_those_before() -> None:
    after = alter(
        table(),
        AddColumn("a", "INT"),
        RenameColumn("a", "b"),
        UpdateColumnType("b", "BIGINT"),
        UpdateColumnPosition("b", first=True),
        RenameColumn("v", "a"),
    )
    assert after.id == 1
    assert after.names == ("b", "k", "p", "a", "n", "s", "r", "l", "m")
    assert type_of(after, "b") == "BIGINT"


# ---------------------------------------------------------------- adding


@dataclass(frozen=True)
class Place:
    id: str
    change: AddColumn
    names: str
    options: Mapping[str, str] = field(default_factory=dict)


PLACES = [
    Place("last", AddColumn("a", INT), "k p v n s r l m a"),
    Place("first", AddColumn("a", INT, first=True), "a k p v n s r l m"),
    Place("after another", AddColumn("a", INT, after="p"), "k p a v n s r l m"),
    Place("after the last", AddColumn("a", INT, after="m"), "k p v n s r l m a"),
    Place("before partitions", AddColumn("a", INT), "k a p v n s r l m", {"add-column-before-partition": "true"}),
    Place(
        "asked for, whatever the option says",
        AddColumn("a", INT, after="n"),
        "k p v n a s r l m",
        {"add-column-before-partition": "true"},
    ),
]


@pytest.mark.parametrize("case", PLACES, ids=lambda c: c.id)
def test_a_new_column_is_placed_as_requested(case: Place) -> None:
    assert " ".join(alter(table(case.options), case.change).names) == case.names


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        pytest.param("DECIMAL(10, 2)", "DECIMAL(10, 2)", id="SQL text"),
        pytest.param("array<timestamp(3)>", {"type": "ARRAY", "element": "TIMESTAMP(3)"}, id="nested SQL text"),
        pytest.param(pa.decimal128(5, 1), "DECIMAL(5, 1)", id="Arrow"),
        pytest.param(pa.large_string(), "STRING", id="a large Arrow type"),
        pytest.param(INT, "INT", id="a column type"),
    ],
)
def test_a_new_column_may_be_given_as_text_as_arrow_or_as_a_type(given: Any, spelled: Any) -> None:
    after = alter(table(), AddColumn("a", given, "what it is"))
    assert type_of(after, "a") == spelled
    assert after.by_name["a"].description == "what it is"


def test_new_columns_get_ids_before_their_nested_fields() -> None:
    after = alter(table(), AddColumn("a", ROW), AddColumn("b", "INT"))
    assert after.highest_field_id == 18
    assert [f.id for f in walk_fields(after.fields[-2:])] == [14, 15, 17, 16, 18]


def test_ids_of_dropped_columns_are_never_reused() -> None:
    dropped = alter(table(), AddColumn("a", "INT"), DropColumn("a"))
    assert dropped.highest_field_id == 14
    assert ids(alter(dropped, AddColumn("a", "INT")))["a"] == 15


def test_columns_are_added_inside_rows_arrays_and_maps() -> None:
    schema = alter(table(), AddColumn("mm", "MAP<STRING, ROW<q INT>>"))
    after = alter(
        schema,
        AddColumn(("r", "a"), "INT", after="x"),
        AddColumn(("r", "y", "a"), "INT", first=True),
        AddColumn(("l", "element", "a"), "INT", "deep"),
        AddColumn(("mm", "value", "a"), "INT"),
    )
    named = {f"{f.name}={f.id}" for f in walk_fields(after.fields) if f.id > schema.highest_field_id}
    assert named == {"a=16", "a=17", "a=18", "a=19"}
    assert [f["name"] for f in type_of(after, "r")["fields"]] == ["x", "a", "y"]
    assert [f["name"] for f in type_of(after, "r")["fields"][2]["type"]["fields"]] == ["a", "z"]
    assert type_of(after, "l")["element"]["fields"][-1] == {"id": 18, "name": "a", "type": "INT", "description": "deep"}
    assert [f["name"] for f in type_of(after, "mm")["value"]["fields"]] == ["q", "a"]


# ---------------------------------------------------------------- dropping, renaming, moving


def test_dropping_removes_a_column_or_one_inside_another() -> None:
    after = alter(table(), DropColumn("v"), DropColumn(("r", "x")), DropColumn(("l", "element", "y")))
    assert "v" not in after.names
    assert [f["name"] for f in type_of(after, "r")["fields"]] == ["y"]
    assert [f["name"] for f in type_of(after, "l")["element"]["fields"]] == ["x"]
    assert after.highest_field_id == 13


def test_renaming_keeps_id_type_description_and_default() -> None:
    before = alter(table(), UpdateColumnDescription("n", "count"), UpdateColumnDefault("n", "7"))
    after = alter(before, RenameColumn("n", "number"), RenameColumn(("l", "element", "x"), "ex"))
    assert field_to_json(after.by_name["number"]) == {
        "id": 3, "name": "number", "type": "INT", "description": "count", "defaultValue": "7"
    }  # fmt: skip
    assert [f["name"] for f in type_of(after, "l")["element"]["fields"]] == ["ex", "y"]


def test_renaming_a_key_column_renames_it_in_the_key() -> None:
    after = alter(table(), RenameColumn("k", "id"))
    assert after.primary_keys == ("id", "p")
    assert after.key_fields[0].name == "_KEY_id"


def test_two_columns_can_swap_names() -> None:
    after = alter(table(), RenameColumn("k", "t"), RenameColumn("v", "k"), RenameColumn("t", "v"))
    assert ids(after)["v"] == 0
    assert after.primary_keys == ("v", "p")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"sequence.field": "n,v"}, {"sequence.field": "n,w"}, id="sequence fields"),
        pytest.param({"rowkind.field": "v"}, {"rowkind.field": "w"}, id="row kinds"),
        pytest.param({"fields.v.stats-mode": "full"}, {"fields.w.stats-mode": "full"}, id="an option of the column"),
        pytest.param(
            {"fields.v.aggregate-function": "max", "merge-engine": "aggregation"},
            {"fields.w.aggregate-function": "max", "merge-engine": "aggregation"},
            id="its aggregate function",
        ),
        pytest.param(
            {"merge-engine": "partial-update", "fields.n,v.sequence-group": "v,s"},
            {"merge-engine": "partial-update", "fields.n,w.sequence-group": "w,s"},
            id="sequence groups, both sides",
        ),
        pytest.param(
            {"file-index.bloom-filter.columns": "n,v", "file-index.bloom-filter.v.fpp": "0.1"},
            {"file-index.bloom-filter.columns": "n,w", "file-index.bloom-filter.w.fpp": "0.1"},
            id="file indexes",
        ),
        pytest.param(
            {"changelog-producer.row-deduplicate-ignore-fields": "v"},
            {"changelog-producer.row-deduplicate-ignore-fields": "w"},
            id="columns left out of comparisons",
        ),
        pytest.param({"my.note": "v", "v": "1"}, {"my.note": "v", "v": "1"}, id="what merely looks like it"),
    ],
)
def test_options_that_name_a_column_follow_its_new_name(before: dict[str, str], after: dict[str, str]) -> None:
    assert alter(table(before), RenameColumn("v", "w")).options == {"bucket": "1", **after}


def test_the_bucket_key_follows_the_new_name_of_its_column() -> None:
    schema = table({"bucket": "4", "bucket-key": "v,n"}, primary_key=[], partition_by=[])
    assert alter(schema, RenameColumn("n", "m2")).options["bucket-key"] == "v,m2"


def test_renaming_a_nested_field_does_not_change_options() -> None:
    schema = alter(table({"sequence.field": "n"}), AddColumn(("r", "n"), "INT"))
    assert alter(schema, RenameColumn(("r", "n"), "w")).options["sequence.field"] == "n"


@pytest.mark.parametrize(
    ("move", "names"),
    [
        pytest.param(UpdateColumnPosition("n", first=True), "n k p v s r l m", id="to the front"),
        pytest.param(UpdateColumnPosition("k", first=True), "k p v n s r l m", id="to the front, being there"),
        pytest.param(UpdateColumnPosition("n", after="k"), "k n p v s r l m", id="back, after another"),
        pytest.param(UpdateColumnPosition("k", after="n"), "p v n k s r l m", id="forth, after another"),
        pytest.param(UpdateColumnPosition("k", after="m"), "p v n s r l m k", id="to the end"),
        pytest.param(UpdateColumnPosition("m", before="k"), "m k p v n s r l", id="before the first"),
        pytest.param(UpdateColumnPosition("k", before="n"), "p v k n s r l m", id="forth, before another"),
        pytest.param(UpdateColumnPosition("v", before="n"), "k p v n s r l m", id="before its neighbour"),
    ],
)
def test_moving_changes_the_order_and_no_id(move: UpdateColumnPosition, names: str) -> None:
    after = alter(table(), move)
    assert " ".join(after.names) == names
    assert ids(after) == ids(table())


# ---------------------------------------------------------------- types, nulls, descriptions, defaults


@pytest.mark.parametrize(
    ("path", "new", "column", "spelled"),
    [
        pytest.param("n", "BIGINT", "n", "BIGINT", id="wider integer"),
        pytest.param("n", pa.float64(), "n", "DOUBLE", id="Arrow type"),
        pytest.param("v", "INT", "v", "INT", id="text to number"),
        pytest.param("s", "VARCHAR(9)", "s", "VARCHAR(9) NOT NULL", id="a column that takes no nulls stays so"),
        pytest.param("n", "INT", "n", "INT", id="the type it has"),
        pytest.param(
            ("m", "value"), "BIGINT", "m", {"type": "MAP", "key": "STRING", "value": "BIGINT"}, id="map values"
        ),
    ],
)
def test_a_column_takes_another_type_and_keeps_its_id(path: Any, new: Any, column: str, spelled: Any) -> None:
    after = alter(table(), UpdateColumnType(path, new))
    # Keys of an Arrow map are never null.
    found = type_of(after, column)
    assert found == (spelled if isinstance(spelled, str) else {**spelled, "key": "STRING NOT NULL"})
    assert ids(after) == ids(table())


def test_types_inside_rows_and_arrays_change_by_their_path() -> None:
    after = alter(
        alter(table(), AddColumn("ll", "ARRAY<ARRAY<INT>>")),
        UpdateColumnType(("r", "y", "z"), "BYTES"),
        UpdateColumnType(("l", "element", "x"), "BIGINT"),
        UpdateColumnType(("ll", "element", "element"), "BIGINT"),
    )
    assert type_of(after, "r")["fields"][1]["type"]["fields"][0]["type"] == "BYTES"
    assert type_of(after, "l")["element"]["fields"][0]["type"] == "BIGINT"
    assert type_of(after, "ll") == {"type": "ARRAY", "element": {"type": "ARRAY", "element": "BIGINT"}}


def test_setting_a_row_to_its_own_type_keeps_nested_ids() -> None:
    before = table()
    assert alter(before, UpdateColumnType("r", before.by_name["r"].type)).fields == before.fields


def test_nulls_are_allowed_at_any_depth() -> None:
    strict = alter(table(), AddColumn("a", "ARRAY<ROW<x INT NOT NULL> NOT NULL>"))
    after = alter(
        strict,
        UpdateColumnNullability("s", True),
        UpdateColumnNullability(("a", "element"), True),
        UpdateColumnNullability(("a", "element", "x"), True),
    )
    assert type_of(after, "s") == "STRING"
    assert type_of(after, "a")["element"] == {"type": "ROW", "fields": [{"id": 15, "name": "x", "type": "INT"}]}


def test_not_null_can_be_added_only_if_the_option_allows_it() -> None:
    lenient = table({"alter-column-null-to-not-null.disabled": "false"})
    after = alter(lenient, UpdateColumnNullability("v", False), UpdateColumnNullability(("m", "value"), False))
    assert type_of(after, "v") == "STRING NOT NULL"
    assert type_of(after, "m")["value"] == "INT NOT NULL"


def test_descriptions_and_defaults_are_set_and_removed() -> None:
    described = alter(
        table(),
        UpdateColumnDescription("v", "text"),
        UpdateColumnDescription(("r", "y", "z"), "deep"),
        UpdateColumnDefault("v", "'none'"),
        UpdateColumnDefault(("r", "x"), "3"),
    )
    nested = type_of(described, "r")["fields"]
    assert field_to_json(described.by_name["v"]) == {
        "id": 2, "name": "v", "type": "STRING", "description": "text", "defaultValue": "'none'"
    }  # fmt: skip
    assert nested[0] == {"id": 6, "name": "x", "type": "INT", "defaultValue": "3"}
    assert nested[1]["type"]["fields"][0]["description"] == "deep"
    plain = alter(described, UpdateColumnDescription("v", None), UpdateColumnDefault("v", None))
    assert field_to_json(plain.by_name["v"]) == {"id": 2, "name": "v", "type": "STRING"}


# ---------------------------------------------------------------- options


@dataclass(frozen=True)
class OptionCase:
    """changed: what becomes of the option; "" when the change is refused. With snapshots, unless said otherwise."""

    id: str
    change: SetOption | RemoveOption
    after: str | None = None
    refused: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    has_snapshots: bool = True


OPTION_CASES = [
    OptionCase("a new one", SetOption("write-only", "true"), "true"),
    OptionCase("another value", SetOption("num-levels", "4"), "4", options={"num-levels": "3"}),
    OptionCase("removed", RemoveOption("num-levels"), options={"num-levels": "3"}),
    OptionCase("removed though not there", RemoveOption("num-levels")),
    OptionCase("immutable", SetOption("merge-engine", "first-row"), refused="merge-engine: files that are written"),
    OptionCase(
        "immutable, the same value",
        SetOption("merge-engine", "deduplicate"),
        "deduplicate",
        options={"merge-engine": "deduplicate"},
    ),
    OptionCase(
        "immutable, before the first row", SetOption("merge-engine", "first-row"), "first-row", has_snapshots=False
    ),
    OptionCase(
        "immutable, removed",
        RemoveOption("rowkind.field"),
        refused="rowkind.field: files",
        options={"rowkind.field": "v"},
    ),
    OptionCase("kind of table", SetOption("type", "format-table"), refused="option type defines", has_snapshots=False),
    OptionCase("kind of table, the same", SetOption("type", "TABLE")),
    OptionCase("kind of table, removed", RemoveOption("type"), refused="option type", options={"type": "table"}),
    OptionCase("place", SetOption("path", "/x"), refused="option path defines", has_snapshots=False),
    OptionCase("the primary key, the same", SetOption("primary-key", "k, p")),
    OptionCase("the primary key, another", SetOption("primary-key", "k"), refused="primary-key: files"),
    OptionCase(
        "the primary key, another, before the first row",
        SetOption("primary-key", "k"),
        refused="name the columns once",
        has_snapshots=False,
    ),
    OptionCase(
        "the primary key, removed",
        RemoveOption("primary-key"),
        refused="the keys of a table can't be changed",
        has_snapshots=False,
    ),
    OptionCase("the partition, the same", SetOption("partition", "p")),
    OptionCase("more buckets", SetOption("bucket", "8"), "8"),
    OptionCase("buckets to dynamic", SetOption("bucket", "-1"), refused="bucket can't change from 1 to -1"),
    OptionCase("dynamic to buckets", SetOption("bucket", "4"), refused="from -1 to 4", options={"bucket": "-1"}),
    OptionCase(
        "dynamic to buckets, before the first row",
        SetOption("bucket", "4"),
        "4",
        options={"bucket": "-1"},
        has_snapshots=False,
    ),
    OptionCase("buckets of a kind", SetOption("bucket", "all"), refused="bucket = 'all': expected a whole number"),
    OptionCase("buckets removed", RemoveOption("bucket"), refused="bucket can't be unset"),
    OptionCase(
        "deletion vectors", SetOption("deletion-vectors.enabled", "true"), refused="deletion-vectors.modifiable"
    ),
    OptionCase("deletion vectors, as they are", SetOption("deletion-vectors.enabled", "false"), "false"),
    OptionCase(
        "deletion vectors, by one who knows",
        SetOption("deletion-vectors.enabled", "true"),
        "true",
        options={"deletion-vectors.modifiable": "true"},
    ),
    OptionCase(
        "deletion vectors removed",
        RemoveOption("deletion-vectors.enabled"),
        refused="modifiable",
        options={"deletion-vectors.enabled": "true"},
    ),
    OptionCase("ignoring deletes", SetOption("ignore-delete", "true"), "true"),
    OptionCase(
        "ignoring deletes no more",
        SetOption("ignore-delete", "false"),
        refused="ignore-delete can't be reverted",
        options={"ignore-delete": "true"},
    ),
    OptionCase(
        "ignoring old values no more",
        RemoveOption("ignore-update-before"),
        refused="ignore-update-before can't",
        options={"ignore-update-before": "true"},
    ),
    OptionCase(
        "the order of files",
        SetOption("clustering.columns", "v"),
        refused="clustering.columns: with pk-clustering-override",
        options={"pk-clustering-override": "true", "clustering.columns": "n"},
    ),
    OptionCase("text that doesn't parse", SetOption("num-levels", "few"), refused="num-levels = 'few'"),
    OptionCase("a bucket key of no column", SetOption("bucket-key", "q"), refused="no column 'q'", has_snapshots=False),
    OptionCase("what contradicts the schema", SetOption("sequence.field", "q"), refused="no column 'q'"),
]


@pytest.mark.parametrize("case", OPTION_CASES, ids=lambda c: c.id)
def test_options_can_change_unless_files_depend_on_them(case: OptionCase) -> None:
    schema = table(case.options)
    if case.refused:
        with pytest.raises(BadInput, match=case.refused):
            alter(schema, case.change, has_snapshots=case.has_snapshots)
        return
    after = alter(schema, case.change, has_snapshots=case.has_snapshots)
    assert after.options.get(case.change.key) == case.after
    others = {key: value for key, value in schema.options.items() if key != case.change.key}
    assert others.items() <= after.options.items()


def test_an_empty_append_table_can_be_given_a_primary_key() -> None:
    after = alter(table(primary_key=[], partition_by=[]), SetOption("primary-key", "n"), has_snapshots=False)
    assert after.primary_keys == ("n",)
    assert type_of(after, "n") == "INT NOT NULL"
    assert "primary-key" not in after.options


# ---------------------------------------------------------------- refusals


@dataclass(frozen=True)
class Refused:
    id: str
    changes: Sequence[SchemaChange]
    message: str
    options: Mapping[str, str] = field(default_factory=dict)


REFUSALS = [
    Refused("adding what is there", [AddColumn("v", "INT")], "column 'v' already exists; choose"),
    Refused("adding what is there, inside", [AddColumn(("r", "x"), "INT")], "column 'r.x' already exists"),
    Refused("adding NOT NULL", [AddColumn("a", "INT NOT NULL")], "older rows have no value; add it as nullable"),
    Refused("adding after nothing", [AddColumn("a", "INT", after="nn")], "no column 'nn'.*did you mean 'n'"),
    Refused("adding at two places", [AddColumn("a", "INT", first=True, after="k")], "both first and after 'k'"),
    Refused("adding no type", [AddColumn("a", "INTEGRE")], "not a column type: 'INTEGRE'"),
    Refused("adding what Paimon lacks", [AddColumn("a", pa.duration("s"))], "column a: no Paimon type"),
    Refused("adding a system column", [AddColumn("_ROW_ID", "BIGINT")], "'_ROW_ID'.*reserved by Paimon"),
    Refused("adding into no row", [AddColumn(("v", "a"), "INT")], "'v' is STRING.*not a ROW"),
    Refused("adding into an array", [AddColumn(("l", "a"), "INT")], "'l' is ARRAY<.*not a ROW"),
    Refused("adding into a map's keys", [AddColumn(("m", "key", "a"), "INT")], "'m' is MAP.*'value'"),
    Refused("adding into nothing", [AddColumn(("q", "a"), "INT")], "no column 'q'"),
    Refused("no path", [DropColumn(())], "its path is empty"),
    Refused("dropping what is not there", [DropColumn("q")], "no column 'q'; there are k, p"),
    Refused("dropping what is not inside", [DropColumn(("r", "xx"))], "no column 'xx' in 'r'; there are x, y"),
    Refused("dropping twice", [DropColumn("v"), DropColumn("v")], "no column 'v'"),
    Refused("dropping a key", [DropColumn("k")], "'k' can't be dropped"),
    Refused("dropping a partition", [DropColumn("p")], "'p' can't be dropped"),
    Refused("dropping a renamed key", [RenameColumn("k", "id"), DropColumn("id")], "'id' can't be dropped"),
    Refused("dropping the last one inside", [DropColumn(("r", "y", "z"))], "'r.y.z' is the only column"),
    Refused("dropping an element", [DropColumn(("l", "element"))], "'l' is ARRAY<.*not a ROW"),
    Refused("dropping a sequence", [DropColumn("n")], "sequence.field = 'n': no column", {"sequence.field": "n"}),
    Refused("dropping row kinds", [DropColumn("v")], "rowkind.field: no column", {"rowkind.field": "v"}),
    Refused("dropping an index", [DropColumn("v")], "'v' can't be dropped", {"pk-btree.index.columns": "v"}),
    Refused("renaming what is not there", [RenameColumn("q", "w")], "no column 'q'"),
    Refused("renaming to what is there", [RenameColumn("v", "n")], "column 'n' already exists"),
    Refused("renaming to itself", [RenameColumn("v", "v")], "column 'v' already exists"),
    Refused("renaming to nothing", [RenameColumn("v", "")], "without a name"),
    Refused("renaming to a key column's prefix", [RenameColumn("v", "_KEY_v")], "'_KEY_v'"),
    Refused("renaming a partition", [RenameColumn("p", "q")], "'p' can't be renamed"),
    Refused("renaming an index", [RenameColumn("v", "w")], "'v' can't be renamed", {"pk-bitmap.index.columns": "v"}),
    Refused("another type for a key", [UpdateColumnType("k", "STRING")], "'k' can't be given another type"),
    Refused("another type for a partition", [UpdateColumnType("p", "STRING")], "'p' can't be given"),
    Refused(
        "a type that rows can't be read as", [UpdateColumnType("n", "DATE")], "written as INT can't be read as DATE"
    ),
    Refused("a type for a row", [UpdateColumnType("r", "ROW<x INT>")], "written as ROW<"),
    Refused("a type for an element", [UpdateColumnType(("l", "element"), "INT")], "can't be read as INT"),
    Refused("a type for a map's keys", [UpdateColumnType(("m", "key"), "INT")], "'m' is MAP"),
    Refused("a type that takes no nulls", [UpdateColumnType("n", "BIGINT NOT NULL")], "use UpdateColumnNullability"),
    Refused(
        "a type that the table forbids",
        [UpdateColumnType("v", "INT")],
        "see option disable-explicit-type-casting",
        {"disable-explicit-type-casting": "true"},
    ),
    Refused(
        "a type that the default is none of",
        [UpdateColumnDefault("v", "none"), UpdateColumnType("v", "INT")],
        "'v': its default 'none' is not a valid INT",
    ),
    Refused(
        "a default of another type", [UpdateColumnDefault("n", "many")], "'n': its default 'many' is not a valid INT"
    ),
    Refused("a default of an element", [UpdateColumnDefault(("m", "value"), "1")], "'m' is MAP"),
    Refused("a description of nothing", [UpdateColumnDescription("q", "?")], "no column 'q'"),
    Refused("nulls in a key", [UpdateColumnNullability("k", True)], "'k' can't be made nullable"),
    Refused("no nulls", [UpdateColumnNullability("v", False)], "alter-column-null-to-not-null.disabled"),
    Refused("moving nowhere", [UpdateColumnPosition("v")], "pass only one of the three"),
    Refused("moving to two places", [UpdateColumnPosition("v", first=True, after="k")], "pass only one of the three"),
    Refused("moving after itself", [UpdateColumnPosition("v", after="v")], "another column"),
    Refused("moving after nothing", [UpdateColumnPosition("v", after="q")], "no column 'q'"),
    Refused("moving nothing", [UpdateColumnPosition("q", first=True)], "no column 'q'"),
    Refused(
        "a column that its file format can't hold",
        [AddColumn("t", "TIMESTAMP(9)")],
        "file.format = avro",
        {"file.format": "avro"},
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda c: c.id)
def test_impossible_changes_are_refused_with_name_and_reason(case: Refused) -> None:
    with pytest.raises(BadInput, match=case.message):
        alter(table(case.options), *case.changes)


def test_the_type_of_a_bucket_key_changes_only_before_the_first_row() -> None:
    """The same value of another type may hash to another bucket, where readers then look for it."""
    schema = table({"bucket": "4", "bucket-key": "n"}, primary_key=[], partition_by=[])
    change = UpdateColumnType("n", "BIGINT")
    assert type_of(alter(schema, change, has_snapshots=False), "n") == "BIGINT"
    with pytest.raises(BadInput, match="'n' can't be given another type"):
        alter(schema, change)
