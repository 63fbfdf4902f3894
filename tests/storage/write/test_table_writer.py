"""The commit messages of a writer: their files, and the snapshot that their sequence numbers continue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread, current_thread

import pyarrow as pa
import pytest

import tidelake
from tests.storage.model.snapshots.tables import with_lost_compaction
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.write import memory_budget, open_buckets
from tidelake.storage.write.bucket_writer import PrimaryKeyBucketWriter
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Callable[[], tidelake.Table]:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    return lambda: catalog.table("shop.t")


def rows(ids: list[int], name: str) -> pa.Table:
    return pa.table({"id": ids, "name": [name] * len(ids)})


# Key 1 is in one of the two buckets, and key 3 in the other.
ONE, OTHER = [1], [3]


def test_rows_are_newer_than_concurrent_rows_of_another_writer(
    table: Callable[[], tidelake.Table],
) -> None:
    """Also if this writer committed to another bucket since: its numbers for this bucket are still stale, and are
    replaced by numbers above those of the other writer.
    """
    with table().writer(commit_user="ours") as ours, table().writer(commit_user="theirs") as theirs:
        ours.write(rows([*ONE, *OTHER], "ours 1"))
        ours.commit(1)
        theirs.write(rows(ONE, "theirs"))
        theirs.commit(1)
        ours.write(rows(OTHER, "ours 2"))
        ours.commit(2)
        ours.write(rows(ONE, "ours 3"))
        assert ours.commit(3) == 4
    assert table().scan().to_arrow().sort_by("id")["name"].to_pylist() == ["ours 3", "ours 2"]


def test_a_failed_writer_raises_until_it_is_replaced(table: Callable[[], tidelake.Table], tmp_path: Path) -> None:
    writer = table().writer(commit_user="ours")
    writer.write(rows(ONE, "a"))
    (tmp_path / "shop.db" / "t" / "bucket-0").write_text("a file where the bucket's directory must be")
    (tmp_path / "shop.db" / "t" / "bucket-1").write_text("the same")
    with pytest.raises(OSError, match="bucket-"):
        writer.commit(1)
    with pytest.raises(tidelake.TidelakeError, match=r"failed before.*Open a new writer"):
        writer.write(rows(ONE, "b"))
    writer.close()
    assert table().snapshots() == []


@pytest.mark.parametrize(
    ("options", "primary_key"),
    [
        pytest.param({"bucket": "2"}, ["id"], id="primary key"),
        pytest.param({"bucket": "2", "changelog-producer": "input"}, ["id"], id="primary key with a changelog"),
        pytest.param({"bucket": "2", "bucket-key": "id"}, [], id="append"),
    ],
)
def test_when_one_bucket_fails_the_files_of_all_are_deleted(
    tmp_path: Path, options: dict[str, str], primary_key: list[str]
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", SCHEMA, primary_key=primary_key, options=options)
    writer = TableWriter(table.context)
    (batch,) = rows([*ONE, *OTHER], "a").to_batches()
    first, last = [key for key, _ in writer.route(batch).parts]
    writer.write(batch)
    assert first.bucket < last.bucket
    (tmp_path / "shop.db" / "t" / f"bucket-{last.bucket}").write_text("a file where the bucket's directory must be")
    with pytest.raises(OSError, match="bucket-"):
        writer.prepare_commit(1)
    assert files_below(tmp_path), "the other bucket was written"
    with pytest.raises(tidelake.TidelakeError, match=r"failed before.*Open a new writer"):
        writer.prepare_commit(1)
    writer.abort()
    assert files_below(tmp_path) == []


def test_a_single_bucket_is_flushed_in_the_same_thread_at_each_commit(
    table: Callable[[], tidelake.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new thread for each commit took a quarter of the CPU time of a small commit."""
    flushed_in = list[Thread]()
    prepare = PrimaryKeyBucketWriter.prepare_commit

    def spied(writer: PrimaryKeyBucketWriter, **how: bool) -> None:
        flushed_in.append(current_thread())
        prepare(writer, **how)

    monkeypatch.setattr(PrimaryKeyBucketWriter, "prepare_commit", spied)
    with table().writer(commit_user="ours") as writer:
        writer.write(rows(ONE, "a"))
        writer.commit(1)
        writer.write(rows(ONE, "b"))
        writer.commit(2)
    assert len(flushed_in) == 2
    assert len(set(flushed_in)) == 1


def files_below(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("bucket-*/*")]


def test_a_commit_succeeds_if_rereading_the_table_fails_and_the_next_call_raises(
    table: Callable[[], tidelake.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no route to host")

    writer = TableWriter(table().context)
    writer.write(rows(ONE, "a"))
    messages = writer.prepare_commit(1)
    TableCommit(table().context, "etl").commit(Committable(1, messages))
    writer.restart_compaction([with_lost_compaction(message) for message in messages])
    monkeypatch.setattr(open_buckets, "restore_bucket", fail)
    writer.committed(1)
    with pytest.raises(tidelake.TidelakeError, match=r"failed before \(no route to host"):
        writer.write(rows(ONE, "b"))


def write_more(writer: TableWriter) -> None:
    writer.write(rows(ONE, "more"))


def flush(writer: TableWriter) -> None:
    writer.prepare_commit(2)


def forget(writer: TableWriter) -> None:
    """The rows in memory and in scratch files; data files are not this writer's any more."""
    writer.abort()


@pytest.mark.parametrize("meanwhile", [write_more, flush, forget], ids=lambda action: action.__name__)
def test_uncommitted_rows_are_readable_while_their_bucket_changes(
    table: Callable[[], tidelake.Table], meanwhile: Callable[[TableWriter], None]
) -> None:
    memory = MemoryBudget(1 << 30)
    writer = TableWriter(table().context, memory=memory)
    writer.write(rows(ONE, "in a file"))
    writer.prepare_commit(1)
    memory.limit_bytes = 1
    writer.write(rows(ONE, "in a scratch file"))
    memory.limit_bytes = 1 << 30
    writer.write(rows(ONE, "in memory"))
    reading = writer.uncommitted()
    seen = [next(reading)]
    other = Thread(target=meanwhile, args=(writer,), daemon=True)
    other.start()
    other.join(30)
    assert not other.is_alive(), "it waits for the reader"
    seen += reading
    assert [text for batch in seen for text in batch["name"].to_pylist()] == [
        "in a file",
        "in a scratch file",
        "in memory",
    ]
    writer.abort()


@pytest.mark.parametrize("batches", [1, 20], ids=["one large batch", "many batches"])
def test_a_table_larger_than_memory_is_written_in_slices(
    table: Callable[[], tidelake.Table], batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    rebalance = MemoryBudget.rebalance

    def watched(budget: MemoryBudget) -> None:
        held.append(budget.held_bytes)
        rebalance(budget)

    monkeypatch.setattr(MemoryBudget, "rebalance", watched)
    monkeypatch.setattr(memory_budget, "PIECE_BYTES", 10_000)
    whole = rows(list(range(2_000)), "x" * 100)
    limit_bytes = whole.nbytes // 10
    writer = TableWriter(table().context, memory=MemoryBudget(limit_bytes))
    writer.write(pa.Table.from_batches(whole.to_batches(max_chunksize=len(whole) // batches)))
    assert max(held) < 2 * limit_bytes
    assert sum(file.row_count for message in writer.prepare_commit(1) for file in message.increment.new_files) == 2_000
    writer.abort()


@pytest.mark.parametrize("has_key", [True, False], ids=["primary key", "append table"])
def test_a_full_buffer_is_flushed_however_much_memory_is_left(
    has_key: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not spilled either: a spill would only move its rows to the local disk."""
    monkeypatch.setattr(memory_budget, "OWNER_BYTES_MAX", 1000)
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    table = catalog.create_table(
        "shop.t", SCHEMA, primary_key=["id"] if has_key else [], options={"bucket": "1" if has_key else "-1"}
    )
    (tmp_path / "scratch").mkdir()
    writer = TableWriter(table.context, memory=MemoryBudget(1 << 30), spill_directory=str(tmp_path / "scratch"))
    for size in (10, 990):
        assert not writer.needs_room
        writer.add(writer.route(rows([1], "x" * size).combine_chunks().to_batches()[0]))
    assert writer.needs_room
    writer.make_room()
    assert not writer.needs_room
    assert list((tmp_path / "scratch").rglob("*.*")) == []
    writer.write(rows([2], "after it"))
    (message,) = writer.prepare_commit(1)
    assert [file.row_count for file in message.increment.new_files] == ([1, 1] if has_key else [3])
    writer.abort()


def test_all_files_of_a_dropped_writer_are_deleted_although_one_deletion_fails(
    table: Callable[[], tidelake.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TableWriter(table().context)
    writer.write(rows([*ONE, *OTHER], "a"))
    tried: list[object] = []

    def abort(bucket: object) -> None:
        tried.append(bucket)
        raise OSError("read-only")

    monkeypatch.setattr(PrimaryKeyBucketWriter, "abort", abort)
    with pytest.raises(OSError, match="read-only"):
        writer.abort()
    assert len(tried) == 2
    writer.abort()  # nothing is left to drop
