"""Overwritten rows, for tables that return them as changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.int64(), nullable=False)])
ON = {"streaming-read-overwrite": "true", "streaming-read-append-overwrite": "true"}


@pytest.fixture(params=[True, False], ids=["with a primary key", "without"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> tidelake.Table:
    """Rows 1 to 3 in snapshot 1, row 2 is deleted in 2 where there is a key; in 3 row 9 is all there is."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    key = ["id", "day"] if request.param else []
    options = {"write-only": "true", **({"bucket": "1"} if key else {})}
    table = catalog.create_table("db.t", SCHEMA, primary_key=key, partition_by=["day"], options=options)
    write(table, [1, 2, 3])
    write(table, [2], kind=3) if key else write(table, [])
    with table.writer(overwrite=True) as writer:
        writer.write(pa.table({"id": [9], "day": [1]}, SCHEMA))
        writer.commit()
    return catalog.table("db.t", ON if request.param else {**ON})


def write(table: tidelake.Table, ids: list[int], kind: int = 0) -> None:
    with table.writer() as writer:
        rows = pa.table({"id": ids, "day": [1] * len(ids)}, SCHEMA)
        writer.write(rows.append_column("_VALUE_KIND", pa.array([kind] * len(ids), pa.int8())) if kind else rows)
        writer.commit(len(table.snapshots()) + 1)


def reported(batches: Any) -> list[tuple[int, int]]:
    return [
        pair
        for batch in batches
        for pair in zip(batch.rows["_VALUE_KIND"].to_pylist(), batch.rows["id"].to_pylist(), strict=True)
    ]


def without(table: tidelake.Table, *keys: str) -> tidelake.Table:
    options: Mapping[str, str] = {**ON, **dict.fromkeys(keys, "false")}
    return tidelake.Table(table.context.with_options(options))


def test_overwritten_rows_are_returned_as_changes_if_configured(table: tidelake.Table) -> None:
    batches = list(table.changes(start=3))
    gone = [(3, 1), (3, 3)] if table.primary_key else []
    assert reported(batches) == [*gone, (0, 9)]
    assert not any(batch.is_break for batch in batches)
    key = "streaming-read-overwrite" if table.primary_key else "streaming-read-append-overwrite"
    assert [batch.is_break for batch in without(table, key).changes(start=3)] == [True]


def test_following_resumes_within_overwritten_rows(table: tidelake.Table) -> None:
    batches = list(table.follow(start=3, end=3))
    for number, batch in enumerate(batches):
        assert batch.position is not None
        assert reported(table.follow(start=batch.position, end=3)) == reported(batches[number + 1 :])


def test_rows_that_expired_before_their_retraction_raise(table: tidelake.Table) -> None:
    table.expire(retain_max=1, retain_min=1, retain_ms=0)
    if table.primary_key:
        with pytest.raises(tidelake.SnapshotExpired, match="snapshot 2 no longer exists"):
            list(table.changes(start=3))
    else:
        assert reported(table.changes(start=3)) == [(0, 9)]


def test_readers_that_share_a_table_share_its_overwritten_rows(table: tidelake.Table) -> None:
    parts = [reported(table.follow(start=3, end=3, share=(index, 2))) for index in range(2)]
    assert sorted(parts[0] + parts[1]) == sorted(reported(table.changes(start=3)))
