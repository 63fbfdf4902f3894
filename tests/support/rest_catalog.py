"""A small REST catalog server in memory: the part of Paimon's API that table clients use.

Tables lie in a folder, so that every client reads them. A commit is taken when it names the snapshot that is the
newest, and the server itself writes the file. Java's client talks to it as well as ours.

Source of the API: Java `rest/ResourcePaths.java`, `rest/requests`, `rest/responses`.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import pytest

import tidelake
from tidelake.errors import BadInput
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.type_json import field_from_json, type_from_json

PREFIX = "lakes/first"
TOKEN = "a token of the tests"


class Answer(Exception):
    """resource: the kind of the missing object, which Java's client reads."""

    def __init__(self, status: int, message: str, resource: str = "TABLE") -> None:
        super().__init__(message)
        self.status = status
        self.resource = resource


@dataclass
class RestCatalogServer:
    """folder: folder of the tables.
    page_size: of lists.
    ids: of tables, by name.
    statistics: partition statistics of each commit.
    prefix: of the catalog, sent to clients; None: not sent.
    headers: of the last request.
    views, format_tables: by name, as clients sent them.
    lose_answers: number of next commits whose response is dropped after the commit.
    credentials: for the files of any table, valid for a day. asked_for: table names of all requests for them.
    client_options: additional options of clients.
    """

    folder: Path
    page_size: int = 2
    ids: dict[str, str] = field(default_factory=dict)
    statistics: list[dict[str, Any]] = field(default_factory=list)
    overrides: dict[str, str] = field(default_factory=dict)
    lose_answers: int = 0
    prefix: str | None = PREFIX
    headers: dict[str, str] = field(default_factory=dict)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    format_tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    credentials: dict[str, str] = field(default_factory=dict)
    asked_for: list[str] = field(default_factory=list)
    client_options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = FileSystemCatalog(LocalFileIO(), str(self.folder))
        self.lock = threading.RLock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.handle(self, "GET")

            def do_POST(self) -> None:
                server.handle(self, "POST")

            def do_DELETE(self) -> None:
                server.handle(self, "DELETE")

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True, name="rest catalog").start()

    @property
    def options(self) -> dict[str, str]:
        """For a client."""
        return {
            "metastore": "rest",
            "uri": f"http://127.0.0.1:{self.http.server_address[1]}",
            "token.provider": "bear",
            "token": TOKEN,
            **self.client_options,
        }

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    # ------------------------------------------------------------ HTTP

    def handle(self, request: BaseHTTPRequestHandler, method: str) -> None:
        data = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.headers = dict(request.headers.items())
        parts = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = [unquote_plus(part) for part in parts.path.split("/") if part]
        try:
            if request.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Answer(401, "who are you?")
            with self.lock:
                body = self.answer(method, path, query, json.loads(data) if data else {})
            status = 200
        except Answer as e:
            body, status = (
                {"message": str(e), "code": e.status, "resourceType": e.resource},
                e.status,
            )
        except BadInput as e:
            body, status = {"message": str(e), "code": 400}, 400
        if path[-1] == "commit" and self.lose_answers > 0:
            self.lose_answers -= 1
            request.close_connection = True
            return
        answer = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    def answer(self, method: str, path: list[str], query: Mapping[str, str], body: dict[str, Any]) -> dict[str, Any]:
        if path == ["v1", "config"]:
            return {"defaults": {"prefix": self.prefix} if self.prefix else {}, "overrides": self.overrides}
        if path[:2] != ["v1", PREFIX]:
            raise Answer(404, f"no such resource: {path}")
        match (method, *path[2:]):
            case ("GET", "databases"):
                return self.page("databases", self.catalog.list_databases(), query)
            case ("POST", "databases"):
                if body["name"] in self.catalog.list_databases():
                    raise Answer(409, "there is one")
                self.catalog.create_database(body["name"])
                return {}
            case ("POST", "tables", "rename"):
                return self.rename(body)
            case ("POST", "views", "rename"):
                old, new = (f"{body[key]['database']}.{body[key]['object']}" for key in ("source", "destination"))
                self.refuse_taken(new)
                self.views[new] = self.views.pop(old)
                return {}
            case (_, "databases", database, *rest):
                if database not in self.catalog.list_databases():
                    raise Answer(404, f"no database {database}", "DATABASE")
                return self.of_database(method, database, rest, query, body)
        raise Answer(404, f"no such resource: {path}")

    def page(self, member: str, names: list[str], query: Mapping[str, str]) -> dict[str, Any]:
        rest = [name for name in names if name > query.get("pageToken", "")]
        page = rest[: self.page_size]
        return {member: page, "nextPageToken": page[-1] if len(rest) > len(page) else None}

    # ------------------------------------------------------------ databases and tables

    def of_database(
        self, method: str, database: str, rest: list[str], query: Mapping[str, str], body: dict[str, Any]
    ) -> dict[str, Any]:
        match (method, *rest):
            case ("GET",):
                return {"id": database, "name": database, "location": str(self.folder), "options": {}, **_AUDIT}
            case ("DELETE",):
                self.catalog.drop_database(database, cascade=True)
                return {}
            case ("GET", "tables"):
                more = [name.partition(".")[2] for name in self.format_tables if name.startswith(f"{database}.")]
                return self.page("tables", sorted([*self.catalog.list_tables(database), *more]), query)
            case ("POST", "tables"):
                return self.create(body)
            case ("GET", "views"):
                names = [name.partition(".")[2] for name in self.views if name.startswith(f"{database}.")]
                return self.page("views", sorted(names), query)
            case ("POST", "views"):
                name = f"{database}.{body['identifier']['object']}"
                self.refuse_taken(name)
                self.views[name] = body["schema"]
                return {}
            case ("GET", "views", name) if f"{database}.{name}" in self.views:
                return {"id": name, "name": name, "schema": self.views[f"{database}.{name}"], **_AUDIT}
            case ("DELETE", "views", name) if f"{database}.{name}" in self.views:
                del self.views[f"{database}.{name}"]
                return {}
            case (_, "views", name):
                raise Answer(404, f"no view {name}", "VIEW")
            case (_, "tables", name, *more):
                return self.of_table(method, f"{database}.{name}", more, body)
        raise Answer(404, f"no such resource: {rest}")

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        name = f"{body['identifier']['database']}.{body['identifier']['object']}"
        self.refuse_taken(name)
        schema = body["schema"]
        if schema["options"].get("type") in ("format-table", "object-table"):
            fields = [{**column, "id": n} for n, column in enumerate(schema["fields"])]
            self.format_tables[name] = {**schema, "fields": fields}
            return {}
        self.catalog.create_table(
            name,
            [field_from_json(column) for column in schema["fields"]],
            primary_key=schema["primaryKeys"],
            partition_by=schema["partitionKeys"],
            options=schema["options"],
            comment=schema.get("comment"),
        )
        return {}

    def refuse_taken(self, name: str) -> None:
        if self.catalog.table_exists(name) or name in self.views or name in self.format_tables:
            raise Answer(409, f"{name} is there")

    def rename(self, body: dict[str, Any]) -> dict[str, Any]:
        old, new = (f"{body[key]['database']}.{body[key]['object']}" for key in ("source", "destination"))
        if self.catalog.table_exists(new):
            raise Answer(409, f"{new} is there")
        self.catalog.rename_table(old, new)
        self.ids[new] = self.ids.pop(old, str(uuid.uuid4()))
        return {}

    def of_table(self, method: str, name: str, more: list[str], body: dict[str, Any]) -> dict[str, Any]:
        if name in self.format_tables:
            return self.of_format_table(method, name)
        if not self.catalog.table_exists(name):
            raise Answer(404, f"no table {name}")
        context = self.catalog.load(name)
        match (method, *more):
            case ("GET",):
                return self.described(context, name)
            case ("GET", "token"):
                self.asked_for.append(name)
                return {"token": self.credentials, "expiresAtMillis": epoch_ms() + 86_400_000}
            case ("POST",):
                self.catalog.alter_table(name, [_change(change) for change in body["changes"]])
                return {}
            case ("DELETE",):
                self.catalog.drop_table(name)
                self.ids.pop(name, None)
                return {}
            case ("POST", "commit"):
                return {"success": self.commit(context, name, body)}
            case ("GET", "snapshot"):
                latest = context.snapshots.latest()
                if latest is None:
                    raise Answer(404, "no snapshot", "SNAPSHOT")
                counts = {"recordCount": 0, "fileSizeInBytes": 0, "fileCount": 0, "lastFileCreationTime": 0}
                return {"snapshot": {"snapshot": latest.to_members(), **counts}}
        raise Answer(404, f"no such resource: {more}")

    def of_format_table(self, method: str, name: str) -> dict[str, Any]:
        if method == "DELETE":
            del self.format_tables[name]
            return {}
        database, _, table = name.partition(".")
        schema = self.format_tables[name]
        own = schema["options"].get("path")
        return {
            "id": self.ids.setdefault(name, str(uuid.uuid4())),
            "database": database,
            "name": table,
            "path": own or f"{self.folder}/{database}.db/{table}",
            "isExternal": own is not None,
            "schemaId": 0,
            "schema": schema,
            **_AUDIT,
        }

    def described(self, context: TableContext, name: str) -> dict[str, Any]:
        schema = context.schema
        described = json.loads(schema.to_json())
        members = ("fields", "partitionKeys", "primaryKeys", "options", "comment")
        return {
            "id": self.ids.setdefault(name, str(uuid.uuid4())),
            "database": name.partition(".")[0],
            "name": name.partition(".")[2],
            "path": context.location,
            "isExternal": False,
            "schemaId": schema.id,
            "schema": {member: described.get(member) for member in members},
            **_AUDIT,
        }

    def commit(self, context: TableContext, name: str, body: dict[str, Any]) -> bool:
        if body.get("tableId") not in (None, self.ids.setdefault(name, str(uuid.uuid4()))):
            raise Answer(404, f"another table is {name} now")
        snapshot = Snapshot.from_json(json.dumps(body["snapshot"]).encode(), "a request")
        newest = context.snapshots.latest()
        if newest == snapshot:
            return True
        if (newest.uuid if newest else None) != body.get("baseSnapshotUuid"):
            return False
        self.statistics += body["statistics"]
        return context.snapshots.publish(snapshot)


_AUDIT = {"owner": "tests", "createdAt": 0, "createdBy": "tests", "updatedAt": 0, "updatedBy": "tests"}


def _change(message: Mapping[str, Any]) -> Any:
    path = tuple(message.get("fieldNames") or ())
    move = message.get("move") or {}
    place: dict[str, Any] = {
        "first": move.get("type") == "FIRST",
        "after": move["referenceFieldName"] if move.get("type") == "AFTER" else None,
    }
    match message["action"]:
        case "addColumn":
            return tidelake.AddColumn(path, type_from_json(message["dataType"]), message.get("comment"), **place)
        case "dropColumn":
            return tidelake.DropColumn(path)
        case "renameColumn":
            return tidelake.RenameColumn(path, message["newName"])
        case "updateColumnType":
            return tidelake.UpdateColumnType(path, type_from_json(message["newDataType"]))
        case "updateColumnNullability":
            return tidelake.UpdateColumnNullability(path, message["newNullability"])
        case "updateColumnComment":
            return tidelake.UpdateColumnDescription(path, message["newComment"])
        case "updateColumnDefaultValue":
            return tidelake.UpdateColumnDefault(path, message["newDefaultValue"])
        case "updateColumnPosition":
            before = move["referenceFieldName"] if move["type"] == "BEFORE" else None
            return tidelake.UpdateColumnPosition(move["fieldName"], before=before, **place)
        case "setOption":
            return tidelake.SetOption(message["key"], message["value"])
        case "removeOption":
            return tidelake.RemoveOption(message["key"])
        case "updateComment":
            return tidelake.UpdateComment(message["comment"])
    raise Answer(400, f"no such change: {message['action']}")


@pytest.fixture
def rest_catalog(tmp_path: Path) -> Iterator[RestCatalogServer]:
    server = RestCatalogServer(tmp_path / "served")
    yield server
    server.stop()
