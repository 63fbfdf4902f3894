"""What a table writer remembers of each bucket: its base, its next number, and what others changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.storage.model.snapshots.tables import with_lost_compaction
from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.write import open_buckets
from tidelake.storage.write.restored_table import restore_bucket
from tidelake.storage.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
ONE, OTHER = [1], [3]  # keys in different buckets


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    return catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "2"})


def rows(ids: list[int], name: str = "a") -> pa.Table:
    return pa.table({"id": ids, "name": [name] * len(ids)})


def commit(table: tidelake.Table, writer: TableWriter, identifier: int) -> tuple[int, list[CommitMessage]]:
    messages = writer.prepare_commit(identifier)
    snapshot_id = TableCommit(table.context, "ours").commit(Committable(identifier, messages))
    assert snapshot_id is not None
    writer.committed(snapshot_id)
    return snapshot_id, messages


def numbers(message: CommitMessage) -> list[tuple[int, int]]:
    return [(file.min_sequence_number, file.max_sequence_number) for file in message.increment.new_files]


def test_only_buckets_with_new_rows_get_the_snapshot_as_base(table: tidelake.Table) -> None:
    writer = TableWriter(table.context)
    writer.write(rows([*ONE, *OTHER]))
    commit(table, writer, 1)
    writer.write(rows(ONE))
    _, (second,) = commit(table, writer, 2)
    writer.write(rows([*ONE, *OTHER]))
    bases = {message.bucket: message.base.snapshot_id for message in writer.prepare_commit(3)}
    assert bases == {second.bucket: 2, BucketId(second.partition, 1 - second.bucket.bucket): 1}
    writer.abort()


def test_a_closed_bucket_continues_its_numbers_on_its_base(table: tidelake.Table) -> None:
    writer = TableWriter(table.context)
    writer.write(rows([*ONE, *ONE]))
    commit(table, writer, 1)
    assert writer.prepare_commit(2) == []  # closes the idle bucket
    assert writer.opens_buckets(writer.route(rows(ONE).to_batches()[0]))
    writer.write(rows(ONE))
    (message,) = writer.prepare_commit(3)
    assert (message.base.snapshot_id, numbers(message)) == (1, [(2, 2)])
    writer.abort()


def test_rows_that_follow_a_prepared_commit_belong_to_the_next_one(table: tidelake.Table) -> None:
    writer = TableWriter(table.context)
    writer.write(rows(ONE))
    messages = writer.prepare_commit(1)
    writer.write(rows(ONE, "b"))
    assert TableCommit(table.context, "ours").commit(Committable(1, messages)) == 1
    writer.committed(1)
    assert table.scan().to_arrow()["name"].to_pylist() == ["a"]
    _, (message,) = commit(table, writer, 2)
    assert (message.base.snapshot_id, numbers(message)) == (1, [(1, 1)])
    assert table.scan().to_arrow()["name"].to_pylist() == ["b"]
    writer.abort()


def test_an_overwrite_never_drops_rows_that_followed_it(table: tidelake.Table) -> None:
    """Its buckets are closed with it, and rows of the next overwrite are no part of it."""
    compacting = table.context.with_options({"changelog-producer": "full-compaction"})
    writer = TableWriter(compacting, replaces=True, compactor_factory=compact_manager_factory())
    writer.write(rows(ONE))
    messages = writer.prepare_commit(1)
    writer.write(rows(ONE, "b"))
    assert TableCommit(compacting, "ours").overwrite(Committable(1, messages)) == 1
    writer.committed(1)
    with pytest.raises(tidelake.TidelakeError, match=r"failed before \(CLOSED is not possible"):
        writer.write(rows(ONE, "c"))
    writer.abort()


def dropped(writer: TableWriter, messages: list[CommitMessage]) -> None:
    writer.dropped()


def lost(writer: TableWriter, messages: list[CommitMessage]) -> None:
    writer.restart_compaction([with_lost_compaction(message) for message in messages])
    writer.committed(1)


@pytest.mark.parametrize("outcome", [dropped, lost], ids=lambda outcome: outcome.__name__)
def test_a_bucket_whose_files_are_in_doubt_is_read_again_once(
    table: tidelake.Table, outcome: Callable[[TableWriter, list[CommitMessage]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[BucketId] = []
    restore = restore_bucket

    def watched(context: object, bucket: BucketId, snapshot: object) -> object:
        read.append(bucket)
        return restore(context, bucket, snapshot)  # type: ignore[arg-type]

    monkeypatch.setattr(open_buckets, "restore_bucket", watched)
    writer = TableWriter(table.context)
    writer.write(rows([*ONE, *OTHER]))
    messages = writer.prepare_commit(1)
    ours = TableCommit(table.context, "ours")
    ours.commit(Committable(1, messages))
    outcome(writer, messages)
    assert sorted(read) == sorted(message.bucket for message in messages)
    writer.write(rows(ONE))
    assert ours.commit(Committable(2, writer.prepare_commit(2))) == 2
    writer.committed(2)
    assert len(read) == 2
    writer.abort()


def test_numbers_from_another_process_are_never_lowered(table: tidelake.Table) -> None:
    writer = TableWriter(table.context)
    writer.write(rows([*ONE, *ONE]))
    _, (message,) = commit(table, writer, 1)
    for number, expected in ((10, 10), (5, 11)):
        writer.set_next_sequence_numbers({message.bucket: number})
        writer.write(rows(ONE))
        (renumbered,) = writer.prepare_commit(expected)
        assert numbers(renumbered) == [(expected, expected)]
    writer.abort()
