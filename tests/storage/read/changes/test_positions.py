"""A reader of changes resumes exactly after the last batch that it processed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tidelake.storage.read.changes import change_reader
from tidelake.storage.read.changes.position import ChangePosition

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
Row = tuple[int, int, int, int]  # snapshot, kind, id, n


@pytest.fixture(scope="module")
def table() -> Iterator[tidelake.Table]:
    """Six snapshots of up to 23 rows in two buckets; the fourth is a compaction, changes come in batches of 5."""
    catalog = tidelake.open_catalog("memory://positions/lake")
    catalog.create_database("shop")
    options = {"bucket": "2", "changelog-producer": "input", "num-sorted-run.compaction-trigger": "50"}
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options=options)
    for number, rows in enumerate([23, 1, 7]):
        add(table, rows, number)
    table.compact(full=True)
    for number, rows in enumerate([12, 5]):
        add(table, rows, number + 10)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(change_reader, "BATCH_ROWS", 5)
        yield table
    catalog.drop_database("shop", cascade=True)


def add(table: tidelake.Table, rows: int, number: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": range(rows), "n": [number] * rows}, SCHEMA))
        writer.commit()


def rows_of(batch: tidelake.ChangeBatch) -> list[Row]:
    columns = (batch.rows.column(name).to_pylist() for name in ("_VALUE_KIND", "id", "n"))
    return [(batch.snapshot_id, *row) for row in zip(*columns, strict=True)]


def followed(table: tidelake.Table, **arguments: Any) -> list[tidelake.ChangeBatch]:
    return list(table.follow(end=6, **arguments))


STARTS = ["earliest", "latest-full", "compacted-full", "from-snapshot-full:2", 3]


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_only_the_last_batch_of_each_snapshot_is_marked(table: tidelake.Table, start: int | str) -> None:
    batches = followed(table, start=start)
    following = [batch.snapshot_id for batch in batches[1:]] + [None]
    assert [batch.is_last for batch in batches] == [
        batch.snapshot_id != after for batch, after in zip(batches, following, strict=True)
    ]
    assert any(not batch.is_last for batch in batches)


@settings(max_examples=examples(100))
@given(start=st.sampled_from(STARTS), stops=st.lists(st.integers(0, 12), max_size=6), as_text=st.booleans())
def test_a_read_stopped_anywhere_resumes_at_its_position_with_the_same_rows(
    table: tidelake.Table, start: int | str, stops: list[int], as_text: bool
) -> None:
    whole = [row for batch in followed(table, start=start) for row in rows_of(batch)]
    position: Any = start
    taken: list[Row] = []
    for stop in stops:
        for _, batch in zip(range(stop), table.follow(start=position, end=6), strict=False):
            taken += rows_of(batch)
            assert batch.position is not None
            position = str(batch.position) if as_text else batch.position
    taken += [row for batch in followed(table, start=position) for row in rows_of(batch)]
    assert taken == whole


def test_a_range_of_changes_has_positions_too(table: tidelake.Table) -> None:
    first, *rest = table.changes(start=1, end=3)
    assert first.position is not None
    again = list(table.follow(start=first.position, end=3))
    assert [rows_of(batch) for batch in again] == [rows_of(batch) for batch in rest]


def test_a_position_is_stored_as_text_that_starts_like_paimons(table: tidelake.Table) -> None:
    position = ChangePosition(7, rows=3, is_full=True, files_since_ms=5, after="manifest-list-1")
    assert ChangePosition.parse(str(position)) == position
    assert json.loads(str(ChangePosition(7))) == {"nextSnapshot": 7}


@pytest.mark.parametrize("text", ["{}", "{", '{"nextSnapshot": "x"}', '{"nextSnapshot": 1, "rows": -1}'])
def test_an_invalid_position_text_is_refused(table: tidelake.Table, text: str) -> None:
    with pytest.raises(tidelake.BadInput, match="is not a position"):
        table.follow(start=text)


@pytest.mark.parametrize("start", ["soon", "from-snapshot", "latest:3", "from-snapshot:x", "from-timestamp:noon", 0])
def test_an_invalid_start_is_refused(table: tidelake.Table, start: int | str) -> None:
    with pytest.raises(tidelake.BadInput, match=r"start|not a time"):
        table.follow(start=start)


# ---------------------------------------------------------------- a table that is not what it was


def test_after_a_rollback_a_reader_of_replaced_snapshots_gets_an_error(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"])
    for number in (1, 2):
        add(table, 1, number)
    follower = table.follower(start=1, consumer="c")
    assert [len(list(follower.step() or ())) for _ in range(2)] == [1, 1]
    last = follower.position
    assert last is not None
    snapshots = Path(table.location) / "snapshot"
    (snapshots / "snapshot-2").unlink()
    (snapshots / "LATEST").write_text("1")
    for number in (3, 4):
        add(table, 1, number)
    for reader in (follower, table.follower(start=last), table.follower(consumer="c")):
        with pytest.raises(tidelake.BadInput, match=r"snapshot 2 of shop\.t is not the snapshot that was read"):
            reader.step()


# ---------------------------------------------------------------- shares


@pytest.mark.parametrize("start", ["earliest", "latest-full"])
@pytest.mark.parametrize("key", [["id"], []], ids=["with a primary key", "without"])
def test_readers_that_share_a_table_read_every_change_once_between_them(
    tmp_path: Path, start: str, key: list[str]
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    options = {"bucket": "5" if key else "-1", "changelog-producer": "input" if key else "none"}
    shared = catalog.create_table("shop.t", SCHEMA, primary_key=key, options=options)
    for number in range(4):
        add(shared, 40, number)

    def read(**share: Any) -> list[Row]:
        return [row for batch in shared.follow(start=start, end=4, **share) for row in rows_of(batch)]

    parts = [read(share=(index, 3)) for index in range(3)]
    assert sorted(row for part in parts for row in part) == sorted(read())
    assert all(parts) or not key  # files are shared out by their names, which are drawn
    ids = [{row[2] for row in part} for part in parts]
    assert not key or not (ids[0] & ids[1] or ids[1] & ids[2] or ids[0] & ids[2])


@pytest.mark.parametrize("share", [(3, 3), (-1, 3), (0, 0), (1, 2, 3)], ids=str)
def test_an_invalid_subtask_is_refused(table: tidelake.Table, share: Any) -> None:
    with pytest.raises(tidelake.BadInput, match="share="):
        table.follow(share=share)
