"""Java and Tidelake use one JDBC catalog concurrently: names, schemas, and commits under its lock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.commits_at_once import COLUMNS, SCHEMA, check_that_each_commit_is_there_once
from tests.support.java_oracle import JavaOracle
from tests.support.postgresql import PostgresqlServer

NAME: Final = "shop.orders"


@dataclass(frozen=True, slots=True)
class SharedCatalog:
    warehouse: str
    options: Mapping[str, str]

    @property
    def of_java(self) -> str:
        return json.dumps({**self.options, "warehouse": self.warehouse})

    def open(self) -> tidelake.Catalog:
        return tidelake.open_catalog(self.warehouse, **self.options)


def shared_catalog(folder: Path, uri: str, **more: str) -> SharedCatalog:
    lock = {"lock.enabled": "true", "lock-check-max-sleep": "200 ms"}
    return SharedCatalog(f"{folder}/lake", {"metastore": "jdbc", "uri": uri, **lock, **more})


@pytest.fixture
def on_sqlite(tmp_path: Path) -> SharedCatalog:
    return shared_catalog(tmp_path, f"jdbc:sqlite:{tmp_path}/catalog.db", **{"jdbc.journal_mode": "WAL"})


@pytest.fixture
def on_postgresql(tmp_path: Path, postgresql: PostgresqlServer) -> SharedCatalog:
    return shared_catalog(tmp_path, postgresql.new_database(), **{"jdbc.user": postgresql.user})


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def shared(request: pytest.FixtureRequest) -> SharedCatalog:
    found: SharedCatalog = request.getfixturevalue(f"on_{request.param.lower()}")
    return found


def upsert(table: tidelake.Table, number: int, text: str) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [number], "v": [text]}, SCHEMA))
        writer.commit()


@pytest.mark.needs("PostgreSQL")
def test_each_continues_tables_of_the_other(shared: SharedCatalog, java_oracle: JavaOracle) -> None:
    java = shared.of_java
    java_oracle.create(java, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    java_oracle.write(java, NAME, [{"id": 1, "v": "java"}])
    lake = shared.open()
    assert (lake.list_databases(), lake.list_tables("shop")) == (["shop"], ["orders"])
    upsert(lake.table(NAME), 2, "ours")
    lake.alter_table(NAME, [tidelake.AddColumn("amount", pa.int32())])
    java_oracle.write(java, NAME, [{"id": 3, "v": "java", "amount": 7}])
    rows = [(1, "java", None), (2, "ours", None), (3, "java", 7)]
    expected = [dict(zip(("id", "v", "amount"), row, strict=True)) for row in rows]
    assert lake.table(NAME).scan().to_arrow().sort_by("id").to_pylist() == expected
    assert sorted(java_oracle.read(java, NAME), key=lambda row: row["id"]) == expected


@pytest.mark.needs("PostgreSQL")
def test_created_renamed_and_dropped_tables_are_visible_to_both(shared: SharedCatalog, java_oracle: JavaOracle) -> None:
    java, lake = shared.of_java, shared.open()
    lake.create_database("shop")
    lake.create_table(NAME, SCHEMA, primary_key=["id"], options={"bucket": "1"})
    java_oracle.write(java, NAME, [{"id": 1, "v": "java"}])
    java_oracle.command("rename", java, NAME, "shop.renamed")
    assert lake.list_tables("shop") == ["renamed"]
    java_oracle.alter(java, "shop.renamed", {"add": {"name": "n", "type": "INT"}})
    assert lake.table("shop.renamed").schema.names == ["id", "v", "n"]
    lake.rename_table("shop.renamed", "shop.again")
    assert java_oracle.command("tables", java, "shop.any") == [{"table": "again"}]
    java_oracle.command("drop", java, "shop.again")
    assert lake.list_tables("shop") == []
    lake.drop_database("shop")


@pytest.fixture
def more_java(java_oracle: JavaOracle) -> Iterator[list[JavaOracle]]:
    """Two JVMs at once; `java_oracle` is the first."""
    second = JavaOracle()
    yield [java_oracle, second]
    second.close()


@pytest.mark.interop
@pytest.mark.needs("PostgreSQL")
@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_concurrent_commits_are_published_exactly_once(
    count: int, shared: SharedCatalog, more_java: list[JavaOracle]
) -> None:
    check_that_each_commit_is_there_once(shared, NAME, more_java, count)
