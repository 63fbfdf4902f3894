"""A task reads the records of a pipeline: for the tables of its batch, and for those that are to be created."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.spark.test_new_columns import KAFKA
from tidelake.errors import BadInput
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.spark.batch_rows import PipelineRecords, RawRecords, open_reader
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.ingest.tables.table_templates import TableTemplate, TableTemplates

FORMAT: Final = open_format("debezium-json", {})
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False)])
BROKEN: Final = b"{broken"


def change(table: str, id_: int) -> bytes:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table}
    return json.dumps({"op": "c", "before": None, "after": {"id": id_}, "source": source}).encode()


def records(*values: bytes, first: int = 0) -> pa.RecordBatch:
    """Of one topic and partition, a second apart."""
    place = {"topic": "shop", "partition": 0, "key": None}
    rows = [{**place, "offset": n, "timestamp": n * 1_000_000, "value": value} for n, value in enumerate(values, first)]
    return pa.RecordBatch.from_pylist(rows, KAFKA)


@dataclass
class Task:
    """names: of all tables that exist. due: those that the batch is not in yet."""

    lake: Path
    names: Collection[str]
    due: Collection[str]
    keeps_dead_letters: bool = True
    statistics: BatchStatistics = field(default_factory=BatchStatistics)

    def read(self, *batches: pa.RecordBatch) -> dict[str, list[int]]:
        """Return the ids of rows of each table."""
        catalog = tidelake.open_catalog(str(self.lake))
        catalog.create_database("lake", if_not_exists=True)
        for name in self.names:
            catalog.create_table(name, SCHEMA, options={"bucket": "-1"})
        many = TableSettings(name="lake.{table}")
        named = [TableTemplate(many).table_named(name) for name in self.names if name != "lake.single"]
        entries = [TableSettings(name="lake.single", match="orders"), *(one for one in named if one), many]
        assert bool(TableTemplates(entries))
        pipeline = PipelineRecords(FORMAT, tuple(entries), frozenset(self.names), self.keeps_dead_letters)
        one = RawRecords(FORMAT, ("*",), keeps_dead_letters=self.keeps_dead_letters)
        tables = [(catalog.table(name).context, one) for name in self.due]
        found: dict[str, list[int]] = {}
        reader = open_reader(tables, self.statistics, pipeline)
        for batch in batches:
            for number, rows in reader.rows(batch):
                found.setdefault(list(self.due)[number], []).extend(rows["id"].to_pylist())
        return found

    @property
    def first_records(self) -> dict[str, int]:
        """Source tables whose table is missing, with the offset of their first record."""
        return {str(source.table): record.offset for source, record in self.statistics.first_records.items()}


BATCH: Final = (change("orders", 1), change("items", 2), change("tags", 3), change("items", 4), change("tags", 5))


@pytest.mark.parametrize(
    ("exist", "due", "rows", "first"),
    [
        pytest.param([], [], {}, {"orders": 0, "items": 1, "tags": 2}, id="no table exists"),
        pytest.param(
            ["lake.single", "lake.items"],
            ["lake.single", "lake.items"],
            {"lake.single": [1], "lake.items": [2, 4]},
            {"tags": 2},
            id="one is missing",
        ),
        pytest.param(["lake.single", "lake.items"], [], {}, {"tags": 2}, id="the others have the batch already"),
        pytest.param(
            ["lake.single", "lake.items", "lake.tags"], ["lake.tags"], {"lake.tags": [3, 5]}, {}, id="a repeated batch"
        ),
    ],
)
def test_a_task_reads_the_rows_of_due_tables_and_the_first_records_of_missing_ones(
    exist: list[str], due: list[str], rows: dict[str, list[int]], first: dict[str, int], tmp_path: Path
) -> None:
    task = Task(tmp_path, exist, due)
    assert task.read(records(*BATCH)) == rows
    assert task.first_records == first


def test_of_all_tasks_the_oldest_record_of_a_source_table_counts(tmp_path: Path) -> None:
    parts = [records(*BATCH[start:stop], first=start) for start, stop in ((3, 5), (0, 3))]
    tasks = [Task(tmp_path, [], []) for _ in parts]
    for task, part in zip(tasks, parts, strict=True):
        task.read(part)
    merged = Task(tmp_path, [], [], statistics=BatchStatistics.merged(one.statistics.to_payload() for one in tasks))
    assert merged.first_records == {"orders": 0, "items": 1, "tags": 2}
    assert [record.batch().offsets.tolist() for record in merged.statistics.first_records.values()]


@pytest.mark.parametrize(
    ("exist", "due", "of_tables", "without"),
    [
        pytest.param([], [], {}, [0], id="no table exists"),
        pytest.param(["lake.items"], ["lake.items"], {0: [0]}, [], id="the first table that does"),
    ],
)
def test_a_bad_record_is_kept_also_before_any_table_exists(
    exist: list[str], due: list[str], of_tables: dict[int, list[int]], without: list[int], tmp_path: Path
) -> None:
    task = Task(tmp_path, exist, due)
    task.read(records(BROKEN, change("items", 1)))

    def offsets(lines: list[str]) -> list[Any]:
        return [json.loads(line)["offset"] for line in lines]

    merged = BatchStatistics.merged([task.statistics.to_payload()])
    assert {n: offsets(of.dead_letters) for n, of in merged.tables.items() if of.dead_letters} == of_tables
    assert offsets(merged.dead_letters) == without


def test_a_bad_record_that_is_not_tolerated_is_named_also_before_any_table_exists(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^topic shop, partition 0, offset 1: .*`errors.tolerance: all`"):
        Task(tmp_path, [], [], keeps_dead_letters=False).read(records(change("items", 1), BROKEN))
