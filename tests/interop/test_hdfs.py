"""Tables in HDFS: Java and Tidelake commit to them at the same time, without a lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.commits_at_once import SCHEMA, check_that_each_commit_is_there_once
from tests.support.hdfs import Hdfs
from tests.support.java_oracle import JavaOracle

NAME: Final = "shop.orders"


@dataclass(frozen=True, slots=True)
class HdfsLake:
    warehouse: str

    @property
    def of_java(self) -> str:
        return json.dumps({"warehouse": self.warehouse})

    def open(self) -> tidelake.Catalog:
        return tidelake.open_catalog(self.warehouse)


@pytest.fixture
def lake(hdfs: Hdfs) -> HdfsLake:
    return HdfsLake(f"{hdfs.new_folder()}/lake")


def upsert(table: tidelake.Table, *rows: tuple[int, str]) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [row[0] for row in rows], "v": [row[1] for row in rows]}, SCHEMA))
        writer.commit()


@pytest.mark.interop
def test_java_reads_what_we_wrote_and_we_read_what_java_wrote(lake: HdfsLake, java_oracle: JavaOracle) -> None:
    catalog = lake.open()
    catalog.create_database("shop")
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"], options={"bucket": "1"})
    upsert(table, (1, "ours"), (2, "ours"))
    java_oracle.write(lake.of_java, NAME, [{"id": 2, "v": "java"}, {"id": 3, "v": "java"}])
    upsert(table, (3, "ours again"))
    table.compact()
    expected = [{"id": 1, "v": "ours"}, {"id": 2, "v": "java"}, {"id": 3, "v": "ours again"}]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    assert sorted(java_oracle.read(lake.of_java, NAME), key=lambda row: row["id"]) == expected
    assert catalog.list_tables("shop") == ["orders"]


@pytest.fixture
def two_javas(java_oracle: JavaOracle) -> Iterator[list[JavaOracle]]:
    other = JavaOracle()
    yield [java_oracle, other]
    other.close()


@pytest.mark.long
def test_commits_of_many_processes_and_of_java_are_all_there_once(lake: HdfsLake, two_javas: list[JavaOracle]) -> None:
    lake.open().create_database("shop")
    check_that_each_commit_is_there_once(lake, NAME, two_javas, count=10)
