"""What the server answers: databases, tables, snapshots, tags, branches, partitions, consumers and views."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pytest

import tidelake
from tests.support.certificates import make_certificates
from tests.support.rest_server import ServedWarehouse, serving
from tests.support.s3_server import S3Server
from tests.tidelake.rest_server.conftest import ORDERS, SCHEMA, rows
from tidelake.storage.base.clock import epoch_ms


def test_clients_get_a_prefix_and_may_name_the_warehouse_in_each_way(served: ServedWarehouse) -> None:
    twice = f"?warehouse={quote_plus(quote_plus(served.warehouse))}"  # as pypaimon 2.1 does
    for name in (
        "",
        "?warehouse=lake",
        f"?warehouse={served.warehouse}",
        f"?warehouse=file:{served.warehouse}/",
        twice,
    ):
        config = served.done("GET", f"/v1/config{name}")
        assert config == {"defaults": {}, "overrides": {"prefix": "lake"}}


def test_databases_and_tables_are_listed_by_pages_and_patterns(served: ServedWarehouse, lake: tidelake.Catalog) -> None:
    for name in ("a", "b1", "b2"):
        served.done("POST", "databases", {"name": name, "options": {"owner": "spark sets it"}})
    for name in ("t1", "t2", "u1"):
        lake.create_table(f"a.{name}", SCHEMA)
    assert served.done("GET", "databases") == {"databases": ["a", "b1", "b2", "shop"], "nextPageToken": None}
    assert served.done("GET", "databases?databaseNamePattern=b%25")["databases"] == ["b1", "b2"]
    page = served.done("GET", "databases/a/tables?maxResults=2")
    assert page == {"tables": ["t1", "t2"], "nextPageToken": "t2"}
    assert served.done("GET", "databases/a/tables?maxResults=2&pageToken=t2") == {
        "tables": ["u1"],
        "nextPageToken": None,
    }
    assert served.done("GET", "databases/a/tables?tableType=format-table")["tables"] == []
    assert served.done("GET", "databases/a/tables?tableType=table&tableNamePattern=u%25")["tables"] == ["u1"]
    details = served.done("GET", "databases/a/table-details?tableNamePattern=t%25")["tableDetails"]
    assert [table["name"] for table in details] == ["t1", "t2"]
    everywhere = served.done("GET", "tables?tableNamePattern=t%25&maxResults=1")
    assert everywhere == {"tables": [{"database": "a", "object": "t1"}], "nextPageToken": "a.t1"}
    assert served.done("GET", "databases/a")["location"] == f"{served.warehouse}/a.db"
    served.done("DELETE", "databases/a")
    assert lake.list_databases() == ["b1", "b2", "shop"]


def test_a_table_is_described_by_its_schema_and_its_place(served: ServedWarehouse) -> None:
    found = served.done("GET", ORDERS)
    assert (found["database"], found["name"], found["isExternal"]) == ("shop", "orders", False)
    assert found["path"] == f"{served.warehouse}/shop.db/orders"
    assert found["schema"]["primaryKeys"] == ["id"]
    assert found["schema"]["fields"][0] == {"id": 0, "name": "id", "type": "BIGINT NOT NULL"}
    assert 0 < found["createdAt"] == found["updatedAt"]
    assert served.done("GET", f"tables/id/{found['id']}") == found


def test_the_id_is_another_one_for_another_table(served: ServedWarehouse, lake: tidelake.Catalog) -> None:
    first = served.done("GET", ORDERS)
    lake.alter_table("shop.orders", [tidelake.AddColumn("n", pa.int32())])
    assert served.done("GET", ORDERS)["id"] == first["id"]
    lake.drop_table("shop.orders")
    lake.create_table("shop.orders", SCHEMA)
    assert served.done("GET", ORDERS)["id"] != first["id"]


def test_an_answer_that_a_client_knows_is_not_sent_again(served: ServedWarehouse, orders: tidelake.Table) -> None:
    tag = served.ask("GET", ORDERS).headers["ETag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        answer = served.ask("GET", ORDERS, headers={"If-None-Match": known})
        assert (answer.status, answer.members, answer.headers["ETag"]) == (304, None, tag)
    served.done("POST", ORDERS, {"changes": [{"action": "updateComment", "comment": "new"}]})
    changed = served.ask("GET", ORDERS, headers={"If-None-Match": tag})
    assert (changed.status, changed.members["schema"]["comment"]) == (200, "new")


def names_after(served: ServedWarehouse, *changes: dict[str, Any]) -> list[str]:
    served.done("POST", ORDERS, {"changes": list(changes)})
    return [field["name"] for field in served.done("GET", ORDERS)["schema"]["fields"]]


def test_all_places_of_a_move_are_understood(served: ServedWarehouse) -> None:
    def move(name: str, kind: str, other: str | None = None) -> dict[str, Any]:
        return {"fieldName": name, "referenceFieldName": other, "type": kind}

    def added(name: str, kind: str, other: str | None = None) -> dict[str, Any]:
        return {"action": "addColumn", "fieldNames": [name], "dataType": "INT", "move": move(name, kind, other)}

    def moved(name: str, kind: str, other: str | None = None) -> dict[str, Any]:
        return {"action": "updateColumnPosition", "move": move(name, kind, other)}

    assert names_after(served, added("a", "FIRST"), added("b", "AFTER", "a")) == ["a", "b", "id", "v"]
    assert names_after(served, added("c", "BEFORE", "a"), added("d", "LAST")) == ["c", "a", "b", "id", "v", "d"]
    assert names_after(served, moved("c", "LAST"), moved("d", "FIRST")) == ["d", "a", "b", "id", "v", "c"]
    assert names_after(served, moved("a", "BEFORE", "d"), moved("b", "AFTER", "v")) == ["a", "d", "id", "v", "b", "c"]
    rename = {"action": "renameColumn", "fieldNames": ["c"], "newName": "e"}
    assert names_after(served, rename, moved("a", "LAST")) == ["d", "id", "v", "b", "e", "a"]
    unchanged = served.done("GET", ORDERS)["schemaId"]
    assert names_after(served, {"action": "updateColumnPosition", "move": move("a", "LAST")})[-1] == "a"
    assert served.done("GET", ORDERS)["schemaId"] == unchanged


def test_a_new_type_keeps_or_sets_the_nullability(served: ServedWarehouse) -> None:
    def type_after(new: str, *, keeps: bool) -> str:
        change = {"action": "updateColumnType", "fieldNames": ["n"], "newDataType": new, "keepNullability": keeps}
        served.done("POST", ORDERS, {"changes": [change]})
        fields = {field["name"]: field["type"] for field in served.done("GET", ORDERS)["schema"]["fields"]}
        found: str = fields["n"]
        return found

    new = {"action": "addColumn", "fieldNames": ["n"], "dataType": "TINYINT"}
    option = {"action": "setOption", "key": "alter-column-null-to-not-null.disabled", "value": "false"}
    served.done("POST", ORDERS, {"changes": [new, option]})
    assert type_after("SMALLINT NOT NULL", keeps=True) == "SMALLINT"
    assert type_after("INT NOT NULL", keeps=False) == "INT NOT NULL"
    assert type_after("BIGINT", keeps=True) == "BIGINT NOT NULL"
    assert type_after("BIGINT", keeps=False) == "BIGINT"


def test_snapshots_are_found_by_id_by_tag_and_by_their_place(served: ServedWarehouse, orders: tidelake.Table) -> None:
    for number in (1, 2, 3):
        orders.upsert(rows(number))
    served.done("POST", f"{ORDERS}/tags", {"tagName": "second", "snapshotId": 2, "timeRetained": "36 h"})
    for version, expected in (("EARLIEST", 1), ("LATEST", 3), ("2", 2), ("second", 2)):
        assert served.done("GET", f"{ORDERS}/snapshots/{version}")["snapshot"]["id"] == expected
    latest = served.done("GET", f"{ORDERS}/snapshot")["snapshot"]
    assert (latest["snapshot"]["id"], latest["recordCount"], latest["fileCount"]) == (3, 3, -1)
    first = served.done("GET", f"{ORDERS}/snapshots?maxResults=2")
    assert [snapshot["id"] for snapshot in first["snapshots"]] == [1, 2]
    rest = served.done("GET", f"{ORDERS}/snapshots?maxResults=2&pageToken={first['nextPageToken']}")
    assert ([snapshot["id"] for snapshot in rest["snapshots"]], rest["nextPageToken"]) == ([3], None)
    tag = served.done("GET", f"{ORDERS}/tags/second")
    assert (tag["snapshot"]["id"], tag["tagTimeRetained"], tag["tagCreateTime"] > 0) == (2, "PT36H", True)
    assert served.done("GET", f"{ORDERS}/tags?tagNamePrefix=sec%25")["tags"] == ["second"]
    assert served.ask("POST", f"{ORDERS}/tags", {"tagName": "second"}).error == (409, "TAG", "second")
    served.done("DELETE", f"{ORDERS}/tags/second")
    assert served.done("GET", f"{ORDERS}/tags")["tags"] == []


def test_a_table_is_rolled_back_if_nobody_committed_since(served: ServedWarehouse, orders: tidelake.Table) -> None:
    for number in (1, 2, 3):
        orders.upsert(rows(number))
    to = {"instant": {"type": "snapshot", "snapshotId": 2}}
    late = served.ask("POST", f"{ORDERS}/rollback", {**to, "fromSnapshot": 2})
    assert late.error == (409, "SNAPSHOT", "3")
    assert "Latest snapshot 3 is not 2" in late.members["message"]
    served.done("POST", f"{ORDERS}/rollback", {**to, "fromSnapshot": 3})
    assert orders.scan().count() == 2
    served.done("POST", f"{ORDERS}/tags", {"tagName": "t", "snapshotId": 1})
    served.done("POST", f"{ORDERS}/rollback", {"instant": {"type": "tag", "tagName": "t"}})
    assert orders.scan().count() == 1


def test_branches_are_tables_until_the_table_is_forwarded_to_them(
    served: ServedWarehouse, orders: tidelake.Table, lake: tidelake.Catalog
) -> None:
    orders.upsert(rows(1))
    served.done("POST", f"{ORDERS}/tags", {"tagName": "t"})
    served.done("POST", f"{ORDERS}/branches", {"branch": "b", "fromTag": "t"})
    assert served.ask("POST", f"{ORDERS}/branches", {"branch": "b"}).error == (409, "BRANCH", "b")
    assert served.done("GET", f"{ORDERS}/branches") == {"branches": ["b"]}
    branch = served.done("GET", f"{ORDERS}%24branch_b")
    assert branch["name"] == "orders$branch_b"
    assert branch["id"] != served.done("GET", ORDERS)["id"]
    client = tidelake.open_catalog(served.warehouse, **served.options)
    client.table("shop.orders$branch_b").upsert(rows(2))
    assert (orders.scan().count(), lake.table("shop.orders$branch_b").scan().count()) == (1, 2)
    served.done("POST", f"{ORDERS}/branches/b/forward", {})
    assert lake.table("shop.orders").scan().count() == 2
    served.done("DELETE", f"{ORDERS}/branches/b")
    assert served.done("GET", f"{ORDERS}/branches") == {"branches": []}


def test_consumers_are_listed_moved_and_deleted(served: ServedWarehouse, orders: tidelake.Table) -> None:
    orders.upsert(rows(1))
    served.done("POST", f"{ORDERS}/consumers/reset", {"consumerId": "c", "nextSnapshotId": 1})
    assert served.done("GET", f"{ORDERS}/consumers")["consumers"] == [{"consumerId": "c", "nextSnapshot": 1}]
    served.done("POST", f"{ORDERS}/consumers/reset", {"consumerId": "c"})
    assert served.done("GET", f"{ORDERS}/consumers")["consumers"] == []


def test_partitions_are_those_of_the_latest_snapshot(served: ServedWarehouse, lake: tidelake.Catalog) -> None:
    columns = pa.schema([("day", pa.string()), ("hour", pa.int32()), ("n", pa.int64())])
    table = lake.create_table("shop.log", columns, partition_by=["day", "hour"])
    days = ["mon", "mon", "tue/wed", None]
    table.append(pa.table({"day": days, "hour": [1, 1, 2, 3], "n": range(4)}, columns))
    log = "databases/shop/tables/log/partitions"
    found = served.done("GET", log)["partitions"]
    expected = [("__DEFAULT_PARTITION__", "3", 1), ("mon", "1", 2), ("tue/wed", "2", 1)]
    assert [(p["spec"]["day"], p["spec"]["hour"], p["recordCount"]) for p in found] == expected
    assert all((p["fileCount"], p["done"]) == (1, False) and p["fileSizeInBytes"] > 0 for p in found)
    assert len(served.done("GET", f"{log}?partitionNamePattern=day%3Dmon%25")["partitions"]) == 1
    spec = {"day": "tue/wed", "hour": "2"}
    named = served.done("POST", f"{log}/list-by-names", {"specs": [spec, {"day": "sun", "hour": "1"}]})
    assert [p["spec"] for p in named["partitions"]] == [spec]
    assert served.done("POST", log, {"partitionSpecs": [spec]}) == {"created": [], "existed": [spec]}
    assert served.ask("POST", log, {"partitionSpecs": [{"day": "sun", "hour": "1"}]}).status == 501


def test_views_are_served_by_a_catalog_that_stores_them(tmp_path: Path) -> None:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "lock.enabled": "true"}
    lake = tidelake.open_catalog(str(tmp_path / "lake"), **options)
    lake.create_database("shop")
    with serving(str(tmp_path / "lake"), options=options) as served:
        client = tidelake.open_catalog(served.warehouse, **served.options)
        client.create_table("shop.t", SCHEMA, primary_key=["id"]).upsert(rows(1))
        assert lake.table("shop.t").scan().count() == 1
        client.create_view("shop.totals", SCHEMA, "select 1", dialects={"spark": "SELECT 1"}, comment="c")
        assert (client.list_views("shop"), lake.list_views("shop")) == (["totals"], ["totals"])
        assert client.view("shop.totals") == lake.view("shop.totals")
        schema = served.done("GET", "databases/shop/views/totals")["schema"]
        body = {"identifier": {"database": "shop", "object": "totals"}, "schema": schema}
        assert served.ask("POST", "databases/shop/views", body).error == (409, "VIEW", "totals")
        assert served.ask("POST", "databases/shop/tables", body | {"schema": {"fields": []}}).error[0] == 409
        details = served.done("GET", "databases/shop/view-details")["viewDetails"]
        assert [view["name"] for view in details] == ["totals"]
        assert served.done("GET", "views")["views"] == [{"database": "shop", "object": "totals"}]
        assert served.ask("POST", "databases/shop/views/totals", {"viewChanges": []}).status == 501
        client.rename_view("shop.totals", "shop.sums")
        client.drop_view("shop.sums")
        assert served.done("GET", "databases/shop/views")["views"] == []


def test_a_catalog_without_views_and_functions_has_none(served: ServedWarehouse) -> None:
    assert served.done("GET", "databases/shop/views") == {"views": [], "nextPageToken": None}
    assert served.done("GET", "views") == {"views": [], "nextPageToken": None}
    assert served.done("GET", "databases/shop/functions") == {"functions": [], "nextPageToken": None}
    assert served.done("GET", "databases/shop/function-details") == {"functionDetails": [], "nextPageToken": None}
    assert served.done("GET", "functions") == {"functions": [], "nextPageToken": None}


def test_clients_get_the_keys_of_the_store_only_if_the_server_gives_them(s3_server: S3Server) -> None:
    warehouse = f"s3://{s3_server.new_bucket()}/lake"
    tidelake.open_catalog(warehouse, **s3_server.options).create_database("shop")
    with serving(warehouse, options=s3_server.options, gives_credentials=True) as served:
        client = tidelake.open_catalog(warehouse, **served.options)
        client.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"}).upsert(rows(1))
        assert client.table("shop.orders").scan().count() == 1
        token = served.done("GET", f"{ORDERS}/token")
        assert token["token"] == s3_server.options
        assert token["expiresAtMillis"] > epoch_ms() + 3_600_000
    with serving(warehouse, options=s3_server.options) as served:
        config = served.done("GET", "/v1/config")
        assert config["overrides"] == {"prefix": "lake"}
        assert config["defaults"]["s3.endpoint"] == s3_server.endpoint
        assert not {"s3.access-key", "s3.secret-key"} & set(config["defaults"])
        own_keys = tidelake.open_catalog(warehouse, **served.options, **s3_server.options)
        assert own_keys.table("shop.orders").scan().count() == 1


@pytest.fixture
def encrypted(tmp_path: Path, orders: tidelake.Table) -> Iterator[tuple[ServedWarehouse, Path]]:
    """A server with TLS, and the certificate of its authority."""
    (tmp_path / "tls").mkdir()
    files = make_certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    with serving(str(tmp_path / "lake"), tls=context) as found:
        yield found, files.ca


def test_connections_are_encrypted(encrypted: tuple[ServedWarehouse, Path]) -> None:
    served, authority = encrypted
    trusted = ssl.create_default_context(cafile=authority)
    assert served.ask("GET", ORDERS, tls=trusted).members["name"] == "orders"
    with pytest.raises(ssl.SSLCertVerificationError):
        served.ask("GET", ORDERS, tls=ssl.create_default_context())
    with pytest.raises(ConnectionError):
        served.ask("GET", ORDERS)
