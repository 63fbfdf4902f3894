"""The types of async methods. mypy checks `sample` (strictly, as all code); the tests check the names it relies on."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, assert_type

import pyarrow as pa
import pytest

from tidelake import aio
from tidelake.compaction.report import CompactionReport
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.explain import ExplainedFile


async def sample(catalog: aio.Catalog, schema: pa.Schema) -> None:
    """Code of a user. mypy must find an error at each `type: ignore`, and reports one that it does not need."""
    assert_type(await catalog.create_database("db", if_not_exists=True), None)
    table = assert_type(await catalog.create_table("db.t", schema, primary_key=["id"]), aio.Table)
    assert_type(await catalog.table("db.t"), aio.Table)
    assert_type(await catalog.list_tables("db"), list[str])
    assert_type(await catalog.clone_table(table, "db.copy", tag="first"), aio.Table)
    assert_type(await table.snapshots(), list[Snapshot])
    assert_type(await table.tags(), dict[str, Snapshot])
    assert_type(await table.create_tag("first", snapshot=1), Snapshot)
    assert_type(await table.truncate(), int | None)
    assert_type(await table.compact(full=True), CompactionReport)
    assert_type(table.changes(start=1), AsyncGenerator[ChangeBatch])
    scan = assert_type(await table.scan(columns=["id"], tag="first"), aio.Scan)
    assert_type(scan.select(["id"]), aio.Scan)
    assert_type(await scan.explain(), list[ExplainedFile])
    async with assert_type(table.writer(commit_user="me"), aio.Writer) as writer:
        assert_type(await writer.commit(7, watermark=1), int | None)
    assert_type(table.delete_tag, Callable[[str], Coroutine[Any, Any, int]])  # type: ignore[assert-type]  # it has a name

    await table.create_tag("first", snapsot=1)  # type: ignore[call-arg]
    await table.create_tag(1)  # type: ignore[arg-type]
    await table.scan(tag=1)  # type: ignore[arg-type]
    await catalog.create_table("db.t")  # type: ignore[call-arg]
    table.writer(user="me")  # type: ignore[call-arg]


@pytest.mark.parametrize("of", [aio.Catalog, aio.Table, aio.Scan, aio.Writer])
def test_help_shows_the_parameters_and_the_documentation_of_the_blocking_method(of: type) -> None:
    for name, member in vars(of).items():
        blocking = getattr(member, "__wrapped__", None)
        if blocking is not None:
            assert inspect.signature(member) == inspect.signature(blocking), name
            assert (inspect.getdoc(member) or "").startswith(inspect.getdoc(blocking) or ""), name


def test_the_documentation_of_a_call_that_writes_says_what_a_cancellation_does() -> None:
    assert (inspect.getdoc(aio.Table.create_tag) or "").endswith("If it is cancelled, it first completes the call.")
    assert inspect.getdoc(aio.Table.rename_tag) == "If it is cancelled, it first completes the call."
    assert "cancelled" not in (inspect.getdoc(aio.Table.scan) or "")


def test_calls_that_change_a_table_are_completed() -> None:
    """The names of the calls that a cancellation may abandon; a new one must be added here on purpose."""
    abandoned = {
        (of.__name__, name)
        for of in (aio.Catalog, aio.Table, aio.Scan, aio.Writer)
        for name, member in vars(of).items()
        if inspect.iscoroutinefunction(member) and "cancelled" not in (inspect.getdoc(member) or "")
    }
    assert abandoned - {("Writer", "__aenter__"), ("Writer", "__aexit__")} == {
        *(("Catalog", name) for name in ("list_databases", "list_tables", "table", "list_views", "view")),
        *(("Table", name) for name in ("scan", "snapshots", "tags", "branches", "statistics")),
        *(("Scan", name) for name in ("splits", "explain", "estimated_rows", "to_arrow", "count", "head")),
        *(("Scan", name) for name in ("to_pandas", "to_polars", "to_duckdb", "to_arrow_batch_reader")),
        *(("Scan", name) for name in ("row_range", "to_ray", "to_ray_dataset", "to_torch")),
    }
