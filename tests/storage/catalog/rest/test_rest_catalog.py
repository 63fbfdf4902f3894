"""A catalog client with a server (tests/support/rest_catalog.py)."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import tidelake
from tests.support.rest_catalog import PREFIX, RestCatalogServer
from tests.support.s3_server import S3Server
from tidelake.errors import AccessDenied
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.catalog.rest.rest_client import Refused
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.fileio import open_file_io

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def lake(rest_catalog: RestCatalogServer) -> tidelake.Catalog:
    catalog = tidelake.open_catalog("lake", **rest_catalog.options)
    catalog.create_database("shop")
    return catalog


def create(lake: tidelake.Catalog, name: str, **options: str) -> tidelake.Table:
    return lake.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1", **options})


def write(table: tidelake.Table, number: int) -> int | None:
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"id": [number], "v": [f"v{number}"]}, SCHEMA))
        return writer.commit(identifier=number)


def test_a_table_is_created_altered_renamed_and_dropped(
    lake: tidelake.Catalog, rest_catalog: RestCatalogServer
) -> None:
    table = create(lake, "shop.orders")
    assert [write(table, number) for number in (1, 2)] == [1, 2]
    assert write(table, 2) is None
    lake.rename_table("shop.orders", "shop.renamed")
    assert lake.list_tables("shop") == ["renamed"]
    renamed = lake.table("shop.renamed")
    assert renamed.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": "v1"}, {"id": 2, "v": "v2"}]
    assert [(actual["recordCount"], actual["fileCount"], actual["spec"]) for actual in rest_catalog.statistics] == [
        (1, 1, {})
    ] * 2
    lake.drop_table("shop.renamed")
    lake.drop_database("shop")
    assert lake.list_databases() == []


CHANGES: list[tuple[SchemaChange, Callable[[tidelake.Table], object], object]] = [
    (tidelake.AddColumn("a", pa.int32(), first=True), lambda t: t.schema.names, ["a", "id", "v"]),
    (tidelake.AddColumn("a", "DECIMAL(5, 2)", after="id"), lambda t: t.schema.names, ["id", "a", "v"]),
    (tidelake.DropColumn("v"), lambda t: t.schema.names, ["id"]),
    (tidelake.RenameColumn("v", "w"), lambda t: t.schema.names, ["id", "w"]),
    (tidelake.UpdateColumnPosition("v", before="id"), lambda t: t.schema.names, ["v", "id"]),
    (tidelake.SetOption("write-only", "true"), lambda t: t.options["write-only"], "true"),
    (tidelake.RemoveOption("deletion-vectors.enabled"), lambda t: "deletion-vectors.enabled" in t.options, False),
]


@pytest.mark.parametrize(("change", "seen", "expected"), CHANGES, ids=lambda part: type(part).__name__)
def test_the_server_makes_schema_changes(
    change: SchemaChange, seen: Callable[[tidelake.Table], object], expected: object, lake: tidelake.Catalog
) -> None:
    create(lake, "shop.t", **{"deletion-vectors.enabled": "false"})
    assert seen(lake.alter_table("shop.t", [change])) == expected


def test_lists_are_read_page_by_page(lake: tidelake.Catalog) -> None:
    for number in range(5):
        create(lake, f"shop.t{number}")
    assert lake.list_tables("shop") == [f"t{number}" for number in range(5)]


def test_refusals_of_the_server_name_the_object(lake: tidelake.Catalog) -> None:
    create(lake, "shop.t")
    with pytest.raises(tidelake.BadInput, match=r"shop\.t already exists"):
        create(lake, "shop.t")
    with pytest.raises(tidelake.BadInput, match="no database 'shopp'"):
        create(lake, "shopp.t")
    with pytest.raises(tidelake.BadInput, match=r"no table shop\.tt; did you mean 'shop\.t'"):
        lake.table("shop.tt")
    with pytest.raises(tidelake.BadInput, match=r"no table shop\.x"):
        lake.drop_table("shop.x")
    create(lake, "shop.u")
    with pytest.raises(tidelake.BadInput, match=r"new name of shop\.t.*is there"):
        lake.rename_table("shop.t", "shop.u")
    with pytest.raises(tidelake.BadInput, match="not empty"):
        lake.drop_database("shop")


def test_a_commit_whose_response_was_lost_is_published_once(
    lake: tidelake.Catalog, rest_catalog: RestCatalogServer
) -> None:
    table = create(lake, "shop.t")
    rest_catalog.lose_answers = 1
    assert write(table, 1) == 1
    assert [snapshot.commit_identifier for snapshot in lake.table("shop.t").snapshots()] == [1]


def test_a_commit_to_a_replaced_table_is_refused(lake: tidelake.Catalog) -> None:
    old = create(lake, "shop.t")
    lake.drop_table("shop.t")
    create(lake, "shop.t")
    with pytest.raises(tidelake.TidelakeError, match=r"shop\.t"):
        write(old, 1)
    assert lake.table("shop.t").snapshots() == []


def test_concurrent_writers_each_commit_once(lake: tidelake.Catalog, rest_catalog: RestCatalogServer) -> None:
    table = lake.create_table("shop.log", SCHEMA, options={"bucket": "-1"})
    writers = [lake.table("shop.log").writer(commit_user=f"user-{number}") for number in range(4)]
    for number, writer in enumerate(writers):
        writer.write(pa.table({"id": [number], "v": ["v"]}, SCHEMA))
    for writer in writers:
        writer.commit(identifier=1)
        writer.close()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    assert len(table.snapshots()) == 4


def test_a_wrong_token_and_an_unavailable_server_raise_different_errors(rest_catalog: RestCatalogServer) -> None:
    with pytest.raises(AccessDenied, match="check the catalog's token"):
        open_catalog("lake", {**rest_catalog.options, "token": "wrong"})
    away = {**rest_catalog.options, "uri": "http://127.0.0.1:1"}
    with pytest.raises(ConnectionError, match=r"REST catalog http://127\.0\.0\.1:1"):
        open_catalog("lake", away)


def test_a_provider_of_tokens_needs_one(rest_catalog: RestCatalogServer) -> None:
    options = {key: value for key, value in rest_catalog.options.items() if key != "token"}
    with pytest.raises(tidelake.BadInput, match=r"token is missing: token\.provider = bear needs it"):
        open_catalog("lake", {**options, "token.provider": "bear"})


@pytest.mark.parametrize("said_by", ["the server", "the client"])
def test_the_server_gives_credentials_for_the_files_of_a_table(
    said_by: str, rest_catalog: RestCatalogServer, s3_server: S3Server
) -> None:
    root = f"s3://{s3_server.new_bucket()}"
    rest_catalog.catalog = FileSystemCatalog(open_file_io(root, s3_server.options), root)
    rest_catalog.credentials = dict(s3_server.options)
    enabled = {"data-token.enabled": "true"}
    (rest_catalog.overrides if said_by == "the server" else rest_catalog.client_options).update(enabled)
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    lake.create_database("shop")
    table = create(lake, "shop.orders")
    assert [write(table, number) for number in (1, 2)] == [1, 2]
    in_another_process: tidelake.Table = pickle.loads(pickle.dumps(table))
    assert in_another_process.scan().to_arrow()["id"].to_pylist() == [1, 2]
    assert set(rest_catalog.asked_for) == {"shop.orders"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "uri is missing"),
        ({"uri": "ftp://h"}, "not the address of a REST catalog"),
        ({"uri": "http://user:secret@h"}, "pass the token as an option"),
        ({"uri": "http://h", "token.provider": "bear"}, "token is missing"),
        ({"uri": "http://h", "token.provider": "dlf"}, "only bearer tokens"),
        ({"metastore": "filesystem", "data-token.enabled": "true"}, "only the server of a REST catalog issues them"),
    ],
    ids=lambda part: part if isinstance(part, str) else None,
)
def test_unusable_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(tidelake.TidelakeError, match=message) as refused:
        open_catalog("lake", {"metastore": "rest", **options})
    assert "secret" not in str(refused.value)


def test_the_catalog_pickles_with_its_tables_and_shows_no_token(rest_catalog: RestCatalogServer) -> None:
    inner = open_catalog("lake", rest_catalog.options)
    inner.create_database("shop")
    inner.create_table("shop.t", SCHEMA)
    assert pickle.loads(pickle.dumps(inner)).list_tables("shop") == ["t"]
    context = pickle.loads(pickle.dumps(inner.load("shop.t")))
    assert rest_catalog.options["token"] not in repr(inner) + repr(context)


def test_headers_and_the_prefix_of_the_catalog_are_sent(rest_catalog: RestCatalogServer) -> None:
    catalog = open_catalog("lake", {**rest_catalog.options, "header.User-Agent": "etl/1", "header.X-Team": "shop"})
    catalog.list_databases()
    assert (rest_catalog.headers["User-Agent"], rest_catalog.headers["X-Team"]) == ("etl/1", "shop")
    rest_catalog.prefix = None
    with pytest.raises(Refused, match="no such resource"):
        open_catalog("lake", {**rest_catalog.options, "prefix": "other"}).list_databases()
    assert open_catalog("lake", {**rest_catalog.options, "prefix": PREFIX}).list_databases() == []
