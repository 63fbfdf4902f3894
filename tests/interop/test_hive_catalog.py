"""Java and Tidelake use one Hive metastore concurrently: names, schemas, partitions, and commits under its lock."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import tidelake
from tests.interop.commits_at_once import COLUMNS, SCHEMA, check_that_each_commit_is_there_once
from tests.support.hive_metastore import HiveLake, HiveMetastore
from tests.support.java_oracle import JavaOracle


def upsert(table: tidelake.Table, number: int, text: str) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [number], "v": [text]}, SCHEMA))
        writer.commit()


@pytest.mark.interop
def test_each_continues_tables_of_the_other(hive_lake: HiveLake, java_with_hive: JavaOracle) -> None:
    java, name = hive_lake.of_java, hive_lake.name("orders")
    java_with_hive.create(java, name, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    java_with_hive.write(java, name, [{"id": 1, "v": "java"}])
    lake = hive_lake.open()
    assert lake.list_tables(hive_lake.database) == ["orders"]
    upsert(lake.table(name), 2, "ours")
    lake.alter_table(name, [tidelake.AddColumn("amount", pa.int32())])
    java_with_hive.write(java, name, [{"id": 3, "v": "java", "amount": 7}])
    rows = [(1, "java", None), (2, "ours", None), (3, "java", 7)]
    expected = [dict(zip(("id", "v", "amount"), row, strict=True)) for row in rows]
    assert lake.table(name).scan().to_arrow().sort_by("id").to_pylist() == expected
    assert sorted(java_with_hive.read(java, name), key=lambda row: row["id"]) == expected


@pytest.mark.interop
def test_created_renamed_and_dropped_tables_are_visible_to_both(
    hive_lake: HiveLake, java_with_hive: JavaOracle
) -> None:
    java, lake = hive_lake.of_java, hive_lake.open()
    lake.create_database(hive_lake.database)
    lake.create_table(hive_lake.name("orders"), SCHEMA, primary_key=["id"], options={"bucket": "1"})
    java_with_hive.write(java, hive_lake.name("orders"), [{"id": 1, "v": "java"}])
    java_with_hive.command("rename", java, hive_lake.name("orders"), hive_lake.name("renamed"))
    assert lake.list_tables(hive_lake.database) == ["renamed"]
    java_with_hive.alter(java, hive_lake.name("renamed"), {"add": {"name": "n", "type": "INT"}})
    assert lake.table(hive_lake.name("renamed")).schema.names == ["id", "v", "n"]
    lake.rename_table(hive_lake.name("renamed"), hive_lake.name("again"))
    assert java_with_hive.command("tables", java, hive_lake.name("any")) == [{"table": "again"}]
    java_with_hive.command("drop", java, hive_lake.name("again"))
    assert lake.list_tables(hive_lake.database) == []
    lake.drop_database(hive_lake.database)


@pytest.fixture
def more_java(java_with_hive: JavaOracle, hive_metastore: HiveMetastore) -> Iterator[list[JavaOracle]]:
    """Two JVMs at once; `java_with_hive` is the first."""
    second = JavaOracle(class_path=hive_metastore.class_path)
    yield [java_with_hive, second]
    second.close()


@pytest.mark.interop
@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_concurrent_commits_are_published_exactly_once(
    count: int, hive_lake: HiveLake, more_java: list[JavaOracle]
) -> None:
    check_that_each_commit_is_there_once(hive_lake, hive_lake.name("orders"), more_java, count)
