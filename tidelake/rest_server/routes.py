"""Answers requests: finds the resource that a path names, and what the method does to it. It knows nothing of HTTP.

Source: Java `rest/ResourcePaths.java`.
"""

from __future__ import annotations

from tidelake.rest_server import requests
from tidelake.rest_server.answers import Members, Refusal, not_offered
from tidelake.rest_server.requests import Request
from tidelake.rest_server.served_catalog import PREFIX, ServedCatalog


def only_reads(request: Request) -> bool:
    """Return whether the request changes nothing. Some that read have a body."""
    match (request.method, *request.path):
        case ("GET", *_):
            return True
        case ("POST", _, _, "databases", _, "tables", _, "partitions", "list-by-names" | "list-by-filter"):
            return True
        case ("POST", _, _, "databases", _, "tables", _, "auth"):
            return True
    return False


def answer(catalog: ServedCatalog, request: Request) -> Members:
    """Do what the request says, and return the members of the answer.

    Raises Refusal, and the errors of the catalog and its tables.
    """
    match (request.method, *request.path):
        case ("GET", "v1", "config"):
            return catalog.config(request.query)
        case (_, "v1", prefix, "databases", *rest) if prefix == PREFIX:
            return _databases(catalog, request, rest)
        case ("GET", "v1", prefix, "tables") if prefix == PREFIX:
            return catalog.list_all_tables(request.query)
        case ("GET", "v1", prefix, "tables", "id", table_id) if prefix == PREFIX:
            return catalog.table_of_id(table_id)
        case ("POST", "v1", prefix, "tables", "rename") if prefix == PREFIX:
            return catalog.rename_table(request.message(requests.Rename))
        case ("GET", "v1", prefix, "views") if prefix == PREFIX:
            return catalog.list_all_views(request.query)
        case ("POST", "v1", prefix, "views", "rename") if prefix == PREFIX:
            return catalog.rename_view(request.message(requests.Rename))
        case ("GET", "v1", prefix, "functions") if prefix == PREFIX:
            return catalog.list_functions("functions", None)
        case (_, "v1", prefix, "permissions", *_) if prefix == PREFIX:
            raise not_offered("permissions", "the server knows tokens, and no users", "Use --read-token-file")
    raise _no_resource(request)


def _databases(catalog: ServedCatalog, request: Request, path: list[str]) -> Members:
    """path: behind `databases`."""
    query, message = request.query, request.message
    match (request.method, *path):
        case ("GET",):
            return catalog.list_databases(query)
        case ("POST",):
            return catalog.create_database(message(requests.CreateDatabase))
        case ("GET", database):
            return catalog.describe_database(database)
        case ("POST", database):
            return catalog.alter_database(database)
        case ("DELETE", database):
            return catalog.drop_database(database)
        case ("GET", database, "tables"):
            return catalog.list_tables(database, query)
        case ("GET", database, "table-details"):
            return catalog.list_table_details(database, query)
        case ("POST", database, "tables"):
            return catalog.create_table(database, message(requests.CreateTable))
        case ("POST", database, "register"):
            raise not_offered(
                "registering a table by its path", "the name of a table says where it is", "Move its directory there"
            )
        case (_, database, "tables", name, *rest):
            return _tables(catalog, request, database, name, rest)
        case ("GET", database, "views"):
            return catalog.list_views(database, query)
        case ("GET", database, "view-details"):
            return catalog.list_view_details(database, query)
        case ("POST", database, "views"):
            return catalog.create_view(database, message(requests.CreateView))
        case ("GET", database, "views", name):
            return catalog.view(database, name)
        case ("POST", database, "views", name):
            return catalog.alter_view(database, name)
        case ("DELETE", database, "views", name):
            return catalog.drop_view(database, name)
        case ("GET", database, "functions"):
            return catalog.list_functions("functions", database)
        case ("GET", database, "function-details"):
            return catalog.list_functions("functionDetails", database)
        case ("POST", database, "functions"):
            return catalog.create_function(database)
        case ("GET" | "POST" | "DELETE", database, "functions", name):
            return catalog.function(database, name)
    raise _no_resource(request)


def _tables(catalog: ServedCatalog, request: Request, database: str, name: str, path: list[str]) -> Members:
    """path: behind the name of the table."""
    query, message = request.query, request.message
    match (request.method, *path):
        case ("GET",):
            return catalog.table(database, name).describe()
        case ("POST",):
            return catalog.alter_table(database, name, message(requests.AlterTable))
        case ("DELETE",):
            return catalog.drop_table(database, name)
        case ("GET", "token"):
            return catalog.credentials(database, name)
    table = catalog.table(database, name)
    match (request.method, *path):
        case ("POST", "commit"):
            return table.commit(message(requests.Commit))
        case ("POST", "rollback"):
            return table.roll_back(message(requests.Rollback))
        case ("GET", "snapshot"):
            return table.latest_snapshot()
        case ("GET", "snapshots"):
            return table.list_snapshots(query)
        case ("GET", "snapshots", version):
            return table.snapshot(version)
        case ("GET", "partitions"):
            return table.list_partitions(query)
        case ("POST", "partitions"):
            return table.add_partitions(message(requests.CreatePartitions).partition_specs)
        case ("POST", "partitions", "list-by-names"):
            return table.list_partitions_by_names(message(requests.ListPartitions).specs)
        case ("GET", "tags"):
            return table.list_tags(query)
        case ("POST", "tags"):
            return table.create_tag(message(requests.CreateTag))
        case ("GET", "tags", tag):
            return table.tag(tag)
        case ("DELETE", "tags", tag):
            return table.delete_tag(tag)
        case ("GET", "branches"):
            return table.list_branches()
        case ("POST", "branches"):
            return table.create_branch(message(requests.CreateBranch))
        case ("DELETE", "branches", branch):
            return table.delete_branch(branch)
        case ("POST", "branches", branch, "forward"):
            return table.fast_forward(branch)
        case ("POST", "branches", _, "rename"):
            raise not_offered(
                "renaming a branch", "its name is that of its directory, which writers have open", "Create another one"
            )
        case ("GET", "consumers"):
            return table.list_consumers(query)
        case ("POST", "consumers", "reset"):
            return table.reset_consumer(message(requests.ResetConsumer))
        case ("POST", "replace"):
            raise not_offered(
                "replacing a table", "its rows and its schema can't change in one step", "Drop and create it"
            )
        case ("POST", "rollback-schema"):
            raise not_offered("rolling back a schema", "rows may have been written with it", "Alter the table")
        case ("POST", "auth"):
            raise not_offered("option query-auth.enabled", "the server has no rules for rows and columns", "Unset it")
        case ("POST", "partitions", "list-by-filter"):
            raise not_offered("listing partitions by a filter", "the server lists them by name", "List all partitions")
        case ("POST", "partitions", "mark"):
            raise not_offered("marking partitions as done", "nothing stores the mark", "Use `table mark-done`")
        case ("POST", "partitions", "drop"):
            raise not_offered(
                "dropping partitions in the catalog", "they are those of the snapshots", "Delete their rows"
            )
    raise _no_resource(request)


def _no_resource(request: Request) -> Refusal:
    return Refusal(404, f"the server has no resource {request.method} /{'/'.join(request.path)}")
