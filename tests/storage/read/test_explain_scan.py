"""A scan explains for each file why it is read or skipped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake import Predicate, Table, col
from tidelake.storage.read.explain import ExplainedFile
from tidelake.storage.read.scan import SkipReason

SCHEMA: Final = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int32(), nullable=False), ("v", pa.string())]
)
INDEXED: Final = {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "100"}


def table_of(options: Mapping[str, str], *, key: bool = True, lake: str | None = None) -> Table:
    catalog = tidelake.open_catalog(lake or f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    return catalog.create_table(
        "db.t",
        SCHEMA,
        primary_key=["id", "p"] if key else [],
        partition_by=["p"],
        options={"bucket": "1" if key else "-1", "write-only": "true", **options},
    )


def commit(table: Table, *rows: tuple[int, int, str]) -> None:
    with table.writer() as writer:
        writer.write(
            pa.table([pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)], schema=SCHEMA)
        )
        writer.commit()


def explained(table: Table, condition: Any) -> list[ExplainedFile]:
    """Files that are read are those that the plan names, but for those whose own index rules them out."""
    scan = table.scan(filter=condition)
    files = scan.explain()
    planned = {file.file_name for split in scan.splits() for file in split.files}
    assert {f.file_name for f in files if f.left_out is None} <= planned
    assert {f.file_name for f in files if f.left_out not in (None, SkipReason.INDEX)} & planned == set()
    assert len(files) == len({f.file_name for split in table.scan().splits() for f in split.files})
    return files


@pytest.mark.parametrize(
    ("options", "condition", "reasons"),
    [
        ({}, None, [None, None]),
        ({}, col("p") == 1, [None, SkipReason.PARTITION]),
        ({}, col("id") > 150, [SkipReason.KEY_RANGE, None]),
        ({}, (col("id") > 150) & (col("p") == 1), [SkipReason.KEY_RANGE, SkipReason.PARTITION]),
        ({}, col("v") > "m", [SkipReason.STATISTICS, None]),
        ({}, col("v") == "b", [None, SkipReason.STATISTICS]),
        ({**INDEXED, "metadata.stats-mode": "none"}, col("v") == "b", [SkipReason.INDEX, SkipReason.INDEX]),
        ({**INDEXED, "metadata.stats-mode": "none"}, col("v") == "y", [SkipReason.INDEX, None]),
        (
            {**INDEXED, "metadata.stats-mode": "none", "file-index.in-manifest-threshold": "1 b"},
            col("v") == "y",
            [SkipReason.INDEX, None],
        ),
        ({**INDEXED, "file-index.read.enabled": "false"}, col("v") == "b", [None, SkipReason.STATISTICS]),
    ],
    ids=str,
)
def test_a_skipped_file_is_reported_with_the_first_reason(
    options: Mapping[str, str], condition: Predicate | None, reasons: list[SkipReason | None]
) -> None:
    table = table_of(options)
    commit(table, (1, 1, "a"), (100, 1, "c"), (200, 2, "x"), (300, 2, "y"))
    assert [file.left_out for file in explained(table, condition)] == reasons


def test_files_to_be_merged_are_skipped_only_by_key() -> None:
    table = table_of({**INDEXED, "metadata.stats-mode": "none"})
    commit(table, (1, 1, "a"), (9, 1, "b"))
    commit(table, (1, 1, "c"), (9, 1, "d"))
    by_value = explained(table, col("v") == "nowhere")
    assert [(file.left_out, file.is_merged) for file in by_value] == [(None, True), (None, True)]
    assert [file.left_out for file in explained(table, col("id") == 10)] == [SkipReason.KEY_RANGE] * 2


def test_invisible_level_0_rows_are_not_read() -> None:
    table = table_of({"deletion-vectors.enabled": "true"})
    commit(table, (1, 1, "a"))
    (file,) = table.scan().explain()
    assert (file.left_out, file.reason) == (
        SkipReason.LEVEL_0,
        "left out: rows of level 0 are visible after they were compacted",
    )


def test_buckets_that_cannot_contain_the_key_are_skipped() -> None:
    table = table_of({"bucket": "8"})
    commit(table, *((i, 1, "a") for i in range(0, 1000, 7)))
    reasons = [file.left_out for file in explained(table, col("id") == 70)]
    assert (reasons.count(None), reasons.count(SkipReason.BUCKET)) == (1, 7)


def test_rows_that_are_deleted_or_ruled_out_are_counted(tmp_path: Path, call: Call) -> None:
    options = {"deletion-vectors.enabled": "true", "metadata.stats-mode": "none", "file-index.bitmap.columns": "v"}
    table = table_of(options, key=False, lake=str(tmp_path))
    commit(table, (1, 1, "a"), (2, 1, "b"), (3, 1, "b"))
    table.delete(col("id") == 2)
    (file,) = table.scan(filter=col("v") == "b").explain()
    assert (file.row_count, file.deleted_rows, file.index_rows) == (3, 1, 2)
    result = call("table", "scan", "db.t", "-w", tmp_path, "--where", "v = 'b'", "--explain")
    assert "1 are read, with 3 rows" in result.out
    assert "(level 0, 3 rows, 1 deleted): read: its index leaves 2 of 3 rows" in result.out
    result = call("table", "scan", "db.t", "-w", tmp_path, "--where", "v = 'z'", "--explain", "--json")
    (found,) = json.loads(result.out)["files"]
    assert (found["read"], found["leftOutBy"], found["partition"]) == (False, "index", "p=1")
