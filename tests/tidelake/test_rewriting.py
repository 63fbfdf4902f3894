"""Tables that get another key, other buckets, another merge engine or another file format, by rewriting all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tests.support.faulty_file_io import Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import sample
from tidelake import RemoveOption, SetOption, UpdateColumnType, UpdatePrimaryKey
from tidelake.catalog import Catalog
from tidelake.compaction import table_rewrite
from tidelake.errors import BadInput, CommitConflict, TidelakeError, UnsupportedFeature
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.ddl.schema_changes import RewriteChange
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify.inspection import verify
from tidelake.storage.model.definition import Definition
from tidelake.table import Table

NAME: Final = "shop.orders"
SCHEMA: Final = pa.schema(
    [pa.field("id", pa.int32(), nullable=False), ("region", pa.string()), ("code", pa.int64()), ("v", pa.string())]
)
NEW_ROW: Final = {"id": 1000, "region": "Äöü", "code": 5000, "v": None}


def of(ids: Sequence[int], v: str = "a") -> pa.Table:
    """Regions with a letter outside of ASCII, and one that is empty; codes are unique and below and above zero."""
    regions = ["", "nord", "süd"]
    values = {
        "id": list(ids),
        "region": [regions[key % 3] for key in ids],
        "code": [key * (-1) ** key for key in ids],
        "v": [None if key % 4 == 0 else f"{v}{key}" for key in ids],
    }
    return pa.table(values, SCHEMA)


@dataclass(frozen=True)
class Lake:
    """A warehouse in memory."""

    store: FileIO = field(default_factory=MemoryFileIO)
    address: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")

    def catalog(self, io: FileIO | None = None) -> Catalog:
        return Catalog(FileSystemCatalog(io or self.store, self.address))


def new_catalog() -> Catalog:
    return Lake().catalog()


def new_table(catalog: Catalog, **options: str) -> Table:
    """A table with files on several levels, and rows that were replaced; some were deleted, if its engine can."""
    catalog.create_database("shop", if_not_exists=True)
    named = {key.replace("_", "-"): value for key, value in options.items()}
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"], options={"bucket": "3", **named})
    table.upsert(of(range(-10, 10)))
    table.compact(full=True)
    table.upsert(of(range(-5, 15), "b"))
    if named.get("merge-engine", "deduplicate") == "deduplicate":
        table.delete("id = 3")
    table.upsert(of(range(12, 16), "c"))
    table.compact()
    return table


def rows(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


@dataclass(frozen=True)
class Rewriting:
    """What is changed, and whether the table is so."""

    changes: tuple[RewriteChange, ...]
    is_made: Callable[[Table], bool]
    options: tuple[tuple[str, str], ...] = ()


def formats(table: Table) -> set[str]:
    latest = table.context.snapshots.latest()
    assert latest is not None
    return {entry.file.file_name.rpartition(".")[2] for entry in live_entries(table.context, latest)}


def totals(table: Table) -> set[int]:
    latest = table.context.snapshots.latest()
    assert latest is not None
    return {entry.total_buckets for entry in live_entries(table.context, latest)}


def has_key(*names: str) -> Callable[[Table], bool]:
    return lambda table: table.context.schema.primary_keys == names


def has_option(key: str, value: str | None) -> Callable[[Table], bool]:
    return lambda table: table.context.schema.options.get(key) == value


REWRITINGS: Final = {
    "a column more in the key": Rewriting((UpdatePrimaryKey(("id", "region")),), has_key("id", "region")),
    "another key": Rewriting((UpdatePrimaryKey(("code",)),), has_key("code")),
    "the key in another order": Rewriting(
        (UpdatePrimaryKey(("region", "id")), UpdateColumnType("id", "BIGINT")), has_key("region", "id")
    ),
    "a wider key": Rewriting(
        (UpdateColumnType("id", "BIGINT"),),
        lambda table: str(table.context.schema.by_name["id"].type) == "BIGINT NOT NULL",
    ),
    "more buckets": Rewriting((SetOption("bucket", "5"),), lambda table: totals(table) == {5}),
    "buckets by another key": Rewriting(
        (UpdatePrimaryKey(("id", "region")), SetOption("bucket-key", "region")), has_option("bucket-key", "region")
    ),
    "dynamic buckets": Rewriting((SetOption("bucket", "-1"),), lambda table: totals(table) == {-1}),
    "fixed buckets": Rewriting((SetOption("bucket", "2"),), lambda table: totals(table) == {2}, (("bucket", "-1"),)),
    "another merge engine": Rewriting(
        (SetOption("merge-engine", "partial-update"),), has_option("merge-engine", "partial-update")
    ),
    "aggregates": Rewriting(
        (SetOption("merge-engine", "aggregation"), SetOption("fields.code.aggregate-function", "sum")),
        has_option("merge-engine", "aggregation"),
    ),
    "the first rows": Rewriting((SetOption("merge-engine", "first-row"),), has_option("merge-engine", "first-row")),
    "no merge engine of its own": Rewriting(
        (RemoveOption("merge-engine"),), has_option("merge-engine", None), (("merge-engine", "first-row"),)
    ),
    "ORC files": Rewriting((SetOption("file.format", "orc"),), lambda table: formats(table) == {"orc"}),
    "Avro files": Rewriting((SetOption("file.format", "avro"),), lambda table: formats(table) == {"avro"}),
    "all at once": Rewriting(
        (
            UpdatePrimaryKey(("id", "region")),
            UpdateColumnType("id", "BIGINT"),
            SetOption("bucket-key", "id"),
            SetOption("bucket", "2"),
            SetOption("merge-engine", "partial-update"),
            SetOption("file.format", "orc"),
        ),
        lambda table: has_key("id", "region")(table) and totals(table) == {2} and formats(table) == {"orc"},
    ),
}
EACH = pytest.mark.parametrize("rewriting", [pytest.param(one, id=name) for name, one in REWRITINGS.items()])


@pytest.mark.exhaustive(kept=12)
@EACH
@pytest.mark.parametrize(
    "options",
    [{}, {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}],
    ids=["no changelog", "a changelog by lookup", "deletion vectors"],
)
def test_the_table_is_as_asked_for_with_the_same_rows_tags_and_followers(
    rewriting: Rewriting, options: dict[str, str]
) -> None:
    if "deletion-vectors.enabled" in options and "first-row" in str(rewriting):
        options = {}  # this engine deletes nothing
    catalog = new_catalog()
    table = new_table(catalog, **options, **dict(rewriting.options))
    before, last = rows(table), table.context.snapshots.latest_id() or 0
    table.create_tag("before")
    snapshot_id = catalog.rewrite_table(NAME, rewriting.changes)
    rewritten = catalog.table(NAME)
    assert snapshot_id == rewritten.context.snapshots.latest_id()
    assert rewriting.is_made(rewritten)
    assert rows(rewritten) == before
    tagged: list[dict[str, Any]] = rewritten.scan(tag="before").to_arrow().to_pylist()
    assert sorted(tagged, key=lambda row: row["id"]) == before
    assert changed_keys(rewritten, last) == {}
    for row in before[:2] + before[-2:]:
        assert rewritten.scan(filter=f"id = {row['id']}").to_arrow().to_pylist() == [row]
        of_both = f"id = {row['id']} AND region = '{row['region']}' AND code = {row['code']}"
        assert rewritten.scan(filter=of_both).to_arrow().to_pylist() == [row]
    rewritten.upsert(pa.Table.from_pylist([NEW_ROW], rewritten.context.schema.arrow))
    rewritten.compact(full=True)
    assert rows(catalog.table(NAME)) == [*before, NEW_ROW]
    assert changed_keys(rewritten, last) == {1000: 1}
    assert not verify(rewritten.context)


def changed_keys(table: Table, since: int) -> dict[int, int]:
    """By id, the rows added minus the rows removed, as followers learn it. Changes that waited are announced, too."""
    sums = dict[int, int]()
    for changes in table.changes(start=since + 1):
        for row in changes.rows.to_pylist():
            sums[row["id"]] = sums.get(row["id"], 0) + (1 if row["_VALUE_KIND"] in (0, 2) else -1)
    return {key: total for key, total in sums.items() if total}


@pytest.mark.parametrize(
    "name", ["a column more in the key", "another key", "a wider key", "aggregates", "more buckets"]
)
def test_changes_from_before_are_still_read_as_they_were(name: str) -> None:
    catalog = new_catalog()
    table = new_table(catalog, **{"changelog-producer": "lookup"})
    before = {row["id"]: 1 for row in rows(table)}
    first = min(table.context.snapshots.ids())
    last = table.context.snapshots.latest_id() or 0
    difference = list(table.changes(between=(first, last), between_mode="diff"))
    catalog.rewrite_table(NAME, REWRITINGS[name].changes)
    rewritten = catalog.table(NAME)
    assert changed_keys(rewritten, 0) == before
    again = list(rewritten.changes(between=(first, last), between_mode="diff"))
    assert changes_as_texts(again) == changes_as_texts(difference)
    now = rewritten.context.snapshots.latest_id() or 0
    with pytest.raises(BadInput, match=r"was (rewritten|rescaled) between snapshots"):
        list(rewritten.changes(between=(last, now), between_mode="diff"))


def changes_as_texts(batches: list[Any]) -> list[str]:
    return sorted(str(row) for batch in batches for row in batch.rows.to_pylist())


def test_a_table_whose_rows_are_all_deleted_is_rewritten() -> None:
    catalog = new_catalog()
    new_table(catalog).delete("id > -100")
    catalog.rewrite_table(NAME, [UpdatePrimaryKey(("id", "region"))])
    table = catalog.table(NAME)
    assert rows(table) == []
    table.upsert(of([1]))
    assert len(rows(table)) == 1
    assert not verify(table.context)


def test_a_second_call_has_nothing_to_do() -> None:
    catalog = new_catalog()
    new_table(catalog)
    assert catalog.rewrite_table(NAME, [SetOption("file.format", "orc")]) is not None
    assert catalog.rewrite_table(NAME, [SetOption("file.format", "orc")]) is None
    with pytest.raises(BadInput, match=r"no rewrite of the table is to be finished; name what should change"):
        catalog.rewrite_table(NAME)


def test_a_table_without_rows_gets_its_definition_at_once() -> None:
    catalog = new_catalog()
    catalog.create_database("shop")
    catalog.create_table(NAME, SCHEMA, primary_key=["id"])
    assert catalog.rewrite_table(NAME, [UpdatePrimaryKey(("id", "region"))]) is None
    table = catalog.table(NAME)
    assert table.context.schema.primary_keys == ("id", "region")
    table.upsert(of([1]))
    assert not verify(table.context)


def test_an_append_table_gets_other_buckets_and_another_format() -> None:
    catalog = new_catalog()
    catalog.create_database("shop")
    table = catalog.create_table(NAME, SCHEMA, options={"bucket": "2", "bucket-key": "id"})
    table.append(of([1, 2, 2, 3]))
    before = rows(table)
    assert catalog.rewrite_table(NAME, [SetOption("bucket-key", "region"), SetOption("file.format", "orc")])
    rewritten = catalog.table(NAME)
    assert (rows(rewritten), formats(rewritten)) == (before, {"orc"})
    rewritten.append(of([4]))
    assert rewritten.scan(filter="region = 'nord' AND id = 4").count() == 1
    assert not verify(rewritten.context)


# ---------------------------------------------------------------- meanings


def test_values_count_on_from_the_rows_that_the_old_engine_had_made() -> None:
    catalog = new_catalog()
    catalog.create_database("shop")
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"])
    for code in (5, 7):
        table.upsert([{"id": 1, "code": code}])
    catalog.rewrite_table(
        NAME, [SetOption("merge-engine", "aggregation"), SetOption("fields.code.aggregate-function", "sum")]
    )
    table = catalog.table(NAME)
    table.upsert([{"id": 1, "code": 10, "v": "x"}])
    assert rows(table) == [{"id": 1, "region": None, "code": 17, "v": "x"}]
    catalog.rewrite_table(NAME, [RemoveOption("fields.code.aggregate-function"), RemoveOption("merge-engine")])
    table = catalog.table(NAME)
    table.upsert([{"id": 1, "code": 1}])
    assert rows(table) == [{"id": 1, "region": None, "code": 1, "v": None}]


def test_nulls_stay_nulls_where_a_column_has_a_default() -> None:
    catalog = new_catalog()
    table = new_table(catalog)
    before = rows(table)
    catalog.alter_table(NAME, [tidelake.UpdateColumnDefault("v", "new")])
    catalog.rewrite_table(NAME, [UpdatePrimaryKey(("code",))])
    assert rows(catalog.table(NAME)) == before


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [UpdatePrimaryKey(("id", "v"))],
            r"'v' can't be a column of the key, as it is null in rows: .*\(id = 8, v = None\)",
        ),
        (
            [UpdatePrimaryKey(("region",))],
            r"\(region\) can't be the key, as 22 rows have the key of another row: \(id = ",
        ),
        ([UpdatePrimaryKey(("id", "nobody"))], r"no column 'nobody'; the table has id, region"),
        ([UpdatePrimaryKey(())], r"can't lose its primary key"),
        ([UpdatePrimaryKey(("id", "id"))], r"names column 'id' twice"),
        ([SetOption("primary-key", "code")], r"option primary-key can't be changed by a rewrite; pass the key itself"),
        ([SetOption("partition", "region")], r"option partition can't be changed by a rewrite"),
        ([SetOption("changelog-producer", "lookup")], r"option changelog-producer can't change from none to lookup"),
        ([SetOption("manifest.format", "orc")], r"option manifest.format"),
        ([SetOption("merge-engin", "first-row")], r"Paimon has no option of this name; did you mean 'merge-engine'"),
        ([SetOption("merge-engine", "newest")], r"merge-engine"),
        ([SetOption("bucket-key", "region")], r"bucket-key|bucket key"),
        ([SetOption("file.format", "csvv")], r"file\.format|csvv"),
        ([UpdateColumnType("v", "INT")], r"column 'v' is not part of the primary key"),
        ([UpdateColumnType("id", "SMALLINT")], r"can only become wider integers"),
    ],
)
def test_what_can_not_be_right_is_refused_and_nothing_changes(changes: list[RewriteChange], message: str) -> None:
    catalog = new_catalog()
    table = new_table(catalog)
    before = rows(table)
    with pytest.raises(TidelakeError, match=message):
        catalog.rewrite_table(NAME, changes)
    now = catalog.table(NAME)
    assert rows(now) == before
    assert (now.context.schema.primary_keys, now.context.schema.fields) == (("id",), table.context.schema.fields)
    now.upsert(of([99]))  # nobody is kept out
    assert not verify(now.context)


def test_other_tables_are_refused_by_name() -> None:
    catalog = new_catalog()
    catalog.create_database("shop")
    catalog.create_table("shop.log", SCHEMA).append(of([1]))
    with pytest.raises(BadInput, match=r"primary key \(id\): the table has none, and may have a row several times"):
        catalog.rewrite_table("shop.log", [UpdatePrimaryKey(("id",))])
    catalog.create_table("shop.waiting", SCHEMA, primary_key=["id"], options={"bucket": "-2"})
    with pytest.raises(UnsupportedFeature, match=r"bucket = -2"):
        catalog.rewrite_table("shop.waiting", [UpdatePrimaryKey(("code",))])
    catalog.create_table("shop.days", SCHEMA, primary_key=["id", "region"], partition_by=["region"])
    with pytest.raises(BadInput, match=r"lacks 'region', by which the table is partitioned.*Add it: \(id, region\)"):
        catalog.rewrite_table("shop.days", [UpdatePrimaryKey(("id",))])
    with pytest.raises(BadInput, match=r"without a rewrite of all rows; use rewrite_table"):
        catalog.alter_table("shop.days", [UpdatePrimaryKey(("id", "code"))])


def test_a_table_does_not_roll_back_behind_a_rewrite() -> None:
    catalog = new_catalog()
    table = new_table(catalog)
    before = rows(table)
    table.create_tag("before")
    catalog.rewrite_table(NAME, [UpdatePrimaryKey(("code",))])
    with pytest.raises(BadInput, match=r"was rewritten since.*clone"):
        catalog.table(NAME).rollback(tag="before")
    cloned = catalog.clone_table(catalog.table(NAME), "shop.before", tag="before")
    assert rows(cloned) == before
    cloned.upsert(of([77]))
    assert not verify(cloned.context)


# ---------------------------------------------------------------- beside others


@pytest.mark.parametrize(
    "changes",
    [
        (UpdatePrimaryKey(("id", "region")),),
        (UpdatePrimaryKey(("code",)),),
        (SetOption("merge-engine", "partial-update"),),
    ],
    ids=["more columns", "another key", "another engine"],
)
def test_a_writer_beside_it_loses_nothing_and_continues_after_it(
    changes: tuple[RewriteChange, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes before and after each step of the rewrite."""
    lake = Lake()
    table = new_table(lake.catalog())
    expected, refused = {row["id"]: row for row in rows(table)}, list[str]()
    numbers = iter(range(100, 200))

    def write_beside() -> None:
        key = next(numbers)
        written = of([key, key - 100, key - 105], "w")  # a new row, and some that exist
        try:
            lake.catalog().table(NAME).upsert(written)
        except CommitConflict as error:
            refused.append(str(error))
        else:
            expected.update({row["id"]: row for row in written.to_pylist()})

    def beside(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            write_beside()
            result = step(*arguments, **named)
            write_beside()
            return result

        return stepped

    for step in (
        "_Copy.add_all",
        "_Copy.finished",
        "_Rewrite._caught_up",
        "_Rewrite._fence",
        "_Rewrite._settled",
        "_swap",
    ):
        owner, _, name = f"table_rewrite.{step}".rpartition(".")
        owner_object: Any = table_rewrite
        for part in owner.split(".")[1:]:
            owner_object = getattr(owner_object, part)
        monkeypatch.setattr(owner_object, name, beside(getattr(owner_object, name)))
    lake.catalog().rewrite_table(NAME, changes)
    now = lake.catalog().table(NAME)
    assert rows(now) == [expected[key] for key in sorted(expected)]
    assert len(expected) > 25, "it wrote beside"
    assert refused, "it was kept out at the end"
    assert all("a rewrite" in text for text in refused)
    assert not verify(now.context)
    now.upsert(of([500]))


def test_the_table_is_closed_to_others_only_at_the_end_and_an_abandoned_one_opens_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = new_catalog()
    table = new_table(catalog)

    def die(*_: object) -> None:
        raise ProcessDied

    with monkeypatch.context() as patched:
        patched.setattr("tidelake.compaction.table_rewrite._Rewrite._settled", die)
        patched.setattr("tidelake.compaction.table_rewrite._Rewrite._lift", lambda *_: None)
        with pytest.raises(ProcessDied):
            catalog.rewrite_table(NAME, [UpdatePrimaryKey(("code",))])
    before = rows(table)
    kept_out = r"a rewrite of the table is about to end.*rows can change again from 2"
    with pytest.raises(CommitConflict, match=kept_out):
        table.upsert(of([500]))
    with pytest.raises(CommitConflict, match=kept_out):
        catalog.table(NAME).delete("id = 1")
    assert rows(catalog.table(NAME)) == before
    with monkeypatch.context() as patched:
        patched.setattr("tidelake.storage.model.definition.epoch_ms", lambda: 2**60)
        catalog.table(NAME).upsert(of([500]))
    catalog.rewrite_table(NAME, [UpdatePrimaryKey(("code",))])
    assert [row["id"] for row in rows(catalog.table(NAME))] == [*(row["id"] for row in before), 500]


def test_a_column_that_is_added_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake()
    before = rows(new_table(lake.catalog()))
    copied = table_rewrite._Copy.add_all
    altered = iter((tidelake.AddColumn("w", "INT"), tidelake.RenameColumn("v", "u")))

    def alter_and_copy(*arguments: Any) -> None:
        copied(*arguments)
        for change in altered:
            lake.catalog().alter_table(NAME, (change,))
            break

    monkeypatch.setattr(table_rewrite._Copy, "add_all", alter_and_copy)
    lake.catalog().rewrite_table(NAME, [UpdatePrimaryKey(("code",))])
    now = lake.catalog().table(NAME)
    assert rows(now) == [
        {"id": r["id"], "region": r["region"], "code": r["code"], "u": r["v"], "w": None} for r in before
    ]
    assert now.context.schema.primary_keys == ("code",)
    assert not verify(now.context)


# ---------------------------------------------------------------- crashes


@pytest.mark.exhaustive(kept=4)
@EACH
def test_before_its_last_step_readers_see_all_rows_and_it_is_finished(
    rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = new_catalog()
    before = rows(new_table(catalog, **dict(rewriting.options)))

    def die(*_: object) -> None:
        raise ProcessDied

    with monkeypatch.context() as patched:
        patched.setattr("tidelake.compaction.table_rewrite._swap", die)
        with pytest.raises(ProcessDied):
            catalog.rewrite_table(NAME, rewriting.changes)
    found = catalog.table(NAME)
    assert rows(found) == before
    for row in before:
        of_both = f"id = {row['id']} AND region = '{row['region']}' AND code = {row['code']}"
        for condition in (f"id = {row['id']}", f"code = {row['code']}", of_both):
            assert found.scan(filter=condition).to_arrow().to_pylist() == [row]
    if Definition.of(found.context.schema) != Definition.of(found.context.schemas.get(0)):
        with pytest.raises(TidelakeError):  # also before the commit, where an index of buckets is missing
            found.upsert(pa.Table.from_pylist([NEW_ROW], found.context.schema.arrow))
        found.compact(full=True)  # nothing is left to be compacted
        catalog.rewrite_table(NAME)
    else:
        catalog.rewrite_table(NAME, rewriting.changes)
    now = catalog.table(NAME)
    assert rewriting.is_made(now)
    assert rows(now) == before
    now.upsert(pa.Table.from_pylist([NEW_ROW], now.context.schema.arrow))
    assert rows(now) == [*before, NEW_ROW]
    assert not verify(now.context)


@pytest.mark.interop
@pytest.mark.sampled
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    ["a column more in the key", "another key", "buckets by another key", "aggregates", "all at once", "ORC files"],
)
def test_after_a_crash_in_any_call_the_table_is_the_old_or_the_new_one(name: str) -> None:
    rewriting = REWRITINGS[name]
    lake = Lake()
    before = rows(new_table(lake.catalog()))
    io = FaultyFileIO(lake.store)
    lake.catalog(io).rewrite_table(NAME, rewriting.changes)
    calls = range(len(io.calls))
    for number, fault in sample([(number, fault) for number in calls for fault in (Fault.BEFORE, Fault.AFTER)]):
        where = f"call {number}, {fault}"
        lake = Lake()
        new_table(lake.catalog())
        io = FaultyFileIO(lake.store)
        io.crash_call(number, fault)
        with suppress(TidelakeError, FaultyIOError, ProcessDied, BaseExceptionGroup):
            lake.catalog(io).rewrite_table(NAME, rewriting.changes)
        catalog = lake.catalog()
        found = catalog.table(NAME)
        assert rows(found) == before, where
        for row in (before[0], before[-1]):
            for condition in (
                f"id = {row['id']}",
                f"region = '{row['region']}' AND id = {row['id']}",
                f"code = {row['code']}",
            ):
                assert found.scan(filter=condition).to_arrow().to_pylist() == [row], where
        written = []
        with suppress(CommitConflict, BadInput):  # the fence, or files of two definitions
            found.upsert(pa.Table.from_pylist([NEW_ROW], found.context.schema.arrow))
            written = [NEW_ROW]
        assert rows(catalog.table(NAME)) == [*before, *written], where
        catalog.rewrite_table(NAME, rewriting.changes)
        now = catalog.table(NAME)
        assert rewriting.is_made(now), where
        assert rows(now) == [*before, *written], where
        now.upsert(pa.Table.from_pylist([NEW_ROW], now.context.schema.arrow))
        assert not verify(now.context), where


# ---------------------------------------------------------------- the command


def test_the_command_takes_all_changes_and_says_what_they_mean(tmp_path: Path, call: Call) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    new_table(catalog)
    out = call(
        "table",
        "rewrite",
        NAME,
        "-w",
        str(tmp_path),
        "--primary-key",
        "id, region",
        "--set",
        "merge-engine=first-row",
        "--set",
        "bucket=2",
        "--set-type",
        "id BIGINT",
    )
    assert out.code == 0
    for text in (
        "all rows were rewritten: snapshot",
        "The rows are those that deduplicate had made of their versions, which are gone. From now on a new row of a "
        "key that exists is dropped",
        "Rows are known by (id, region) now. Set `primary_key: [id, region]` in pipelines that name another key.",
    ):
        assert text in out.err
    out = call("table", "rewrite", NAME, "-w", str(tmp_path))
    assert out.code != 0
    assert "no rewrite of the table is to be finished" in out.err
