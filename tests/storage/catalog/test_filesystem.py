"""The file system catalog, on a disk, in memory and on an S3 server."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError
from tests.support.foreign_tables import create_as_java
from tests.support.s3_server import S3Server
from tidelake.errors import BadInput, CommitConflict, CorruptFile, UnsupportedFeature
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.ddl.schema_changes import AddColumn, RenameColumn, SetOption, UpdateComment
from tidelake.storage.fileio import FileIO, open_file_io
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField, parse_type

NOW_MS = 1_700_000_000_000
COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def _local(request: pytest.FixtureRequest) -> tuple[FileIO, str]:
    folder: Path = request.getfixturevalue("tmp_path")
    return open_file_io(str(folder)), f"{folder}/lake"


def _memory(_: pytest.FixtureRequest) -> tuple[FileIO, str]:
    root = f"memory://{uuid4().hex}"
    return open_file_io(root), f"{root}/lake"


def _s3(request: pytest.FixtureRequest) -> tuple[FileIO, str]:
    server: S3Server = request.getfixturevalue("s3_server")
    root = f"s3://{server.new_bucket()}"
    return open_file_io(root, server.options), f"{root}/lake"


class ObservedCatalog(FileSystemCatalog):
    """A catalog that shows the FileIO it was opened with."""

    def __init__(self, io: FileIO, warehouse: str, *, now_ms: Callable[[], int]) -> None:
        super().__init__(io, warehouse, now_ms=now_ms)
        self.io = io


@pytest.fixture(
    params=[_local, _memory, pytest.param(_s3, marks=pytest.mark.needs("S3 server"))], ids=["local", "memory", "s3"]
)
def catalog(request: pytest.FixtureRequest) -> FileSystemCatalog:
    make: Callable[[pytest.FixtureRequest], tuple[FileIO, str]] = request.param
    io, warehouse = make(request)
    return ObservedCatalog(io, warehouse, now_ms=lambda: NOW_MS)


@pytest.fixture
def shop(catalog: FileSystemCatalog) -> FileSystemCatalog:
    """With database `shop` and table `shop.orders`."""
    catalog.create_database("shop")
    catalog.create_table("shop.orders", COLUMNS, primary_key=["k"], options={"num-levels": "3"}, comment="né")
    return catalog


def io_of(catalog: FileSystemCatalog) -> FileIO:
    assert isinstance(catalog, ObservedCatalog)
    return catalog.io


def paths_of(catalog: FileSystemCatalog, table: str = "shop.orders") -> TablePaths:
    database, _, name = table.partition(".")
    return TablePaths(f"{catalog.warehouse}/{database}.db/{name}")


def put(catalog: FileSystemCatalog, path: str, content: bytes = b"x") -> None:
    io_of(catalog).write(f"{catalog.warehouse}/{path}", content)


def make_branch(catalog: FileSystemCatalog, name: str) -> TableSchema:
    """A branch of shop.orders with one column more."""
    schema = catalog.load("shop.orders").schema
    changed = TableSchema.from_json(schema.to_json().replace('"v"', '"branched"').encode(), "the schema of a branch")
    SchemaStore(io_of(catalog), paths_of(catalog).for_branch(name)).publish(changed)
    return changed


def as_catalog(catalog: FileSystemCatalog) -> Catalog:
    return catalog  # mypy checks the protocol here


# ---------------------------------------------------------------- databases


def test_a_new_warehouse_is_empty(catalog: FileSystemCatalog) -> None:
    assert catalog.list_databases() == []


@pytest.mark.parametrize("location", ["lake", "./lake/", "file:lake"])
def test_a_relative_warehouse_is_kept_when_the_working_directory_changes(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = FileSystemCatalog(open_file_io(location), location)
    catalog.create_database("shop")
    monkeypatch.chdir("/")
    assert catalog.list_databases() == ["shop"]
    assert catalog.warehouse == str(tmp_path / "lake")


def test_databases_that_were_created_are_listed_sorted_and_empty(catalog: FileSystemCatalog) -> None:
    for name in ("b", "a", "läden"):
        catalog.create_database(name)
    put(catalog, "other/file")
    put(catalog, "file.db")
    assert catalog.list_databases() == ["a", "b", "läden"]
    assert catalog.list_tables("a") == []


def test_creating_a_database_twice_is_refused_unless_allowed(catalog: FileSystemCatalog) -> None:
    catalog.create_database("shop")
    catalog.create_database("shop", if_not_exists=True)
    with pytest.raises(BadInput, match="database 'shop' already exists"):
        catalog.create_database("shop")


@pytest.mark.parametrize("name", ["sys", "", "a.b", "a/b", "a$b"])
def test_invalid_database_names_are_refused(catalog: FileSystemCatalog, name: str) -> None:
    with pytest.raises(BadInput, match="database"):
        catalog.create_database(name)
    assert catalog.list_databases() == []


def test_an_empty_database_is_dropped(catalog: FileSystemCatalog) -> None:
    catalog.create_database("shop")
    catalog.drop_database("shop")
    assert catalog.list_databases() == []


def test_a_database_is_kept_when_its_last_table_is_dropped(shop: FileSystemCatalog) -> None:
    shop.drop_table("shop.orders")
    assert shop.list_databases() == ["shop"]


def test_a_database_with_content_is_dropped_only_with_all_content(shop: FileSystemCatalog) -> None:
    put(shop, "shop.db/notes/readme")
    with pytest.raises(BadInput, match=r"'shop' is not empty: it holds notes, orders; drop with cascade=True"):
        shop.drop_database("shop")
    assert shop.list_tables("shop") == ["orders"]
    shop.drop_database("shop", cascade=True)
    assert shop.list_databases() == []
    assert io_of(shop).list_directory(f"{shop.warehouse}/shop.db") == []


def test_a_missing_database_is_named_with_the_existing_ones(shop: FileSystemCatalog) -> None:
    shop.drop_database("shp", if_exists=True)
    for call in (
        lambda: shop.drop_database("shp"),
        lambda: shop.list_tables("shp"),
        lambda: shop.create_table("shp.t", COLUMNS),
        lambda: shop.rename_table("shop.orders", "shp.orders"),
        lambda: shop.load("shp.orders"),
        lambda: shop.drop_table("shp.orders"),
        lambda: shop.alter_table("shp.orders", [UpdateComment("c")]),
    ):
        with pytest.raises(BadInput, match=r"no database 'shp' in .*; its databases are shop; did you mean 'shop'\?"):
            call()


# ---------------------------------------------------------------- tables


def test_a_table_that_was_created_is_listed_and_can_be_loaded(shop: FileSystemCatalog) -> None:
    shop.create_table("shop.a.b", COLUMNS)
    put(shop, "shop.db/notes/readme")
    put(shop, "shop.db/file")
    assert shop.list_tables("shop") == ["a.b", "orders"]
    table = shop.load("shop.orders")
    assert (table.name, table.location, table.branch) == ("shop.orders", paths_of(shop).location, "main")
    assert table.schema.options == {"num-levels": "3"}
    assert (table.schema.id, table.schema.comment, table.schema.time_ms) == (0, "né", NOW_MS)


def test_columns_may_be_given_with_tidelake_types(shop: FileSystemCatalog) -> None:
    shop.create_table("shop.t", [DataField(0, "c", parse_type("VARCHAR(7)"))])
    assert str(shop.load("shop.t").schema.by_name["c"].type) == "VARCHAR(7)"


def test_options_given_when_loading_override_stored_ones(shop: FileSystemCatalog) -> None:
    table = shop.load("shop.orders", {"num-levels": "7", "write-only": "true"})
    assert (table.options.num_levels, table.options.write_only) == (7, True)
    assert table.schema.options["num-levels"] == "3"


def test_a_table_exists_from_its_creation_to_its_end(shop: FileSystemCatalog) -> None:
    assert shop.table_exists("shop.orders")
    assert not shop.table_exists("shop.order")
    assert not shop.table_exists("nowhere.orders")
    shop.drop_table("shop.orders")
    assert not shop.table_exists("shop.orders")


def test_creating_a_table_twice_is_refused_unless_allowed(shop: FileSystemCatalog) -> None:
    shop.create_table("shop.orders", pa.schema([("other", pa.int8())]), if_not_exists=True)
    assert shop.load("shop.orders").schema.names == ("k", "v")
    with pytest.raises(BadInput, match=r"table shop\.orders already exists; choose another name, or pass"):
        shop.create_table("shop.orders", COLUMNS)


def test_a_refused_table_leaves_no_files(shop: FileSystemCatalog) -> None:
    with pytest.raises(BadInput, match="no column 'q'"):
        shop.create_table("shop.t", COLUMNS, primary_key=["q"])
    assert io_of(shop).list_directory(paths_of(shop, "shop.t").location) == []


def test_a_table_is_not_created_over_existing_files(shop: FileSystemCatalog) -> None:
    put(shop, "shop.db/t/snapshot/snapshot-1")
    with pytest.raises(BadInput, match=r"shop\.t can't be created: .*/t is not a table, but contains snapshot; move"):
        shop.create_table("shop.t", COLUMNS)
    assert shop.list_tables("shop") == ["orders"]


def test_a_table_that_another_process_creates_and_writes_to_meanwhile_is_no_leftover(tmp_path: Path) -> None:
    """The second one has found no schema, and then finds files."""
    other = FileSystemCatalog(open_file_io(str(tmp_path)), str(tmp_path))
    other.create_database("shop")
    table = f"{tmp_path}/shop.db/t"

    def create_and_write(call: Call) -> Fault | None:
        if (call.name, call.path) == ("list_directory", table):
            io.fault = lambda _: None
            other.create_table("shop.t", COLUMNS)
            other.load("shop.t").io.write(f"{table}/bucket-0/data-1.parquet", b"rows")
        return None

    io = FaultyFileIO(open_file_io(str(tmp_path)), create_and_write)
    late = FileSystemCatalog(io, str(tmp_path))
    late.create_table("shop.t", COLUMNS, if_not_exists=True)
    assert late.load("shop.t").schema == other.load("shop.t").schema
    other.drop_table("shop.t")
    io.fault = create_and_write
    with pytest.raises(BadInput, match=r"shop\.t already exists"):
        late.create_table("shop.t", COLUMNS)


def test_empty_directories_do_not_prevent_a_creation(tmp_path: Path) -> None:
    """A writer whose table was dropped under it leaves them, on a disk."""
    catalog = FileSystemCatalog(open_file_io(str(tmp_path)), str(tmp_path))
    catalog.create_database("shop")
    (tmp_path / "shop.db" / "t" / "day=1" / "bucket-0").mkdir(parents=True)
    catalog.create_table("shop.t", COLUMNS)
    assert catalog.list_tables("shop") == ["t"]


@pytest.mark.parametrize("if_not_exists", [True, False])
def test_one_of_two_concurrent_creators_wins(shop: FileSystemCatalog, if_not_exists: bool) -> None:
    def other_commits_first(call: Call) -> None:
        if call.name == "create_if_absent" and not shop.table_exists("shop.t"):
            shop.create_table("shop.t", COLUMNS, comment="other")

    late = FileSystemCatalog(FaultyFileIO(io_of(shop), other_commits_first), shop.warehouse)
    if if_not_exists:
        late.create_table("shop.t", COLUMNS, comment="late", if_not_exists=True)
    else:
        with pytest.raises(BadInput, match="already exists"):
            late.create_table("shop.t", COLUMNS, comment="late")
    assert shop.load("shop.t").schema.comment == "other"


def test_dropping_a_table_deletes_all_of_it_and_nothing_else(shop: FileSystemCatalog) -> None:
    shop.create_table("shop.orders2", COLUMNS)
    put(shop, "shop.db/orders/bucket-0/data-1.parquet")
    put(shop, "shop.db/orders/branch/branch-dev/schema/schema-0", shop.load("shop.orders").schema.to_json().encode())
    shop.drop_table("shop.orders")
    assert io_of(shop).list_directory(paths_of(shop).location) == []
    assert shop.list_tables("shop") == ["orders2"]


def test_a_table_disappears_as_soon_as_its_drop_begins(shop: FileSystemCatalog) -> None:
    put(shop, "shop.db/orders/snapshot/snapshot-1")
    faulty = FaultyFileIO(io_of(shop))
    faulty.fault = lambda call: Fault.AFTER if call.name == "delete_directory" else None
    with pytest.raises(FaultyIOError):
        FileSystemCatalog(faulty, shop.warehouse).drop_table("shop.orders")
    assert shop.list_tables("shop") == []
    with pytest.raises(BadInput, match="contains snapshot; move these files away"):
        shop.create_table("shop.orders", COLUMNS)


@pytest.mark.parametrize("key", ["data-file.external-paths", "global-index.external-path"])
def test_dropping_a_table_with_external_files_logs_their_location(
    shop: FileSystemCatalog, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_as_java(shop, "shop.z", COLUMNS, {key: "s3://elsewhere/files"})
    shop.drop_table("shop.z")
    assert shop.list_tables("shop") == ["orders"]
    assert "shop.z" in caplog.text
    assert "s3://elsewhere/files" in caplog.text


def test_renaming_a_table_moves_all_of_it(shop: FileSystemCatalog) -> None:
    shop.create_database("archive")
    put(shop, "shop.db/orders/bucket-0/data-1.parquet", b"rows")
    shop.rename_table("shop.orders", "archive.old")
    assert (shop.list_tables("shop"), shop.list_tables("archive")) == ([], ["old"])
    assert io_of(shop).read(f"{shop.warehouse}/archive.db/old/bucket-0/data-1.parquet") == b"rows"


def test_renaming_onto_an_existing_name_is_refused(shop: FileSystemCatalog) -> None:
    shop.create_table("shop.t", COLUMNS)
    put(shop, "shop.db/notes/readme")
    for name in ("t", "notes", "orders"):
        with pytest.raises(BadInput, match=rf"shop\.{name} can't be the new name: .* already exists"):
            shop.rename_table("shop.orders", f"shop.{name}")
    assert shop.list_tables("shop") == ["orders", "t"]


def test_a_missing_table_is_named_with_a_similar_name(shop: FileSystemCatalog) -> None:
    shop.drop_table("shop.order", if_exists=True)
    for call in (
        lambda: shop.load("shop.Order"),
        lambda: shop.drop_table("shop.Order"),
        lambda: shop.rename_table("shop.Order", "shop.t"),
        lambda: shop.alter_table("shop.Order", [UpdateComment("c")]),
    ):
        with pytest.raises(BadInput, match=r"no table shop\.Order; did you mean 'shop\.orders'\?"):
            call()


def test_a_directory_without_schema_is_reported_as_no_table(shop: FileSystemCatalog) -> None:
    put(shop, "shop.db/notes/readme")
    with pytest.raises(BadInput, match=r"/shop\.db/notes is not a table: the directory has no schema"):
        shop.load("shop.notes")


def test_a_broken_schema_file_is_named(shop: FileSystemCatalog) -> None:
    put(shop, "shop.db/orders/schema/schema-0", b"{")
    with pytest.raises(CorruptFile, match="orders/schema/schema-0 at byte"):
        shop.load("shop.orders")


# ---------------------------------------------------------------- branches, system tables


def test_a_branch_is_loaded_by_the_name_of_the_table(shop: FileSystemCatalog) -> None:
    make_branch(shop, "dev")
    table = shop.load("shop.orders$branch_dev")
    assert (table.name, table.branch, table.schema.names) == ("shop.orders", "dev", ("k", "branched"))
    assert shop.table_exists("shop.orders$branch_dev")
    assert shop.load("shop.orders$branch_main").schema.names == ("k", "v")


def test_a_missing_branch_is_named_with_the_existing_ones(shop: FileSystemCatalog) -> None:
    with pytest.raises(BadInput, match=r"shop\.orders has no branch 'dev'; it has no branches"):
        shop.load("shop.orders$branch_dev")
    make_branch(shop, "test")
    with pytest.raises(BadInput, match=r"shop\.orders has no branch 'dev'; its branches are test"):
        shop.load("shop.orders$branch_dev")
    assert not shop.table_exists("shop.orders$branch_dev")
    table = shop.load("shop.orders")
    table.io.create_if_absent(table.paths.branch_claim("dev"), b"")
    with pytest.raises(BadInput, match=r"branch 'dev' of shop\.orders has no schema: its creation was interrupted"):
        shop.load("shop.orders$branch_dev")


def test_altering_a_branch_leaves_the_table_alone(shop: FileSystemCatalog) -> None:
    make_branch(shop, "dev")
    shop.alter_table("shop.orders$branch_dev", [AddColumn("a", "INT")])
    assert shop.load("shop.orders$branch_dev").schema.names == ("k", "branched", "a")
    assert shop.load("shop.orders").schema.names == ("k", "v")


@pytest.mark.parametrize("suffix", ["$branch_dev", "$files"])
def test_only_whole_tables_are_created_dropped_and_renamed(shop: FileSystemCatalog, suffix: str) -> None:
    name = "shop.orders" + suffix
    calls: list[Callable[[], None]] = [
        lambda: shop.create_table(name, COLUMNS),
        lambda: shop.drop_table(name),
        lambda: shop.rename_table(name, "shop.t"),
        lambda: shop.rename_table("shop.orders", name),
    ]
    for call in calls:
        with pytest.raises(BadInput, match=r"name the table: 'shop\.orders'"):
            call()


def test_system_tables_are_refused_by_name(shop: FileSystemCatalog) -> None:
    for call in (lambda: shop.load("shop.orders$files"), lambda: shop.alter_table("shop.orders$files", [])):
        with pytest.raises(UnsupportedFeature, match=r"shop\.orders\$files: system tables"):
            call()


# ---------------------------------------------------------------- altering


def test_altering_makes_one_new_version(shop: FileSystemCatalog) -> None:
    altered = shop.alter_table("shop.orders", [AddColumn("a", pa.int32()), RenameColumn("v", "w")])
    assert (altered.id, altered.names) == (1, ("k", "w", "a"))
    table = shop.load("shop.orders")
    assert table.schema == altered
    assert table.schemas.ids() == [0, 1]
    assert table.schemas.get(0).names == ("k", "v")


def test_changes_without_effect_make_no_version(shop: FileSystemCatalog) -> None:
    assert shop.alter_table("shop.orders", []).id == 0
    assert shop.alter_table("shop.orders", [SetOption("num-levels", "3"), UpdateComment("né")]).id == 0
    assert shop.load("shop.orders").schemas.ids() == [0]


def test_when_one_change_is_refused_none_is_made(shop: FileSystemCatalog) -> None:
    with pytest.raises(BadInput, match="'q'"):
        shop.alter_table("shop.orders", [AddColumn("a", "INT"), RenameColumn("q", "w")])
    assert shop.load("shop.orders").schemas.ids() == [0]


def test_changes_of_a_table_with_snapshots_are_restricted(shop: FileSystemCatalog) -> None:
    keyed = [SetOption("bucket", "2"), SetOption("bucket-key", "k")]
    assert shop.alter_table("shop.orders", keyed).options["bucket-key"] == "k"
    put(shop, "shop.db/orders/snapshot/snapshot-1", b"{}")
    with pytest.raises(BadInput, match="option bucket-key: files that are written already"):
        shop.alter_table("shop.orders", [SetOption("bucket-key", "k,k")])


def test_a_change_that_lost_a_race_is_applied_on_the_newer_schema(shop: FileSystemCatalog) -> None:
    def other_commits_first(call: Call) -> None:
        if call.name == "create_if_absent" and shop.load("shop.orders").schema.id < 2:
            shop.alter_table("shop.orders", [AddColumn(f"other_{uuid4().hex}", "INT")])

    late = FileSystemCatalog(FaultyFileIO(io_of(shop), other_commits_first), shop.warehouse)
    altered = late.alter_table("shop.orders", [AddColumn("late", "INT")])
    assert (altered.id, altered.by_name["late"].id) == (3, 4)
    assert len(altered.names) == 5


def test_a_change_that_contradicts_the_winning_one_is_refused(shop: FileSystemCatalog) -> None:
    def other_commits_first(call: Call) -> None:
        if call.name == "create_if_absent":
            shop.alter_table("shop.orders", [AddColumn("a", "STRING")])

    late = FileSystemCatalog(FaultyFileIO(io_of(shop), other_commits_first), shop.warehouse)
    with pytest.raises(BadInput, match="'a' already exists"):
        late.alter_table("shop.orders", [AddColumn("a", "INT")])


def test_a_change_that_always_loses_the_race_gives_up(tmp_path: Path) -> None:
    here = FileSystemCatalog(open_file_io(str(tmp_path)), str(tmp_path))
    here.create_database("shop")
    here.create_table("shop.orders", COLUMNS)

    def other_commits_first(call: Call) -> None:
        if call.name == "create_if_absent":
            here.alter_table("shop.orders", [UpdateComment(uuid4().hex)])

    io = FaultyFileIO(open_file_io(str(tmp_path)), other_commits_first)
    late = FileSystemCatalog(io, here.warehouse)
    with pytest.raises(CommitConflict, match=r"shop\.orders: others changed the schema \d+ times; try again later"):
        late.alter_table("shop.orders", [AddColumn("a", "INT")])


def test_a_catalog_pickles(tmp_path: Path) -> None:
    catalog = FileSystemCatalog(open_file_io(str(tmp_path)), f"{tmp_path}/")
    again = pickle.loads(pickle.dumps(as_catalog(catalog)))
    again.create_database("shop")
    assert catalog.list_databases() == ["shop"]
    assert again.warehouse == str(tmp_path)
