"""A writer's commit messages: which files, and which snapshot their sequence numbers continue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from storage.write import table_writer
from storage.write.bucket_writer import PrimaryKeyBucketWriter
from storage.write.memory_budget import MemoryBudget
from storage.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Callable[[], tidelake.Table]:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    return lambda: catalog.table("shop.t")


def rows(ids: list[int], name: str) -> pa.Table:
    return pa.table({"id": ids, "name": [name] * len(ids)})


# Of two buckets, 1 lies in the one and 3 in the other.
ONE, OTHER = [1], [3]


def test_a_bucket_that_someone_else_wrote_meanwhile_is_a_conflict(table: Callable[[], tidelake.Table]) -> None:
    """Also when this writer committed to another bucket since: its numbers for this one are stale all the same."""
    with table().writer(commit_user="ours") as ours, table().writer(commit_user="theirs") as theirs:
        ours.write(rows([*ONE, *OTHER], "ours 1"))
        ours.commit(1)
        theirs.write(rows(ONE, "theirs"))
        theirs.commit(1)
        ours.write(rows(OTHER, "ours 2"))
        ours.commit(2)
        ours.write(rows(ONE, "ours 3"))
        with pytest.raises(tidelake.CommitConflict, match="snapshot 2 of another writer came after snapshot 1"):
            ours.commit(3)
    with table().writer(commit_user="ours") as again:
        again.write(rows(ONE, "ours 3"))
        assert again.commit(3) == 4
    assert table().scan().to_arrow().sort_by("id")["name"].to_pylist() == ["ours 3", "ours 2"]


def test_a_writer_that_failed_says_so_until_it_is_replaced(table: Callable[[], tidelake.Table], tmp_path: Path) -> None:
    writer = table().writer(commit_user="ours")
    writer.write(rows(ONE, "a"))
    (tmp_path / "shop.db" / "t" / "bucket-0").write_text("a file where the bucket's directory must be")
    (tmp_path / "shop.db" / "t" / "bucket-1").write_text("the same")
    with pytest.raises(OSError, match="bucket-"):
        writer.commit(1)
    with pytest.raises(tidelake.TidelakeError, match=r"failed before.*open a new writer"):
        writer.write(rows(ONE, "b"))
    writer.close()
    assert table().snapshots() == []


@pytest.mark.parametrize("batches", [1, 20], ids=["one large batch", "many batches"])
def test_a_table_larger_than_the_memory_is_taken_bit_by_bit(
    table: Callable[[], tidelake.Table], batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    rebalance = MemoryBudget.rebalance

    def watched(budget: MemoryBudget) -> None:
        held.append(budget.held_bytes)
        rebalance(budget)

    monkeypatch.setattr(MemoryBudget, "rebalance", watched)
    monkeypatch.setattr(table_writer, "_PIECE_BYTES", 10_000)
    whole = rows(list(range(2_000)), "x" * 100)
    limit_bytes = whole.nbytes // 10
    writer = TableWriter(table().context, memory=MemoryBudget(limit_bytes))
    writer.write(pa.Table.from_batches(whole.to_batches(max_chunksize=len(whole) // batches)))
    assert max(held) < 2 * limit_bytes
    assert sum(file.row_count for message in writer.prepare_commit(1) for file in message.new_files) == 2_000
    writer.abort()


def test_all_files_of_a_dropped_writer_are_tried_though_one_can_not_be_deleted(
    table: Callable[[], tidelake.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TableWriter(table().context)
    writer.write(rows([*ONE, *OTHER], "a"))
    tried: list[object] = []

    def abandon(bucket: object) -> None:
        tried.append(bucket)
        raise OSError("read-only")

    monkeypatch.setattr(PrimaryKeyBucketWriter, "abandon", abandon)
    with pytest.raises(OSError, match="read-only"):
        writer.abort()
    assert len(tried) == 2
    writer.abort()  # nothing is left to drop
