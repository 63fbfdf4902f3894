"""Options of merge engines are checked when a table is created or altered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest

from tidelake.errors import BadInput
from tidelake.storage.ddl.schema_changes import SetOption, apply_changes
from tidelake.storage.ddl.schema_creation import create_schema
from tidelake.storage.model.schema.table_schema import TableSchema

COLUMNS = pa.schema(
    [
        ("k", pa.int32()),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("g", pa.int32()),
        ("h", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("row", pa.struct([("x", pa.int32())])),
    ]
)
REMOVE_ON_DELETE = "partial-update.remove-record-on-delete"
REMOVE_ON_GROUP = "partial-update.remove-record-on-sequence-group"


def schema_with(options: Mapping[str, str], engine: str = "partial-update", *, has_key: bool = True) -> TableSchema:
    return create_schema(
        COLUMNS, primary_key=["k"] if has_key else [], options={"merge-engine": engine, **options}, time_ms=0
    )


@dataclass(frozen=True)
class Refused:
    """message: a pattern; it holds the option or column, the reason and the remedy."""

    id: str
    options: Mapping[str, str]
    message: str
    engine: str = "partial-update"


REFUSED = [
    Refused(
        "a group of an unknown column", {"fields.g.sequence-group": "a,c"}, "fields.g.sequence-group.*no column 'c'"
    ),
    Refused("a group by an unknown column", {"fields.x.sequence-group": "a"}, "fields.x.sequence-group.*no column 'x'"),
    Refused("a group of the key", {"fields.g.sequence-group": "k,a"}, "'k' is part of the primary key.*leave it out"),
    Refused("a group by the key", {"fields.k.sequence-group": "a"}, "'k' is part of the primary key"),
    Refused(
        "a column in two groups",
        {"fields.g.sequence-group": "a,b", "fields.h.sequence-group": "b"},
        "column 'b' is also in fields.*name it in only one",
    ),
    Refused(
        "a sequence field in two groups",
        {"fields.g.sequence-group": "a", "fields.g,h.sequence-group": "b"},
        "column 'g' is also in fields.g.sequence-group",
    ),
    Refused("a group without an order", {"fields.tags.sequence-group": "a"}, "'tags' is ARRAY.*no order.*another"),
    Refused(
        "deletes ignored that remove",
        {"ignore-delete": "true", REMOVE_ON_DELETE: "true"},
        f"{REMOVE_ON_DELETE}.*ignore-delete drops every delete; unset one",
    ),
    Refused(
        "deletes ignored that remove by a group",
        {"ignore-delete": "true", "fields.g.sequence-group": "a", REMOVE_ON_GROUP: "g"},
        f"{REMOVE_ON_GROUP}.*ignore-delete drops every delete",
    ),
    Refused(
        "deletes that remove, and a group",
        {REMOVE_ON_DELETE: "true", "fields.g.sequence-group": "a"},
        f"{REMOVE_ON_DELETE} = true.*fields.g.sequence-group.*{REMOVE_ON_GROUP}",
    ),
    Refused(
        "deletes that remove by a column of no group",
        {"fields.g.sequence-group": "a", REMOVE_ON_GROUP: "a"},
        "'a' is not a sequence field.*those are g",
    ),
    Refused("deletes that remove by a group, without one", {REMOVE_ON_GROUP: "g"}, "'g' is not a sequence field.*none"),
    Refused(
        "a function outside of a group",
        {"fields.a.aggregate-function": "sum"},
        "fields.a.aggregate-function = 'sum'.*no sequence group.*merge-engine = aggregation",
    ),
    Refused(
        "a default function outside of a group",
        {"fields.g.sequence-group": "a", "fields.default-aggregate-function": "last_value"},
        "fields.default-aggregate-function = 'last_value': column 'b' is in no sequence group",
    ),
    Refused(
        "deletes that remove by groups, with a blank",
        {"fields.g,h.sequence-group": "a", REMOVE_ON_GROUP: "g, h"},
        f"{REMOVE_ON_GROUP} = 'g, h'.*Java.*write 'g,h'",
    ),
    Refused(
        "deletes that remove by nothing",
        {"fields.g.sequence-group": "a", REMOVE_ON_GROUP: ""},
        f"{REMOVE_ON_GROUP} = ''.*unset",
    ),
    Refused(
        "an unknown function of a sequence field",
        {"fields.g.sequence-group": "a", "fields.g.aggregate-function": "summ"},
        "column 'g': aggregate function 'summ' does not exist",
    ),
    Refused(
        "an unknown function of the key",
        {"fields.k.aggregate-function": "nope"},
        "column 'k': aggregate function 'nope' does not exist",
        "aggregation",
    ),
    Refused(
        "an unknown function",
        {"fields.g.sequence-group": "a", "fields.a.aggregate-function": "summ"},
        "column 'a': aggregate function 'summ' does not exist.*sum",
    ),
    Refused(
        "a function of another type",
        {"fields.g.sequence-group": "b", "fields.b.aggregate-function": "sum"},
        "column 'b' STRING.*sum takes numbers",
    ),
    Refused("an unknown function of a column", {"fields.a.aggregate-function": "count"}, "use sum", "aggregation"),
    Refused("options of an unknown column", {"fields.c.ignore-retract": "true"}, "no column 'c'"),
    Refused(
        "options inside of a row",
        {"fields.row.x.aggregate-function": "sum"},
        "fields.row.x.aggregate-function: fields inside 'row'.*name the column",
        "aggregation",
    ),
    Refused("a switch that is neither", {REMOVE_ON_DELETE: "yes"}, f"{REMOVE_ON_DELETE}.*neither true nor false"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_contradictory_options_are_refused(case: Refused) -> None:
    with pytest.raises(BadInput, match=f"(?s){case.message}"):
        schema_with(case.options, case.engine)


def test_an_altered_option_is_checked_as_a_new_one() -> None:
    schema = schema_with({"fields.g.sequence-group": "a"})
    with pytest.raises(BadInput, match="'a' is not a sequence field"):
        apply_changes(schema, [SetOption(REMOVE_ON_GROUP, "a")], has_snapshots=False, time_ms=1)
    with pytest.raises(BadInput, match=r"changelog-producer = 'full_compaction'.*Java"):
        apply_changes(schema, [SetOption("changelog-producer", "full_compaction")], has_snapshots=False, time_ms=1)


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        pytest.param({"fields.g,h.sequence-group": "a,b,g"}, "partial-update", id="a group that names its own order"),
        pytest.param(
            {"fields.default-aggregate-function": "last_non_null_value"},
            "partial-update",
            id="a default that is harmless",
        ),
        pytest.param(
            {
                "fields.g.sequence-group": "a",
                "fields.g.aggregate-function": "max",
                "fields.k.aggregate-function": "max",
            },
            "partial-update",
            id="functions of keys and sequence fields, which have none",
        ),
        pytest.param(
            {"fields.g.sequence-group": "a", REMOVE_ON_GROUP: "g"}, "partial-update", id="a group that removes"
        ),
        pytest.param(
            {"fields.g.sequence-group": "a", "fields.h.sequence-group": "a"},
            "deduplicate",
            id="groups of another engine",
        ),
        pytest.param({"ignore-delete": "true", "changelog-producer": "lookup"}, "first-row", id="first row"),
    ],
)
def test_options_that_java_accepts_are_accepted(options: Mapping[str, str], engine: str) -> None:
    assert schema_with(options, engine).options["merge-engine"] == engine


def test_without_a_primary_key_merge_options_are_not_checked() -> None:
    assert schema_with({"fields.a.aggregate-function": "sum"}, has_key=False).primary_keys == ()
