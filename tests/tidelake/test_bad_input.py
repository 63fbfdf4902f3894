"""For any bad input or damaged table file an error names the reason, and the table is unchanged."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call, call

__all__ = ["call"]

NAME: Final = "shop.orders"
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("status", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("price", pa.float32()),
        ("small", pa.int8()),
        ("at", pa.timestamp("ms")),
        ("tags", pa.list_(pa.string())),
        pa.field("shop", pa.string(), nullable=False),
    ]
)
OPTIONS: Final = {"bucket": "1", "changelog-producer": "input"}


def good(*ids: int, status: str = "new") -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "status": status, "shop": "here"} for i in ids], SCHEMA)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Two snapshots of one table; its files end in a known state."""
    path = tmp_path / "lake"
    catalog = tidelake.open_catalog(str(path))
    catalog.create_database("shop")
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"], options=OPTIONS)
    with table.writer(commit_user="etl") as writer:
        for number in (1, 2):
            writer.write(good(*range(number, number + 3)))
            writer.commit(number)
    return path


@pytest.fixture
def untouched(warehouse: Path) -> Iterator[None]:
    """Not a file was made, changed or removed."""
    before = files_of(warehouse)
    yield
    assert files_of(warehouse) == before


def files_of(folder: Path) -> dict[str, bytes | None]:
    """Directories too: a failed attempt leaves none behind."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def opened(warehouse: Path) -> tidelake.Table:
    return tidelake.open_catalog(str(warehouse)).table(NAME)


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class BadRows:
    """says: parts of the message."""

    id: str
    rows: Any
    says: tuple[str, ...]


def one(**changed: pa.Array | list[Any]) -> pa.Table:
    """A good row but for these columns."""
    columns = {name: good(7).column(name) for name in SCHEMA.names} | changed
    return pa.table({name: column for name, column in columns.items() if column is not None})


def doubled(name: str) -> pa.RecordBatch:
    batch = good(7).to_batches()[0]
    return pa.RecordBatch.from_arrays([*batch.columns, batch.column(name)], [*batch.schema.names, name])


BAD_ROWS: Final = (
    BadRows("text for a number", one(id=["seven"]), ("'id'", "BIGINT", "string", "seven")),
    BadRows("a list for a text", one(status=[["new"]]), ("'status'", "STRING", "list")),
    BadRows("a struct for a list", one(tags=[{"a": "b"}]), ("'tags'", "ARRAY<STRING>", "struct")),
    BadRows("a number beyond the type", one(small=[128]), ("'small'", "TINYINT", "128")),
    BadRows("a fraction for a whole number", one(small=[1.5]), ("'small'", "TINYINT", "1.5")),
    BadRows("NaN for a whole number", one(small=[math.nan]), ("'small'", "TINYINT")),
    BadRows("digits beyond the precision", one(amount=[Decimal("1234567890")]), ("'amount'", "DECIMAL(10, 2)")),
    BadRows("digits beyond the scale", one(amount=[Decimal("0.125")]), ("'amount'", "DECIMAL(10, 2)")),
    BadRows("a double beyond the floats", one(price=[1e300]), ("'price'", "FLOAT", "1e+300")),
    BadRows("an instant for a wall-clock time", one(at=[datetime(2026, 1, 1, tzinfo=UTC)]), ("'at'", "time zone")),
    BadRows("no key column", good(7).drop_columns(["id"]), ("'id'", "primary key", "lacks it")),
    BadRows("a null key", good(7).set_column(0, "id", pa.array([None], pa.int64())), ("'id'", "primary key", "null")),
    BadRows("null where none may be", one(shop=pa.array([None], pa.string())), ("'shop'", "NOT NULL", "null")),
    BadRows("an unknown row kind", one(_VALUE_KIND=pa.array([4], pa.int8())), ("_VALUE_KIND", "-D", "holds 4")),
    BadRows("a negative row kind", one(_VALUE_KIND=pa.array([-1], pa.int8())), ("_VALUE_KIND", "-D", "holds -1")),
    BadRows("no row kind", one(_VALUE_KIND=pa.array([None], pa.int8())), ("_VALUE_KIND", "holds None")),
    BadRows("a row kind as text", one(_VALUE_KIND=["+I"]), ("_VALUE_KIND", "int8", "string")),
    BadRows("a column twice", doubled("status"), ("'status'", "2 times")),
    BadRows(
        "the row kind twice", doubled("id").rename_columns([*SCHEMA.names[1:], *["_VALUE_KIND"] * 2]), ("2 times",)
    ),
    BadRows("another table's rows", pa.table({"sku": ["a"], "stock": [3]}), ("no column 'sku'", "alter_table")),
    BadRows("one column too many", one(colour=["red"]), ("no column 'colour'", "id, status")),
    BadRows("another case of a name", good(7).rename_columns(["ID", *SCHEMA.names[1:]]), ("no column 'ID'",)),
    BadRows("a system column", one(_SEQUENCE_NUMBER=[1]), ("no column '_SEQUENCE_NUMBER'",)),
    BadRows("a list of tuples", [(7, "new")], ("item 0 of the list", "(7, 'new')", "a row is a dict")),
    BadRows("one row that is not in a list", {"id": 7}, ("pass [row] for one row",)),
    BadRows("dicts with another column", [{"id": 7, "shop": "a"}, {"ident": 8}], ("no column 'ident'",)),
    BadRows("dicts with values of several types", [{"id": 7}, {"id": "x"}], ("column 'id'", "don't fit")),
    BadRows("an array that is no row", pa.chunked_array([[1]]), ("has no rows with columns",)),
    BadRows("nothing", None, ("anything that exports an Arrow stream", "None")),
)


@pytest.mark.parametrize("case", BAD_ROWS, ids=lambda case: case.id)
def test_a_batch_with_invalid_rows_is_refused_completely(case: BadRows, warehouse: Path, untouched: None) -> None:
    with opened(warehouse).writer(commit_user="etl") as writer:
        with pytest.raises(tidelake.BadInput) as error:
            writer.write(case.rows)
        assert all(part in str(error.value) for part in (*case.says, NAME)), str(error.value)


@pytest.mark.parametrize("case", BAD_ROWS, ids=lambda case: case.id)
def test_a_writer_continues_after_refused_rows(case: BadRows, warehouse: Path) -> None:
    """Rows before and after the bad batch are committed. No row of the bad batch is, not even its good rows."""
    with opened(warehouse).writer(commit_user="etl") as writer:
        writer.write(good(10))
        with pytest.raises(tidelake.BadInput):
            writer.write(case.rows)
        writer.write(good(11))
        writer.commit(3)
    assert sorted(opened(warehouse).scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 10, 11]


def test_all_or_none_of_several_batches_in_one_call_are_accepted(warehouse: Path) -> None:
    loose = pa.schema([field.with_nullable(True) for field in SCHEMA])
    bad = good(21).set_column(0, "id", pa.array([None], pa.int64()))
    good_then_bad = pa.concat_tables([good(20).cast(loose), bad.cast(loose)])
    with opened(warehouse).writer(commit_user="etl") as writer:
        with pytest.raises(tidelake.BadInput, match="'id' is part of the primary key"):
            writer.write(good_then_bad)
        writer.write(good(22))
        writer.commit(3)
    assert sorted(opened(warehouse).scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 22]


def test_an_append_table_refuses_deletes(warehouse: Path) -> None:
    table = tidelake.open_catalog(str(warehouse)).create_table("shop.log", pa.schema([("line", pa.string())]))
    before = files_of(warehouse)
    with (
        table.writer() as writer,
        pytest.raises(tidelake.BadInput, match="row kind -D is not possible in an append table"),
    ):
        writer.write(pa.table({"line": ["a", "b"], "_VALUE_KIND": pa.array([0, 3], pa.int8())}))
    assert files_of(warehouse) == before


# ---------------------------------------------------------------- calls


@dataclass(frozen=True)
class BadCall:
    id: str
    do: Callable[[tidelake.Catalog], object]
    says: str
    error: type[tidelake.TidelakeError] = tidelake.BadInput


def create(columns: pa.Schema = SCHEMA, **arguments: Any) -> Callable[[tidelake.Catalog], object]:
    return lambda catalog: catalog.create_table("shop.new", columns, **arguments)


def on_table(do: Callable[[tidelake.Table], object]) -> Callable[[tidelake.Catalog], object]:
    return lambda catalog: do(catalog.table(NAME))


def commit_of(**arguments: Any) -> Callable[[tidelake.Catalog], object]:
    def commit(table: tidelake.Table) -> object:
        with table.writer(commit_user="etl") as writer:
            return writer.commit(**arguments)

    return on_table(commit)


BAD_CALLS: Final = (
    BadCall("a blank warehouse", lambda _: tidelake.open_catalog(" "), "the warehouse is blank"),
    BadCall("an unknown store", lambda _: tidelake.open_catalog("ftp://host/lake"), "ftp"),
    BadCall("a table that is none", lambda c: c.table("shop.order"), r"no table shop\.order.*shop\.orders|orders"),
    BadCall("a database that is none", lambda c: c.table("shops.orders"), "no database 'shops'"),
    BadCall("a name without database", lambda c: c.table("orders"), "orders"),
    BadCall("a table that exists", lambda c: c.create_table(NAME, SCHEMA), "already exists"),
    BadCall("a database that exists", lambda c: c.create_database("shop"), "already exists"),
    BadCall("columns as a dict", create({"id": "int"}), "the schema is a pyarrow.Schema, a frame"),
    BadCall("no columns", create(pa.schema([])), "column"),
    BadCall("a column twice", create(pa.schema([("a", pa.int8()), ("a", pa.int8())])), "a"),
    BadCall("a key that is no column", create(primary_key=["ident"]), "ident"),
    BadCall("a key column twice", create(primary_key=["id", "id"]), "id"),
    BadCall("a key as text", create(primary_key="id"), "primary_key"),
    BadCall("a partition that is no column", create(partition_by=["day"]), "day"),
    BadCall("a key of a list", create(primary_key=["tags"]), "tags"),
    BadCall("no number of buckets", create(primary_key=["id"], options={"bucket": "many"}), "bucket.*many"),
    BadCall("no buckets", create(primary_key=["id"], options={"bucket": "0"}), "bucket"),
    BadCall("no merge engine", create(primary_key=["id"], options={"merge-engine": "newest"}), "newest"),
    BadCall("a system column", create(pa.schema([("_VALUE_KIND", pa.int8())])), "_VALUE_KIND"),
    BadCall(
        "a type that Paimon lacks", create(pa.schema([("a", pa.duration("s"))])), "duration", tidelake.TidelakeError
    ),
    BadCall(
        "an option of the caller that decides how rows are written",
        lambda c: write_one(c.table(NAME, {"sequence.snapshot-ordering": "true"})),
        "sequence.snapshot-ordering",
    ),
    BadCall("a column of a scan", on_table(lambda t: t.scan(columns=["ident"])), "ident"),
    BadCall("a column of a filter", on_table(lambda t: t.scan(filter=tidelake.col("x") > 1)), "'x'"),
    BadCall("a filter of another type", on_table(lambda t: t.scan(filter=tidelake.col("id") == "x")), "'id'"),
    BadCall(
        "a snapshot that is none", on_table(lambda t: t.scan(snapshot=9)), "no snapshot 9: its snapshots are 1 to 2"
    ),
    BadCall("a tag that is none", on_table(lambda t: t.scan(tag="x")), "'?x'?"),
    BadCall("a time before the first snapshot", on_table(lambda t: t.scan(as_of=0)), "no snapshot"),
    BadCall("changes that are gone", on_table(lambda t: list(t.changes(start=5, end=6))), "5"),
    BadCall("changes backwards", on_table(lambda t: t.changes(start=2, end=1)), "end must not be before start"),
    BadCall("an identifier below the newest", commit_of(identifier=1), "1"),
    BadCall("a negative identifier", commit_of(identifier=-5), "-5"),
    BadCall("an identifier as text", commit_of(identifier="7"), "identifier.*'7'"),
    BadCall("a property that is no text", commit_of(identifier=9, properties={"k": 1}), "properties"),
    BadCall("a blank commit user", on_table(lambda t: t.writer(commit_user=" ")), "the commit user is blank"),
)


def write_one(table: tidelake.Table) -> None:
    with table.writer(commit_user="etl") as writer:
        writer.write(good(7))
        writer.commit(3)


@pytest.mark.parametrize("case", BAD_CALLS, ids=lambda case: case.id)
def test_an_invalid_call_changes_nothing(case: BadCall, warehouse: Path, untouched: None) -> None:
    with pytest.raises(case.error, match=case.says):
        case.do(tidelake.open_catalog(str(warehouse)))


# ---------------------------------------------------------------- files


@dataclass(frozen=True)
class Damage:
    """ends: where a file that was cut short ends; the error names a byte not far before. None for a whole one."""

    id: str
    do: Callable[[bytes], bytes | None]
    ends: Callable[[bytes], int | None] = lambda _: None


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


GONE: Final = Damage("is gone", lambda _: None)
EMPTY: Final = Damage("is empty", lambda _: b"")
CUT: Final = Damage("is cut in half", lambda data: data[: len(data) // 2], lambda data: len(data) // 2)
OTHER: Final = Damage("is something else", lambda data: b"\x00" * len(data))
FLIPPED: Final = Damage("has a wrong byte", flipped)
NO_OBJECT: Final = Damage("is a list", lambda _: b"[]")
LACKS_ALL: Final = Damage("lacks its members", lambda _: b"{}")

MADE_OF_JSON: Final = (CUT, EMPTY, OTHER, NO_OBJECT, LACKS_ALL)
BINARY: Final = (GONE, CUT, EMPTY, OTHER, FLIPPED)

DAMAGED: Final = [
    *(("snapshot/snapshot-2", damage) for damage in MADE_OF_JSON),
    *(("schema/schema-0", damage) for damage in MADE_OF_JSON),
    *(("manifest/manifest-list-*", damage) for damage in BINARY),
    *(("manifest/manifest-[!l]*", damage) for damage in BINARY),
    *(("bucket-0/data-*", damage) for damage in BINARY),
]


@pytest.mark.parametrize(
    ("pattern", "damage"), [pytest.param(p, d, id=f"{p.partition('/')[0]}: {p} {d.id}") for p, d in DAMAGED]
)
def test_a_damaged_file_is_named_and_nothing_is_written(
    pattern: str, damage: Damage, warehouse: Path, call: Call
) -> None:
    path, whole = damaged(warehouse, pattern, damage)
    before = files_of(warehouse)
    with pytest.raises(tidelake.CorruptFile) as error:
        opened(warehouse).scan().to_arrow()
    assert error.value.path == str(path)
    assert error.value.expected
    assert error.value.found
    if (ends := damage.ends(whole)) is not None:
        assert error.value.offset is not None
        assert ends // 2 < error.value.offset <= ends
    if not pattern.startswith("bucket-0"):  # a writer does not check rows of older files
        with pytest.raises(tidelake.CorruptFile, match=path.name):
            write_one(opened(warehouse))
    result = call("table", "scan", NAME, "--warehouse", warehouse)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"error: {path}")
    assert "Traceback" not in result.err
    assert without_data(files_of(warehouse)) == without_data(before)


def damaged(warehouse: Path, pattern: str, damage: Damage) -> tuple[Path, bytes]:
    """A file of this pattern that the newest snapshot needs, and what it held: the first that its lists name."""
    table = warehouse / "shop.db" / "orders"
    snapshot = json.loads((table / "snapshot" / "snapshot-2").read_text())
    with (table / "manifest" / snapshot["baseManifestList"]).open("rb") as base_list:
        records: Any = fastavro.reader(base_list)
        manifests = [record["_FILE_NAME"] for record in records]
    named = {snapshot["deltaManifestList"], manifests[0]}
    path = min(p for p in table.glob(pattern) if p.parent.name != "manifest" or p.name in named)
    whole = path.read_bytes()
    left = damage.do(whole)
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left)
    return path, whole


def without_data(files: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: content for name, content in files.items() if "/data-" not in name}


def test_invalid_hints_are_ignored(warehouse: Path) -> None:
    for hint in ("LATEST", "EARLIEST"):
        (warehouse / "shop.db" / "orders" / "snapshot" / hint).write_bytes(b"\xff 7?")
    write_one(opened(warehouse))
    assert [snapshot.id for snapshot in opened(warehouse).snapshots()] == [1, 2, 3]


def test_a_data_file_of_another_table_is_refused(warehouse: Path) -> None:
    catalog = tidelake.open_catalog(str(warehouse))
    other = catalog.create_table("shop.other", pa.schema([("text", pa.string())]), options={"bucket": "-1"})
    with other.writer() as writer:
        writer.write(pa.table({"text": [f"a long line {number:020}" for number in range(50_000)]}))
        writer.commit()
    (its,) = (warehouse / "shop.db" / "other").rglob("data-*")
    ours = max((warehouse / "shop.db" / "orders").rglob("data-*"))
    shutil.copy(its, ours)
    with pytest.raises(tidelake.CorruptFile, match=ours.name):
        opened(warehouse).scan().to_arrow()


def test_a_directory_without_a_table_is_reported_as_no_table(warehouse: Path, call: Call) -> None:
    stray = warehouse / "shop.db" / "stray"
    stray.mkdir()
    (stray / "notes.txt").write_text("mine")
    before = files_of(warehouse)
    catalog = tidelake.open_catalog(str(warehouse))
    with pytest.raises(tidelake.BadInput, match=r"stray is not a table: the directory has no schema"):
        catalog.table("shop.stray")
    with pytest.raises(tidelake.BadInput, match=r"stray is not a table, but contains notes\.txt"):
        catalog.create_table("shop.stray", SCHEMA)
    with pytest.raises(tidelake.BadInput, match=r"no table shop\.stray|is not a table"):
        catalog.drop_table("shop.stray")
    result = call("table", "show", "shop.stray", "--warehouse", warehouse)
    assert result.code == 1
    assert result.err.startswith("error: ")
    assert "is not a table" in result.err
    assert catalog.list_tables("shop") == ["orders"]
    assert files_of(warehouse) == before


def test_a_file_where_a_warehouse_should_be_is_named(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "lake"
    path.write_text("not a directory")
    result = call("table", "create", NAME, "--column", "id:INT", "--warehouse", path)
    assert result.code == 1
    assert str(path) in result.err
    assert "Traceback" not in result.err
