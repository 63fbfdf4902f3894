"""What the server refuses: the status and the body of each error, as Java's clients read them, and hostile requests."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.rest_server import TOKEN, ServedWarehouse, serving
from tests.tidelake.rest_server.conftest import ORDERS, create_orders, rows
from tidelake.rest_server import http_server
from tidelake.rest_server.http_server import Access

FIELD = {"id": 0, "name": "a", "type": "INT"}


def new_table(name: str, database: str = "shop", **schema: Any) -> dict[str, Any]:
    full = {"fields": [FIELD], "partitionKeys": [], "primaryKeys": [], "options": {}, **schema}
    return {"identifier": {"database": database, "object": name}, "schema": full}


def rename(old: str, new: str) -> dict[str, Any]:
    names = (dict(zip(("database", "object"), name.split("."), strict=True)) for name in (old, new))
    return dict(zip(("source", "destination"), names, strict=True))


def change(action: str, **members: Any) -> dict[str, Any]:
    return {"changes": [{"action": action, **members}]}


REFUSALS: dict[str, tuple[str, str, Any, tuple[int, str | None, str | None]]] = {
    "an unknown path": ("GET", "nothing", None, (404, None, None)),
    "another prefix": ("GET", "/v1/other/databases", None, (404, None, None)),
    "another warehouse": ("GET", "/v1/config?warehouse=/elsewhere", None, (404, None, None)),
    "a method that a path lacks": ("DELETE", "databases", None, (404, None, None)),
    "a missing database": ("GET", "databases/x", None, (404, "DATABASE", "x")),
    "tables of a missing database": ("GET", "databases/x/tables", None, (404, "DATABASE", "x")),
    "a table in a missing database": ("POST", "databases/x/tables", new_table("t", "x"), (404, "DATABASE", "x")),
    "dropping a missing database": ("DELETE", "databases/x", None, (404, "DATABASE", "x")),
    "an existing database": ("POST", "databases", {"name": "shop"}, (409, "DATABASE", "shop")),
    "a reserved database": ("POST", "databases", {"name": "sys"}, (400, None, None)),
    "options of a database": ("POST", "databases", {"name": "d", "options": {"comment": "c"}}, (501, None, None)),
    "altering a database": ("POST", "databases/shop", {"removals": [], "updates": {}}, (501, None, None)),
    "a missing table": ("GET", "databases/shop/tables/x", None, (404, "TABLE", "x")),
    "a missing branch of a table": ("GET", f"{ORDERS}%24branch_b", None, (404, "TABLE", "orders$branch_b")),
    "a system table": ("GET", f"{ORDERS}%24snapshots", None, (404, "TABLE", "orders$snapshots")),
    "a missing id of a table": ("GET", "tables/id/x", None, (404, "TABLE", "x")),
    "dropping a missing table": ("DELETE", "databases/shop/tables/x", None, (404, "TABLE", "x")),
    "an existing table": ("POST", "databases/shop/tables", new_table("orders"), (409, "TABLE", "orders")),
    "a table of another database": ("POST", "databases/shop/tables", new_table("t", "x"), (400, None, None)),
    "a table without columns": ("POST", "databases/shop/tables", new_table("t", fields=[]), (400, None, None)),
    "a column without a type": ("POST", "databases/shop/tables", new_table("t", fields=[{"id": 0}]), (400, None, None)),
    "an unknown type": (
        "POST", "databases/shop/tables", new_table("t", fields=[{**FIELD, "type": "WORD"}]), (400, None, None),
    ),
    "a table with a path": ("POST", "databases/shop/tables", new_table("t", options={"path": "/x"}), (501, None, None)),
    "a format table": (
        "POST", "databases/shop/tables", new_table("t", options={"type": "format-table"}), (501, None, None),
    ),
    "renaming a missing table": ("POST", "tables/rename", rename("shop.x", "shop.y"), (404, "TABLE", "x")),
    "renaming to an existing table": (
        "POST", "tables/rename", rename("shop.orders", "shop.orders"), (409, "TABLE", "orders"),
    ),
    "renaming into a missing database": ("POST", "tables/rename", rename("shop.orders", "x.y"), (404, "DATABASE", "x")),
    "altering a missing table": ("POST", "databases/shop/tables/x", change("x"), (404, "TABLE", "x")),
    "an unknown change": ("POST", ORDERS, change("x"), (400, None, None)),
    "a change without its members": ("POST", ORDERS, change("addColumn"), (400, None, None)),
    "a change of no column": ("POST", ORDERS, change("addColumn", fieldNames=[], dataType="INT"), (400, None, None)),
    "dropping no column": ("POST", ORDERS, change("dropColumn", fieldNames=[]), (400, None, None)),
    "dropping a number": ("POST", ORDERS, change("dropColumn", fieldNames=[5]), (400, None, None)),
    "moving no column": (
        "POST", ORDERS, change("updateColumnPosition", move={"fieldName": None, "type": "FIRST"}), (400, None, None),
    ),
    "dropping the primary key": ("POST", ORDERS, change("dropPrimaryKey"), (501, None, None)),
    "dropping a missing column": ("POST", ORDERS, change("dropColumn", fieldNames=["x"]), (404, "COLUMN", "x")),
    "dropping a key": ("POST", ORDERS, change("dropColumn", fieldNames=["id"]), (400, None, None)),
    "adding an existing column": (
        "POST", ORDERS, change("addColumn", fieldNames=["v"], dataType="INT"), (409, "COLUMN", "v"),
    ),
    "renaming to an existing column": (
        "POST", ORDERS, change("renameColumn", fieldNames=["v"], newName="id"), (409, "COLUMN", "id"),
    ),
    "an impossible option": ("POST", ORDERS, change("setOption", key="bucket", value="many"), (400, None, None)),
    "replacing a table": ("POST", f"{ORDERS}/replace", {"schema": {}}, (501, None, None)),
    "registering a table": ("POST", "databases/shop/register", {}, (501, None, None)),
    "rolling back a schema": ("POST", f"{ORDERS}/rollback-schema", {"schemaId": 0}, (501, None, None)),
    "rules for rows": ("POST", f"{ORDERS}/auth", {"select": None}, (501, None, None)),
    "credentials": ("GET", f"{ORDERS}/token", None, (501, None, None)),
    "a snapshot of a table without one": ("GET", f"{ORDERS}/snapshot", None, (404, "SNAPSHOT", "latest")),
    "a missing snapshot": ("GET", f"{ORDERS}/snapshots/9", None, (404, "SNAPSHOT", "9")),
    "a number that no snapshot has": ("GET", f"{ORDERS}/snapshots/{10**30}", None, (404, "SNAPSHOT", str(10**30))),
    "a tag as a missing snapshot": ("GET", f"{ORDERS}/snapshots/t", None, (404, "SNAPSHOT", "t")),
    "rolling back to a missing snapshot": (
        "POST", f"{ORDERS}/rollback", {"instant": {"type": "snapshot", "snapshotId": 9}}, (404, "SNAPSHOT", "9"),
    ),
    "rolling back to a missing tag": (
        "POST", f"{ORDERS}/rollback", {"instant": {"type": "tag", "tagName": "t"}}, (404, "TAG", "t"),
    ),
    "a missing tag": ("GET", f"{ORDERS}/tags/t", None, (404, "TAG", "t")),
    "deleting a missing tag": ("DELETE", f"{ORDERS}/tags/t", None, (404, "TAG", "t")),
    "a tag of a missing snapshot": (
        "POST", f"{ORDERS}/tags", {"tagName": "t", "snapshotId": 9}, (404, "SNAPSHOT", "9"),
    ),
    "a tag of no snapshot": ("POST", f"{ORDERS}/tags", {"tagName": "t"}, (404, "SNAPSHOT", "None")),
    "a branch of a missing tag": (
        "POST", f"{ORDERS}/branches", {"branch": "b", "fromTag": "t"}, (404, "TAG", "t"),
    ),
    "deleting a missing branch": ("DELETE", f"{ORDERS}/branches/b", None, (404, "BRANCH", "b")),
    "forwarding to a missing branch": ("POST", f"{ORDERS}/branches/b/forward", {}, (404, "BRANCH", "b")),
    "a consumer at a missing snapshot": (
        "POST", f"{ORDERS}/consumers/reset", {"consumerId": "c", "nextSnapshotId": 9}, (404, "SNAPSHOT", "9"),
    ),
    "partitions of a table without": ("GET", f"{ORDERS}/partitions", None, (501, None, None)),
    "partitions by a filter": ("POST", f"{ORDERS}/partitions/list-by-filter", {"filter": ""}, (501, None, None)),
    "partitions that are done": ("POST", f"{ORDERS}/partitions/mark", {"specs": []}, (501, None, None)),
    "renaming a branch": ("POST", f"{ORDERS}/branches/b/rename", {"toBranch": "c"}, (501, None, None)),
    "permissions": ("POST", "permissions/grant", {"permissions": []}, (501, None, None)),
    "dropping partitions": ("POST", f"{ORDERS}/partitions/drop", {"partitionSpecs": []}, (501, None, None)),
    "a missing view": ("GET", "databases/shop/views/x", None, (404, "VIEW", "x")),
    "a view": (
        "POST",
        "databases/shop/views",
        {"identifier": {"database": "shop", "object": "w"}, "schema": {"fields": [FIELD], "query": "select 1"}},
        (501, None, None),
    ),
    "a missing function": ("GET", "databases/shop/functions/f", None, (404, "FUNCTION", "f")),
    "a function": ("POST", "databases/shop/functions", {"name": "f"}, (501, None, None)),
}  # fmt: skip


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(tmp_path_factory.mktemp("served") / "lake")
    create_orders(tidelake.open_catalog(folder))
    with serving(folder) as found:
        yield found


@pytest.mark.parametrize(("method", "path", "body", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_the_kind_of_the_thing_and_its_name(
    method: str, path: str, body: Any, expected: tuple[int, str | None, str | None], module_server: ServedWarehouse
) -> None:
    assert module_server.ask(method, path, body).error == expected
    assert module_server.done("GET", ORDERS)["schemaId"] == 0


HOSTILE_PATHS = [
    "databases/..%2f..%2fetc/tables",
    "databases/../../../etc/passwd/tables",
    "databases/shop/tables/..",
    "databases/shop/tables/%2e%2e",
    "databases/shop/tables/..%2f..%2fother.db%2ft",
    "databases/shop/tables/%00",
    "databases/shop/tables/orders%24branch_..%2f..%2fx",
    "databases/shop/tables/" + "a" * 300,
    "databases/shop.db%2forders/tables/schema",
    f"{ORDERS}/snapshots/..%2f..%2fschema%2fschema-0",
    f"{ORDERS}/tags/..%2fsnapshot%2fsnapshot-1",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_no_path_leaves_the_warehouse(path: str, module_server: ServedWarehouse) -> None:
    assert module_server.ask("GET", path).status in (400, 404)


HOSTILE_NAMES = ["../x", "a/b", "..", "", " ", "a\0b", "x" * 300, "orders$branch_b", "orders$snapshots"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_name_leaves_the_warehouse(name: str, module_server: ServedWarehouse) -> None:
    root = Path(module_server.warehouse)
    before = sorted(root.rglob("*"))
    outside = sorted(root.parent.iterdir())
    assert module_server.ask("POST", "databases/shop/tables", new_table(name)).status in (400, 409)
    if "$" not in name:
        assert module_server.ask("POST", "databases", {"name": name}).status == 400
    if "$" not in name and name != "..":  # the names of these files have a prefix: tag-..
        for resource, member in (("tags", "tagName"), ("branches", "branch")):
            assert module_server.ask("POST", f"{ORDERS}/{resource}", {member: name}).status in (400, 404)
        reset = {"consumerId": name, "nextSnapshotId": None}
        assert module_server.ask("POST", f"{ORDERS}/consumers/reset", reset).status == 400
    named = {"source": {"database": "shop", "object": "orders"}, "destination": {"database": "shop", "object": name}}
    assert module_server.ask("POST", "tables/rename", named).status in (400, 409)
    assert (sorted(root.rglob("*")), sorted(root.parent.iterdir())) == (before, outside)


def test_names_in_any_script_work(served: ServedWarehouse, lake: tidelake.Catalog) -> None:
    database, table = "магазин 1+1", "注文%2f%"
    served.done("POST", "databases", {"name": database})
    served.done("POST", "databases/%D0%BC%D0%B0%D0%B3%D0%B0%D0%B7%D0%B8%D0%BD+1%2B1/tables", new_table(table, database))
    path = "databases/%D0%BC%D0%B0%D0%B3%D0%B0%D0%B7%D0%B8%D0%BD%201%2B1/tables/%E6%B3%A8%E6%96%87%252f%25"
    assert served.done("GET", path)["name"] == table
    assert lake.list_tables(database) == [table]


def test_a_type_nested_too_deeply_is_refused(module_server: ServedWarehouse) -> None:
    nested: Any = "INT"
    for _ in range(400):
        nested = {"type": "ARRAY", "element": nested}
    body = new_table("t", fields=[{**FIELD, "type": nested}])
    assert module_server.ask("POST", "databases/shop/tables", body).status in (400, 200)
    raw = json.dumps(new_table("t2", fields=[{**FIELD, "type": "@"}])).replace(
        '"@"', '{"type":"ARRAY","element":' * 50_000
    )
    assert module_server.ask("POST", "databases/shop/tables", raw=raw.encode()).error[0] == 400


def test_a_huge_body_is_refused_before_it_is_read(module_server: ServedWarehouse) -> None:
    answer = module_server.ask("POST", "databases/shop/tables", raw=b" " * (17 << 20))
    assert answer.error[0] == 413


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[]", b"null", b'{"identifier": 1}'], ids=repr)
def test_a_bad_body_is_refused(raw: bytes, module_server: ServedWarehouse) -> None:
    assert module_server.ask("POST", "databases/shop/tables", raw=raw).error == (400, None, None)


def test_a_body_that_never_comes_is_not_waited_for(served: ServedWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_BODY_TIMEOUT_S", 0.05)
    head = f"POST /v1/lake/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(head.encode())
        assert b"HTTP/1.1 408" in connection.recv(4096)


def test_bytes_that_are_no_request_end_the_connection_only(module_server: ServedWarehouse) -> None:
    with socket.create_connection(("127.0.0.1", module_server.port), timeout=60) as connection:
        connection.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        assert b"400" in connection.recv(4096)
    assert module_server.done("GET", "databases")["databases"] == ["shop"]


# ------------------------------------------------------------ who may do what


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9"]
)
def test_a_wrong_token_is_refused_and_nothing_is_done(sent: str | None, served: ServedWarehouse) -> None:
    anonymous = ServedWarehouse(served.warehouse, served.port, None)
    headers = {} if sent is None else {"Authorization": sent}
    for method, path in (("GET", "/v1/config"), ("GET", "databases"), ("DELETE", ORDERS), ("GET", "nothing")):
        answer = anonymous.ask(method, path, headers=headers)
        assert answer.error == (401, None, None)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert served.done("GET", ORDERS)


def test_a_reading_token_reads_only(tmp_path: Path, orders: tidelake.Table) -> None:
    orders.upsert(rows(1))
    with serving(str(tmp_path / "lake"), access=Access(("all",), ("reads",))) as full:
        reader = ServedWarehouse(full.warehouse, full.port, "reads")
        assert reader.done("GET", f"{ORDERS}/snapshot")
        for method, path in (("DELETE", ORDERS), ("POST", "databases"), ("POST", f"{ORDERS}/commit")):
            assert reader.ask(method, path, {}).error == (403, None, None)
        for name in ("auth", "list-by-names"):  # a name that is also the end of a reading request
            for path in (f"databases/{name}", f"databases/shop/tables/{name}", f"{ORDERS}/branches/{name}"):
                assert reader.ask("POST", path, {"changes": []}).error == (403, None, None)
        assert reader.ask("POST", f"{ORDERS}/partitions/list-by-names", {"specs": []}).status == 501
        table = tidelake.open_catalog(reader.warehouse, **reader.options).table("shop.orders")
        assert table.scan().count() == 1
        with pytest.raises(tidelake.CommitConflict, match=r"nothing was published.*this token only allows reads"):
            table.upsert(rows(2))
        full.done("DELETE", ORDERS)


def test_a_server_for_reads_refuses_every_change(tmp_path: Path, orders: tidelake.Table) -> None:
    with serving(str(tmp_path / "lake"), access=Access(is_read_only=True)) as served:
        assert served.done("GET", ORDERS)["name"] == "orders"
        answer = served.ask("DELETE", ORDERS)
        assert answer.error == (403, None, None)
        assert "--read-only" in answer.members["message"]


def test_the_liveness_probe_needs_no_token(served: ServedWarehouse) -> None:
    assert ServedWarehouse(served.warehouse, served.port, None).ask("GET", "/live").members == {"live": True}
