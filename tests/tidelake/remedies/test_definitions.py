"""A refused definition of a table, or a refused change of it, names a remedy, and the remedy works."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tests.tidelake.remedies.refusals import (
    COLUMNS,
    ROWS,
    Refusal,
    altered,
    check,
    created,
    each_remedy,
    filled,
    then,
)
from tidelake import (
    AddColumn,
    DropColumn,
    RemoveOption,
    SetOption,
    UpdateColumnNullability,
    UpdateColumnType,
)

KEYED = {"bucket": "1"}
AGGREGATION = {**KEYED, "merge-engine": "aggregation"}
NESTED = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.struct([("id", pa.int64()), ("n", pa.int64())])))])


def of(name: str, kind: pa.DataType) -> pa.Schema:
    """The columns k and one more."""
    return pa.schema([("k", pa.int64()), (name, kind)])


CREATED: Mapping[str, Refusal] = {
    "a table has no column": Refusal(created({}, columns=pa.schema([])), {"add one": created({})}),
    "two columns have one name": Refusal(
        created({}, columns=pa.schema([("k", pa.int64()), ("k", pa.int64())])), {"rename one of them": created({})}
    ),
    "a column has no name": Refusal(created({}, columns=of("", pa.int64())), {"add a name": created({})}),
    "a column has a reserved name": Refusal(
        created({}, columns=of("_KEY_k", pa.int64())), {"rename the column": created({})}
    ),
    "a row has no field": Refusal(
        created({}, columns=of("v", pa.struct([]))),
        {
            "add one": created({}, columns=of("v", pa.struct([("x", pa.int64())]))),
            "leave out the column": created({}, columns=pa.schema([("k", pa.int64())])),
        },
    ),
    "the key has only partition columns": Refusal(
        created(KEYED, key=["p"], by=["p"]),
        {
            "add a column to the key": created(KEYED, key=["p", "k"], by=["p"]),
            "partition by fewer": created(KEYED, key=["p"]),
        },
    ),
    "a key has a column without an order": Refusal(
        created(KEYED, key=["k", "v"], columns=of("v", pa.list_(pa.int64()))),
        {"leave it out": created(KEYED, key=["k"], columns=of("v", pa.list_(pa.int64())))},
    ),
    "an option is misspelt": Refusal(
        created({"bukcet": "2"}, key=["k"]), {"did you mean 'bucket'": created({"bucket": "2"}, key=["k"])}
    ),
    "an option has no name of Paimon": Refusal(
        created({"changelog-producr": "input"}),
        {
            "Correct it": created({**KEYED, "changelog-producer": "input"}, key=["k"]),
            "or leave it out": created({}),
        },
    ),
    "a size has no unit that Java knows": Refusal(
        created({**KEYED, "target-file-size": "12 pages"}, key=["k"]),
        {"write a whole number and b, kb, mb, gb or tb": created({**KEYED, "target-file-size": "12 mb"}, key=["k"])},
    ),
    "a duration has no unit that Java knows": Refusal(
        created({"snapshot.time-retained": "2 fortnights"}),
        {"write a whole number and d, h, min, s or ms": created({"snapshot.time-retained": "28 d"})},
    ),
    "a write buffer is smaller than Java's pages": Refusal(
        created({**KEYED, "write-buffer-size": "64 kb"}, key=["k"]),
        {"set it to 196608 bytes or more": created({**KEYED, "write-buffer-size": "196608"}, key=["k"])},
    ),
    "the number of buckets is 0": Refusal(
        created({"bucket": "0"}, key=["k"]),
        {
            "use 1 or more for a fixed number of buckets": created({"bucket": "1"}, key=["k"]),
            "-1 to let the writer choose": created({"bucket": "-1"}, key=["k"]),
            "or -2 (primary-key tables only) to choose buckets later": created({"bucket": "-2"}, key=["k"]),
        },
    ),
    "a bucket key has no number of buckets": Refusal(
        created({"bucket-key": "k"}),
        {"set bucket": created({"bucket-key": "k", "bucket": "2"}), "unset bucket-key": created({})},
    ),
    "a bucket key has a column that can't be hashed": Refusal(
        created({"bucket": "2", "bucket-key": "v"}, columns=of("v", pa.list_(pa.int64()))),
        {
            "set bucket-key to other columns": created(
                {"bucket": "2", "bucket-key": "k"}, columns=of("v", pa.list_(pa.int64()))
            )
        },
    ),
    "a sequence field has no order": Refusal(
        created({**KEYED, "sequence.field": "v"}, key=["k"], columns=of("v", pa.list_(pa.int64()))),
        {"name another column": created({**KEYED, "sequence.field": "v"}, key=["k"])},
    ),
    "a row kind is a number": Refusal(
        created({**KEYED, "rowkind.field": "v"}, key=["k"]),
        {"make it a STRING of +I, -U, +U, -D": created({**KEYED, "rowkind.field": "p"}, key=["k"])},
    ),
    "rows expire by a text": Refusal(
        created({**KEYED, "record-level.expire-time": "1 d", "record-level.time-field": "p"}, key=["k"]),
        {
            "name an INT, BIGINT or TIMESTAMP": created(
                {**KEYED, "record-level.expire-time": "1 d", "record-level.time-field": "v"}, key=["k"]
            )
        },
    ),
    "an aggregate function does not exist": Refusal(
        created({**AGGREGATION, "fields.v.aggregate-function": "summ"}, key=["k"]),
        {"did you mean 'sum'": created({**AGGREGATION, "fields.v.aggregate-function": "sum"}, key=["k"])},
    ),
    "rows are counted": Refusal(
        created({**AGGREGATION, "fields.v.aggregate-function": "count"}, key=["k"]),
        {"use sum": created({**AGGREGATION, "fields.v.aggregate-function": "sum"}, key=["k"])},
    ),
    "a text is summed": Refusal(
        created({**AGGREGATION, "fields.p.aggregate-function": "sum"}, key=["k"]),
        {
            "choose another function": created({**AGGREGATION, "fields.p.aggregate-function": "max"}, key=["k"]),
            "or another type": created({**AGGREGATION, "fields.v.aggregate-function": "sum"}, key=["k"]),
        },
    ),
    "nested rows have no key": Refusal(
        created({**AGGREGATION, "fields.v.aggregate-function": "nested_partial_update"}, key=["k"], columns=NESTED),
        {
            "set fields.v.nested-key": created(
                {**AGGREGATION, "fields.v.aggregate-function": "nested_partial_update", "fields.v.nested-key": "id"},
                key=["k"],
                columns=NESTED,
            )
        },
    ),
    "a column is in two sequence groups": Refusal(
        created(
            {
                **KEYED,
                "merge-engine": "partial-update",
                "fields.a.sequence-group": "v",
                "fields.b.sequence-group": "v",
            },
            key=["k"],
            columns=pa.schema([(name, pa.int64()) for name in "kvab"]),
        ),
        {
            "name it in only one of the groups": created(
                {**KEYED, "merge-engine": "partial-update", "fields.a.sequence-group": "v"},
                key=["k"],
                columns=pa.schema([(name, pa.int64()) for name in "kva"]),
            )
        },
    ),
    "an option also names the partition columns": Refusal(
        created({"partition": "v"}, by=["p"]), {"name the columns once": created({"partition": "p"})}
    ),
    "a table exists": Refusal(
        lambda lake: lake.catalog.create_table("d.t", COLUMNS),
        {
            "choose another name": lambda lake: lake.catalog.create_table("d.u", COLUMNS),
            "pass if_not_exists=True": lambda lake: lake.catalog.create_table("d.t", COLUMNS, if_not_exists=True),
        },
        ready=created({}),
    ),
    "a database exists": Refusal(
        lambda lake: lake.catalog.create_database("d"),
        {"choose another name": lambda lake: lake.catalog.create_database("e")},
    ),
    "a database has tables": Refusal(
        lambda lake: lake.catalog.drop_database("d"),
        {"drop with cascade=True": lambda lake: lake.catalog.drop_database("d", cascade=True)},
        ready=created({}),
    ),
    "a database has a dot in its name": Refusal(
        lambda lake: lake.catalog.create_database("a.b"),
        {"choose another": lambda lake: lake.catalog.create_database("a_b")},
    ),
}

ALTERED: Mapping[str, Refusal] = {
    "a new column is NOT NULL": Refusal(
        altered(AddColumn("n", "BIGINT NOT NULL")),
        {"add it as nullable": altered(AddColumn("n", pa.int64()))},
        ready=filled({}),
    ),
    "a column exists": Refusal(
        altered(AddColumn("v", pa.int64())), {"choose another name": altered(AddColumn("w", pa.int64()))}, filled({})
    ),
    "the only column is dropped": Refusal(
        altered(DropColumn("k")),
        {"add another column first": altered(AddColumn("v", pa.int64()), DropColumn("k"))},
        ready=created({}, columns=pa.schema([("k", pa.int64())])),
    ),
    "rows can't be read as the new type": Refusal(
        altered(UpdateColumnType("v", pa.list_(pa.int64()))),
        {"add a column of the new type": altered(AddColumn("w", pa.list_(pa.int64())))},
        ready=filled({}),
    ),
    "a type and its nulls change together": Refusal(
        altered(UpdateColumnType("v", "BIGINT NOT NULL")),
        {
            "use UpdateColumnNullability": altered(
                SetOption("alter-column-null-to-not-null.disabled", "false"),
                UpdateColumnNullability("v", nullable=False),
            )
        },
        ready=filled({}),
    ),
    "a column that may hold nulls becomes NOT NULL": Refusal(
        altered(UpdateColumnNullability("v", nullable=False)),
        {
            "set the option 'alter-column-null-to-not-null.disabled' = 'false' first": altered(
                SetOption("alter-column-null-to-not-null.disabled", "false"),
                UpdateColumnNullability("v", nullable=False),
            )
        },
        ready=filled({}),
    ),
    "a column that a key needs is dropped": Refusal(
        altered(DropColumn("k")),
        {"create another table": created({"bucket": "1"}, key=["p"])},
        ready=filled(KEYED, key=["k"]),
    ),
    "a key column changes its type": Refusal(
        altered(UpdateColumnType("k", "STRING")),
        {"create another table": created(KEYED, key=["k"], columns=of("v", pa.string()))},
        ready=filled(KEYED, key=["k"]),
    ),
    "a column outside of the key is rewritten": Refusal(
        lambda lake: lake.catalog.rewrite_table("d.t", [UpdateColumnType("v", "DECIMAL(38, 0)")]),
        {"Change its type with `tidelake table alter`": altered(UpdateColumnType("v", "DECIMAL(38, 0)"))},
        ready=filled(KEYED, key=["k"]),
    ),
    "the number of buckets is unset": Refusal(
        altered(RemoveOption("bucket")),
        {"set a number": altered(SetOption("bucket", "2"))},
        ready=filled({"bucket": "2"}, key=["k"]),
    ),
    "the merge engine changes": Refusal(
        altered(SetOption("merge-engine", "aggregation")),
        {"create another table": created(AGGREGATION, key=["k"])},
        ready=filled(KEYED, key=["k"]),
    ),
    "the producer of the changelog changes": Refusal(
        altered(SetOption("changelog-producer", "input")),
        {
            "Create another table with it, copy the rows into it, and follow that": then(
                created({**KEYED, "changelog-producer": "input"}, key=["k"]), lambda lake: lake.write(ROWS)
            )
        },
        ready=filled({**KEYED, "changelog-producer": "full-compaction"}, key=["k"]),
    ),
    "deletion vectors are switched on": Refusal(
        altered(SetOption("deletion-vectors.enabled", "true")),
        {
            "'deletion-vectors.modifiable' = 'true' first": then(
                lambda lake: lake.table.compact(full=True),
                altered(SetOption("deletion-vectors.modifiable", "true")),
                altered(SetOption("deletion-vectors.enabled", "true")),
            )
        },
        ready=filled({"bucket": "-1"}),
    ),
    "an option that rows were written by is overridden": Refusal(
        lambda lake: lake.catalog.table("d.t", {"bucket": "2"}).scan().to_arrow(),
        {"Leave it out": lambda lake: lake.catalog.table("d.t").scan().to_arrow()},
        ready=filled(KEYED, key=["k"]),
    ),
    "a branch or a system table is dropped": Refusal(
        lambda lake: lake.catalog.drop_table("d.t$snapshots"),
        {"name the table: 'd.t'": lambda lake: lake.catalog.drop_table("d.t")},
        ready=filled({}),
    ),
    "a table gets the name of another one": Refusal(
        lambda lake: lake.catalog.rename_table("d.t", "d.t"),
        {"choose another one": lambda lake: lake.catalog.rename_table("d.t", "d.u")},
        ready=filled({}),
    ),
}


@each_remedy(CREATED)
def test_the_remedy_of_a_refused_definition_works(refusal: Refusal, words: str) -> None:
    check(refusal, words)


@each_remedy(ALTERED)
def test_the_remedy_of_a_refused_change_works(refusal: Refusal, words: str) -> None:
    check(refusal, words)
