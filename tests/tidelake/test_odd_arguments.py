"""Any argument of a public function works, or raises our error, which names the argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidelake
from tidelake import BadInput, Catalog, Table, TidelakeError, col
from tidelake.storage.model.types import DataField, parse_type

NAME: Final = "shop.orders"
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
LONG: Final = "x" * 300
HALF: Final = "\ud800"  # of a letter: no UTF-8 holds it


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"])
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"id": [1, 2], "v": ["a", "b"]}))
        writer.commit(1)
    return catalog


@dataclass(frozen=True)
class Call:
    """says: part of the message, the argument's name for one."""

    id: str
    do: Callable[[Catalog], object]
    says: str


def on(do: Callable[[Table], object]) -> Callable[[Catalog], object]:
    return lambda catalog: do(catalog.table(NAME))


def commit(**arguments: Any) -> Callable[[Catalog], object]:
    def run(catalog: Catalog) -> object:
        with catalog.table(NAME).writer(commit_user="etl") as writer:
            return writer.commit(**arguments)

    return run


def create(**arguments: Any) -> Callable[[Catalog], object]:
    return lambda catalog: catalog.create_table("shop.new", SCHEMA, **arguments)


def alter(change: Any) -> Callable[[Catalog], object]:
    return lambda catalog: catalog.alter_table(NAME, [change])


def deep(data_type: pa.DataType, levels: int) -> Callable[[Catalog], object]:
    for _ in range(levels):
        data_type = pa.list_(data_type)
    return lambda catalog: catalog.create_table("shop.new", pa.schema([("d", data_type)]))


def struct_of(levels: int) -> pa.DataType:
    found = pa.int32()
    for _ in range(levels):
        found = pa.struct([("a", found)])
    return found


CALLS: Final = (
    Call("a warehouse that is a number", lambda _: tidelake.open_catalog(5), "warehouse"),  # type: ignore[arg-type]
    Call("a warehouse of half a letter", lambda _: tidelake.open_catalog(f"/tmp/{HALF}"), "warehouse.*surrogate"),
    Call("a warehouse with a zero byte", lambda _: tidelake.open_catalog("a\0b"), "warehouse.*zero byte"),
    Call("a warehouse of a long name", lambda _: tidelake.open_catalog(LONG), "warehouse.*300 bytes"),
    Call("an option that is a number", lambda _: tidelake.open_catalog("/tmp/x", metastore=5), "metastore"),  # type: ignore[arg-type]
    Call("a database of a long name", lambda c: c.create_database(LONG), "database name.*300 bytes.*allow only 252"),
    Call("a database of half a letter", lambda c: c.create_database(HALF), "name=.*surrogate"),
    Call("no database", lambda c: c.list_tables(None), "database"),  # type: ignore[arg-type]
    Call("a table of a long name", lambda c: c.create_table(f"shop.{LONG}", SCHEMA), "table name.*300 bytes"),
    Call("a look at a table of a long name", lambda c: c.table(f"shop.{LONG}"), "table name.*300 bytes"),
    Call("a branch of a long name", lambda c: c.table(f"{NAME}$branch_{LONG}"), "branch name.*300 bytes"),
    Call("a branch with a zero byte", lambda c: c.table(f"{NAME}$branch_a\0b"), "branch name.*zero byte"),
    Call("a new name that is too long", lambda c: c.rename_table(NAME, f"shop.{LONG}"), "table name.*300 bytes"),
    Call("a key of numbers", create(primary_key=[5]), "primary_key"),
    Call("a key that is a number", create(primary_key=5), "primary_key"),
    Call("a partition of nothing", create(partition_by=None), "partition_by"),
    Call("options as a list", create(options=[1]), "options"),
    Call("an option of half a letter", create(options={"bucket": HALF}), "options.*surrogate"),
    Call("a comment that is a number", create(comment=5), "comment"),
    Call("a comment of half a letter", create(comment=HALF), "comment.*surrogate"),
    Call("ARRAY in ARRAY beyond what Parquet reads", deep(pa.int32(), 50), "'d'.*101 levels.*support 99"),
    Call("ROW in ROW beyond what Parquet reads", deep(struct_of(99), 0), "100 levels"),
    Call("a change that is none", alter(5), r"changes=….*not \[5\]"),
    Call("changes that are no list", lambda c: c.alter_table(NAME, 5), "changes"),  # type: ignore[arg-type]
    Call("a column that is a number", alter(tidelake.AddColumn(5, "INT")), "AddColumn.name"),  # type: ignore[arg-type]
    Call("a type that is a number", alter(tidelake.AddColumn("x", 5)), "AddColumn.type"),
    Call("a column of half a letter", alter(tidelake.AddColumn(HALF, "INT")), "AddColumn.name.*surrogate"),
    Call("a name that is a list", alter(tidelake.RenameColumn("v", ["w"])), "RenameColumn.new_name"),  # type: ignore[arg-type]
    Call("an option that is a truth", alter(tidelake.SetOption("x", True)), "SetOption.value"),  # type: ignore[arg-type]
    Call("a default that is a number", alter(tidelake.UpdateColumnDefault("v", 5)), "UpdateColumnDefault.default"),  # type: ignore[arg-type]
    Call(
        "a description of half a letter", alter(tidelake.UpdateColumnDescription("v", HALF)), "description.*surrogate"
    ),
    Call("a user that is a number", on(lambda t: t.writer(commit_user=5)), "commit_user"),  # type: ignore[arg-type]
    Call("a user of half a letter", on(lambda t: t.writer(commit_user=HALF)), "commit_user.*surrogate"),
    Call("a memory that is a number", on(lambda t: t.writer(memory=5)), "memory"),  # type: ignore[arg-type]
    Call("an identifier that is a truth", commit(identifier=True), "identifier"),
    Call("properties that are a number", commit(properties=5), "properties"),
    Call("a property of half a letter", commit(properties={"k": HALF}), "properties.*surrogate"),
    Call("a watermark that is a text", commit(watermark="now"), "watermark"),
    Call("a snapshot that is a text", on(lambda t: t.scan(snapshot="1")), "snapshot"),  # type: ignore[arg-type]
    Call("snapshot zero", on(lambda t: t.scan(snapshot=0)), "snapshot"),
    Call("a time before all time", on(lambda t: t.scan(as_of=datetime(1, 1, 1))), "time zone|no snapshot"),
    Call("a time far ago with zone", on(lambda t: t.scan(as_of=datetime(1, 1, 1, tzinfo=UTC))), "no snapshot"),
    Call("a time that is a text", on(lambda t: t.scan(as_of="2024-01-01")), "as_of"),  # type: ignore[arg-type]
    Call("a tag of a long name", on(lambda t: t.scan(tag=LONG)), "tag.*300 bytes"),
    Call("a tag with a zero byte", on(lambda t: t.scan(tag="a\0b")), "tag.*zero byte"),
    Call("columns that are numbers", on(lambda t: t.scan(columns=[5])), "columns"),  # type: ignore[list-item]
    Call("columns that are a number", on(lambda t: t.scan(columns=5)), "columns"),  # type: ignore[arg-type]
    Call("splits that are a number", on(lambda t: t.scan().to_arrow(5)), "splits"),  # type: ignore[arg-type]
    Call("a prefix that is a number", on(lambda t: t.scan(filter=col("v").starts_with(5))), "starts_with"),  # type: ignore[arg-type]
    Call("changes from far ahead", on(lambda t: t.changes(start=99)), "no snapshot 99 yet"),
    Call("changes from a text", on(lambda t: t.changes(start="1")), "start"),  # type: ignore[arg-type]
    Call("a start that is a truth", on(lambda t: t.follower(start=True)), "start"),
    Call("a start that is a fraction", on(lambda t: t.follower(start=1.5)), "start"),  # type: ignore[arg-type]
    Call("a consumer of a long name", on(lambda t: t.follower(consumer=LONG)), "consumer.*300 bytes"),
    Call("a consumer of half a letter", on(lambda t: t.follower(consumer=HALF)), "consumer.*surrogate"),
    Call("an order that is a number", on(lambda t: t.compact(order_by=5)), "order_by"),  # type: ignore[arg-type]
    Call("a strategy that is a list", on(lambda t: t.compact(strategy=[])), "strategy"),  # type: ignore[arg-type]
    Call("a fullness that is a text", on(lambda t: t.compact(full="yes")), "full"),  # type: ignore[arg-type]
    Call("a number of snapshots that is a text", on(lambda t: t.expire(retain_min="1")), "retain_min"),  # type: ignore[arg-type]
    Call("a time that is a fraction", on(lambda t: t.expire(retain_ms=1.5)), "retain_ms"),  # type: ignore[arg-type]
    Call("a partition that is a text", on(lambda t: t.truncate(partition="v")), "partition"),  # type: ignore[arg-type]
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.id)
def test_an_odd_argument_is_refused_by_name(call: Call, catalog: Catalog) -> None:
    with pytest.raises(BadInput, match=call.says):
        call.do(catalog)
    assert [snapshot.id for snapshot in catalog.table(NAME).snapshots()] == [1]


PUBLIC_CALLS: Final = [
    member
    for owner in (Catalog, Table, tidelake.Writer, tidelake.Scan)
    for name, member in vars(owner).items()
    if inspect.isfunction(member)
    and not name.startswith("_")
    and all(of.kind is not of.VAR_KEYWORD for of in inspect.signature(member).parameters.values())
]


@pytest.mark.parametrize("function", PUBLIC_CALLS, ids=lambda function: function.__qualname__)
def test_a_call_with_too_few_or_too_many_arguments_names_the_function(
    function: Callable[..., object], catalog: Catalog
) -> None:
    name = re.escape(f"{function.__name__}() ")
    with pytest.raises(TypeError, match=name + "got an unexpected keyword argument 'limt'"):
        function(catalog, limt=1)
    with pytest.raises(TypeError, match=name + r"(takes|got multiple values)"):
        function(catalog, *range(99))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("kind", ["ARRAY<{}>", "MAP<STRING, {}>", "ROW<a {}>"])
def test_the_deepest_allowed_types_are_read_back(kind: str, file_format: str, catalog: Catalog) -> None:
    spelled, value = "INT", 1
    for _ in range(98 if kind.startswith("ROW") else 49):
        spelled = kind.format(spelled)
        value = [value] if kind.startswith("ARRAY") else [("k", value)] if kind.startswith("MAP") else {"a": value}  # type: ignore[assignment]
    fields = [DataField(0, "d", parse_type(spelled))]
    table = catalog.create_table("shop.deep", fields, options={"file.format": file_format})
    with table.writer() as writer:
        writer.write(pa.table([pa.array([value], table.schema.field("d").type)], names=["d"]))
        writer.commit()
    assert table.scan().to_arrow().column("d").to_pylist() == [value]


# ---------------------------------------------------------------- anything

ODD: Final[tuple[Any, ...]] = (
    *(None, 5, -1, 0, 2**70, True, 1.5, float("nan"), "", " ", LONG, HALF, "a\0b", "a/b", b"x", object()),
    *([], [5], [HALF], {}, {5: 5}, {"a": HALF}, {HALF: "a"}, {"v": [1]}, ["id"], ["id", "id"], "id", "d.t"),
    *(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), np.int64(7), Decimal("1e999999"), pa.schema([])),
    *(pc.field(0), pc.field("v") > 1, col("v"), col("nope") > 1),
)
ODD_CALLS: Final[tuple[Callable[[Catalog, Any], object], ...]] = (
    lambda c, x: c.create_database(x),
    lambda c, x: c.list_tables(x),
    lambda c, x: c.table(x),
    lambda c, x: c.table(NAME, x),
    lambda c, x: c.drop_table(x),
    lambda c, x: c.rename_table(x, "shop.z"),
    lambda c, x: c.create_table("shop.n", x),
    lambda c, x: c.create_table("shop.n", SCHEMA, primary_key=x),
    lambda c, x: c.create_table("shop.n", SCHEMA, partition_by=x),
    lambda c, x: c.create_table("shop.n", SCHEMA, options=x),
    lambda c, x: c.create_table("shop.n", SCHEMA, comment=x),
    lambda c, x: c.alter_table(NAME, x),
    lambda c, x: c.alter_table(NAME, [tidelake.AddColumn(x, "INT")]),
    lambda c, x: c.alter_table(NAME, [tidelake.AddColumn("q", x)]),
    lambda c, x: c.alter_table(NAME, [tidelake.AddColumn("q", "INT", after=x)]),
    lambda c, x: c.alter_table(NAME, [tidelake.UpdateColumnType("v", x)]),
    lambda c, x: c.alter_table(NAME, [tidelake.UpdateColumnPosition("v", first=x)]),
    lambda c, x: c.alter_table(NAME, [tidelake.SetOption(x, "1")]),
    lambda c, x: c.alter_table(NAME, [tidelake.SetOption("snapshot.time-retained", x)]),
    lambda c, x: c.alter_table(NAME, [tidelake.UpdateComment(x)]),
    lambda c, x: c.table(NAME).writer(commit_user=x).close(),
    lambda c, x: c.table(NAME).writer(overwrite=x).close(),
    lambda c, x: c.table(NAME).scan(snapshot=x).to_arrow(),
    lambda c, x: c.table(NAME).scan(tag=x).to_arrow(),
    lambda c, x: c.table(NAME).scan(as_of=x).to_arrow(),
    lambda c, x: c.table(NAME).scan(columns=x).to_arrow(),
    lambda c, x: c.table(NAME).scan(filter=x).to_arrow(),
    lambda c, x: c.table(NAME).scan(filter=col("v") == x).to_arrow(),
    lambda c, x: c.table(NAME).scan(filter=col("id") < x).to_arrow(),
    lambda c, x: c.table(NAME).scan(filter=col("id").is_in(x)).to_arrow(),
    lambda c, x: c.table(NAME).scan().to_arrow(x),
    lambda c, x: list(c.table(NAME).changes(start=x)),
    lambda c, x: list(c.table(NAME).changes(start=1, end=x)),
    lambda c, x: c.table(NAME).follower(start=x).step(),
    lambda c, x: c.table(NAME).follower(start=1, consumer=x).step(),
    lambda c, x: c.table(NAME).compact(where=x),
    lambda c, x: c.table(NAME).compact(order_by=x),
    lambda c, x: c.table(NAME).compact(strategy=x),
    lambda c, x: c.table(NAME).expire(retain_max=x),
    lambda c, x: c.table(NAME).expire(retain_ms=x),
    lambda c, x: c.table(NAME).truncate(partition=x),
    lambda c, x: c.table(NAME).truncate(identifier=x, commit_user="f"),
    lambda c, x: commit(identifier=x)(c),
    lambda c, x: commit(properties=x)(c),
    lambda c, x: commit(watermark=x)(c),
)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_any_value_works_or_raises_our_error(seed: int, catalog: Catalog) -> None:
    dice = Random(seed)
    for do in ODD_CALLS:
        try:
            do(catalog, dice.choice(ODD))
        except TidelakeError:
            continue
